//! A job: ranks of one program, started and answered for.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `place` | which rank is where, and on which core |
//! | `rank` | one rank and everything that it starts |
//! | `answers` | what is said to a rank, whether it reads or not |
//! | `output`, `input` | whole lines out, or a file for each rank; what is typed in |
//! | `blame` | which of several ranks that failed is named |
//! | `verdict` | how the job ended, and what to say |
//! | `sources` | what wakes the loop: ranks' words and streams, signals |
//! | `stop` | Ctrl-Z for this command itself |
//! | `job` | the loop that ties them; how a job begins and ends |
//! | `descriptors` | how many of them there may be |
//! | `guard` | ends the ranks when this command is killed |

mod answers;
mod blame;
mod descriptors;
pub mod guard;
mod input;
mod job;
mod output;
mod place;
mod rank;
mod sources;
mod stop;
mod verdict;

use std::collections::hash_map::RandomState;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use sidelane::lab::keeper::KeepError;
use sidelane_mpi::launch::Shown;
use sidelane_proto::Protection;

use crate::variable::VariableError;

/// What shall run, and where.
#[derive(Debug)]
pub struct JobSpec {
    /// At least one.
    pub ranks: usize,
    /// `None`: here.
    pub hosts: Option<LabHosts>,
    /// What the ranks find as `SIDELANE_NIC`.
    pub nic: Option<String>,
    /// What the ranks find as `SIDELANE_PROTECTION`.
    pub protection: Option<Protection>,
    /// `None`: a core for each when there are enough.
    pub bind: Option<Bind>,
    /// Rank 0 reads our standard input.
    pub stdin: bool,
    /// Each line of output begins with its rank.
    pub label: bool,
    pub timeout: Option<Duration>,
    /// A rank that fails does not end the job.
    pub keep_going: bool,
    /// Where the ranks begin; `None`: here.
    pub folder: Option<PathBuf>,
    /// Where each rank has files of its own for what it writes; `None`: all of it is ours to write.
    pub output: Option<PathBuf>,
    /// Set in the ranks' environment.
    pub variables: Vec<(String, String)>,
    pub program: OsString,
    pub arguments: Vec<OsString>,
}

/// Hosts of a kept lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabHosts {
    /// The lab's name.
    pub lab: String,
    /// Names of some of its hosts; empty for all.
    pub hosts: Vec<String>,
}

/// Whether a rank stays on one core. Shown in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// Each rank on a core of its own
    Core,
    /// The kernel decides
    None,
}

/// Why there is no job.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error("{0}; {MACHINES}")]
    NoLab(KeepError),
    #[error(
        "a job is of one program here, and `:` begins another one's; let that choose what to do by its rank \
         (behind `--`, `:` is an argument as others)"
    )]
    Programs,
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error("{ranks} ranks do not get a core each of {cores}; leave `--bind` out, or say `--bind none`")]
    Cores { ranks: usize, cores: usize },
    #[error("cannot start `{program}` on host {host}: {error}{}", advice(program, folder, error))]
    Start { program: String, folder: PathBuf, host: String, error: io::Error },
    #[error("cannot use {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// Users of other launchers take them for hosts.
pub const MACHINES: &str = "other machines are reached with `mpiexec.hydra` or `srun` (see `sidelane run --help`)";

impl Failure {
    /// Of the whole command, as a shell reports it.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Start { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Start { .. } => 126,
            _ => 1,
        }
    }
}

/// What to do about it, where that is known. `folder`: where the ranks begin, if not here.
fn advice(program: &str, folder: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        // Three streams and a connection each are many descriptors.
        Some(libc::EMFILE) => "; `ulimit -Hn` says how many there may be".to_owned(),
        // As a shell, programs are looked for in PATH alone.
        Some(libc::ENOENT) => match missing_interpreter(program, folder) {
            Some(name) => format!("; its first line names `{}`, which is not there", Shown(&name)),
            None if !program.contains('/') && folder.join(program).is_file() => {
                format!("; that of this folder is called `./{program}`")
            }
            None => String::new(),
        },
        _ => String::new(),
    }
}

/// What the first line of a script names to run it, if that is not there: the kernel says it of the script (execve(2)).
fn missing_interpreter(program: &str, folder: &Path) -> Option<String> {
    let script = if program.contains('/') {
        folder.join(program)
    } else {
        let among = |of_path: PathBuf| folder.join(of_path).join(program);
        env::split_paths(&env::var_os("PATH")?).map(among).find(|file| file.is_file())?
    };
    let mut line = Vec::new();
    BufReader::new(File::open(script).ok()?).take(FIRST_LINE_MAX).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8_lossy(&line);
    let name = line.strip_prefix("#!")?.trim_start_matches([' ', '\t']).split([' ', '\t', '\n']).next()?;
    (!folder.join(name).exists()).then(|| name.to_owned())
}

/// As much as the kernel reads of it (BINPRM_BUF_SIZE of linux/binfmts.h).
const FIRST_LINE_MAX: u64 = 256;

/// Runs the job to its end; returns which, as [`code_of`](crate::interrupt::code_of) has it. From a process's first thread, on which
/// the ranks' lives depend.
pub fn run(spec: JobSpec) -> Result<i32, Failure> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| Failure::File { path, error }
    };
    // Else it would be each rank's program that is not there.
    if let Some(folder) = &spec.folder {
        fs::metadata(folder.join(".")).map_err(file(folder))?;
    }
    if let Some(folder) = &spec.output {
        fs::create_dir_all(folder).map_err(file(folder))?;
    }
    let places = place::Places::find(&spec)?;
    job::Job::start(spec, &places)?.run()
}

/// A name for the job's key-value space that no other job on any host has.
fn job_name() -> String {
    // Seeded by the system's randomness, anew in each process.
    let random = RandomState::new().build_hasher().finish();
    format!("sidelane-{}-{random:016x}", std::process::id())
}
