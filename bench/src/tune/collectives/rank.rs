//! A rank of a measurement.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelane_mpi::adi::{Config, Device, Port, Process, host_identity};
use sidelane_mpi::coll::{Algorithm, Blocks, Call, Case, Collective, Reduction, Rule, Table};
use sidelane_mpi::comm::collective::Ranks;
use sidelane_mpi::datatype::Predefined;
use sidelane_mpi::op::Op;
use sidelane_nic::spec::Spec;

use super::table::faster;
use super::{Compared, MOST, Shape, Taken, algorithms, cases};
use crate::collectives::rank::calls_min;
use crate::stats::median;

/// The life of rank `own` of `size`, on the drivers `specs`: compares the algorithms of each collective; with `rules`, which are of one
/// level, that one with two, where hosts have several ranks.
pub fn rank(own: u32, size: usize, specs: &[Spec], rounds: usize, rules: Option<&Table>) -> Result<(), Box<dyn Error>> {
    let config = Config::default();
    let ports = specs.iter().map(|spec| Port::open(spec, &config)).collect::<Result<Vec<_>, _>>()?;
    println!("{}", Process::here(&host_identity(), &ports));
    let processes: Vec<Process> =
        io::stdin().lines().take(size).map(|line| Ok(line?.parse()?)).collect::<Result<_, Box<dyn Error>>>()?;
    // Who has started us is gone when its end of the pipe is.
    std::thread::spawn(|| {
        let _ = io::stdin().lines().next();
        std::process::exit(1);
    });
    let hosts = processes.iter().map(|process| process.host.as_str()).collect::<HashSet<_>>().len();
    let device = Device::open(own, processes, ports, &config)?;
    let (own, send, receive) = (own as usize, vec![1; size * MOST], vec![1; size * MOST]);
    let mut measure = Measure { device, own, size, rounds, contexts: 0, send, receive };
    match rules {
        None => measure.algorithms()?,
        Some(rules) => measure.levels(hosts, rules)?,
    }
    measure.device.close(sidelane_nic::time::Duration::from_millis(1_000));
    Ok(())
}

struct Measure {
    device: Device,
    own: usize,
    size: usize,
    /// That count.
    rounds: usize,
    /// That were used.
    contexts: u32,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Measure {
    fn algorithms(&mut self) -> Result<(), sidelane_mpi::adi::Error> {
        for case in cases(self.size) {
            let algorithms: Vec<Algorithm> = algorithms(case).collect();
            let tables = algorithms.iter().map(|algorithm| Table::new(vec![always(case, *algorithm)])).collect();
            let rounds = self.compare(case, tables, BUDGET, self.rounds)?;
            let middle = |at: usize| {
                let mut taken: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
                median(&mut taken).expect("a round is measured at least")
            };
            let taken = algorithms.into_iter().enumerate();
            let mut taken: Vec<Taken> =
                taken.map(|(at, algorithm)| Taken { case, algorithm, ns: middle(at), again: None }).collect();
            self.once_more(&mut taken)?;
            taken.into_iter().for_each(|taken| self.tell(taken));
        }
        Ok(())
    }

    /// What is clearly faster than what is built in, beside that once more: of many algorithms the luckiest seems to be faster, also
    /// where all are alike.
    fn once_more(&mut self, taken: &mut [Taken]) -> Result<(), sidelane_mpi::adi::Error> {
        let case = taken[0].case;
        let (usual, best) = faster(taken);
        let mut everybody = self.ranks(Table::new(Vec::new()));
        // Each rank has times of its own.
        let told = self.agree(&mut everybody, best.map_or(0, |best| best as u32 + 1))?;
        let Some(best) = (told as usize).checked_sub(1) else { return Ok(()) };
        let tables = [usual, best].map(|at| Table::new(vec![always(case, taken[at].algorithm)])).to_vec();
        let rounds = self.compare(case, tables, BUDGET, ROUNDS_AGAIN)?;
        taken[best].again = median(&mut rounds.iter().map(|round| round[0] / round[1]).collect::<Vec<_>>());
        Ok(())
    }

    fn levels(&mut self, hosts: usize, rules: &Table) -> Result<(), sidelane_mpi::adi::Error> {
        let shape = Shape { hosts, each: self.size / hosts };
        for case in shape.cases() {
            let two = [&[always(case, Algorithm::TwoLevel)], rules.rules()].concat();
            let rounds = self.compare(case, vec![rules.clone(), Table::new(two)], LEVELS_BUDGET, self.rounds)?;
            self.tell(Compared { case, rounds: rounds.iter().map(|round| [round[0], round[1]]).collect() });
        }
        Ok(())
    }

    /// The time of a call by each of these tables in turn, in each round.
    fn compare(
        &mut self,
        case: Case,
        tables: Vec<Table>,
        budget: Duration,
        count: usize,
    ) -> Result<Vec<Vec<f64>>, sidelane_mpi::adi::Error> {
        let mut ways: Vec<Ranks> = tables.into_iter().map(|table| self.ranks(table)).collect();
        let mut rounds = Vec::new();
        // The first round only warms.
        for round in 0..=count.max(1) {
            let mut taken = Vec::new();
            for ranks in &mut ways {
                let once = self.timed(ranks, case, 1)?;
                let calls = self.agree(ranks, calls(once, budget))?;
                taken.push(self.timed(ranks, case, calls)?.as_nanos() as f64);
            }
            if round > 0 {
                rounds.push(taken);
            }
        }
        Ok(rounds)
    }

    /// All ranks, whose calls go by `table`, and within a host by shared memory, as those of jobs do.
    fn ranks(&mut self, table: Table) -> Ranks {
        self.contexts += 1;
        let everybody = (0..self.size as u32).collect();
        Ranks::new(&self.device, self.contexts, self.own, everybody, Arc::new(table))
    }

    /// Rank 0 does.
    fn tell(&self, line: impl fmt::Display) {
        if self.own == 0 {
            println!("{line}");
        }
    }

    /// Time a call.
    fn timed(&mut self, ranks: &mut Ranks, case: Case, calls: u32) -> Result<Duration, sidelane_mpi::adi::Error> {
        ranks.call(&mut self.device, Call::Barrier, None, &mut [], &mut add)?;
        let begin = Instant::now();
        for _ in 0..calls {
            self.call(ranks, case)?;
        }
        // A root that has run ahead waits for the others.
        ranks.call(&mut self.device, Call::Barrier, None, &mut [], &mut add)?;
        Ok(begin.elapsed() / calls)
    }

    /// Rank 0's number.
    fn agree(&mut self, ranks: &mut Ranks, number: u32) -> Result<u32, sidelane_mpi::adi::Error> {
        let mut told = number.to_ne_bytes();
        ranks.call(&mut self.device, Call::Broadcast { root: 0 }, None, &mut told, &mut add)?;
        Ok(u32::from_ne_bytes(told))
    }

    fn call(&mut self, ranks: &mut Ranks, case: Case) -> Result<(), sidelane_mpi::adi::Error> {
        let (size, bytes, is_root) = (self.size, case.bytes, self.own == 0);
        let reduction = Reduction { element: 4, commutative: true };
        let array = Some(&self.send[..bytes]);
        let at_root = |len: usize| if is_root { len } else { 0 };
        let whole = bytes * size;
        let (call, send, receive) = match case.collective {
            Collective::Barrier => (Call::Barrier, None, 0),
            Collective::Broadcast => (Call::Broadcast { root: 0 }, None, bytes),
            Collective::Reduce => (Call::Reduce { root: 0, reduction }, array, at_root(bytes)),
            Collective::Allreduce => (Call::Allreduce { reduction }, array, bytes),
            Collective::ReduceScatter => {
                let block = (bytes / 4 / size * 4).max(4);
                let array = Some(&self.send[..block * size]);
                (Call::ReduceScatter { blocks: Blocks::Equal(block), reduction }, array, block)
            }
            Collective::Scan => (Call::Scan { reduction }, array, bytes),
            Collective::Gather => (Call::Gather { root: 0, len: bytes }, array, at_root(whole)),
            Collective::Scatter => {
                (Call::Scatter { root: 0, len: bytes }, is_root.then_some(&self.send[..whole]), bytes)
            }
            Collective::Allgather => (Call::Allgather { len: bytes }, array, whole),
            Collective::Alltoall => (Call::Alltoall { len: bytes }, Some(&self.send[..whole]), whole),
        };
        ranks.call(&mut self.device, call, send, &mut self.receive[..receive], &mut add)
    }
}

/// How many calls a round times, when one took so long.
fn calls(once: Duration, budget: Duration) -> u32 {
    let fit = budget.as_nanos() / once.as_nanos().max(1);
    (fit.min(CALLS_MOST) as u32).max(calls_min(once))
}

/// This for what is measured, at any length.
fn always(case: Case, algorithm: Algorithm) -> Rule {
    Rule { collective: case.collective, ranks: 0..=usize::MAX, bytes: 0..=usize::MAX, algorithm }
}

/// `MPI_SUM` of `MPI_INT`.
fn add(into: &mut [u8], from: &[u8]) {
    Op::Sum.combine(Predefined::Int, into, from).expect("numbers can be added");
}

/// Of one round of calls, but for those of which ten take longer.
const BUDGET: Duration = Duration::from_millis(4);
/// The same where hosts have several ranks, which on few cores differ more from call to call.
const LEVELS_BUDGET: Duration = Duration::from_millis(8);
const CALLS_MOST: u128 = 500;
/// Fewest that have a middle; two ways of each, where there were two or more before.
const ROUNDS_AGAIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_calls_fill_their_time_and_long_ones_are_made_ten_times() {
        let of = |once| calls(once, BUDGET);
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        assert_eq!([of(us(0)), of(us(1)), of(us(40)), of(us(500))], [500, 500, 100, 10]);
        assert_eq!([of(ms(3)), of(ms(5)), of(ms(99)), of(ms(100)), of(ms(1_000))], [10, 10, 10, 1, 1]);
    }
}
