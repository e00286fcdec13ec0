//! Blocks of neighbours in graphs and grids.

use sidelane_nic::rng::Rng;

use super::cases::{Inputs, each_case, spans};
use super::play;
use super::play::GARBAGE;
use crate::coll::neighbor::Neighbors;
use crate::coll::{Blocks, neighbor};

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
