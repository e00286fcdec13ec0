//! Communicators of some of another one's processes: who is in, and in what order.

use super::panics::on_hosts_of_two;
use super::*;

#[test]
fn a_split_orders_by_key_and_then_by_rank() {
    job(5, |comm| {
        let rank = comm.rank();
        let part = comm.split((rank != 2).then_some(rank % 2), -(rank as i32) / 4).unwrap();
        match rank {
            2 => assert!(part.is_none()),
            1 | 3 => assert_eq!(who(&part.unwrap(), rank), [1, 3]),
            _ => assert_eq!(who(&part.unwrap(), rank), [4, 0]),
        }
        assert_eq!(who(&comm.split_shared(0).unwrap(), rank), [0, 1, 2, 3, 4]);
        let reversed = comm.split(Some(0), -(rank as i32)).unwrap().unwrap();
        assert_eq!(reversed.compare(&comm), Comparison::Similar);
    });
}

#[test]
fn ranks_of_several_hosts_are_split_by_those() {
    on_hosts_of_two(4, |comm| {
        let first = comm.rank() / 2 * 2;
        let parts = [comm.split_shared(0).unwrap(), comm.split_finer(0).unwrap().unwrap()];
        assert_eq!(parts.map(|part| who(&part, comm.rank())), [(); 2].map(|()| vec![first, first + 1]));
    });
}

#[test]
fn ranks_are_split_by_the_part_of_the_machine_that_they_are_kept_on() {
    use sidelane_nic::affinity;
    job(4, |comm| {
        let (rank, cores) = (comm.rank(), affinity::cores());
        let on = |rank: u32| cores[rank as usize % cores.len().min(2)];
        // The last one may run everywhere.
        if rank < 3 {
            affinity::pin_to(on(rank)).unwrap();
        }
        let is_kept = rank < 3 || cores.len() == 1;
        let mine = || (0..4).filter(|other| on(*other) == on(rank) && (*other < 3 || cores.len() == 1));
        let reversed = mine().rev().collect::<Vec<_>>();
        let part = comm.split_by_part(Part::HardwareThread, -(rank as i32)).unwrap();
        assert_eq!(part.map(|part| who(&part, rank)), is_kept.then_some(reversed));
        // Of one core there is nothing finer.
        let core = comm.split((rank < 3).then_some(on(rank) as u32), 0).unwrap();
        if let Some(core) = core {
            assert!(core.split_finer(0).unwrap().is_none());
        }
        let finer = comm.split_finer(0).unwrap();
        assert!(finer.is_none_or(|finer| finer.size() < comm.size()));
        let (half, other) = (comm.split(Some(rank % 2), 0).unwrap().unwrap(), 1 - rank % 2);
        let between = half.intercomm(0, &comm, other, 0).unwrap();
        assert_eq!(between.split_by_part(Part::Package, 0).unwrap_err(), ErrorClass::Comm);
    });
}

/// The type `MPI_UNDEFINED` (MPI-5.0 7.4.2).
#[test]
fn who_asks_for_no_type_is_in_no_part_and_divides_nobody() {
    job(3, |comm| {
        let rank = comm.rank();
        for out in 0..3 {
            let (mut shared, mut part, mut finer) = (None, None, None);
            if rank == out {
                (0..3).for_each(|_| comm.split_undefined().unwrap());
            } else {
                shared = Some(comm.split_shared(0).unwrap());
                part = comm.split_by_part(Part::Package, 0).unwrap();
                finer = comm.split_finer(0).unwrap();
            }
            let others: Vec<u32> = (0..3).filter(|other| *other != out).collect();
            assert_eq!(shared.map(|shared| who(&shared, rank)), (rank != out).then_some(others));
            assert!(part.is_none_or(|part| part.size() <= 2) && finer.is_none_or(|finer| finer.size() == 1));
            // Ids are agreed upon as before.
            comm.dup().unwrap().barrier().unwrap();
        }
        let half = comm.split(Some(rank.min(1)), 0).unwrap().unwrap();
        let between = half.intercomm(0, &comm, if rank == 0 { 1 } else { 0 }, 0).unwrap();
        assert_eq!(between.split_undefined().unwrap_err(), ErrorClass::Comm);
    });
}

#[test]
fn an_intercommunicator_is_split_by_colors_of_both_sides() {
    job(5, |comm| {
        let (rank, left) = (comm.rank(), comm.rank() < 3);
        let part = comm.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &comm, if left { 3 } else { 0 }, 0).unwrap();
        // Ranks 0 and 2, the other way round, and 3; 1 has a color of its own, and 4 none.
        let color = [Some(7), Some(8), Some(7), Some(7), None][rank as usize];
        let split = between.split(color, -(rank as i32)).unwrap();
        assert_eq!(split.is_some(), [0, 2, 3].contains(&rank), "{rank}");
        if let Some(split) = split {
            let (here, there): (&[u32], &[u32]) = if left { (&[2, 0], &[3]) } else { (&[3], &[2, 0]) };
            assert_eq!((split.group().processes(), split.remote_group().unwrap().processes()), (here, there));
            let mut sum = [rank];
            split.allreduce(&[rank], &mut sum, &crate::op::Op::Sum).unwrap();
            assert_eq!(sum, [if left { 3 } else { 2 }]);
            split.merge(left).unwrap().barrier().unwrap();
        }
        // Ids are agreed upon as before.
        comm.dup().unwrap().barrier().unwrap();
    });
}
