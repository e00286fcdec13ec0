//! New communicators: who is in, and that their messages are their own.

use super::*;
use crate::comm::cartesian::Side;
use crate::comm::graph::{Edge, Link};
use crate::comm::info::Info;
use crate::op::Op;

#[test]
fn messages_of_a_duplicate_are_its_own() {
    job(2, |comm| {
        let copy = comm.dup().unwrap();
        assert_eq!(comm.compare(&copy), Comparison::Congruent);
        assert_eq!(comm.compare(&comm.clone()), Comparison::Ident);
        if comm.rank() == 0 {
            comm.send(&[1u8], 1, 0).unwrap();
            copy.send(&[2u8], 1, 0).unwrap();
        } else {
            let mut room = [0u8];
            copy.recv(&mut room, Source::Any, None).unwrap();
            assert_eq!(room, [2]);
            comm.recv(&mut room, Source::Any, None).unwrap();
            assert_eq!(room, [1]);
        }
    });
}

#[test]
fn duplicates_are_made_meanwhile_in_whatever_order_they_are_waited_for() {
    job(4, |comm| {
        let other = comm.dup().unwrap();
        for round in 0..20 {
            let begun = [comm.idup().unwrap(), other.idup().unwrap(), comm.idup().unwrap()];
            // Messages and calls of the same communicator are not disturbed.
            assert_eq!(who(&comm, comm.rank()), [0, 1, 2, 3]);
            let [first, second, third] = begun;
            // Nobody waits for the one that others may be agreeing on.
            let (third, second) = if comm.rank() % 2 == 0 {
                (third.wait().unwrap(), second.wait().unwrap())
            } else {
                let second = second.wait().unwrap();
                (third.wait().unwrap(), second)
            };
            let mut asked = first;
            let first = loop {
                match asked.test().unwrap() {
                    Ok(made) => break made,
                    Err(not_yet) => asked = not_yet,
                }
            };
            for (number, copy) in (0..).zip([&first, &second, &third]) {
                let mut sum = [number + round];
                copy.allreduce_in_place(&mut sum, &Op::Sum).unwrap();
                assert_eq!(sum, [4 * (number + round)]);
            }
        }
        drop(comm.idup().unwrap());
        comm.barrier().unwrap();
    });
}

#[test]
fn a_group_makes_its_own_communicator_while_others_do_else() {
    job(4, |comm| {
        let odd = comm.group().incl(&[3, 1]).unwrap();
        if comm.rank() % 2 == 1 {
            assert_eq!(who(&comm.create_group(&odd, 7).unwrap().unwrap(), comm.rank()), [3, 1]);
        } else {
            // MPI-5.0 7.4.2: a local operation of who is in no group of it.
            assert!(comm.create_group(&odd, 7).unwrap().is_none());
            assert!(comm.create_group(&Group::empty(), 7).unwrap().is_none());
            assert_eq!(comm.create_group(&Group::new([4]).unwrap(), 7).map(drop), Err(ErrorClass::Group));
        }
        let in_it = comm.create(&odd).unwrap();
        assert_eq!(in_it.map(|part| who(&part, comm.rank())), (comm.rank() % 2 == 1).then(|| vec![3, 1]));
        assert_eq!(comm.create(&Group::new([4]).unwrap()).map(drop), Err(ErrorClass::Group));
    });
}

#[test]
fn two_groups_speak_to_each_other_and_become_one() {
    job(5, |comm| {
        let rank = comm.rank();
        let left = rank < 2;
        let part = comm.split(Some(left.into()), 0).unwrap().unwrap();
        // The leaders are the last ones: 1 and 4.
        let other = if left { 4 } else { 1 };
        let between = part.intercomm(part.size() - 1, &comm, other, 3).unwrap();
        assert_eq!(between.remote_group().unwrap().size(), if left { 3 } else { 2 });
        let copy = between.dup().unwrap();
        for (tag, between) in [&between, &copy].into_iter().enumerate() {
            // Rank 0 of the left tells all on the right, who answer.
            if rank == 0 {
                for to in 0..3 {
                    between.send(&[10 + to], to, tag as i32).unwrap();
                    let mut answer = [0];
                    between.recv(&mut answer, to, None).unwrap();
                    assert_eq!(answer, [12 + to]);
                }
            } else if !left {
                let mut told = [0u32];
                let status = between.recv(&mut told, Source::Any, tag as i32).unwrap();
                assert_eq!((status.source, told), (Some(0), [8 + rank]));
                between.send(&[rank + 10], 0, 0).unwrap();
            }
        }
        assert_eq!(who(&between.merge(left).unwrap(), rank), [2, 3, 4, 0, 1]);
        assert_eq!(who(&between.merge(true).unwrap(), rank), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_grid_passes_on_along_its_dimensions() {
    job(7, |comm| {
        let sides = [Side { size: 2, periodic: false }, Side { size: 3, periodic: true }];
        let grid = comm.cartesian(&sides).unwrap();
        assert_eq!(grid.is_none(), comm.rank() == 6);
        let Some(grid) = grid else { return };
        let Topology::Cartesian(cartesian) = grid.topology() else { panic!("it is a grid") };
        for dimension in 0..2 {
            let (from, to) = cartesian.shift(grid.rank(), dimension, 1);
            let mut got = [u32::MAX];
            let status = grid.sendrecv(&[grid.rank()], to, 0, &mut got, from, 0).unwrap();
            assert_eq!((status.source, got[0]), (from, from.unwrap_or(u32::MAX)));
        }
        let row = grid.sub_grid(&[false, true]).unwrap();
        let first = grid.rank() / 3 * 3;
        assert_eq!(who(&row, grid.rank()), [first, first + 1, first + 2]);
        let mut around = [u32::MAX; 4];
        grid.neighbor_allgather(&[grid.rank()], &mut around).unwrap();
        let expected: Vec<u32> =
            cartesian.neighbors(grid.rank()).into_iter().map(|rank| rank.unwrap_or(u32::MAX)).collect();
        assert_eq!(around[..], expected);
    });
}

/// As many as there are were made, but one.
#[test]
fn a_part_of_a_grid_takes_one_id() {
    job(2, |world| {
        let grid = world.cartesian(&[Side { size: 2, periodic: false }]).unwrap().unwrap();
        (grid.0.id + 1..4095).for_each(|id| world.local().lock().contexts.take(id));
        for _ in 0..2 {
            let row = grid.sub_grid(&[true]).unwrap();
            assert_eq!((row.0.id, row.group().processes()), (4095, &[0, 1][..]));
            assert!(matches!(row.topology(), Topology::Cartesian(_)));
        }
        let _last = world.dup().unwrap();
        assert_eq!(grid.sub_grid(&[true]).map(drop), Err(ErrorClass::Other));
    });
}

#[test]
fn graphs_know_their_neighbors_whoever_told_of_them() {
    job(3, |comm| {
        // Rank 0 tells of a ring, the others of nothing.
        let link = |source, destination| Link { source, destination, weight: 10 * source + destination };
        let links = [link(0, 1), link(1, 2), link(2, 0), link(1, 0)];
        let told = if comm.rank() == 0 { &links[..] } else { &[] };
        let ring = comm.dist_graph(told, true).unwrap();
        let Topology::DistGraph(graph) = ring.topology() else { panic!("it is a graph") };
        let expected = match comm.rank() {
            0 => (vec![Edge { rank: 2, weight: 20 }, Edge { rank: 1, weight: 10 }], 1),
            1 => (vec![Edge { rank: 0, weight: 1 }], 2),
            _ => (vec![Edge { rank: 1, weight: 12 }], 1),
        };
        assert_eq!((graph.sources().to_vec(), graph.destinations().len()), expected);
        let mut got = vec![0; graph.sources().len()];
        ring.neighbor_allgather(&[100 + comm.rank()], &mut got).unwrap();
        assert_eq!(got, graph.sources().iter().map(|edge| 100 + edge.rank).collect::<Vec<_>>());
        assert_eq!(comm.neighbor_allgather(&[1u8], &mut [0]), Err(ErrorClass::Topology));

        // A path, whose steps are of different lengths: what a rank sends and what it receives have nothing to do with each other.
        let path = if comm.rank() == 0 { &links[..2] } else { &[] };
        let path = comm.dist_graph(path, false).unwrap();
        let Topology::DistGraph(graph) = path.topology() else { panic!("it is a graph") };
        assert!(graph.sources().iter().chain(graph.destinations()).all(|edge| edge.weight == 1));
        let (goes, comes): (&[u32], &[u32]) = match comm.rank() {
            0 => (&[1, 2, 3], &[]),
            1 => (&[4, 5], &[1, 2, 3]),
            _ => (&[], &[4, 5]),
        };
        let mut got = vec![0; comes.len()];
        path.neighbor_allgather(goes, &mut got).unwrap();
        assert_eq!(got, comes);
        got.fill(0);
        path.neighbor_alltoall(goes, &mut got).unwrap();
        assert_eq!(got, comes);

        let whole = comm.graph(&[1, 2], &[1, 0]).unwrap();
        let side = |size| Side { size, periodic: false };
        let ours = Some(comm.rank()).filter(|rank| *rank < 2);
        assert_eq!((comm.graph_rank(&[1, 2], &[1, 0]), comm.cartesian_rank(&[side(2)])), (Ok(ours), Ok(ours)));
        assert_eq!(comm.graph_rank(&[1], &[7]), Err(ErrorClass::Arg));
        let refused = [side(0), side(comm.size() + 1)].map(|side| comm.cartesian_rank(&[side]));
        assert_eq!(refused, [Err(ErrorClass::Dims), Err(ErrorClass::Arg)]);
        assert_eq!(whole.is_none(), comm.rank() == 2);
        if let Some(whole) = whole {
            let mut to_other = [0];
            whole.neighbor_alltoall(&[comm.rank() + 5], &mut to_other).unwrap();
            assert_eq!(to_other, [6 - comm.rank()]);
        }
    });
}

#[test]
fn a_process_alone_has_everything_too() {
    job(2, |comm| {
        let alone = comm.own();
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        let mut room = [0];
        alone.sendrecv(&[comm.rank()], 0, 1, &mut room, Source::Any, None).unwrap();
        assert_eq!(room, [comm.rank()]);
        assert_eq!(who(&alone.dup().unwrap(), 7), [7]);
    });
}

#[test]
fn what_a_leader_cannot_use_is_the_same_error_for_its_whole_group() {
    job(4, |comm| {
        let half = comm.split(Some((comm.rank() < 2).into()), 0).unwrap().unwrap();
        let made = |other, tag| half.intercomm(0, &comm, other, tag).map(drop);
        assert_eq!(made(4, 0), Err(ErrorClass::Rank));
        assert_eq!(made(0, -7), Err(ErrorClass::Tag));
        let other = if comm.rank() < 2 { 2 } else { 0 };
        assert_eq!(made(other, 0), Ok(()));
        assert_eq!(
            made(if half.rank() == 0 { other } else { u32::MAX }, 1),
            Ok(()),
            "which means nothing but to leaders"
        );
        assert_eq!(half.intercomm(2, &comm, other, 0).map(drop), Err(ErrorClass::Root), "no leader of any group");
    });
}

/// MPI-4.1 7.6.2.
#[test]
fn there_is_none_between_groups_that_have_a_process_in_common() {
    job(3, |comm| {
        let parts = [[0, 1], [1, 2]].map(|ranks| comm.create(&comm.group().incl(&ranks).unwrap()).unwrap());
        for (part, (leader, other)) in parts.iter().zip([(0, 2), (1, 0)]) {
            let made = part.as_ref().map(|part| part.intercomm(leader, &comm, other, 0).map(drop));
            assert!(matches!(made, None | Some(Err(ErrorClass::Group))), "{made:?}");
        }
        comm.dup().unwrap().barrier().unwrap();
    });
}

#[test]
fn of_an_intercommunicator_a_part_of_each_side_makes_another_one() {
    job(5, |comm| {
        let (rank, left) = (comm.rank(), comm.rank() < 3);
        let part = comm.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &comm, if left { 3 } else { 0 }, 0).unwrap();
        // Ranks 2 and 0, and 4.
        let named = part.group().incl(if left { &[2, 0][..] } else { &[1] }).unwrap();
        let made = between.create(&named).unwrap();
        assert_eq!(made.is_some(), [0, 2, 4].contains(&rank), "{rank}");
        if let Some(made) = made {
            let (here, there): (&[u32], &[u32]) = if left { (&[2, 0], &[4]) } else { (&[4], &[2, 0]) };
            assert_eq!((made.group().processes(), made.remote_group().unwrap().processes()), (here, there));
            let mut sum = [rank];
            made.allreduce(&[rank], &mut sum, &Op::Sum).unwrap();
            assert_eq!(sum, [if left { 4 } else { 2 }]);
        }
        let one_side = if left { named } else { Group::empty() };
        assert!(between.create(&one_side).unwrap().is_none());
        assert_eq!(between.create_group(part.group(), 0).map(drop), Err(ErrorClass::Comm));
        comm.dup().unwrap().barrier().unwrap();
    });
}

#[test]
fn all_that_is_made_of_a_communicator_has_its_error_handler() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    job(4, |world| {
        let (told, left) = (Arc::new(AtomicU32::new(0)), world.rank() < 2);
        let handler = |by: u32| {
            let told = Arc::clone(&told);
            ErrorHandler::Call(Arc::new(move |_, _| told.store(by, Ordering::Relaxed)))
        };
        let is_heard = |what: &str, by: u32, comm: &Communicator| {
            told.store(0, Ordering::Relaxed);
            comm.send(&[0u8], 99, 0).unwrap_err();
            assert_eq!(told.load(Ordering::Relaxed), by, "{what}");
        };
        let comm = world.dup().unwrap();
        comm.set_error_handler(handler(1));
        let grid = comm.cartesian(&[Side { size: 4, periodic: true }]).unwrap().unwrap();
        let half = comm.split(Some(left.into()), 0).unwrap().unwrap();
        let between = half.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        // On one core all are in whatever it is in.
        sidelane_nic::affinity::pin_to(sidelane_nic::affinity::cores()[0]).unwrap();
        let by_part = comm.split_by_part(Part::HardwareThread, 0).unwrap().unwrap();
        let edge = || vec![Edge { rank: world.rank(), weight: 1 }];
        for (what, made) in [
            ("split", &half),
            ("split_shared", &comm.split_shared(0).unwrap()),
            ("split_by_part", &by_part),
            ("create", &comm.create(comm.group()).unwrap().unwrap()),
            ("create_group", &comm.create_group(comm.group(), 0).unwrap().unwrap()),
            ("cartesian", &grid),
            ("sub_grid", &grid.sub_grid(&[false]).unwrap()),
            ("graph", &comm.graph(&[0, 0, 0, 0], &[]).unwrap().unwrap()),
            ("dist_graph", &comm.dist_graph(&[], true).unwrap()),
            ("dist_graph_adjacent", &comm.dist_graph_adjacent(edge(), edge(), true).unwrap()),
            ("shrink", &comm.shrink().unwrap()),
            ("dup", &comm.dup().unwrap()),
            ("intercomm", &between),
        ] {
            is_heard(what, 1, made);
        }
        between.set_error_handler(handler(2));
        for (what, made) in [
            ("merge", &between.merge(left).unwrap()),
            ("dup", &between.dup().unwrap()),
            ("split", &between.split(Some(0), 0).unwrap().unwrap()),
            ("create", &between.create(half.group()).unwrap().unwrap()),
            ("shrink", &between.shrink().unwrap()),
        ] {
            is_heard(what, 2, made);
        }
        is_heard("itself", 1, &half);
        is_heard("without", 0, &world);
    });
}

#[test]
fn an_intercommunicator_is_made_without_the_attributes_of_its_sides() {
    use crate::attribute::Keyval;
    use std::sync::Arc;
    job(4, |world| {
        let left = world.rank() < 2;
        let half = world.split(Some(left.into()), 0).unwrap().unwrap();
        let refuses = Keyval::new(|_, _| Err(ErrorClass::Keyval), |_, _| Ok(()));
        if half.rank() == 1 {
            half.set_attribute(&refuses, Arc::new(1)).unwrap();
        }
        let between = half.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        between.dup().unwrap().merge(left).unwrap().barrier().unwrap();
    });
}

#[test]
fn names_and_hints_are_those_of_the_standard() {
    job(1, |comm| {
        assert_eq!((&comm.name()[..], &comm.own().name()[..]), ("MPI_COMM_WORLD", "MPI_COMM_SELF"));
        assert_eq!(comm.dup().unwrap().name(), "");
        let pair = |key: &str, value: &str| {
            let mut info = Info::new();
            info.set(key, value).unwrap();
            info
        };
        for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
            comm.set_info(&pair(key, value));
        }
        let info = comm.info();
        assert_eq!(info.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
    });
}

#[test]
fn none_is_made_between_groups_of_an_intercommunicator() {
    job(2, |comm| {
        let half = comm.split(Some(comm.rank()), 0).unwrap().unwrap();
        let between = half.intercomm(0, &comm, 1 - comm.rank(), 3).unwrap();
        assert_eq!(between.intercomm(0, &comm, 1 - comm.rank(), 4).map(drop), Err(ErrorClass::Comm));
    });
}
