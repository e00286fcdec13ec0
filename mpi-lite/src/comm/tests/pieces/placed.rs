//! Blocks anywhere in a slice: as those that lie one after the other, and what is between them stays.

use super::*;
use crate::comm::cartesian::Side;

/// What nobody sends.
const FREE: i64 = -1;

/// Places for blocks: the last one first, and an element that is nobody's before each.
struct Spread {
    counts: Vec<usize>,
    starts: Vec<usize>,
    len: usize,
}

impl Spread {
    fn of(counts: &[usize]) -> Self {
        let (mut starts, mut len) = (vec![0; counts.len()], 0);
        for (start, count) in starts.iter_mut().zip(counts).rev() {
            *start = len + 1;
            len += 1 + count;
        }
        Self { counts: counts.to_vec(), starts, len }
    }

    fn placed(&self) -> Placed<'_> {
        Placed { counts: &self.counts, displacements: &self.starts }
    }

    fn free(&self) -> Vec<i64> {
        vec![FREE; self.len]
    }

    /// Blocks that lie one after the other, at their places.
    fn lay(&self, packed: &[i64]) -> Vec<i64> {
        let (mut all, mut at) = (self.free(), 0);
        for (start, count) in self.starts.iter().zip(&self.counts) {
            all[*start..start + count].copy_from_slice(&packed[at..at + count]);
            at += count;
        }
        all
    }
}

fn numbers(rank: u32, len: usize) -> Vec<i64> {
    (0..len as i64).map(|index| i64::from(rank) * 100_000 + index).collect()
}

#[test]
fn blocks_that_are_placed_anywhere_are_exchanged_like_those_one_after_the_other() {
    for (size, unit) in [(1, 3), (2, 1), (3, 2), (4, 700), (5, 30)] {
        both_ways(size, |comm| {
            let (rank, own) = (comm.rank(), comm.rank() as usize);
            let root = size - 1;
            let counts: Vec<usize> = (0..size as usize).map(|of| of * unit % 1_500).collect();
            let spread = Spread::of(&counts);
            let (sum, data) = (counts.iter().sum(), numbers(rank, counts[own]));

            let (mut packed, mut placed) = (vec![0; sum], spread.free());
            comm.allgather_varying(&data, &mut packed, &counts).unwrap();
            comm.allgather_varying(&data, &mut placed, &spread.placed()).unwrap();
            assert_eq!(placed, spread.lay(&packed));

            placed.fill(FREE);
            comm.gather_varying(&data, &mut placed, &spread.placed(), root).unwrap();
            assert_eq!(placed, if rank == root { spread.lay(&packed) } else { spread.free() });

            let (all, mut block) = (spread.lay(&numbers(9, sum)), vec![0; counts[own]]);
            comm.scatter_varying(&all, &mut block, &spread.placed(), root).unwrap();
            assert_eq!(block, all[spread.starts[own]..][..counts[own]]);

            // As long both ways.
            let between = |other: usize| (own + other) * unit % 1_500;
            let counts: Vec<usize> = (0..size as usize).map(between).collect();
            let (spread, sum) = (Spread::of(&counts), counts.iter().sum());
            let (data, mut packed, mut placed) = (numbers(rank, sum), vec![0; sum], spread.free());
            comm.alltoall_varying(&data, &mut packed, &counts, &counts).unwrap();
            comm.alltoall_varying(&spread.lay(&data), &mut placed, &spread.placed(), &spread.placed()).unwrap();
            assert_eq!(placed, spread.lay(&packed));

            placed.fill(FREE);
            let given = spread.lay(&data);
            let places = spread.placed();
            comm.scope(|scope| scope.alltoall_varying(&given, &mut placed, &counts, &places).map(drop)).unwrap_err();
            comm.scope(|scope| scope.alltoall_varying(&given, &mut placed, &places, &places).map(drop)).unwrap();
            assert_eq!(placed, spread.lay(&packed));
            let mut again = comm.alltoall_varying_init(given, spread.free(), &places, &places).unwrap();
            again.start().unwrap();
            again.wait().unwrap();
            assert_eq!(again.room().unwrap(), placed);
        });
    }
}

/// What MPI forbids of those that are written is decided by the last one; those that are read may overlap.
#[test]
fn blocks_that_overlap_are_read_and_written_one_after_the_other() {
    for unit in [1, 10_000] {
        both_ways(3, |comm| {
            let counts = [2 * unit; 3];
            let overlap = Placed { counts: &counts, displacements: &[0, unit, 3 * unit] };
            let data = vec![i64::from(comm.rank()); 2 * unit];
            let mut room = vec![FREE; 6 * unit];
            comm.allgather_varying(&data, &mut room, &overlap).unwrap();
            let expected: Vec<i64> = [0, 1, 1, 2, 2, FREE].into_iter().flat_map(|of| vec![of; unit]).collect();
            assert_eq!(room, expected);
            room.fill(FREE);
            comm.alltoall_varying(&[&data[..], &data, &data].concat(), &mut room, &counts, &overlap).unwrap();
            assert_eq!(room, expected);
            let mut came = vec![FREE; 6 * unit];
            comm.alltoall_varying(&expected, &mut came, &overlap, &counts).unwrap();
            let mine = &expected[overlap.displacements[comm.rank() as usize]..][..2 * unit];
            assert_eq!(came, [mine, mine, mine].concat());
            let mut one = vec![FREE; 2 * unit];
            comm.scatter_varying(&expected, &mut one, &overlap, 1).unwrap();
            assert_eq!(one, mine);
        });
    }
}

#[test]
fn neighbors_blocks_are_placed_anywhere_and_stay_beyond_the_border() {
    both_ways(4, |comm| {
        let line = comm.cartesian(&[Side { size: 4, periodic: false }]).unwrap().unwrap();
        let rank = line.rank();
        let counts = [2, 2];
        let spread = Spread::of(&counts);
        let (mut packed, mut placed) = (vec![FREE; 4], spread.free());
        line.neighbor_allgather_varying(&numbers(rank, 2), &mut packed, &counts).unwrap();
        line.neighbor_allgather_varying(&numbers(rank, 2), &mut placed, &spread.placed()).unwrap();
        assert_eq!(placed, spread.lay(&packed));
        let data = numbers(rank, 4);
        line.neighbor_alltoall_varying(&data, &mut packed, &counts, &counts).unwrap();
        line.neighbor_alltoall_varying(&spread.lay(&data), &mut placed, &spread.placed(), &spread.placed()).unwrap();
        assert_eq!(placed, spread.lay(&packed));
    });
}

#[test]
fn blocks_of_elements_with_gaps_are_placed_too() {
    job(3, |comm| {
        let of = |rank: u32| Located::new(f64::from(rank), rank as i32);
        let nobody = Located::new(-1.0, -1);
        let (mut all, places) = ([nobody; 5], Placed { counts: &[1, 1, 1], displacements: &[4, 2, 0] });
        comm.allgather_varying(&[of(comm.rank())], &mut all, &places).unwrap();
        assert_eq!(all, [of(2), nobody, of(1), nobody, of(0)]);
    });
}
