//! `sidelane ladder collectives`: every collective call among ranks on this host, ours and installed MPIs' in turns.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sidelane::lab::{self, Lab, LabSpec};
use sidelane_bench::collectives::{self, Cell, Plan};
use sidelane_bench::contender::Caller;
use sidelane_bench::contender::collectives::{arguments, limit, read};
use sidelane_mpi::world::tuning;
use sidelane_nic::affinity;

use super::Failure;
use super::args::{CollectivesArgs, distinct, prefixes};
use super::mpi::{Installation, Program, alone, output_of};
use crate::interrupt;
use crate::out_files::OutFiles;

/// Runs the calls; returns how it ends, as [`interrupt::code_of`] has it.
pub fn run(mut args: CollectivesArgs) -> Result<i32, Failure> {
    args.mpi = prefixes(args.mpi)?;
    let plan = plan(&args)?;
    let files = OutFiles::new(&args.files, None)?;
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    // Whatever a job may leave behind ends with the lab.
    let lab = match Lab::build(&LabSpec::default()) {
        Ok(lab) => Some(lab),
        Err(error) if !args.mpi.is_empty() => return Err(Failure::NoLabForMpi(error)),
        Err(error) => {
            tell!("no lab, so what jobs may leave behind stays: {error}");
            None
        }
    };
    let own = std::env::current_exe().map_err(Failure::Own)?;
    let mpis = match Installation::find_all(&args.mpi, Program::Collectives) {
        _ if interrupted.is_set() => return Ok(interrupted.code()),
        mpis => mpis?,
    };
    let launcher = |with| Jobs { with, lab: lab.as_ref(), version: None };
    let mut jobs = vec![launcher(With::Ours(own))];
    jobs.extend(mpis.iter().map(|mpi| launcher(With::Mpi(mpi))));
    let mut callers: Vec<&mut dyn Caller> = jobs.iter_mut().map(|jobs| jobs as &mut dyn Caller).collect();
    let report = collectives::run(&plan, &mut callers, |progress| {
        let (done, total) = progress.done;
        let (ranks, round) = (progress.ranks, progress.round + 1);
        let ranks = collectives::of_ranks(ranks);
        tell!("{done}/{total}: {ranks}, round {round}, {}", progress.caller);
        !interrupted.is_set()
    });
    if interrupted.is_set() {
        return Ok(interrupted.code());
    }
    let Ok((report, failures)) = report else { return Ok(interrupted.code()) };
    // Where all have failed there is nothing to be kept.
    if !report.entries.is_empty() {
        files.show(&report);
        files.write(|| report.to_json(), || report.to_html(), String::new)?;
    }
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|failure| tell!("{failure}"));
    first.map_or(Ok(0), |failure| Err(failure.into()))
}

fn plan(args: &CollectivesArgs) -> Result<Plan, Failure> {
    let plan = Plan::default();
    let mut plan = Plan {
        collectives: if args.only.is_empty() { plan.collectives } else { distinct(&args.only) },
        ranks: distinct(&args.ranks),
        sizes: distinct(&args.sizes),
        rounds: args.rounds as usize,
        measure_ns: plan.measure_ns,
    };
    plan.ranks = plan.ranks.iter().copied().filter(|ranks| !plan.cells(*ranks).is_empty()).collect();
    if plan.ranks.is_empty() { Err(Failure::NothingToCut) } else { Ok(plan) }
}

/// Whose calls.
enum With<'a> {
    /// This program's file.
    Ours(PathBuf),
    Mpi(&'a Installation),
}

/// One job after the other of one library.
struct Jobs<'a> {
    with: With<'a>,
    lab: Option<&'a Lab>,
    version: Option<String>,
}

impl Jobs<'_> {
    /// The command of one job.
    fn command(&self, ranks: usize, measure_ns: u64, cells: &[Cell]) -> io::Result<Command> {
        let bound = ranks <= affinity::cores().len();
        let mut command = match (&self.with, self.lab) {
            (With::Ours(own), None) => {
                let mut command = Command::new(own);
                lab::tie(&mut command);
                command.stdin(Stdio::null());
                command
            }
            (With::Ours(own), Some(lab)) => {
                let mut command = alone(lab);
                command.arg(own);
                command
            }
            (With::Mpi(_), None) => return Err(io::Error::other("it has no lab")),
            (With::Mpi(mpi), Some(lab)) => {
                let mut command = alone(lab);
                mpi.launcher_alone(lab, bound, &mut command);
                command
            }
        };
        let ranks = ranks.to_string();
        match &self.with {
            With::Ours(own) => {
                let bind = if bound { "core" } else { "none" };
                if tuning_file().is_none() {
                    // What is built in is measured, as by the ladder, unless the user says otherwise.
                    command.env(tuning::VARIABLE, "");
                }
                command.args(["run", "-n", &ranks, "--bind", bind, "--"]).arg(own);
                // Its launcher ends it in time.
                command.arg("collective-rank").args(arguments(measure_ns, cells).into_iter().skip(1));
            }
            With::Mpi(mpi) => {
                command.args(["-n", &ranks]).arg(&mpi.program).args(arguments(measure_ns, cells));
            }
        }
        Ok(command)
    }
}

impl Caller for Jobs<'_> {
    fn name(&self) -> &str {
        match &self.with {
            With::Ours(_) => "sidelane",
            With::Mpi(mpi) => &mpi.name,
        }
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn play(&mut self, ranks: usize, measure_ns: u64, cells: &[Cell]) -> Result<Vec<f64>, String> {
        let mut command = self.command(ranks, measure_ns, cells).map_err(|error| error.to_string())?;
        let (version, times) = output_of(&mut command, limit(measure_ns, cells), |output| read(output, cells))?;
        let by = tuning_file().filter(|_| matches!(self.with, With::Ours(_)));
        self.version = Some(by.map_or(version.clone(), |file| format!("{version}, tuned by {}", file.display())));
        Ok(times)
    }
}

/// The tuning that the user has named for this command.
fn tuning_file() -> Option<PathBuf> {
    std::env::var_os(tuning::VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use sidelane_bench::collectives::Collective;

    use crate::out_files::FileArgs;

    use super::*;

    #[test]
    fn what_is_asked_for_twice_is_measured_once() {
        let plan = plan(&of(&[Collective::Scan, Collective::Barrier, Collective::Scan], &[4, 2, 4])).unwrap();
        assert_eq!((&plan.ranks[..], plan.cells(2).len()), (&[4, 2][..], 2));
    }

    #[test]
    fn where_no_array_can_be_cut_there_is_nothing_to_measure() {
        let plan = |ranks: &[usize]| plan(&of(&[Collective::ReduceScatter], ranks));
        assert!(matches!(plan(&[4]), Err(Failure::NothingToCut)));
        assert_eq!(plan(&[2, 4]).unwrap().ranks, [2]);
    }

    fn of(only: &[Collective], ranks: &[usize]) -> CollectivesArgs {
        let (only, ranks, sizes) = (only.to_vec(), ranks.to_vec(), vec![8, 8]);
        CollectivesArgs { only, ranks, sizes, mpi: Vec::new(), rounds: 1, files: FileArgs::default() }
    }
}
