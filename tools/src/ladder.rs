//! `sidelane ladder`: makes a lab or meets another machine, has both sides measured, prints and writes what came out.

mod args;
mod breakdown;
mod collectives;
mod mpi;
mod peer;
mod place;
mod plans;
mod serve;
mod socket;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sidelane::lab::{Lab, LabError, LabSpec};
use sidelane::table;
use sidelane_bench::breakdown::{Breakdowns, Messages, SIZE_MAX};
use sidelane_bench::collectives::CallerError;
use sidelane_bench::contender::Contender;
use sidelane_bench::ladder::{LadderError, NicKind, Plan, Progress, Regime, Rung};
use sidelane_bench::report::Report;
use sidelane_nic::spec::Spec;

use crate::interrupt::{self, Interrupted};
use crate::out_file::WriteError;
use crate::out_files::{FilesError, OutFiles};
use crate::variable::VariableError;
use mpi::{InstallError, Installation, Launch, Program, Stages};
use peer::{Peer, PeerError};
pub use place::{Place, needs_a_lab};

use args::PatternArg;
pub use args::{EXAMPLES, LadderArgs, LadderCommand, NicArg, distinct};
pub use collectives::run as collectives;
pub use serve::serve;
pub use socket::stand as guard_socket;

/// Why there is no ladder.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}: {1}")]
    Ladder(String, LadderError),
    #[error("nothing can be measured: `--nic uring` and `--nic xdp` need a lab. {0}. `--nic udp` measures on loopback")]
    NoLab(LabError),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("`{0}` is one machine's driver: name the other machine with --peer, or only the kind of driver for a lab")]
    NoPeer(Spec),
    #[error("--breakdown knows the rungs proto and am, and not {0}")]
    NoStamps(String),
    #[error("--core is of a measurement with another machine: name that with --peer")]
    NoPeerForCore,
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("--depth is of floods, and --patterns leaves them out")]
    NoFlood,
    #[error(
        "--depth {depth} of messages of {size} B would be {all} MiB unanswered, and {most} are the most: fewer, or shorter ones",
        all = (.depth * .size) >> 20,
        most = Plan::UNANSWERED_MAX >> 20
    )]
    TooMuchUnanswered { depth: usize, size: usize },
    #[error(
        "--breakdown is of messages of up to {most} MiB, since it takes a thousand of each, and not of {size} B",
        most = SIZE_MAX >> 20
    )]
    TooLongForStamps { size: usize },
    #[error("name the driver to serve: --nic uring:INTERFACE")]
    NothingToServe,
    #[error("cannot serve {nic}: {reason}")]
    NoDriver { nic: Spec, reason: String },
    #[error(transparent)]
    Mpi(#[from] InstallError),
    #[error("other MPIs (--mpi or SIDELANE_MPI) are measured between hosts of a lab, and there is none")]
    MpiWithoutLab,
    #[error("other MPIs (--mpi or SIDELANE_MPI) are measured within a lab, and there is none: {0}")]
    NoLabForMpi(LabError),
    #[error(transparent)]
    Collectives(#[from] CallerError),
    #[error("cannot find this program's own file: {0}")]
    Own(io::Error),
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("cannot serve {0}: {1}")]
    Serve(SocketAddr, io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error("nothing to measure: no array of --sizes has an element for each of --ranks, who shall have a block of it")]
    NothingToCut,
    #[error("nothing to measure: {0} has none of these rungs with these patterns here")]
    Nothing(String),
}

/// Runs the ladder; returns how it ends, as [`interrupt::code_of`] has it.
pub fn run(args: LadderArgs) -> Result<i32, Failure> {
    let args = &args.with_variables()?;
    if args.core.is_some() && args.peer.is_none() {
        return Err(Failure::NoPeerForCore);
    }
    if args.depth.is_some() && !args.patterns.is_empty() && !args.patterns.contains(&PatternArg::Flood) {
        return Err(Failure::NoFlood);
    }
    let (longest, depth) = (args.sizes.iter().copied().max().unwrap_or_default(), args.depth.map_or(0, usize::from));
    if longest * depth > Plan::UNANSWERED_MAX {
        return Err(Failure::TooMuchUnanswered { depth, size: longest });
    }
    if args.breakdown && longest > SIZE_MAX {
        return Err(Failure::TooLongForStamps { size: longest });
    }
    // Before the minute of measuring, not after it.
    let files = OutFiles::new(&args.files, args.csv.as_ref())?;
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    let (place, nics) = choose(args)?;
    if args.breakdown {
        return break_down(args, &place, &nics, &files, &interrupted);
    }
    if !args.mpi.is_empty() && !matches!(place, Place::Lab) {
        return Err(Failure::MpiWithoutLab);
    }
    let mpis = match Installation::find_all(&args.mpi, Program::P2p) {
        _ if interrupted.is_set() => return Ok(interrupted.code()),
        mpis => mpis?,
    };
    let groups = place.groups(&nics);
    // The connection to another machine is there for one run.
    let here: Vec<NicKind> = match place {
        Place::Peer(_) => Vec::new(),
        _ => groups.iter().flatten().copied().collect(),
    };
    match place.rehearse(&here) {
        _ if interrupted.is_set() => return Ok(interrupted.code()),
        rehearsed => rehearsed.map_err(|(nic, error)| Failure::Ladder(nic.to_string(), error))?,
    }
    let mut whole: Option<Report> = None;
    let (mut failure, mut without) = (None, Vec::new());
    for group in groups {
        if args.real_frames && !group.iter().all(|nic| place.has(*nic, Regime::RealFrames)) {
            tell!("{}: no frames on a wire here, so no --real-frames", names(&group));
        }
        let plan = plans::plan(args, &group, &place);
        if plan.cells().is_empty() {
            without.extend(group);
            continue;
        }
        // The connection to another machine ends with its run.
        let left_out_max = if matches!(place, Place::Peer(_)) { 0 } else { LEFT_OUT_MAX };
        // One that fails beside these drivers may go beside the next.
        let names_of_mpis = mpis.iter().map(|mpi| mpi.name.clone()).collect();
        let (report, failed) = measure_what_goes((plan, names_of_mpis), left_out_max, |plan, left| {
            let left: Vec<&Installation> = mpis.iter().filter(|mpi| left.contains(&mpi.name)).collect();
            let outcome = measure(plan, &place, &left, &interrupted);
            // Its sides are gone by now, whoever ended them.
            if interrupted.is_set() { None } else { Some(outcome) }
        });
        if interrupted.is_set() {
            return Ok(interrupted.code());
        }
        failure = failure.or(failed);
        // What was measured before is kept.
        let Some(mut report) = report else { break };
        report.peer = place.peer_machine();
        files.show(report.to_table_within(table::room()));
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => whole.append(report),
        }
    }
    if !without.is_empty() {
        let nothing = Failure::Nothing(names(&without));
        if whole.is_none() && failure.is_none() {
            return Err(nothing);
        }
        tell!("{nothing}");
    }
    if let Some(report) = whole {
        files.write(|| report.to_json(), || report.to_html(), || report.to_csv())?;
    }
    failure.map_or(Ok(0), Err)
}

fn break_down(
    args: &LadderArgs,
    place: &Place,
    nics: &[NicKind],
    files: &OutFiles,
    interrupted: &Interrupted,
) -> Result<i32, Failure> {
    let sizes = if args.sizes.is_empty() { vec![8] } else { distinct(&args.sizes) };
    let rungs = if args.rungs.is_empty() { vec![Rung::Proto] } else { distinct(&args.rungs) };
    let messages = |rung: &Rung| match rung {
        Rung::Proto => Ok(Messages::Plain),
        Rung::Am => Ok(Messages::Active),
        rung => Err(Failure::NoStamps(rung.to_string())),
    };
    let messages = rungs.iter().map(messages).collect::<Result<Vec<_>, _>>()?;
    let (mut all, mut failure) = (Vec::new(), None);
    let each = distinct(nics).into_iter().flat_map(|nic| messages.iter().map(move |messages| (nic, *messages)));
    for ((nic, messages), size) in each.flat_map(|each| sizes.iter().map(move |size| (each, *size))) {
        let measured = breakdown::measure(nic, messages, size, place);
        if interrupted.is_set() {
            return Ok(interrupted.code());
        }
        match measured {
            Ok(breakdown) => {
                files.show(format_args!("{breakdown}\n"));
                all.push(breakdown);
            }
            // What was measured before is kept.
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if !all.is_empty() {
        let report = Breakdowns::new(all);
        files.write(|| report.to_json(), || report.to_html(), String::new)?;
    }
    failure.map_or(Ok(0), Err)
}

/// Where to measure, and which drivers. Without labs there is still the loopback, which drivers on interfaces can't use.
fn choose(args: &LadderArgs) -> Result<(Place, Vec<NicKind>), Failure> {
    if let Some(host) = &args.peer {
        let peer = Peer::meet(host, args)?;
        let nic = peer.kind();
        return Ok((Place::Peer(Box::new(peer)), vec![nic]));
    }
    let mut asked = Vec::new();
    for nic in &args.nic {
        match nic {
            NicArg::Kinds(kinds) => asked.extend(kinds),
            NicArg::Driver(spec) => return Err(Failure::NoPeer(spec.clone())),
        }
    }
    let error = match Place::lab() {
        Ok(place) if asked.is_empty() => return Ok((place, vec![NicKind::Uring])),
        Ok(place) => return Ok((place, asked)),
        Err(error) => error,
    };
    if !asked.is_empty() && asked.iter().all(|nic| needs_a_lab(*nic)) {
        return Err(Failure::NoLab(error));
    }
    let rest = if asked.is_empty() { vec![NicKind::Udp, NicKind::Shm] } else { asked };
    Ok((Place::without_lab(&error), rest.into_iter().filter(|nic| !needs_a_lab(*nic)).collect()))
}

fn names(nics: &[NicKind]) -> String {
    nics.iter().map(NicKind::to_string).collect::<Vec<_>>().join(", ")
}

/// Measures `plan` beside these MPIs, and where a rung or an MPI fails the others without it, `left_out_max` times: what there is, and
/// the first failure. `measure` gives `None` when nothing more is wanted.
fn measure_what_goes(
    (mut plan, mut mpis): (Plan, Vec<String>),
    left_out_max: usize,
    mut measure: impl FnMut(&Plan, &[String]) -> Option<Result<Report, Failure>>,
) -> (Option<Report>, Option<Failure>) {
    let mut first = None;
    for left in (0..=left_out_max).rev() {
        let failure = match measure(&plan, &mpis) {
            None => break,
            Some(Ok(report)) => return (Some(report), first),
            Some(Err(failure)) => failure,
        };
        let goes_on = left > 0 && leave_out(&mut plan, &mut mpis, &failure);
        if goes_on {
            tell!("{failure}; once more without it");
        }
        first = first.or(Some(failure));
        if !goes_on {
            break;
        }
    }
    (None, first)
}

/// Leaves the rung or the MPI out that has failed. False where that is none's fault, as when a side was killed, or where nothing is left.
fn leave_out(plan: &mut Plan, mpis: &mut Vec<String>, failure: &Failure) -> bool {
    match failure {
        Failure::Ladder(_, LadderError::Contender { name, .. }) => {
            mpis.retain(|one| one != name);
            true
        }
        Failure::Ladder(_, LadderError::Rung { rung, error, .. }) if error.is_report() => {
            plan.rungs.retain(|one| one != rung);
            !plan.cells().is_empty()
        }
        _ => false,
    }
}

fn measure(plan: &Plan, place: &Place, mpis: &[&Installation], interrupted: &Interrupted) -> Result<Report, Failure> {
    let steps = Steps::start(plan);
    let stages: Stages = RefCell::default();
    let hosts = |regime| {
        let mut labs = Vec::new();
        let both = place.hosts(&plan.nics, regime, &mut labs);
        // Our ends share memory without a lab. An MPI has one to be kept apart in.
        if labs.is_empty() && !mpis.is_empty() {
            labs.push(Lab::build(&LabSpec::default()).map_err(io::Error::other)?);
        }
        stages.borrow_mut().extend(labs.into_iter().map(|lab| (regime, lab)));
        both
    };
    let alone = !plan.nics.iter().any(|nic| nic.crosses_a_wire());
    let mut launches: Vec<_> = mpis.iter().map(|mpi| Launch::new(mpi, &stages, alone)).collect();
    let mut contenders: Vec<&mut dyn Contender> = launches.iter_mut().map(|one| one as &mut dyn Contender).collect();
    let outcome = sidelane_bench::ladder::run_beside(plan, hosts, &mut contenders, |progress| {
        steps.show(&progress);
        !interrupted.is_set()
    });
    steps.end();
    outcome.map_err(|error| Failure::Ladder(names(&plan.nics), error))
}

/// How far it is: a bar on a terminal, as long as its line has room for, and a line each round elsewhere.
enum Steps {
    Bar(ProgressBar),
    Lines { nics: String, rounds: usize, shown: Cell<Option<usize>> },
}

impl Steps {
    fn start(plan: &Plan) -> Self {
        if !crate::draws() {
            return Self::Lines { nics: names(&plan.nics), rounds: plan.rounds, shown: Cell::new(None) };
        }
        let style = "{prefix} [{wide_bar}] {pos}/{len} {msg} (about {eta} left)";
        let style = ProgressStyle::with_template(style).expect("a constant template").progress_chars("=> ");
        let bar = ProgressBar::new(0).with_style(style).with_prefix(names(&plan.nics));
        bar.enable_steady_tick(TICK);
        Self::Bar(bar)
    }

    fn show(&self, progress: &Progress<'_>) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
                bar.set_message(progress.next.to_string());
            }
            Self::Lines { nics, rounds, shown } if shown.replace(Some(progress.round)) != Some(progress.round) => {
                match progress.round {
                    0 => tell!("{nics}: warming up"),
                    round => tell!("{nics}: round {round} of {rounds}"),
                }
            }
            Self::Lines { .. } => {}
        }
    }

    fn end(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Rungs and MPIs that fail by themselves; where more do it is the driver's fault, or the machine's.
const LEFT_OUT_MAX: usize = 2;
/// Redraws while a measurement lasts, so that the time left goes down.
const TICK: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidelane_bench::ladder::PairError;
    use sidelane_bench::pattern::{Kind, Role};

    use super::*;

    /// Measures `asked`, of which `bad` fail: what is in the report, how often it was tried, and whether a failure is told.
    fn outcome(asked: &[Rung], bad: &[Rung]) -> (Option<Vec<Rung>>, usize, bool) {
        let (mut tries, plan) = (0, Plan { rungs: asked.to_vec(), ..Plan::new(&[NicKind::Mem]) });
        let (report, failure) = measure_what_goes((plan, Vec::new()), LEFT_OUT_MAX, |plan, _| {
            tries += 1;
            let Some(rung) = plan.rungs.iter().find(|rung| bad.contains(rung)) else {
                return Some(Ok(Report::new(plan, &[], &[], BTreeMap::new())));
            };
            let error = PairError::Failed(Role::Initiator, "a frame was lost".to_owned());
            let (rung, regime) = (*rung, Regime::DefaultOffloads);
            let error = LadderError::Rung { rung, kind: Kind::Flood, size: 8, regime, error };
            Some(Err(Failure::Ladder("mem".to_owned(), error)))
        });
        let rungs = report.map(|report| report.rungs.iter().filter_map(|row| row.name.rung()).collect());
        (rungs, tries, failure.is_some())
    }

    #[test]
    fn an_mpi_that_fails_leaves_the_others_their_figures() {
        let (mut asked, plan) = (Vec::new(), Plan { rungs: vec![Rung::Mpi], ..Plan::new(&[NicKind::Mem]) });
        let (good, bad) = ("good".to_owned(), "bad".to_owned());
        let (report, failure) =
            measure_what_goes((plan, vec![bad.clone(), good.clone()]), LEFT_OUT_MAX, |plan, mpis| {
                asked.push(mpis.to_vec());
                if !mpis.contains(&bad) {
                    return Some(Ok(Report::new(plan, &[], &[], BTreeMap::new())));
                }
                let (regime, reason) = (Regime::DefaultOffloads, "no end".to_owned());
                let error = LadderError::Contender { name: bad.clone(), regime, reason };
                Some(Err(Failure::Ladder("mem".to_owned(), error)))
            });
        assert_eq!(asked, [vec![bad, good.clone()], vec![good]]);
        assert!(report.is_some() && failure.is_some());
    }

    #[test]
    fn a_rung_that_fails_leaves_the_others_their_figures() {
        let (raw, proto, am, mpi) = (Rung::Raw, Rung::Proto, Rung::Am, Rung::Mpi);
        assert_eq!(outcome(&[raw, proto], &[]), (Some(vec![raw, proto]), 1, false));
        assert_eq!(outcome(&[raw, proto], &[raw]), (Some(vec![proto]), 2, true));
        assert_eq!(outcome(&[raw, proto, am], &[raw, am]), (Some(vec![proto]), 3, true));
        assert_eq!(outcome(&[raw], &[raw]), (None, 1, true), "nothing is left");
        assert_eq!(outcome(&[raw, proto, am, mpi], &[raw, proto, am]), (None, 3, true), "more than rungs' own faults");
    }
}
