//! The collectives' table, measured: every algorithm of each collective by messages, among ranks that are processes, each on a host of
//! its own. For ranks that share hosts the built-in rules are handed on: those are on two levels, and within each go by what was measured.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidelane_mpi::adi::{Config, Device, Port, Process, host_identity};
use sidelane_mpi::coll::{Algorithm, Blocks, Call, Case, Collective, Reduction, Rule, Table};
use sidelane_mpi::comm::collective::Ranks;
use sidelane_mpi::datatype::Predefined;
use sidelane_mpi::op::Op;
use sidelane_nic::spec::Spec;

use crate::stats::median;

/// One algorithm at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// What was called.
    pub case: Case,
    /// How it was done.
    pub algorithm: Algorithm,
    /// A call, median over rounds.
    pub ns: f64,
}

/// What the table that was measured gains over the one that is built in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The collective's name.
    pub collective: String,
    /// Ranks.
    pub ranks: usize,
    /// Mean over sizes (geometric) of how many times as fast.
    pub mean: f64,
    /// The most at any size.
    pub most: f64,
}

/// Starts a rank of a measurement for each command, which has to come to [`rank`], and hands `each` what they find.
/// `each` may call it off by returning false.
pub fn measure(commands: Vec<Command>, mut each: impl FnMut(Taken) -> bool) -> io::Result<()> {
    let mut ranks = Started(Vec::new());
    for mut command in commands {
        ranks.0.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    let outputs: Vec<_> = ranks.0.iter_mut().filter_map(|rank| rank.stdout.take()).map(Said::of).collect();
    let mut all = String::new();
    for output in &outputs {
        let line = output.line()?.ok_or_else(|| io::Error::other("a rank could not begin"))?;
        all.extend([&line, "\n"]);
    }
    for rank in &mut ranks.0 {
        // It stays open: its end is the end of a rank.
        rank.stdin.as_mut().expect("piped above").write_all(all.as_bytes())?;
    }
    while let Some(line) = outputs[0].line()? {
        let taken = line.parse().map_err(|()| io::Error::other("a rank has said what cannot be understood"))?;
        if !each(taken) {
            return Ok(());
        }
    }
    match ranks.end_of_first()? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(io::Error::other(format!("rank 0 ended with {status}"))),
        None => Err(io::Error::other("rank 0 has said all and does not end")),
    }
}

/// The lines that a process says.
struct Said(Receiver<io::Result<String>>);

impl Said {
    fn of(output: ChildStdout) -> Self {
        let (said, lines) = mpsc::channel();
        // Ends with the process's output.
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| said.send(line)));
        Self(lines)
    }

    /// The next one; `None` at the end.
    fn line(&self) -> io::Result<Option<String>> {
        match self.0.recv_timeout(SILENCE_MAX) {
            Ok(line) => line.map(Some),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("a rank was silent for {SILENCE_MAX:?}")))
            }
        }
    }
}

/// Processes that end with this.
struct Started(Vec<Child>);

impl Started {
    /// How the first one ends; `None`: not soon.
    fn end_of_first(&mut self) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + ENDS_WITHIN;
        loop {
            match self.0[0].try_wait()? {
                None if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                ended => return Ok(ended),
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // Already dead is as good.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Lines that a measurement of `ranks` ranks gives.
pub fn count(ranks: usize) -> usize {
    cases(ranks).map(|case| algorithms(case).count()).sum()
}

/// The life of rank `own` of `size`, on the driver `spec`.
pub fn rank(own: u32, size: usize, spec: &Spec, rounds: usize) -> Result<(), Box<dyn Error>> {
    let config = Config::default();
    let ports = vec![Port::open(spec, &config)?];
    println!("{}", Process::here(&host_identity(), &ports));
    let processes: Vec<Process> =
        io::stdin().lines().take(size).map(|line| Ok(line?.parse()?)).collect::<Result<_, Box<dyn Error>>>()?;
    // Who has started us is gone when its end of the pipe is.
    std::thread::spawn(|| {
        let _ = io::stdin().lines().next();
        std::process::exit(1);
    });
    let device = Device::open(own, processes, ports, &config)?;
    let mut measure =
        Measure { device, own: own as usize, size, send: vec![1; size * MOST], receive: vec![1; size * MOST] };
    let mut context = 1;
    for case in cases(size) {
        let mut ways: Vec<(Algorithm, Ranks, Vec<f64>)> = algorithms(case)
            .map(|algorithm| {
                context += 1;
                let everybody = (0..size as u32).collect();
                let ranks =
                    Ranks::new(&measure.device, context, own as usize, everybody, Arc::new(only(case, algorithm)));
                (algorithm, ranks.without_shared_memory(), Vec::new())
            })
            .collect();
        for round in 0..=rounds {
            for (_, ranks, taken) in &mut ways {
                let once = measure.timed(ranks, case, 1)?;
                let calls = (BUDGET.as_nanos() / once.as_nanos().max(1)).clamp(1, CALLS_MOST) as u32;
                let calls = measure.agree(ranks, calls)?;
                let each = measure.timed(ranks, case, calls)?;
                // The first round only warms.
                if round > 0 {
                    taken.push(each.as_nanos() as f64);
                }
            }
        }
        for (algorithm, _, mut taken) in ways {
            let ns = median(&mut taken).ok_or("no round was measured")?;
            if own == 0 {
                println!("{}", Taken { case, algorithm, ns });
            }
        }
    }
    measure.device.close(sidelane_nic::time::Duration::from_millis(1_000));
    Ok(())
}

struct Measure {
    device: Device,
    own: usize,
    size: usize,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Measure {
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

/// What was measured, as rules for any number of ranks and bytes, and what they gain.
pub fn table(measured: &[Taken]) -> (Table, Vec<Gain>) {
    let built_in = Table::default();
    let (mut rules, mut gains) = (Table::two_levels().collect::<Vec<_>>(), Vec::new());
    for collective in Collective::ALL {
        let mut counts: Vec<usize> =
            measured.iter().filter(|one| one.case.collective == collective).map(|one| one.case.ranks).collect();
        counts.dedup();
        for (at, &ranks) in counts.iter().enumerate() {
            let of = |one: &&Taken| (one.case.collective, one.case.ranks) == (collective, ranks);
            let measured: Vec<&Taken> = measured.iter().filter(of).collect();
            let choices: Vec<Choice> =
                measured.chunk_by(|one, next| one.case == next.case).map(|ways| Choice::of(ways, &built_in)).collect();
            let ratios = choices.iter().map(|choice| choice.ratio);
            let mean = (ratios.clone().map(f64::ln).sum::<f64>() / choices.len() as f64).exp();
            let most = ratios.fold(1.0, f64::max);
            gains.push(Gain { collective: collective.to_string(), ranks, mean, most });
            let first = if at == 0 { 1 } else { middle(counts[at - 1], ranks) };
            let last = counts.get(at + 1).map_or(usize::MAX, |next| middle(ranks, *next) - 1);
            let mut from = 0;
            for alike in choices.chunk_by(|one, next| one.algorithm == next.algorithm) {
                let end = alike[alike.len() - 1].bytes;
                let next = choices.iter().find(|choice| choice.bytes > end);
                let to = next.map_or(usize::MAX, |next| middle(end, next.bytes) - 1);
                rules.push(Rule { collective, ranks: first..=last, bytes: from..=to, algorithm: alike[0].algorithm });
                from = to.saturating_add(1);
            }
        }
    }
    (Table::new(rules), gains)
}

/// The best algorithm for one case.
struct Choice {
    bytes: usize,
    algorithm: Algorithm,
    /// How many times as fast as what is built in.
    ratio: f64,
}

impl Choice {
    /// The one that is built in, unless another is better by [`WORTH`].
    fn of(ways: &[&Taken], built_in: &Table) -> Self {
        let case = ways[0].case;
        let usual = built_in.choose(case);
        let usual = ways.iter().find(|way| way.algorithm == usual).unwrap_or(&ways[0]);
        let best = ways.iter().min_by(|a, b| a.ns.total_cmp(&b.ns)).expect("a case has a way");
        let ratio = usual.ns / best.ns;
        let (algorithm, ratio) = if ratio > WORTH { (best.algorithm, ratio) } else { (usual.algorithm, 1.0) };
        Self { bytes: case.bytes, algorithm, ratio }
    }
}

/// Between two, in the middle of their logarithms, rounded up.
fn middle(one: usize, other: usize) -> usize {
    (one as f64 * other as f64).sqrt().ceil() as usize
}

/// Collectives that there are several algorithms for, at all sizes.
fn cases(ranks: usize) -> impl Iterator<Item = Case> {
    let all = Collective::ALL.into_iter().flat_map(move |collective| SIZES.map(|bytes| case(collective, ranks, bytes)));
    all.filter(|case| algorithms(*case).count() > 1)
}

/// Of ranks on hosts of their own.
fn case(collective: Collective, ranks: usize, bytes: usize) -> Case {
    Case { collective, ranks, hosts: ranks, bytes, commutative: true }
}

fn algorithms(case: Case) -> impl Iterator<Item = Algorithm> {
    let chains = [16 << 10, 64 << 10].map(|segment| Algorithm::Chain { segment });
    let all = case.collective.algorithms().iter().flat_map(move |algorithm| match algorithm {
        Algorithm::Chain { .. } => chains.to_vec(),
        other => vec![*other],
    });
    all.filter(move |algorithm| algorithm.can(case))
}

/// A table that has nothing but this for what is measured.
fn only(case: Case, algorithm: Algorithm) -> Table {
    let (ranks, bytes) = (0..=usize::MAX, 0..=usize::MAX);
    Table::new(vec![Rule { collective: case.collective, ranks, bytes, algorithm }])
}

/// `MPI_SUM` of `MPI_INT`.
fn add(into: &mut [u8], from: &[u8]) {
    Op::Sum.combine(Predefined::Int, into, from).expect("numbers can be added");
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { collective, ranks, bytes, .. } = self.case;
        write!(f, "{collective} {ranks} {bytes} {} {}", self.algorithm, self.ns)
    }
}

impl FromStr for Taken {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (rule, ns) = line.rsplit_once(' ').ok_or(())?;
        // The first four words are a rule of a table.
        let table: Table = rule.parse().map_err(|_| ())?;
        let [Rule { collective, ranks, bytes, algorithm }] = table.rules() else { return Err(()) };
        let case = case(*collective, *ranks.start(), *bytes.start());
        Ok(Self { case, algorithm: *algorithm, ns: ns.parse().map_err(|_| ())? })
    }
}

/// Bytes of an array or a block.
const SIZES: [usize; 6] = [8, 512, 4 << 10, 16 << 10, 64 << 10, MOST];
const MOST: usize = 256 << 10;

/// Far above what a case takes: a tenth of a second, and more where ranks share cores.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A rank that has said all closes its device within a second.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Nothing is measured any more.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Of one round of calls.
const BUDGET: Duration = Duration::from_millis(4);
const CALLS_MOST: u128 = 500;

/// Rounds of a few calls differ by this on a machine of fewer cores than ranks.
const WORTH: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(collective: Collective, ranks: usize, bytes: usize, algorithm: Algorithm, ns: f64) -> Taken {
        Taken { case: case(collective, ranks, bytes), algorithm, ns }
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let chain = Algorithm::Chain { segment: 100 };
        for one in
            [taken(Collective::Broadcast, 4, 8, chain, 12.5), taken(Collective::Allreduce, 2, 0, Algorithm::Ring, 1.0)]
        {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        for bad in ["", "allreduce 2 8 ring", "allreduce 2 8 bruck 3", "allreduce 2 8 ring x"] {
            assert_eq!(bad.parse::<Taken>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn rules_cover_every_case_with_what_was_fastest_nearby() {
        use Algorithm::{RecursiveDoubling, Ring};
        let mut measured = Vec::new();
        for (ranks, ring) in [(2, 50.0), (8, 200.0)] {
            for (bytes, factor) in [(8, 4.0), (1024, 1.0), (1 << 20, 0.1)] {
                measured.push(taken(Collective::Allreduce, ranks, bytes, RecursiveDoubling, 100.0));
                measured.push(taken(Collective::Allreduce, ranks, bytes, Ring, ring * factor));
            }
        }
        let (table, gains) = table(&measured);
        let choose = |ranks, bytes| table.choose(case(Collective::Allreduce, ranks, bytes));
        assert_eq!([choose(2, 8), choose(3, 512), choose(2, 1 << 30)], [RecursiveDoubling, Ring, Ring]);
        assert_eq!(
            [choose(4, 512), choose(100, 31 << 10), choose(9, 33 << 10)],
            [RecursiveDoubling, RecursiveDoubling, Ring]
        );
        let shared = Case { hosts: 2, ..case(Collective::Allreduce, 8, 8) };
        assert_eq!(table.choose(shared), Algorithm::TwoLevel, "nothing was measured of ranks that share hosts");
        assert_eq!(gains.len(), 2);
        assert!(gains.iter().all(|gain| gain.most >= gain.mean && gain.mean >= 1.0), "{gains:?}");
    }

    #[test]
    fn every_case_has_ways_to_choose_from() {
        for ranks in [2, 4, 8] {
            assert!(cases(ranks).all(|case| algorithms(case).count() >= 2), "{ranks}");
            assert!(cases(ranks).all(|case| case.collective != Collective::Barrier), "one way on one level");
        }
        assert!(count(3) < count(4), "recursive doubling is for powers of two");
    }
}
