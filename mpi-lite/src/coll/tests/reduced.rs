//! Data that is combined on its way.

use super::cases::{Inputs, each_case, spans};
use super::play::GARBAGE;
use super::{ADD, COMPOSE, play};
use crate::coll::{Blocks, Reduction, Schedule, Span, Team, allreduce, reduce, reduce_scatter, scan};

#[test]
fn the_root_has_what_was_reduced() {
    type Reduce = fn(&mut Schedule, Team, usize, Span, Option<Span>, Reduction);
    let algorithms: [(Reduce, _); 3] =
        [(reduce::binomial, ADD), (reduce::binomial, COMPOSE), (reduce::rabenseifner, ADD)];
    for (number, (algorithm, (operator, reduction))) in algorithms.iter().enumerate() {
        each_case(
            |ranks| ranks,
            |ranks, count, root, seed| {
                let inputs = Inputs::new(ranks, count * reduction.element, seed);
                for in_place in [false, true] {
                    let buffers = |rank| inputs.buffers(rank, in_place && rank == root, rank == root);
                    let outputs = play(ranks, seed, buffers, |schedule, team| {
                        let (input, output) = spans(schedule);
                        let is_root = team.me == root;
                        let input = if is_root && in_place { output } else { input };
                        algorithm(schedule, team, root, input, is_root.then_some(output), *reduction);
                    });
                    let expected = inputs.combined(0, ranks, *operator);
                    assert_eq!(outputs.run(*operator)[root], expected, "algorithm {number}, root {root}, seed {seed}");
                }
            },
        );
    }
}

#[test]
fn everybody_has_what_was_reduced() {
    type Allreduce = fn(&mut Schedule, Team, Span, Span, Reduction);
    let algorithms: [(Allreduce, _); 4] = [
        (allreduce::recursive_doubling, ADD),
        (allreduce::recursive_doubling, COMPOSE),
        (allreduce::rabenseifner, ADD),
        (allreduce::ring, ADD),
    ];
    for (number, (algorithm, (operator, reduction))) in algorithms.iter().enumerate() {
        each_case(
            |_| 4,
            |ranks, count, in_place, seed| {
                let in_place = in_place % 2 == 1;
                let inputs = Inputs::new(ranks, count * reduction.element, seed);
                let buffers = |rank| inputs.buffers(rank, in_place, true);
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    algorithm(schedule, team, if in_place { output } else { input }, output, *reduction);
                });
                let expected = inputs.combined(0, ranks, *operator);
                assert_eq!(
                    outputs.run(*operator),
                    vec![expected; ranks],
                    "algorithm {number}, {ranks} ranks, seed {seed}"
                );
            },
        );
    }
}

/// What comes first is no more than a half.
#[test]
fn algorithms_that_halve_take_room_for_the_larger_half() {
    let reduction = ADD.1;
    for (ranks, count) in [(1, 5), (2, 8), (2, 7), (4, 16), (8, 64), (8, 57)] {
        let (len, half) = (count * reduction.element, count.div_ceil(2) * reduction.element);
        let most = if ranks == 1 { 0 } else { half };
        for me in 0..ranks {
            let mut schedule = Schedule::new();
            let (input, output) = schedule.begin(len, len);
            allreduce::rabenseifner(&mut schedule, Team::all(me, ranks), input, output, reduction);
            assert!(schedule.scratch_len() <= most, "allreduce of {count}: {me} of {ranks}");
            let (input, output) = schedule.begin(len, len);
            reduce::rabenseifner(&mut schedule, Team::all(me, ranks), 0, input, Some(output), reduction);
            assert!(schedule.scratch_len() <= most, "reduce of {count}: {me} of {ranks}");
        }
    }
}

#[test]
fn each_has_its_block_of_what_was_reduced() {
    type ReduceScatter = fn(&mut Schedule, Team, Span, Span, Blocks, Reduction);
    let algorithms: [(ReduceScatter, _); 3] = [
        (reduce_scatter::pairwise, ADD),
        (reduce_scatter::pairwise, COMPOSE),
        (reduce_scatter::recursive_halving, ADD),
    ];
    for (number, (algorithm, (operator, reduction))) in algorithms.iter().enumerate() {
        each_case(
            |_| 4,
            |ranks, count, variant, seed| {
                // Equal blocks, and some without order.
                let lens: Vec<_> = (0..ranks)
                    .map(|rank| if variant < 2 { count } else { count * rank * 7 % 13 } * reduction.element)
                    .collect();
                let blocks = Blocks::Lens(&lens);
                let in_place = variant % 2 == 1;
                let inputs = Inputs::new(ranks, lens.iter().sum(), seed);
                let buffers = |rank: usize| match in_place {
                    true => inputs.buffers(rank, true, true),
                    false => (inputs.of(rank).to_vec(), vec![GARBAGE; lens[rank]]),
                };
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    let input = if in_place { output } else { input };
                    algorithm(schedule, team, input, output.part(0, lens[team.me]), blocks, *reduction);
                });
                let expected = inputs.combined(0, ranks, *operator);
                for (rank, output) in outputs.run(*operator).iter().enumerate() {
                    let block = &expected[blocks.start(rank)..][..lens[rank]];
                    assert_eq!(
                        &output[..lens[rank]],
                        block,
                        "algorithm {number}, {ranks} ranks, {variant}, seed {seed}"
                    );
                }
            },
        );
    }
}

#[test]
fn each_has_the_combination_up_to_it() {
    type Scan = fn(&mut Schedule, Team, Span, Span, Reduction);
    let (operator, reduction) = COMPOSE;
    for (algorithm, with) in [(scan::inclusive as Scan, 1), (scan::exclusive, 0)] {
        each_case(
            |_| 4,
            |ranks, count, in_place, seed| {
                let in_place = in_place % 2 == 1;
                let inputs = Inputs::new(ranks, count * reduction.element, seed);
                let outputs = play(
                    ranks,
                    seed,
                    |rank| inputs.buffers(rank, in_place, true),
                    |schedule, team| {
                        let (input, output) = spans(schedule);
                        algorithm(schedule, team, if in_place { output } else { input }, output, reduction);
                    },
                );
                for (rank, output) in outputs.run(operator).iter().enumerate().filter(|(rank, _)| rank + with > 0) {
                    assert_eq!(
                        *output,
                        inputs.combined(0, rank + with, operator),
                        "rank {rank} of {ranks}, seed {seed}"
                    );
                }
            },
        );
    }
}
