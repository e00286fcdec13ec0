//! The same of neighbours in every topology, and of blocks of one type between them that have lengths of their own.

use super::model::{Part, Signature, known, pack, pick, unpack};
use super::*;
use crate::comm::cartesian::Side;
use crate::comm::graph::{Edge, Link};

/// Communicators of `comm`'s ranks with neighbours of every kind.
fn topologies(comm: &Communicator) -> Vec<Communicator> {
    let (size, rank) = (comm.size(), comm.rank());
    let side = |size, periodic| Side { size, periodic };
    let mut all = vec![
        comm.cartesian(&[side(size, true)]).unwrap().unwrap(),
        comm.cartesian(&[side(size, false)]).unwrap().unwrap(),
    ];
    if size.is_multiple_of(2) {
        all.push(comm.cartesian(&[side(2, true), side(size / 2, false)]).unwrap().unwrap());
    }
    // A star around rank 0, which is beside itself too, twice.
    let ends: Vec<usize> = (0..size as usize).map(|rank| size as usize + 1 + rank).collect();
    let edges: Vec<u32> = (1..size).chain([0, 0]).chain((1..size).map(|_| 0)).collect();
    all.push(comm.graph(&ends, &edges).unwrap().unwrap());
    // Two steps ahead, twice to the next, and to nobody from the last.
    let edge = |rank: u32| Edge { rank: rank % size, weight: 1 };
    let ahead =
        |rank: u32| if rank + 1 == size { vec![] } else { vec![edge(rank + 2), edge(rank + 1), edge(rank + 1)] };
    let behind: Vec<Edge> = (0..size)
        .flat_map(|from| ahead(from).into_iter().filter(|to| to.rank == rank).map(move |_| edge(from)))
        .collect();
    all.push(comm.dist_graph_adjacent(behind, ahead(rank), false).unwrap());
    let links: Vec<Link> = (0..rank).map(|other| Link { source: rank, destination: other, weight: 1 }).collect();
    all.push(comm.dist_graph(&links, false).unwrap());
    all
}

/// Everybody's neighbours: those that each receives from and sends to.
fn around_all(comm: &Communicator) -> Vec<[Vec<Option<u32>>; 2]> {
    let around = comm.around().unwrap();
    let words = |ranks: &[Option<u32>]| ranks.iter().map(|rank| rank.unwrap_or(u32::MAX)).collect::<Vec<_>>();
    let own = [words(&around.sources), words(around.destinations())];
    let mut lens = vec![[0u64; 2]; comm.size() as usize];
    comm.allgather(&[own.each_ref().map(|side| side.len() as u64)], &mut lens).unwrap();
    let counts: Vec<usize> = lens.iter().map(|lens| (lens[0] + lens[1]) as usize).collect();
    let mut all = vec![0u32; counts.iter().sum()];
    comm.allgather_varying(&own.concat(), &mut all, &counts).unwrap();
    let mut rest = &all[..];
    let mut next = |len: u64| {
        let (taken, left) = rest.split_at(len as usize);
        rest = left;
        taken.iter().map(|rank| (*rank != u32::MAX).then_some(*rank)).collect()
    };
    lens.iter().map(|lens| lens.map(&mut next)).collect()
}

/// Which block of which rank comes to each of rank `rank`'s: of a grid what was sent the other way, else the messages between two
/// ranks in their order (MPI-4.1 8.6).
fn origins(all: &[[Vec<Option<u32>>; 2]], rank: u32, grid: bool) -> Vec<Option<(u32, usize)>> {
    let sources = &all[rank as usize][0];
    sources
        .iter()
        .enumerate()
        .map(|(slot, source)| {
            let source = (*source)?;
            if grid {
                return Some((source, slot ^ 1));
            }
            let before = sources[..slot].iter().filter(|other| **other == Some(source)).count();
            let mut to_us = (0..).zip(&all[source as usize][1]).filter(|(_, to)| **to == Some(rank));
            Some((source, to_us.nth(before).expect("both sides know of it").0))
        })
        .collect()
}

#[test]
fn neighbors_exchange_pieces_in_every_topology() {
    for size in 1..=6 {
        both_ways(size, |comm| {
            for (number, near) in topologies(&comm).into_iter().enumerate() {
                let (all, rank) = (around_all(&near), near.rank());
                let grid = matches!(near.topology(), Topology::Cartesian(_));
                let slot =
                    |from: u32, slot: usize, seed| Signature::random(&mut known(seed, [from.into(), slot as u64, 2]));
                let part = |rank: u32, seed| {
                    let sends: Vec<_> = (0..all[rank as usize][1].len()).map(|index| slot(rank, index, seed)).collect();
                    let gets = origins(&all, rank, grid).into_iter();
                    // Beyond the border there may be anything.
                    let gets: Vec<_> =
                        gets.map(|of| of.map_or_else(|| sends[0], |(rank, at)| slot(rank, at, seed))).collect();
                    Part::new(seed, rank, &sends, &gets)
                };
                let expected = |seed| {
                    let Part { from, mut room, .. } = part(rank, seed);
                    for (piece, origin) in from.iter().zip(origins(&all, rank, grid)) {
                        if let Some((other, at)) = origin {
                            let its = part(other, seed);
                            unpack(&mut room, piece, &pack(&its.given, &its.to[at]));
                        }
                    }
                    room
                };
                for seed in 0..SEEDS {
                    let what = format!("topology {number}, seed {seed}, rank {rank} of {size}");
                    let Part { to, given, from, room } = part(rank, seed);
                    let (mut waited, mut scoped) = (room.clone(), room.clone());
                    near.neighbor_alltoall_pieces(&given, &mut waited, &to, &from).unwrap();
                    assert!(waited == expected(seed), "{what}");
                    let mut sum = [1];
                    near.scope(|scope| {
                        scope.neighbor_alltoall_pieces(&given, &mut scoped, &to, &from)?;
                        scope.allreduce_in_place(&mut sum, &Op::Sum)?;
                        near.barrier()
                    })
                    .unwrap();
                    assert!(scoped == expected(seed) && sum == [size], "in a scope, {what}");
                    let mut again = near.neighbor_alltoall_pieces_init(given, room.clone(), &to, &from).unwrap();
                    for _ in 0..2 {
                        again.room().unwrap().copy_from_slice(&room);
                        again.start().unwrap();
                        again.wait().unwrap();
                        assert!(again.room().unwrap() == expected(seed), "again, {what}");
                    }
                }
            }
        });
    }
}

/// Some elements, or so many that they are read where they are: next to each other.
fn length(seed: u64, from: u32, slot: usize) -> usize {
    *pick(&mut known(seed, [from.into(), slot as u64, 3]), &[0, 1, 3, 90, 1_100, 1_500, 5_000])
}

fn numbers(seed: u64, from: u32, slot: usize) -> Vec<u64> {
    let mut rng = known(seed, [from.into(), slot as u64, 4]);
    (0..length(seed, from, slot)).map(|_| rng.next_u64()).collect()
}

#[test]
fn neighbors_exchange_blocks_of_different_lengths() {
    for size in 1..=6 {
        both_ways(size, |comm| {
            for (number, near) in topologies(&comm).into_iter().enumerate() {
                let (all, rank) = (around_all(&near), near.rank());
                let grid = matches!(near.topology(), Topology::Cartesian(_));
                let origins = origins(&all, rank, grid);
                for seed in 0..20 {
                    let what = format!("topology {number}, seed {seed}, rank {rank} of {size}");
                    // One block to all.
                    let own = numbers(seed, rank, 0);
                    let from: Vec<usize> =
                        origins.iter().map(|of| of.map_or(2, |(rank, _)| length(seed, rank, 0))).collect();
                    let expected: Vec<u64> = origins
                        .iter()
                        .flat_map(|of| of.map_or(vec![7; 2], |(rank, _)| numbers(seed, rank, 0)))
                        .collect();
                    let (mut waited, mut scoped) = (vec![7; expected.len()], vec![7; expected.len()]);
                    near.neighbor_allgather_varying(&own, &mut waited, &from).unwrap();
                    assert!(waited == expected, "{what}");
                    near.scope(|scope| scope.neighbor_allgather_varying(&own, &mut scoped, &from).map(drop)).unwrap();
                    assert!(scoped == expected, "in a scope, {what}");
                    // A block to each.
                    let slots = all[rank as usize][1].len();
                    let given: Vec<u64> = (0..slots).flat_map(|slot| numbers(seed, rank, slot)).collect();
                    let to: Vec<usize> = (0..slots).map(|slot| length(seed, rank, slot)).collect();
                    let from: Vec<usize> =
                        origins.iter().map(|of| of.map_or(2, |(rank, slot)| length(seed, rank, slot))).collect();
                    let expected: Vec<u64> = origins
                        .iter()
                        .flat_map(|of| of.map_or(vec![7; 2], |(rank, slot)| numbers(seed, rank, slot)))
                        .collect();
                    let (mut waited, mut scoped) = (vec![7; expected.len()], vec![7; expected.len()]);
                    near.neighbor_alltoall_varying(&given, &mut waited, &to, &from).unwrap();
                    assert!(waited == expected, "alltoall, {what}");
                    near.scope(|scope| scope.neighbor_alltoall_varying(&given, &mut scoped, &to, &from).map(drop))
                        .unwrap();
                    assert!(scoped == expected, "alltoall in a scope, {what}");
                }
            }
        });
    }
}
