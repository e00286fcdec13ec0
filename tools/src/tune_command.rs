//! `sidelane tune`: measures where protocols and collectives change on this machine, and writes what jobs go by.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sidelane::lab::{HOSTS_MAX, Lab, LabError, LabSpec};
use sidelane_bench::ladder::{LadderError, NicKind, NoSuch, Pair, PairError, Regime};
use sidelane_bench::tune::collectives::{self, Compared, Gain, Shape, Taken};
use sidelane_bench::tune::{self, Driver, Effort, Tuned};
use sidelane_mpi::coll::{Algorithm, Table};
use sidelane_mpi::world::tuning;
use sidelane_nic::spec::Spec;

use crate::interrupt::{self, Interrupted};
use crate::ladder::{Place, distinct, needs_a_lab};
use crate::out_file::{self, OutFile, WriteError};

/// What to tune, and where to put it.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Drivers, comma separated; 0 leaves their limits out [default: shm, uring, udp and xdp, as far as they run here]
    #[arg(long, value_delimiter = ',', value_name = "DRIVER", value_parser = nic)]
    pub nic: Vec<Option<NicKind>>,
    /// Numbers of ranks to measure the collectives with, comma separated; 0 leaves the collectives out [default: 2,4,8]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = ranks)]
    pub ranks: Vec<usize>,
    /// Hosts and ranks on each to compare the collectives on, as HOSTSxRANKS, comma separated: on one level, all ranks alike, or on two,
    /// first within each host and then between hosts; 0 leaves that out [default: 2x4,4x4, with --quick 2x4, and 0 with --ranks 0]
    #[arg(long, value_delimiter = ',', value_name = "HxR", value_parser = shape)]
    pub two_level: Vec<Option<Shape>>,
    /// Fewer and shorter rounds: two to three minutes instead of four
    #[arg(long)]
    pub quick: bool,
    /// Where jobs shall find it; `-` is standard output, and tables and figures then go to standard error [default:
    /// ~/.config/sidelane/tuning.json]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print all figures as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

impl TuneArgs {
    /// Without collectives of one level, two levels are measured only where they are asked for.
    fn leaves_everything_out(&self) -> bool {
        let no_drivers = !self.nic.is_empty() && self.nic.iter().all(Option::is_none);
        let no_collectives = !self.ranks.is_empty() && self.ranks.iter().all(|ranks| *ranks == 0);
        no_drivers && no_collectives && self.two_level.iter().all(Option::is_none)
    }

    fn asks_for_collectives(&self) -> bool {
        self.ranks.iter().any(|ranks| *ranks > 0) || self.two_level.iter().any(Option::is_some)
    }
}

pub const NOTES: &str = "\
Examples:
  sidelane tune                                      everything, for all jobs of this user
  sidelane tune --quick --nic uring --ranks 0        one driver, in half a minute
  sidelane tune --nic 0 --ranks 2,16                 the collectives alone
  sidelane tune --output tuned.json --two-level 4x2,2x8    for 4 hosts of 2 ranks, and 2 of 8
  SIDELANE_TUNING=tuned.json sidelane run -n 4 ./program
  SIDELANE_TUNING= sidelane run -n 4 ./program       with what is built in

Measured are, for each driver: up to which size a message goes without being asked for, how much of a longer one goes \
along with its announcement, and from where on the rest is put into the receiver's memory, or read from the sender's. \
For the collectives, by messages between as many hosts of a lab as there are ranks: which algorithm, by ranks and \
bytes. Then between fewer hosts with several ranks each (--two-level): whether a call is faster on one level or on \
two, within hosts and between them; that goes for as many ranks on whichever hosts, and for the numbers of ranks and \
bytes nearer to these than to others that were measured. Ranks of one host share memory instead and need no table. \
What is not clearly better than what is built in stays as it is: an algorithm has to be so by 5 %, and faster when \
both are measured once more, one level or two by 10 % and in ten of eleven rounds (--quick: in all of five). \
Collectives that fail (a rank dies, a lab cannot be made) are left out, unless an option asked for them. The file is \
replaced as a whole: what it said of drivers and collectives that are left out this time is gone.

A job goes by the file that its rank 0 finds, which tells all others; a rank that was told of another file by \
SIDELANE_TUNING ends the job. It counts for all jobs on drivers of the same kind, whatever their machine and frames: \
SIDELANE_VERBOSE=1 tells where it was made. Let nothing else run meanwhile.";

/// Why nothing was tuned.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("nowhere to write to: neither XDG_CONFIG_HOME nor HOME is set; name a file with --output")]
    NoHome,
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot make {}: {source}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    #[error("{0}: {1}")]
    Driver(NicKind, LadderError),
    #[error("collectives of {0} ranks: {1}")]
    Collectives(usize, io::Error),
    #[error("collectives of {hosts} hosts with {each} ranks each: {source}", hosts = shape.hosts, each = shape.each)]
    Levels { shape: Shape, source: io::Error },
    #[error("none of the drivers runs here; `sidelane doctor` tells why")]
    NoDriver,
    #[error("collectives are measured between hosts of a lab, and there is none: {0}")]
    NoLab(LabError),
    #[error("nothing is left to measure: neither drivers (--nic) nor collectives (--ranks, --two-level)")]
    Nothing,
    #[error("nothing could be measured, so nothing is written, and a file of before is as it was")]
    NothingMeasured,
}

/// Tunes; returns how it ends, as [`interrupt::code_of`] has it.
pub fn run(args: &TuneArgs) -> Result<i32, Failure> {
    if args.leaves_everything_out() {
        return Err(Failure::Nothing);
    }
    let file = args.output.clone().or_else(tuning::usual_file).ok_or(Failure::NoHome)?;
    // Before the minutes of measuring, not after them. A folder that somebody has named may be a slip.
    if let (None, Some(folder)) = (&args.output, file.parent()) {
        fs::create_dir_all(folder).map_err(|source| Failure::Folder { folder: folder.to_owned(), source })?;
    }
    let output = OutFile::new(&file)?;
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    let outcome = measure(args, &interrupted);
    if interrupted.is_set() {
        return Ok(interrupted.code());
    }
    let tuned = outcome?;
    output.write(&tuned.tuning().to_text())?;
    if args.json {
        out_file::show(tuned.to_json().trim_end(), [&output]);
    } else {
        out_file::show(&tuned, [&output]);
        if !output.is_output() {
            crate::say(format_args!("\nwritten to {}", file.display()));
        }
    }
    Ok(0)
}

/// A driver of jobs; `None` for 0.
fn nic(text: &str) -> Result<Option<NicKind>, String> {
    if text == "0" {
        return Ok(None);
    }
    match text.parse() {
        Ok(NicKind::Mem) => Err("no job runs on `mem`, which is within one process".to_owned()),
        Ok(NicKind::Dpdk) => {
            Err("one machine alone cannot tell of cards; its DPDK pairs are `memif` and `vhost`".to_owned())
        }
        Ok(nic) => Ok(Some(nic)),
        Err(NoSuch { .. }) => {
            Err("no driver of jobs on one machine; these are uring, xdp, udp, shm, memif and vhost".to_owned())
        }
    }
}

/// A number of ranks, each on a host of a lab.
fn ranks(text: &str) -> Result<usize, String> {
    let ranks = text.parse().ok().filter(|ranks| *ranks == 0 || (2..=HOSTS_MAX).contains(ranks));
    ranks.ok_or_else(|| format!("2 to {HOSTS_MAX}, the most hosts of a lab, or 0"))
}

/// Hosts of a lab with several ranks each; `None` for 0.
fn shape(text: &str) -> Result<Option<Shape>, String> {
    if text == "0" {
        return Ok(None);
    }
    // Each factor first: their product may be more than a number can be.
    let has_room =
        |shape: &Shape| shape.hosts <= HOSTS_MAX && shape.each <= SHARING_MAX && shape.ranks() <= SHARING_MAX;
    let shape = text.parse().ok().filter(has_room);
    let wanted = format!(
        "HOSTSxRANKS such as 4x2: 2 to {HOSTS_MAX} hosts, 2 or more ranks on each, at most {SHARING_MAX} in all; or 0"
    );
    shape.map(Some).ok_or(wanted)
}

fn measure(args: &TuneArgs, interrupted: &Interrupted) -> Result<Tuned, Failure> {
    let (place, in_a_lab) = match Place::lab() {
        Ok(place) => (place, true),
        Err(error) if args.asks_for_collectives() => return Err(Failure::NoLab(error)),
        Err(error) => (Place::without_lab(&error), false),
    };
    let effort = if args.quick { Effort::QUICK } else { Effort::USUAL };
    let usual = [NicKind::Shm, NicKind::Uring, NicKind::Udp, NicKind::Xdp].map(Some);
    let nics = if args.nic.is_empty() { usual.to_vec() } else { distinct(&args.nic) };
    let wanted: Vec<NicKind> = nics.iter().copied().flatten().filter(|nic| in_a_lab || !needs_a_lab(*nic)).collect();
    if !args.nic.is_empty() {
        place.rehearse(&wanted).map_err(|(nic, error)| Failure::Driver(nic, error))?;
    }
    let mut drivers = Vec::new();
    for nic in wanted {
        match limits(nic, &place, effort, interrupted) {
            Ok(driver) => drivers.push(driver),
            Err(Failure::Driver(nic, LadderError::Sides(error))) if error.is_report() && args.nic.is_empty() => {
                tell!("{nic} is left out: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    if drivers.is_empty() && nics.iter().any(Option::is_some) {
        return Err(Failure::NoDriver);
    }
    let (one_level, gains, compared) = if in_a_lab {
        let (one_level, gains) = collectives(args, effort, interrupted)?;
        let compared = levels(args, effort, one_level.as_ref(), interrupted)?;
        (one_level, gains, compared)
    } else {
        tell!("collectives go as built in, since that takes a lab to measure");
        Default::default()
    };
    let (two_levels, decisions) = collectives::two_levels(&compared);
    let is_measured = one_level.is_some() || !compared.is_empty();
    if drivers.is_empty() && !is_measured {
        return Err(Failure::NothingMeasured);
    }
    let rest = one_level.unwrap_or_else(built_in_of_one_level);
    let table = is_measured.then(|| Table::new([&two_levels, rest.rules()].concat()));
    Ok(Tuned::new(drivers, gains, decisions, table.as_ref()))
}

fn limits(nic: NicKind, place: &Place, effort: Effort, interrupted: &Interrupted) -> Result<Driver, Failure> {
    let failed = |error| Failure::Driver(nic, error);
    let regime = Regime::DefaultOffloads;
    // It lives as long as the sides in it.
    let mut labs = Vec::new();
    let (a, b) = place.hosts(&[nic], regime, &mut labs).map_err(|e| failed(LadderError::Hosts(regime, e)))?;
    let mut pair = Pair::spawn(a, b).map_err(|error: PairError| failed(LadderError::Sides(error)))?;
    let bar = Bar::start(&nic.to_string(), effort.measurements(nic));
    let driver = tune::driver(nic, effort, &mut pair, || {
        bar.step();
        !interrupted.is_set()
    });
    bar.end();
    driver.map_err(failed)
}

fn collectives(
    args: &TuneArgs,
    effort: Effort,
    interrupted: &Interrupted,
) -> Result<(Option<Table>, Vec<Gain>), Failure> {
    let counts = if args.ranks.is_empty() { &RANKS[..] } else { &args.ranks };
    let mut counts: Vec<usize> = counts.iter().copied().filter(|ranks| *ranks > 1).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut measured: Vec<Taken> = Vec::new();
    for ranks in counts.into_iter().take_while(|_| !interrupted.is_set()) {
        let found = algorithms(ranks, effort, interrupted);
        let found = found.map_err(|source| Failure::Collectives(ranks, source));
        measured.extend(found_or_left_out(found, !args.ranks.is_empty(), interrupted)?);
    }
    let (table, gains) = collectives::one_level(&measured);
    Ok(((!measured.is_empty()).then_some(table), gains))
}

/// Compares the algorithms among so many ranks, each on a host of its own.
fn algorithms(ranks: usize, effort: Effort, interrupted: &Interrupted) -> io::Result<Vec<Taken>> {
    let (lab, rounds) = (lab_of(ranks)?, effort.rounds.div_ceil(2));
    let command = |rank| rank_command((&lab, rank), [rank, ranks, rounds], &[uring(&lab, rank, 0)]);
    let commands: io::Result<Vec<Command>> = (0..ranks).map(command).collect();
    heard(&format!("collectives of {ranks} ranks"), collectives::count(ranks), commands?, interrupted)
}

/// Compares one level, which goes by `one_level`, with two.
fn levels(
    args: &TuneArgs,
    effort: Effort,
    one_level: Option<&Table>,
    interrupted: &Interrupted,
) -> Result<Vec<Compared>, Failure> {
    let usual: &[Shape] = if one_level.is_none() {
        &[]
    } else if args.quick {
        &[TWO_BY_FOUR]
    } else {
        &[TWO_BY_FOUR, FOUR_BY_FOUR]
    };
    let mut shapes: Vec<Shape> =
        if args.two_level.is_empty() { usual.to_vec() } else { args.two_level.iter().copied().flatten().collect() };
    shapes.sort_unstable();
    shapes.dedup();
    let rules = one_level.cloned().unwrap_or_else(built_in_of_one_level).to_string();
    let mut compared = Vec::new();
    for shape in shapes.into_iter().take_while(|_| !interrupted.is_set()) {
        let found = both_levels(shape, effort, &rules, interrupted);
        let found = found.map_err(|source| Failure::Levels { shape, source });
        compared.extend(found_or_left_out(found, !args.two_level.is_empty(), interrupted)?);
    }
    Ok(compared)
}

/// Compares one level with two between such hosts.
fn both_levels(shape: Shape, effort: Effort, rules: &str, interrupted: &Interrupted) -> io::Result<Vec<Compared>> {
    let lab = lab_of(shape.hosts)?;
    // More than of algorithms: each call has two ways only, and processes that share cores take turns as they like.
    let rounds = 2 * effort.rounds + 1;
    let command = |rank| {
        let (host, place) = (rank / shape.each, rank % shape.each);
        let specs = [shm(place), uring(&lab, host, place as u16)];
        let mut command = rank_command((&lab, host), [rank, shape.ranks(), rounds], &specs)?;
        command.args(["--rules", rules]);
        Ok(command)
    };
    let commands: io::Result<Vec<Command>> = (0..shape.ranks()).map(command).collect();
    let what = format!("one level and two, {} hosts with {} ranks each", shape.hosts, shape.each);
    heard(&what, shape.count(), commands?, interrupted)
}

/// All that these ranks find.
fn heard<T: FromStr>(
    what: &str,
    lines: usize,
    commands: Vec<Command>,
    interrupted: &Interrupted,
) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    let bar = Bar::start(what, lines);
    let outcome = collectives::measure(commands, |one| {
        bar.step();
        all.push(one);
        !interrupted.is_set()
    });
    bar.end();
    outcome.map(|()| all)
}

/// A failure of what was not asked for by an option is told, and leaves nothing of it: not what was found before either, since the last
/// length that was measured stands for all longer ones.
fn found_or_left_out<T>(
    found: Result<Vec<T>, Failure>,
    is_asked_for: bool,
    interrupted: &Interrupted,
) -> Result<Vec<T>, Failure> {
    match found {
        Err(failure) if !is_asked_for => {
            if !interrupted.is_set() {
                tell!("left out: {failure}");
            }
            Ok(Vec::new())
        }
        found => found,
    }
}

fn built_in_of_one_level() -> Table {
    let rules = Table::default().rules().to_vec();
    Table::new(rules.into_iter().filter(|rule| rule.algorithm != Algorithm::TwoLevel).collect())
}

fn lab_of(hosts: usize) -> io::Result<Lab> {
    Lab::build(&LabSpec { hosts, ..LabSpec::default() }).map_err(io::Error::other)
}

/// A rank on a host of a lab; `numbers` are its own, that of all ranks, and that of rounds. It is killed when this thread ends.
fn rank_command((lab, host): (&Lab, usize), numbers: [usize; 3], specs: &[Spec]) -> io::Result<Command> {
    let mut command = lab.host(host).command(std::env::current_exe()?);
    command.arg("tune-rank").args(numbers.map(|number| number.to_string()));
    command.args(specs.iter().map(ToString::to_string));
    Ok(command)
}

/// Endpoint `place` of a host's interface.
fn uring(lab: &Lab, host: usize, place: u16) -> Spec {
    Spec::Uring { interface: lab.host(host).interface().to_owned(), endpoint: place, real_frames: false }
}

/// Endpoint `place` in the memory of a host.
fn shm(place: usize) -> Spec {
    Spec::Shm { domain: format!("tune-{}", std::process::id()), endpoint: Some(place as u16) }
}

/// How far it is: a bar on a terminal, a line at the beginning elsewhere.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn start(what: &str, steps: usize) -> Self {
        if !crate::draws() {
            tell!("{what}: {steps} measurements");
            return Self(None);
        }
        let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {pos}/{len} (about {eta} left)");
        let style = style.expect("a constant template").progress_chars("=> ");
        Self(Some(ProgressBar::new(steps as u64).with_style(style).with_prefix(what.to_owned())))
    }

    fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    fn end(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Small, and twice that, and twice again.
const RANKS: [usize; 3] = [2, 4, 8];

/// A leader and three others on each host: fewest with which its level is no mere exchange of two.
const TWO_BY_FOUR: Shape = Shape { hosts: 2, each: 4 };
/// As many ranks again on both levels.
const FOUR_BY_FOUR: Shape = Shape { hosts: 4, each: 4 };

/// Each rank has room for a block of every other, twice: with 32 of them 16 MiB a rank.
const SHARING_MAX: usize = 32;
