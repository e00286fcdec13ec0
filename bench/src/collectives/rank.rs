//! One of our ranks: the loop of `bench/peers/collectives.c`, by our own calls.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sidelane_mpi::comm::cartesian::Side;
use sidelane_mpi::comm::{Communicator, Equivalence, ErrorClass, Piece};
use sidelane_mpi::op::Op;
use sidelane_mpi::world;

use super::{Cell, Collective};

/// Runs as a rank of the job that this process is in. `arguments` are those of the C program but for its limit, which is the
/// launcher's business here.
pub fn main(measure_ns: u64, cells: &[Cell]) -> ExitCode {
    let outcome = world::run(|comm| Measure::new(comm, measure_ns, cells)?.all(cells));
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(class)) => failed(&class),
        Err(error) => failed(&error),
    }
}

fn failed(why: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

struct Measure<'a> {
    comm: &'a Communicator,
    ring: Communicator,
    size: usize,
    enough: Duration,
    send: Vec<i32>,
    receive: Vec<i32>,
    /// Elements of each rank's block, for calls that want to know.
    counts: Vec<usize>,
    /// The same blocks, for those that want to know of what types they are.
    pieces: Vec<Piece>,
}

impl<'a> Measure<'a> {
    fn new(comm: &'a Communicator, measure_ns: u64, cells: &[Cell]) -> Result<Self, ErrorClass> {
        let size = comm.size() as usize;
        let ring = comm.cartesian(&[Side { size: comm.size(), periodic: true }])?.ok_or(ErrorClass::Topology)?;
        // Of a ring's ranks each has two neighbours, even if that is one twice.
        let longest = cells.iter().map(|cell| cell.bytes * size.max(2)).max().unwrap_or(0);
        let room = vec![0x0101_0101; longest.div_ceil(ELEMENT)];
        let enough = Duration::from_nanos(measure_ns);
        let (counts, pieces) = (vec![0; size], vec![Piece::none(); size]);
        Ok(Self { comm, ring, size, enough, send: room.clone(), receive: room, counts, pieces })
    }

    fn all(&mut self, cells: &[Cell]) -> Result<(), ErrorClass> {
        if self.comm.rank() == 0 {
            println!("{{\"library\":\"sidelane {}\"}}", env!("CARGO_PKG_VERSION"));
        }
        let mut closing = Duration::MAX;
        for _ in 0..3 {
            closing = closing.min(self.timed(Cell { collective: Collective::Barrier, bytes: 0 }, 0)?);
        }
        self.enough = self.enough.max(BARRIERS * closing);
        for cell in cells {
            let each = cell.bytes / ELEMENT / if cell.collective.cuts() { self.size } else { 1 };
            self.counts.fill(each);
            for (rank, piece) in self.pieces.iter_mut().enumerate() {
                *piece = Piece::new((rank * each * ELEMENT) as isize, each, &i32::datatype());
            }
            // The first call may make connections.
            self.timed(*cell, 1)?;
            let (mut calls, mut next) = (1, 1);
            let (mut took, mut spent) = (Duration::ZERO, Duration::ZERO);
            while next > 0 {
                calls = next;
                took = self.timed(*cell, calls)?;
                spent += took;
                next = self.next_calls(calls, took, spent)?;
            }
            if self.comm.rank() == 0 {
                let ns = took.as_nanos() as f64 / f64::from(calls);
                println!("{{\"collective\":\"{}\",\"bytes\":{},\"ns\":{ns:.1}}}", cell.collective, cell.bytes);
            }
        }
        Ok(())
    }

    /// As [`more`], decided by rank 0.
    fn next_calls(&self, calls: u32, took: Duration, spent: Duration) -> Result<u32, ErrorClass> {
        let mut next = [more(calls, took, spent, self.enough)];
        self.comm.broadcast(&mut next, 0)?;
        Ok(next[0])
    }

    /// Time of these calls and a barrier: a root that has run ahead has not done its part before.
    fn timed(&mut self, cell: Cell, calls: u32) -> Result<Duration, ErrorClass> {
        self.comm.barrier()?;
        let begin = Instant::now();
        for _ in 0..calls {
            self.call(cell)?;
        }
        self.comm.barrier()?;
        Ok(begin.elapsed())
    }

    #[inline]
    fn call(&mut self, Cell { collective, bytes }: Cell) -> Result<(), ErrorClass> {
        let (comm, size, op) = (self.comm, self.size, &Op::Sum);
        let count = bytes / ELEMENT;
        let (own, all) = (&self.send[..count], &self.send[..]);
        // What an array that is cut has for each, and for all.
        let cut = || (count / size, count / size * size);
        let counts = &self.counts[..];
        let whole = count * size;
        match collective {
            Collective::Barrier => comm.barrier(),
            Collective::Broadcast => comm.broadcast(&mut self.receive[..count], 0),
            Collective::Reduce => comm.reduce(own, &mut self.receive[..count], op, 0),
            Collective::Allreduce => comm.allreduce(own, &mut self.receive[..count], op),
            Collective::ReduceScatterBlock => {
                let (block, blocks) = cut();
                comm.reduce_scatter_block(&all[..blocks], &mut self.receive[..block], op)
            }
            Collective::ReduceScatter => {
                let (block, blocks) = cut();
                comm.reduce_scatter(&all[..blocks], &mut self.receive[..block], counts, op)
            }
            Collective::Scan => comm.scan(own, &mut self.receive[..count], op),
            Collective::Exscan => comm.exscan(own, &mut self.receive[..count], op),
            Collective::Gather => comm.gather(own, &mut self.receive[..whole], 0),
            Collective::Gatherv => comm.gather_varying(own, &mut self.receive[..whole], counts, 0),
            Collective::Scatter => comm.scatter(&all[..whole], &mut self.receive[..count], 0),
            Collective::Scatterv => comm.scatter_varying(&all[..whole], &mut self.receive[..count], counts, 0),
            Collective::Allgather => comm.allgather(own, &mut self.receive[..whole]),
            Collective::Allgatherv => comm.allgather_varying(own, &mut self.receive[..whole], counts),
            Collective::Alltoall => comm.alltoall(&all[..whole], &mut self.receive[..whole]),
            Collective::Alltoallv => comm.alltoall_varying(&all[..whole], &mut self.receive[..whole], counts, counts),
            Collective::Alltoallw => {
                comm.alltoall_pieces(&all[..whole], &mut self.receive[..whole], &self.pieces, &self.pieces)
            }
            Collective::NeighborAllgather => self.ring.neighbor_allgather(own, &mut self.receive[..2 * count]),
            Collective::NeighborAlltoall => {
                self.ring.neighbor_alltoall(&all[..2 * count], &mut self.receive[..2 * count])
            }
            Collective::Ibarrier => comm.scope(|scope| scope.barrier()?.wait().map(drop)),
            Collective::Ibroadcast => {
                let data = &mut self.receive[..count];
                comm.scope(|scope| scope.broadcast(data, 0)?.wait().map(drop))
            }
            Collective::Iallreduce => {
                let result = &mut self.receive[..count];
                comm.scope(|scope| scope.allreduce(own, result, op)?.wait().map(drop))
            }
        }
    }
}

/// How many calls are timed after `calls` that took so long, `spent` with those before them; 0 when there are enough.
fn more(calls: u32, took: Duration, spent: Duration, enough: Duration) -> u32 {
    let few = calls < calls_min(took / calls);
    if !few && (took >= enough || calls >= CALLS_MAX || spent >= PATIENCE * enough) {
        return 0;
    }
    let wanted = 1.1 * f64::from(calls) * enough.as_secs_f64() / took.as_secs_f64().max(1e-9);
    let least = if few { CALLS_MIN } else { calls + 1 };
    (wanted.min(f64::from(calls * GROWTH)) as u32).max(least).min(CALLS_MAX)
}

/// Fewest calls to be timed as one, when each takes so long.
///
/// Rank 0's clock starts when it has a core again after the barrier before the calls. With more ranks than cores others have
/// copied for some ms by then: a quarter of a long call, by which one alone seemed shorter (`bench/NOTES.md`, 33).
pub(crate) fn calls_min(each: Duration) -> u32 {
    if each < LONG { CALLS_MIN } else { 1 }
}

/// Of an element: what reductions add is `MPI_INT`, and the rest moves the same arrays.
const ELEMENT: usize = size_of::<i32>();

// As in the C program.
const CALLS_MIN: u32 = 10;
/// One that takes so long is not repeated for its clock's sake.
const LONG: Duration = Duration::from_millis(100);
const CALLS_MAX: u32 = 20_000;
const GROWTH: u32 = 16;
const BARRIERS: u32 = 4;
const PATIENCE: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_millis(5);

    #[test]
    fn calls_that_each_take_long_enough_are_made_ten_times() {
        let took = Duration::from_millis(30);
        assert_eq!(more(1, took, took, ENOUGH), 10);
        assert_eq!(more(10, 10 * took, 11 * took, ENOUGH), 0);
    }

    #[test]
    fn a_call_of_a_second_is_made_once() {
        let took = Duration::from_secs(1);
        assert_eq!(more(1, took, took, ENOUGH), 0);
    }

    #[test]
    fn short_calls_are_made_more_often_until_they_take_long_enough() {
        let took = Duration::from_micros(1);
        assert_eq!(more(1, took, took, ENOUGH), 16);
        assert_eq!(more(16, 16 * took, 17 * took, ENOUGH), 256);
        assert_eq!(more(4_096, 4_096 * took, 5_000 * took, ENOUGH), 5_500);
        assert_eq!(more(5_500, 5_500 * took, 10_500 * took, ENOUGH), 0);
    }

    #[test]
    fn calls_end_at_their_most_and_when_patience_does() {
        let took = Duration::from_nanos(10);
        assert_eq!(more(16_000, 16_000 * took, took, ENOUGH), CALLS_MAX);
        assert_eq!(more(CALLS_MAX, CALLS_MAX * took, took, ENOUGH), 0);
        assert_eq!(more(100, 100 * took, PATIENCE * ENOUGH, ENOUGH), 0);
    }
}
