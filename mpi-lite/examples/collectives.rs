//! Times of collective calls among processes of this host, as many as the arguments say, beside no others: how to run the same
//! with an installed MPI is in `bench/NOTES.md`.
//!
//! ```text
//! cargo run --release -p sidelane-mpi --example collectives -- 2 4 8 16
//! ```
//!
//! Prints `COLLECTIVE,RANKS,BYTES,MICROSECONDS` a line. With `--messages` nothing goes by shared memory but messages.
#![allow(unsafe_code)] // A process of a job asks to end with the one that started it.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelane_mpi::adi::{Config, Device, Port, Process, host_identity};
use sidelane_mpi::coll::{Blocks, Call, Reduction, Table};
use sidelane_mpi::comm::collective::Ranks;
use sidelane_mpi::datatype::Predefined;
use sidelane_mpi::op::Op;

fn main() -> Result<(), Box<dyn Error>> {
    let (options, numbers): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let messages = options.iter().any(|option| option == "--messages");
    if let Ok(place) = std::env::var(PLACE) {
        let (own, size) = place.split_once('/').ok_or("a place is OWN/SIZE")?;
        return rank(own.parse()?, size.parse()?, messages);
    }
    for size in numbers {
        start(size.parse()?, &options)?;
    }
    Ok(())
}

/// Starts the ranks, and tells each what all have said of themselves.
fn start(size: usize, options: &[String]) -> Result<(), Box<dyn Error>> {
    let mut ranks: Vec<Child> = Vec::new();
    for own in 0..size {
        let mut rank = Command::new(std::env::current_exe()?);
        rank.args(options).env(PLACE, format!("{own}/{size}")).env(JOB, std::process::id().to_string());
        ranks.push(rank.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    }
    let mut outputs: Vec<_> = ranks.iter_mut().filter_map(|rank| rank.stdout.take()).map(io::BufReader::new).collect();
    let mut all = String::new();
    for output in &mut outputs {
        output.read_line(&mut all)?;
    }
    for rank in &mut ranks {
        rank.stdin.take().ok_or("a rank has an input")?.write_all(all.as_bytes())?;
    }
    for line in outputs.remove(0).lines() {
        println!("{}", line?);
    }
    for rank in &mut ranks {
        rank.wait()?;
    }
    Ok(())
}

fn rank(own: u32, size: usize, messages: bool) -> Result<(), Box<dyn Error>> {
    // SAFETY: The call takes a number and no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let config = Config::default();
    let domain = format!("shm:collectives-{}", std::env::var(JOB)?);
    let ports = vec![Port::open(&domain.parse()?, &config)?];
    println!("{}", Process::here(&host_identity(), &ports));
    let processes = io::stdin().lines().map(|line| Ok(line?.parse()?)).collect::<Result<_, Box<dyn Error>>>()?;
    let mut device = Device::open(own, processes, ports, &config)?;
    let everybody = (0..size as u32).collect();
    let mut ranks = Ranks::new(&device, 1, own as usize, everybody, Arc::new(Table::default()));
    if messages {
        ranks = ranks.without_shared_memory();
    }
    let mut measure = Measure {
        device: &mut device,
        ranks: &mut ranks,
        own: own as usize,
        size,
        send: vec![1; size << 20],
        receive: vec![1; size << 20],
    };
    measure.all()?;
    measure.device.close(sidelane_nic::time::Duration::from_millis(1_000));
    Ok(())
}

struct Measure<'a> {
    device: &'a mut Device,
    ranks: &'a mut Ranks,
    own: usize,
    size: usize,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Measure<'_> {
    fn all(&mut self) -> Result<(), Box<dyn Error>> {
        for name in NAMES {
            for bytes in SIZES {
                let bytes = if name == "barrier" { 0 } else { bytes };
                if name == "reduce-scatter" && bytes < 4 * self.size {
                    continue;
                }
                self.timed(name, bytes, 2)?;
                let mut once = self.timed(name, bytes, 3)?.as_nanos() as u64;
                let mut told = once.to_ne_bytes();
                self.ranks.call(self.device, Call::Broadcast { root: 0 }, None, &mut told, &mut add)?;
                once = u64::from_ne_bytes(told).max(1);
                let calls = (BUDGET.as_nanos() as u64 / once).clamp(2, 1_000) as u32;
                let mut rounds = [Duration::ZERO; 3];
                for round in &mut rounds {
                    *round = self.timed(name, bytes, calls)?;
                }
                rounds.sort();
                if self.own == 0 {
                    println!("{name},{},{bytes},{:.2}", self.size, rounds[1].as_secs_f64() * 1e6);
                }
                if name == "barrier" {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Time a call.
    fn timed(&mut self, name: &str, bytes: usize, calls: u32) -> Result<Duration, Box<dyn Error>> {
        self.ranks.call(self.device, Call::Barrier, None, &mut [], &mut add)?;
        let begin = Instant::now();
        for _ in 0..calls {
            self.call(name, bytes)?;
        }
        // A root that has run ahead waits for the others.
        self.ranks.call(self.device, Call::Barrier, None, &mut [], &mut add)?;
        Ok(begin.elapsed() / calls)
    }

    fn call(&mut self, name: &str, bytes: usize) -> Result<(), sidelane_mpi::adi::Error> {
        let (size, is_root) = (self.size, self.own == 0);
        let reduction = Reduction { element: 4, commutative: true };
        let array = Some(&self.send[..bytes]);
        let at_root = |len: usize| if is_root { len } else { 0 };
        let whole = bytes * size;
        let (call, send, receive) = match name {
            "barrier" => (Call::Barrier, None, 0),
            "broadcast" => (Call::Broadcast { root: 0 }, None, bytes),
            "reduce" => (Call::Reduce { root: 0, reduction }, array, at_root(bytes)),
            "allreduce" => (Call::Allreduce { reduction }, array, bytes),
            "reduce-scatter" => {
                let block = bytes / 4 / size * 4;
                let array = Some(&self.send[..block * size]);
                (Call::ReduceScatter { blocks: Blocks::Equal(block), reduction }, array, block)
            }
            "scan" => (Call::Scan { reduction }, array, bytes),
            "gather" => (Call::Gather { root: 0, len: bytes }, array, at_root(whole)),
            "scatter" => (Call::Scatter { root: 0, len: bytes }, is_root.then_some(&self.send[..whole]), bytes),
            "allgather" => (Call::Allgather { len: bytes }, array, whole),
            _ => (Call::Alltoall { len: bytes }, Some(&self.send[..whole]), whole),
        };
        self.ranks.call(self.device, call, send, &mut self.receive[..receive], &mut add)
    }
}

/// `MPI_SUM` of `MPI_INT`.
fn add(into: &mut [u8], from: &[u8]) {
    Op::Sum.combine(Predefined::Int, into, from).expect("numbers can be added");
}

const NAMES: [&str; 10] = [
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "reduce-scatter",
    "scan",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
];
const SIZES: [usize; 5] = [8, 1 << 10, 16 << 10, 128 << 10, 1 << 20];

/// Of one round of calls.
const BUDGET: Duration = Duration::from_millis(10);

/// Which rank of how many a process is.
const PLACE: &str = "COLLECTIVES_PLACE";
/// What the ranks of a job have in common.
const JOB: &str = "COLLECTIVES_JOB";
