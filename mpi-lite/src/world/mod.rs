//! A job's begin and end: finds the launcher, opens drivers, tells all processes where all others are.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `card` | what a process tells the others before anything is open |
//! | `networks` | the networks that this host is in |
//! | `plan` | which drivers a process opens, by everybody's cards; no I/O |
//! | `open` | opens them |
//! | `tuning` | measured thresholds: their file, and how ranks agree on one |
//! | `run` | a whole job, with a communicator for its ranks |
//! | `session` | parts of a program that share a job |

mod card;
mod networks;
mod open;
mod plan;
mod run;
mod session;
pub mod tuning;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use sidelane_nic::spec::SpecError;
use sidelane_nic::time::Duration;
use sidelane_proto::{Protection, ProtectionError};

use crate::adi::{self, Device, Envelope, Incoming, Mode, Outgoing, Pattern, Process, Source};
use crate::coll::Table;
use crate::comm::Communicator;
use crate::launch::{Abort, Launch, LaunchError, PmiError};

use card::{Card, Told};
use plan::{Plan, Wish};
pub use run::{begin, run, run_or_abort, run_with_threads};
pub use session::{SELF, Session, TAG_MAX, WORLD};
use tuning::{Tuning, TuningError};

/// A process's place in a running job.
pub struct World {
    job: Job,
    device: Device,
    table: Arc<Table>,
    abort: Abort,
}

/// What remains of a [`World`] when its device has been taken: the way to end.
#[derive(Debug)]
pub struct Job {
    launch: Launch,
    rank: usize,
    size: usize,
}

/// Why a process cannot take part in its job.
#[derive(thiserror::Error)]
pub enum WorldError {
    /// It is not known who takes part.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The launcher failed.
    #[error(transparent)]
    Pmi(#[from] PmiError),
    /// `SIDELANE_NIC` makes no sense.
    #[error("SIDELANE_NIC: {0}")]
    Wish(#[from] SpecError),
    /// `SIDELANE_SILENCE` makes no sense.
    #[error("SIDELANE_SILENCE: `{0}` is no number of seconds, at least 0.1")]
    Silence(String),
    /// `SIDELANE_PROTECTION` makes no sense.
    #[error("SIDELANE_PROTECTION: {0}")]
    Protection(#[from] ProtectionError),
    /// Ranks were told of different protections, or keys.
    #[error("rank {0} has another SIDELANE_PROTECTION than rank 0: set it alike for all ranks, or for none")]
    OtherProtection(usize),
    /// Ranks of one host are of different users, who share no memory.
    #[error(
        "rank {rank} is a process of user {user}, and another rank on its host one of user {other}: start all as the same user, \
         since ranks of one host share memory"
    )]
    OtherUser {
        /// Who.
        rank: usize,
        /// Whose that is.
        user: u32,
        /// Whose the first rank on its host is.
        other: u32,
    },
    /// There is no way to other hosts.
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    /// A driver could not be opened.
    #[error("cannot open `{spec}`: {error}")]
    Open {
        /// The driver.
        spec: String,
        /// Its reason.
        error: sidelane_nic::spec::OpenError,
    },
    /// The tuning file that this process was told of.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// Ranks were told of different ones.
    #[error("rank {0} was told of another tuning file than rank 0, which tells all others: set {var} alike, or nowhere", var = tuning::VARIABLE)]
    OtherTuning(usize),
    /// What another process said is not what our version would have said.
    #[error("rank {0} has said something else than this version of Sidelane would")]
    OtherVersion(usize),
    /// A process is reached by none of our ports.
    #[error("{0}; do all ranks have the same SIDELANE_NIC?")]
    Device(#[from] adi::OpenError),
}

/// In words too: it is what a `main` that returns an error prints, and most of these say what to type.
impl fmt::Debug for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl World {
    /// Takes part in the job that this process was started for; alone if for none. Once in a process. All ranks have to
    /// call it, and it returns when all are here.
    pub fn init() -> Result<Self, WorldError> {
        Self::of(Launch::find()?, &adi::Config::default())
    }

    /// As [`World::init`], with a launch and settings of the caller's, of which a tuning file replaces the limits and
    /// `SIDELANE_PROTECTION` the protection.
    pub fn of(mut launch: Launch, config: &adi::Config) -> Result<Self, WorldError> {
        let (rank, size) = (launch.rank(), launch.size());
        if size == 1 {
            let own = Process::here(&adi::host_identity(), &[]);
            return Ok(Self {
                device: Device::open(0, vec![own], Vec::new(), config)?,
                abort: launch.to_abort()?,
                job: Job { launch, rank, size },
                table: Arc::default(),
            });
        }
        let wish = Wish::of_environment(std::env::var("SIDELANE_NIC").ok().as_deref())?;
        let told = std::env::var_os("SIDELANE_PROTECTION").map(|text| text.to_string_lossy().into_owned());
        let protection = told.map_or(Ok(config.endpoint.protection), |text| text.parse::<Protection>())?;
        let config = &adi::Config { endpoint: sidelane_proto::Config { protection, ..config.endpoint }, ..*config };
        let told = Tuning::find(rank)?;
        let card = Card::of_this_process(rank, protection.fingerprint(), told.as_ref());
        let mut cards = exchange(&mut launch, &card)?;
        tell_clones_apart(&mut cards);
        if let Some(rank) = cards.iter().position(|card| card.protection != cards[0].protection) {
            return Err(WorldError::OtherProtection(rank));
        }
        one_user_a_host(&cards)?;
        let tuning = agree(&cards)?;
        let plan = Plan::make(&cards, rank, &wish)?;
        plan.tell(rank, tuning.as_ref());
        let tuned = tuning.as_ref().map(|tuning| tuning.apply(config, plan.on_host.as_ref(), plan.off_host.as_ref()));
        let config = tuned.as_ref().unwrap_or(config);
        let ports = open::all(&plan, config)?;
        // Before anybody knows of us.
        adi::let_siblings_read();
        let processes = exchange(&mut launch, &Process::here(&cards[rank].host, &ports))?;
        let mut device = Device::open(rank as u32, processes, ports, config)?;
        device.on_no_answer(Box::new(move |to| plan.tell_of_no_answer(rank, to as usize)));
        if let Some(mut news) = launch.watch_ranks()? {
            device.on_idle_ask(Box::new(move || news().map(|rank| rank as u32)));
        }
        Ok(Self {
            device,
            abort: launch.to_abort()?,
            job: Job { launch, rank, size },
            table: Arc::new(tuning.map(|tuning| tuning.table()).unwrap_or_default()),
        })
    }

    /// Below `size`.
    pub fn rank(&self) -> usize {
        self.job.rank
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        self.job.size
    }

    /// The way to all other ranks. Contexts from [`CONTEXTS`] on are the world's own.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Which algorithms the job's collective calls go by.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The communicator of all ranks, which goes by the job's table, and the way to end. `threads` as in
    /// [`Communicator::world`].
    pub fn into_communicator(self, threads: bool) -> (Job, Communicator) {
        let world = Communicator::world_with(self.device, threads, self.table);
        let abort = self.abort;
        world.aborts_by(Box::new(move |code, why| abort.ask(code, why)));
        (self.job, world)
    }

    /// For who keeps the device elsewhere.
    pub fn into_parts(self) -> (Job, Device) {
        (self.job, self.device)
    }

    /// Ends this rank's part. All ranks have to call it, when their own requests are over; it returns when all have.
    pub fn finalize(self) -> Result<(), WorldError> {
        self.job.finalize(self.device)
    }
}

impl Job {
    /// Below `size`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The launcher, for who wants to know more of it.
    pub fn launch(&mut self) -> &mut Launch {
        &mut self.launch
    }

    /// As [`World::finalize`].
    pub fn finalize(self, mut device: Device) -> Result<(), WorldError> {
        meet(&mut device, self.rank, self.size);
        device.close(CLOSE_LIMIT);
        Ok(self.launch.finalize()?)
    }
}

/// Tells all ranks `own`, and returns what each has told.
fn exchange<T: Display + FromStr>(launch: &mut Launch, own: &T) -> Result<Vec<T>, WorldError> {
    let all = launch.exchange(&own.to_string())?;
    all.iter().enumerate().map(|(rank, text)| text.parse().map_err(|_| WorldError::OtherVersion(rank))).collect()
}

/// Machines that were cloned as they ran share what tells kernels apart, and no memory. In a network namespace all see the same networks.
fn tell_clones_apart(cards: &mut [Card]) {
    // Of each name of a host the first ranks, one a machine.
    let mut machines: HashMap<String, Vec<usize>> = HashMap::new();
    // Who sees no network is of the first machine, and tells nothing of others.
    let (seeing, others): (Vec<_>, Vec<_>) = (0..cards.len()).partition(|rank| !cards[*rank].nets.is_empty());
    for rank in seeing.into_iter().chain(others) {
        let firsts = machines.entry(cards[rank].host.clone()).or_default();
        let is_there = |first: &&usize| {
            let (here, there) = (&cards[rank].nets, &cards[**first].nets);
            here.is_empty() || there.is_empty() || here.iter().any(|net| there.contains(net))
        };
        if let Some(first) = firsts.iter().find(is_there) {
            cards[rank].host = cards[*first].host.clone();
            continue;
        }
        if !firsts.is_empty() {
            cards[rank].host += &format!(".{rank}");
        }
        firsts.push(rank);
    }
}

/// Ranks of different users would wait for each other on their host for ever.
fn one_user_a_host(cards: &[Card]) -> Result<(), WorldError> {
    for (rank, card) in cards.iter().enumerate() {
        let first = cards.iter().find(|first| first.host == card.host).unwrap_or(card);
        if first.user != card.user {
            return Err(WorldError::OtherUser { rank, user: card.user, other: first.user });
        }
    }
    Ok(())
}

/// The tuning that all ranks go by: rank 0's. Every rank sees the same cards, and so comes to the same.
fn agree(cards: &[Card]) -> Result<Option<Tuning>, WorldError> {
    let counts = cards[0].tuning.hash();
    let other = |card: &Card| card.tuning.hash().is_some_and(|hash| Some(hash) != counts);
    if let Some(rank) = cards.iter().position(other) {
        return Err(WorldError::OtherTuning(rank));
    }
    match &cards[0].tuning {
        Told::Nothing => Ok(None),
        Told::Whole(line) => Tuning::parse(line).map(Some).map_err(|_| WorldError::OtherVersion(0)),
        Told::Hash(_) => Err(WorldError::OtherVersion(0)),
    }
}

/// The first context number that no communicator has.
pub const CONTEXTS: u32 = u32::MAX - 1;

/// Returns when all ranks have called it: until then, others may need our turns. In round `k` each rank tells the one
/// `2^k` above it (dissemination: Hensgen, Finkel and Manber, 1988). A rank that is gone is not waited for.
fn meet(device: &mut Device, rank: usize, size: usize) {
    let mut distance = 1;
    while distance < size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        // A distance is a tag: two rounds' words are not taken for each other.
        let tag = distance as i32;
        let source = Some(Source { rank: from as u32, process: from as u32 });
        let receive = device.recv(Pattern { context: CONTEXTS, source, tag: Some(tag) }, Incoming::EMPTY);
        let envelope = Envelope::new(CONTEXTS, rank as u32, tag);
        let send = device.send(to as u32, envelope, Outgoing::EMPTY, Mode::Standard);
        device.wait(send);
        device.wait(receive);
        distance *= 2;
    }
}

/// What is sent has been received when all are here; only the connections' ends are waited for.
const CLOSE_LIMIT: Duration = Duration::from_millis(1000);

#[cfg(test)]
mod tests;
