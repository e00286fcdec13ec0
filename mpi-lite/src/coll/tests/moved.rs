//! Data that gets to others as it is.

use super::cases::{Inputs, RANKS_MAX, each_case, random, scattered, spans};
use super::play;
use super::play::GARBAGE;
use crate::coll::{
    Blocks, Buffers, Call, Hosts, Memory, Schedule, Span, Table, Team, WithinHosts, allgather, alltoall, barrier,
    broadcast, gather, scatter,
};

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for ranks in 1..=RANKS_MAX {
        let play = play(ranks, ranks as u64, |_| (vec![], vec![]), barrier::dissemination);
        assert!(play.known().iter().all(|&known| known == (1 << ranks) - 1), "{ranks} ranks");
        play.run(|_, _| ());
    }
}

#[test]
fn everybody_has_what_was_broadcast() {
    type Broadcast = fn(&mut Schedule, Team, usize, Span);
    let algorithms: [Broadcast; 4] = [
        broadcast::binomial,
        broadcast::scatter_allgather,
        |schedule, team, root, data| broadcast::chain(schedule, team, root, data, 7),
        |schedule, team, root, data| broadcast::chain(schedule, team, root, data, 64),
    ];
    for (number, algorithm) in algorithms.iter().enumerate() {
        each_case(
            |ranks| ranks,
            |ranks, len, root, seed| {
                let data = random(seed, len);
                let buffers = |rank| (vec![], if rank == root { data.clone() } else { vec![GARBAGE; len] });
                let received = play(ranks, seed, buffers, |schedule, team| {
                    algorithm(schedule, team, root, Span::new(Memory::Receive, 0, len));
                });
                assert_eq!(received.run(|_, _| ()), vec![data; ranks], "algorithm {number}, root {root}, seed {seed}");
            },
        );
    }
}

#[test]
fn the_root_has_gathered_everybodys_block() {
    each_case(
        |ranks| ranks,
        |ranks, len, root, seed| {
            let lens: Vec<_> = (0..ranks).map(|rank| if seed % 3 == 0 { len * rank * 7 % 13 } else { len }).collect();
            let (starts, total) = scattered(&lens);
            let places = Blocks::At { counts: &lens, starts: &starts, element: 1 };
            let equal = seed % 3 != 0;
            let inputs = Inputs::new(ranks, total, seed);
            for (binomial, in_place) in [(false, false), (false, true), (true, false), (true, true)] {
                if binomial && !equal {
                    continue;
                }
                let blocks = if binomial { Blocks::Equal(len) } else { places };
                let block = |rank: usize| inputs.of(rank)[..lens[rank]].to_vec();
                let buffers = |rank: usize| {
                    let mut output = vec![GARBAGE; if rank == root { total } else { 0 }];
                    if rank == root && in_place {
                        output[blocks.start(rank)..][..lens[rank]].copy_from_slice(&block(rank));
                        return (vec![], output);
                    }
                    (block(rank), output)
                };
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    let is_root = team.me == root;
                    let block = if is_root && in_place { blocks.of(output, root) } else { input };
                    if binomial {
                        let whole = is_root.then(|| output.part(0, ranks * len));
                        gather::binomial(schedule, team, root, block, whole);
                    } else {
                        gather::linear(schedule, team, root, block, is_root.then_some((output, blocks)));
                    }
                });
                let output = &outputs.run(|_, _| ())[root];
                for rank in 0..ranks {
                    let found = &output[blocks.start(rank)..][..lens[rank]];
                    assert_eq!(found, block(rank), "binomial {binomial}, {ranks} ranks, root {root}, seed {seed}");
                }
            }
        },
    );
}

#[test]
fn each_has_its_block_of_what_was_scattered() {
    each_case(
        |ranks| ranks,
        |ranks, len, root, seed| {
            let lens: Vec<_> = (0..ranks).map(|rank| if seed % 3 == 0 { len * rank * 7 % 13 } else { len }).collect();
            let (starts, total) = scattered(&lens);
            let data = random(seed, total);
            for (binomial, in_place) in [(false, false), (false, true), (true, false), (true, true)] {
                if binomial && seed % 3 == 0 {
                    continue;
                }
                let blocks = if binomial {
                    Blocks::Equal(len)
                } else {
                    Blocks::At { counts: &lens, starts: &starts, element: 1 }
                };
                let buffers = |rank: usize| {
                    let input = if rank == root { data.clone() } else { vec![] };
                    (input, vec![GARBAGE; if rank == root && in_place { 0 } else { lens[rank] }])
                };
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    let is_root = team.me == root;
                    let block = (!(is_root && in_place)).then_some(output);
                    if binomial {
                        let whole = is_root.then(|| input.part(0, ranks * len));
                        scatter::binomial(schedule, team, root, len, block, whole);
                    } else {
                        scatter::linear(schedule, team, root, block, is_root.then_some((input, blocks)));
                    }
                });
                for (rank, output) in outputs.run(|_, _| ()).iter().enumerate().filter(|(_, output)| !output.is_empty())
                {
                    let expected = &data[blocks.start(rank)..][..lens[rank]];
                    assert_eq!(
                        output, expected,
                        "binomial {binomial}, rank {rank} of {ranks}, root {root}, seed {seed}"
                    );
                }
            }
        },
    );
}

#[test]
fn everybody_has_gathered_everybodys_block() {
    type Allgather = fn(&mut Schedule, Team, Span, Span, Blocks);
    let algorithms: [Allgather; 3] = [allgather::bruck, allgather::ring, allgather::recursive_doubling];
    for (number, algorithm) in algorithms.iter().enumerate() {
        each_case(
            |_| 4,
            |ranks, len, variant, seed| {
                if number == 2 && !ranks.is_power_of_two() {
                    return;
                }
                let lens: Vec<_> =
                    (0..ranks).map(|rank| if variant % 2 == 0 { len } else { len * rank * 7 % 13 }).collect();
                let (starts, total) = scattered(&lens);
                // Halves of a hypercube's blocks go in one piece.
                let blocks = if number == 2 {
                    Blocks::Lens(&lens)
                } else {
                    Blocks::At { counts: &lens, starts: &starts, element: 1 }
                };
                let inputs = Inputs::new(ranks, len * 13, seed);
                let in_place = variant > 1;
                let block = |rank: usize| inputs.of(rank)[..lens[rank]].to_vec();
                let buffers = |rank: usize| {
                    let mut output = vec![GARBAGE; total];
                    if in_place {
                        output[blocks.start(rank)..][..lens[rank]].copy_from_slice(&block(rank));
                    }
                    (if in_place { vec![] } else { block(rank) }, output)
                };
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    let block = if in_place { blocks.of(output, team.me) } else { input };
                    algorithm(schedule, team, block, output, blocks);
                });
                let mut expected = vec![GARBAGE; total];
                for rank in 0..ranks {
                    expected[blocks.start(rank)..][..lens[rank]].copy_from_slice(&block(rank));
                }
                assert_eq!(
                    outputs.run(|_, _| ()),
                    vec![expected; ranks],
                    "algorithm {number}, {ranks} ranks, seed {seed}"
                );
            },
        );
    }
}

/// Where blocks lie is each rank's own choice; which algorithm is taken is all ranks' matter.
#[test]
fn blocks_are_gathered_wherever_each_rank_has_them() {
    for (ranks, len) in [(2, 8), (4, 8), (8, 8), (8, 3_000), (5, 8), (4, 100_000)] {
        let (lens, hosts) = (vec![len; ranks], Hosts::new(0..ranks));
        let (starts, total) = scattered(&lens);
        let spread = Blocks::At { counts: &lens, starts: &starts, element: 1 };
        let blocks = |rank: usize| if rank.is_multiple_of(2) { Blocks::Lens(&lens) } else { spread };
        let inputs = Inputs::new(ranks, len, 1);
        let buffers = |rank: usize| (inputs.of(rank).to_vec(), vec![GARBAGE; total]);
        let outputs = play(ranks, 1, buffers, |schedule, team| {
            let call = Call::Allgatherv { blocks: blocks(team.me) };
            let sides = Buffers { send: len, receive: total, in_place: false };
            call.build(schedule, team.me, (&hosts, WithinHosts::Messages), sides, &Table::default());
        });
        for (rank, output) in outputs.run(|_, _| ()).iter().enumerate() {
            let mut expected = vec![GARBAGE; total];
            (0..ranks).for_each(|of| expected[blocks(rank).start(of)..][..len].copy_from_slice(inputs.of(of)));
            assert_eq!(*output, expected, "rank {rank} of {ranks}, {len} B");
        }
    }
}

#[test]
fn everybody_has_a_block_from_everybody() {
    for algorithm in 0..3 {
        each_case(
            |_| 4,
            |ranks, len, variant, seed| {
                let (uneven, in_place) = (variant % 2 == 1 && algorithm > 0, variant > 1);
                // In place, what goes from one rank to another is as long as what comes back.
                let between = |a: usize, b: usize| match (uneven, in_place) {
                    (false, _) => len,
                    (true, true) => len * (a + b) % 13,
                    (true, false) => len * (3 * a + b) % 13,
                };
                let to: Vec<Vec<_>> = (0..ranks).map(|rank| (0..ranks).map(|to| between(rank, to)).collect()).collect();
                let from: Vec<Vec<_>> =
                    (0..ranks).map(|rank| (0..ranks).map(|from| between(from, rank)).collect()).collect();
                let inputs = Inputs::new(ranks, ranks * len.max(13), seed);
                let total = |lens: &[usize]| lens.iter().sum::<usize>();
                let buffers = |rank: usize| {
                    let input = inputs.of(rank)[..total(&to[rank])].to_vec();
                    if in_place { (vec![], input) } else { (input, vec![GARBAGE; total(&from[rank])]) }
                };
                let outputs = play(ranks, seed, buffers, |schedule, team| {
                    let (input, output) = spans(schedule);
                    let input = if in_place { output } else { input };
                    let (to, from) = (Blocks::Lens(&to[team.me]), Blocks::Lens(&from[team.me]));
                    match algorithm {
                        0 => alltoall::bruck(schedule, team, input, output, len),
                        1 => alltoall::pairwise(schedule, team, (input, to), (output, from)),
                        _ => alltoall::linear(schedule, team, (input, to), (output, from)),
                    }
                });
                for (rank, output) in outputs.run(|_, _| ()).iter().enumerate() {
                    let expected: Vec<u8> = (0..ranks)
                        .flat_map(|from| {
                            let blocks = Blocks::Lens(&to[from]);
                            inputs.of(from)[blocks.start(rank)..][..blocks.len(rank)].to_vec()
                        })
                        .collect();
                    assert_eq!(
                        *output, expected,
                        "algorithm {algorithm}, rank {rank} of {ranks}, {variant}, seed {seed}"
                    );
                }
            },
        );
    }
}
