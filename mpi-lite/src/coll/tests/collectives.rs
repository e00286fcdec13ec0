use super::play::{GARBAGE, Operator};
use super::{ADD, COMPOSE, play};
use crate::coll::neighbor::Neighbors;
use crate::coll::{
    Blocks, Memory, Reduction, Schedule, Span, Team, allgather, allreduce, alltoall, barrier, broadcast, gather,
    neighbor, reduce, reduce_scatter, scan, scatter,
};
use sidelane_nic::rng::Rng;

const RANKS_MAX: usize = 17;
const COUNTS: [usize; 6] = [0, 1, 2, 5, 16, 37];

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for ranks in 1..=RANKS_MAX {
        // Rank r's note that it has come; every round's messages carry on all notes that the sender has.
        let play = play(ranks, ranks as u64, |_| (vec![], vec![]), barrier::dissemination);
        let mut known: Vec<u32> = (0..ranks).map(|rank| 1 << rank).collect();
        for round in 0..usize::BITS {
            let before = known.clone();
            for (rank, schedule) in play.schedules().enumerate() {
                let Some(round) = schedule.round(round as usize) else { continue };
                for transfer in round.transfers {
                    if let crate::coll::Transfer::Send(to, _) = transfer {
                        known[*to as usize] |= before[rank];
                    }
                }
            }
        }
        assert!(known.iter().all(|&known| known == (1 << ranks) - 1), "{ranks} ranks");
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

#[test]
fn the_root_has_gathered_everybodys_block() {
    each_case(
        |ranks| ranks,
        |ranks, len, root, seed| {
            let lens: Vec<_> = (0..ranks).map(|rank| if seed % 3 == 0 { len * rank * 7 % 13 } else { len }).collect();
            let (starts, total) = scattered(&lens);
            let places = Blocks::At { lens: &lens, starts: &starts };
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
                let blocks = if binomial { Blocks::Equal(len) } else { Blocks::At { lens: &lens, starts: &starts } };
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
                let blocks =
                    if number == 2 { Blocks::Lens(&lens) } else { Blocks::At { lens: &lens, starts: &starts } };
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

#[test]
fn neighbors_in_a_graph_exchange_blocks() {
    each_case(
        |_| 4,
        |ranks, len, _, seed| {
            // From each to some, also to itself, and to some more than once.
            let mut rng = Rng::new(seed);
            let edges: Vec<_> = (0..3 * ranks).map(|_| (rng.below(ranks as u64), rng.below(ranks as u64))).collect();
            let sources = |rank| edges.iter().filter(move |edge| edge.1 == rank as u64).map(|edge| Some(edge.0 as u32));
            let destinations =
                |rank| edges.iter().filter(move |edge| edge.0 == rank as u64).map(|edge| Some(edge.1 as u32));
            let inputs = Inputs::new(ranks, 3 * ranks * len, seed);
            let block = Blocks::Equal(len);
            let buffers = |rank| {
                let input = inputs.of(rank)[..destinations(rank).count() * len].to_vec();
                (input, vec![GARBAGE; sources(rank).count() * len])
            };
            let outputs = play(ranks, seed, buffers, |schedule, team| {
                let (input, output) = spans(schedule);
                let (sources, destinations): (Vec<_>, Vec<_>) =
                    (sources(team.me).collect(), destinations(team.me).collect());
                let neighbors = Neighbors::Graph { sources: &sources, destinations: &destinations };
                neighbor::alltoall(schedule, neighbors, (input, block), (output, block));
            });
            for (rank, output) in outputs.run(|_, _| ()).iter().enumerate() {
                let mut expected = Vec::new();
                for (index, edge) in edges.iter().enumerate().filter(|(_, edge)| edge.1 == rank as u64) {
                    let sent_before = edges[..index].iter().filter(|other| other.0 == edge.0).count();
                    expected.extend_from_slice(&inputs.of(edge.0 as usize)[sent_before * len..][..len]);
                }
                assert_eq!(*output, expected, "rank {rank} of {ranks}, seed {seed}");
            }
        },
    );
}

#[test]
fn neighbors_on_a_ring_are_before_and_after_also_where_they_are_the_same() {
    for ranks in 1..=4 {
        let buffers = |rank| (vec![rank as u8 * 2, rank as u8 * 2 + 1], vec![GARBAGE; 2]);
        let outputs = play(ranks, ranks as u64, buffers, |schedule, team| {
            let (input, output) = spans(schedule);
            let both = [Some(team.before(1) as u32), Some(team.after(1) as u32)];
            let block = Blocks::Equal(1);
            neighbor::alltoall(schedule, Neighbors::Grid(&both), (input, block), (output, block));
        });
        for (rank, output) in outputs.run(|_, _| ()).iter().enumerate() {
            let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
            assert_eq!(*output, [before as u8 * 2 + 1, after as u8 * 2], "rank {rank} of {ranks}");
        }
    }
}

#[test]
fn beyond_the_border_there_is_nobody() {
    let buffers = |rank: usize| (vec![rank as u8], vec![GARBAGE; 2]);
    let outputs = play(2, 1, buffers, |schedule, team| {
        let (input, output) = spans(schedule);
        let both = [(team.me == 1).then_some(0), (team.me == 0).then_some(1)];
        neighbor::allgather(schedule, Neighbors::Grid(&both), input, (output, Blocks::Equal(1)));
    });
    assert_eq!(outputs.run(|_, _| ()), [[GARBAGE, 1], [0, GARBAGE]]);
}

/// Team sizes, lengths, numbers below what `numbers` says of the size, seeds.
pub(super) fn each_case(numbers: fn(usize) -> usize, mut case: impl FnMut(usize, usize, usize, u64)) {
    let mut seed = 0;
    for ranks in 1..=RANKS_MAX {
        for len in COUNTS {
            for number in 0..numbers(ranks) {
                seed += 1;
                case(ranks, len, number, seed);
            }
        }
    }
}

/// What every rank gives.
pub(super) struct Inputs {
    bytes: Vec<Vec<u8>>,
}

impl Inputs {
    pub(super) fn new(ranks: usize, len: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self { bytes: (0..ranks).map(|_| random(rng.next_u64(), len)).collect() }
    }

    pub(super) fn of(&self, rank: usize) -> &[u8] {
        &self.bytes[rank]
    }

    /// The send and receive buffers of a rank, which puts its input where its output is, or not, if it has one.
    pub(super) fn buffers(&self, rank: usize, in_place: bool, output: bool) -> (Vec<u8>, Vec<u8>) {
        let input = self.bytes[rank].clone();
        match (in_place, output) {
            (true, _) => (vec![], input),
            (false, true) => (input.clone(), vec![GARBAGE; input.len()]),
            (false, false) => (input, vec![]),
        }
    }

    pub(super) fn combined(&self, first: usize, end: usize, operator: Operator) -> Vec<u8> {
        let mut inputs = self.bytes[first..end].iter().rev();
        let mut result = inputs.next().unwrap().clone();
        for left in inputs {
            operator(&mut result, left);
        }
        result
    }
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Places for blocks in no order with holes between them, and the end.
pub(super) fn scattered(lens: &[usize]) -> (Vec<usize>, usize) {
    let mut starts = vec![0; lens.len()];
    let mut end = 0;
    for index in (0..lens.len()).rev() {
        starts[index] = end + 1;
        end += 1 + lens[index];
    }
    (starts, end + lens.len())
}

pub(super) fn spans(schedule: &Schedule) -> (Span, Span) {
    let (send, receive) = schedule.buffer_lens();
    (Span::new(Memory::Send, 0, send), Span::new(Memory::Receive, 0, receive))
}
