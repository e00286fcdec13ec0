//! Values that are no plain numbers, in every call that takes slices.

use super::*;
use crate::comm::cartesian::Side;
use crate::op::Op;

#[test]
fn the_place_of_an_extreme_value_is_found() {
    job(5, |comm| {
        let rank = comm.rank() as i32;
        let located = |value: i32| [Located::new(f64::from(value), rank), Located::new(7.0, 10 - rank)];
        let (mut least, mut most) = (located(rank % 3), located(rank % 3));
        comm.allreduce_in_place(&mut least, &Op::Minloc).unwrap();
        comm.allreduce_in_place(&mut most, &Op::Maxloc).unwrap();
        assert_eq!(least, [Located::new(0.0, 0), Located::new(7.0, 6)]);
        assert_eq!(most, [Located::new(2.0, 2), Located::new(7.0, 6)]);
    });
}

/// Of which some have gaps in memory, and none where they travel.
fn located_values_go_everywhere<V: Locatable>(of: impl Fn(u32) -> V + Sync)
where
    Located<V>: Equivalence,
{
    both_ways(3, |comm| {
        let (rank, size) = (comm.rank(), 3);
        let value = |from: u32, to: u32, index: u32| Located::new(of(10 * from + index), to as i32);
        let [one, none] = [value(rank, 7, 0), Located::default()];
        let (mut all, by_rank) = ([none; 3], [0, 1, 2].map(|from| value(from, 7, 0)));
        comm.allgather(&[one], &mut all).unwrap();
        assert_eq!(all, by_rank);
        let mut all = [none; 3];
        comm.allgather_varying(&[one], &mut all, &[1; 3]).unwrap();
        assert_eq!(all, by_rank);
        let mut all = [none; 3];
        comm.gather(&[one], &mut all, 1).unwrap();
        assert_eq!(all, if rank == 1 { by_rank } else { [none; 3] });
        let mut own = [none];
        comm.scatter(&by_rank, &mut own, 1).unwrap();
        assert_eq!(own, [one]);
        comm.broadcast(&mut own, 2).unwrap();
        assert_eq!(own, [by_rank[2]]);
        let (to_all, mut from_all) = ([0, 1, 2].map(|to| value(rank, to, 3)), [none; 3]);
        let came = [0, 1, 2].map(|from| value(from, rank, 3));
        comm.alltoall(&to_all, &mut from_all).unwrap();
        assert_eq!(from_all, came);
        let mut from_all = [none; 3];
        comm.alltoall_varying(&to_all, &mut from_all, &[1; 3], &[1; 3]).unwrap();
        assert_eq!(from_all, came);
        let most = value(2, 0, 0);
        let ours = [value(rank, rank, 0), value(2, 2 - rank, 0), value(rank, 0, 0)];
        let expected = [value(2, 2, 0), most, most];
        let mut reduced = [none; 3];
        comm.reduce(&ours, &mut reduced, &Op::Maxloc, 0).unwrap();
        assert_eq!(reduced, if rank == 0 { expected } else { [none; 3] });
        let mut block = [none];
        comm.reduce_scatter_block(&ours, &mut block, &Op::Maxloc).unwrap();
        assert_eq!(block, [expected[rank as usize]]);
        let mut upto = [none; 3];
        comm.scan(&ours, &mut upto, &Op::Minloc).unwrap();
        assert_eq!((upto[0], upto[2]), (value(0, 0, 0), value(0, 0, 0)));
        let ring = comm.cartesian(&[Side { size, periodic: true }]).unwrap().unwrap();
        let mut around = [none; 2];
        ring.neighbor_allgather(&[one], &mut around).unwrap();
        let beside = [(rank + 2) % 3, (rank + 1) % 3];
        assert_eq!(around, beside.map(|from| value(from, 7, 0)));
        ring.neighbor_alltoall(&[one, value(rank, 8, 1)], &mut around).unwrap();
        assert_eq!(around, [value(beside[0], 8, 1), value(beside[1], 7, 0)]);
        let mut came = [none; 3];
        comm.sendrecv(&to_all, beside[1], 1, &mut came, beside[0], 1).unwrap();
        assert_eq!(came, [0, 1, 2].map(|to| value(beside[0], to, 3)));
    });
}

#[test]
fn located_values_with_a_gap_behind_go_everywhere() {
    located_values_go_everywhere(f64::from);
}

#[test]
fn located_values_with_a_gap_within_go_everywhere() {
    located_values_go_everywhere(|value| value as i16);
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Particle {
    kind: u8,
    position: [f64; 3],
    charge: i16,
}

crate::equivalence!(Particle { charge, kind, position });

#[test]
fn structs_are_sent_field_by_field() {
    job(2, |comm| {
        let of = |number: u8| Particle { kind: number, position: [0.5, f64::from(number), -1.0], charge: -3 };
        let expected: Vec<_> = (0..100).map(of).collect();
        let mut all = if comm.rank() == 0 { expected.clone() } else { vec![of(255); 100] };
        comm.broadcast(&mut all, 0).unwrap();
        assert_eq!(all, expected);
        let mut came = [of(0); 3];
        comm.sendrecv(&all[7..10], 1 - comm.rank(), 1, &mut came, 1 - comm.rank(), 1).unwrap();
        assert_eq!(came, all[7..10]);
        let whole = Particle::datatype();
        assert_eq!((whole.size(), whole.extent() as usize), (1 + 3 * 8 + 2, size_of::<Particle>()));
    });
}
