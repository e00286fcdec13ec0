//! Calls in place give what those with a buffer for each side give.

use super::*;
use crate::op::Op;

fn numbers(rank: u32, len: usize) -> Vec<i64> {
    (0..len as i64).map(|index| (i64::from(rank) + 2) * 10_000 + index).collect()
}

/// One call by its three forms in place, of `$given`, gives `$expected`, or that at the front.
macro_rules! gives {
    ($comm:expr, $name:ident, $init:ident, $given:expr, $expected:expr $(, $arg:expr)*) => {{
        let (given, expected): (&[i64], &[i64]) = ($given, $expected);
        let mut waited = given.to_vec();
        $comm.$name(&mut waited $(, $arg)*).unwrap();
        assert_eq!(waited[..expected.len()], *expected, stringify!($name));
        let mut scoped = given.to_vec();
        $comm.scope(|scope| scope.$name(&mut scoped $(, $arg)*).map(drop)).unwrap();
        assert_eq!(scoped[..expected.len()], *expected, "{} in a scope", stringify!($name));
        let mut again = $comm.$init(given.to_vec() $(, $arg)*).unwrap();
        for _ in 0..2 {
            again.room().unwrap().copy_from_slice(given);
            again.start().unwrap();
            again.wait().unwrap();
            assert_eq!(again.room().unwrap()[..expected.len()], *expected, stringify!($init));
        }
    }};
}

#[test]
fn what_comes_takes_the_place_of_what_goes() {
    for (size, len) in [(1, 3), (2, 1), (3, 700), (4, 5), (5, 3_000)] {
        both_ways(size, |comm| {
            let (comm, rank, all) = (&comm, comm.rank(), size as usize);
            let (data, root) = (numbers(rank, len), size - 1);
            let mut sum = vec![0; len];
            comm.reduce(&data, &mut sum, &Op::Sum, root).unwrap();
            let at_root = if rank == root { &sum } else { &data };
            gives!(comm, reduce_in_place, reduce_in_place_init, &data, at_root, &Op::Sum, root);
            comm.allreduce(&data, &mut sum, &Op::Sum).unwrap();
            gives!(comm, allreduce_in_place, allreduce_in_place_init, &data, &sum, &Op::Sum);
            comm.scan(&data, &mut sum, &Op::Sum).unwrap();
            gives!(comm, scan_in_place, scan_in_place_init, &data, &sum, &Op::Sum);
            let mut below = data.clone();
            comm.exscan(&data, &mut below, &Op::Sum).unwrap();
            gives!(comm, exscan_in_place, exscan_in_place_init, &data, &below, &Op::Sum);

            let (mut gathered, mut own) = (vec![0; len * all], vec![-1; len * all]);
            comm.allgather(&data, &mut gathered).unwrap();
            own[rank as usize * len..][..len].copy_from_slice(&data);
            gives!(comm, allgather_in_place, allgather_in_place_init, &own, &gathered);
            let (given, mut taken) = (numbers(rank, len * all), vec![0; len * all]);
            comm.alltoall(&given, &mut taken).unwrap();
            gives!(comm, alltoall_in_place, alltoall_in_place_init, &given, &taken);

            let mut block = vec![0; len];
            comm.reduce_scatter_block(&given, &mut block, &Op::Sum).unwrap();
            gives!(comm, reduce_scatter_block_in_place, reduce_scatter_block_in_place_init, &given, &block, &Op::Sum);
            let at_root = |all: &[i64]| if rank == root { all.to_vec() } else { data.clone() };
            gives!(comm, gather_in_place, gather_in_place_init, &at_root(&own), &at_root(&gathered), root);
            let kept = numbers(root, len * all);
            comm.scatter(&kept, &mut block, root).unwrap();
            let scattered = if rank == root { &kept } else { &block };
            gives!(comm, scatter_in_place, scatter_in_place_init, &at_root(&kept), scattered, root);
        });
    }
}

#[test]
fn blocks_of_a_length_each_too_wherever_they_are() {
    for size in [1, 2, 5] {
        both_ways(size, |comm| {
            let (comm, rank) = (&comm, comm.rank());
            let starts: Vec<usize> = (0..size as usize).map(|of| (size as usize - 1 - of) * 10 + 1).collect();
            let room = size as usize * 10 + 1;
            // As many elements as ranks together, between two; and of each.
            let between: Vec<usize> = (0..size).map(|other| (rank + other) as usize).collect();
            let of_each: Vec<usize> = (0..size as usize).collect();

            let places = Placed { counts: &between, displacements: &starts };
            let (given, mut taken) = (numbers(rank, room), numbers(rank, room));
            comm.alltoall_varying(&given, &mut taken, &places, &places).unwrap();
            gives!(comm, alltoall_varying_in_place, alltoall_varying_in_place_init, &given, &taken, &places);

            let places = Placed { counts: &of_each, displacements: &starts };
            let (start, count) = (starts[rank as usize], of_each[rank as usize]);
            let mut gathered = given.clone();
            comm.allgather_varying(&given[start..][..count], &mut gathered, &places).unwrap();
            gives!(comm, allgather_varying_in_place, allgather_varying_in_place_init, &given, &gathered, &places);

            let (sum, mut block) = (of_each.iter().sum(), vec![0; count]);
            comm.reduce_scatter(&given[..sum], &mut block, &of_each, &Op::Sum).unwrap();
            let of_all = (&given[..sum], &block[..]);
            gives!(comm, reduce_scatter_in_place, reduce_scatter_in_place_init, of_all.0, of_all.1, &of_each, &Op::Sum);
            for root in [0, size - 1] {
                // What is between the blocks is the root's.
                let own = &given[start..][..count];
                let at_root = |all: &[i64]| if rank == root { all.to_vec() } else { own.to_vec() };
                gives!(
                    comm,
                    gather_varying_in_place,
                    gather_varying_in_place_init,
                    &at_root(&given),
                    &at_root(&gathered),
                    &places,
                    root
                );
                let kept = numbers(root, room);
                let scattered = if rank == root { &kept[..] } else { &kept[start..][..count] };
                gives!(
                    comm,
                    scatter_varying_in_place,
                    scatter_varying_in_place_init,
                    &at_root(&kept),
                    scattered,
                    &places,
                    root
                );
            }
        });
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    job(2, |comm| {
        let mut three = [0u8; 3];
        assert_eq!(comm.allgather_in_place(&mut three), Err(ErrorClass::Count));
        assert_eq!(comm.alltoall_in_place(&mut three), Err(ErrorClass::Count));
        assert_eq!(comm.alltoall_varying_in_place(&mut three, &[1, 1]), Err(ErrorClass::Count));
        assert_eq!(comm.allgather_varying_in_place(&mut three, &[3]), Err(ErrorClass::Count));
        assert_eq!(comm.reduce_in_place(&mut three, &Op::Sum, 2), Err(ErrorClass::Root));
        assert_eq!(comm.gather_in_place(&mut three, 2), Err(ErrorClass::Root));
        assert_eq!(comm.reduce_scatter_block_in_place(&mut three, &Op::Sum), Err(ErrorClass::Count));
        assert_eq!(comm.reduce_scatter_in_place(&mut three, &[1, 1], &Op::Sum), Err(ErrorClass::Count));
        // Of these only the root knows more.
        let root = comm.rank();
        assert_eq!(comm.gather_in_place(&mut three, root), Err(ErrorClass::Count));
        assert_eq!(comm.gather_varying_in_place(&mut three, &[3], root), Err(ErrorClass::Count));
        assert_eq!(comm.scatter_in_place(&mut three, root), Err(ErrorClass::Count));
        assert_eq!(comm.scatter_varying_in_place(&mut three, &[4, 0], root), Err(ErrorClass::Count));
        comm.barrier().unwrap();
    });
}
