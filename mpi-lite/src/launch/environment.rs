//! What a process's environment says of its launcher.

use std::fmt;
use std::str::FromStr;

use super::LaunchError;

/// Variables by name: the process's own, or a test's.
pub struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

/// How to reach the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// There is none, so the job has one rank.
    None {
        /// What the user may have forgotten.
        warning: Option<String>,
    },
    /// Over a socket that this process inherited (`PMI_FD`).
    Descriptor {
        /// Number of the descriptor.
        fd: i32,
        /// Of the socket that it has to be ([`SOCKET`]).
        inode: Option<u64>,
        /// Below `size`.
        rank: usize,
        /// Ranks of the job.
        size: usize,
    },
    /// Over TCP (`PMI_PORT`).
    Port {
        /// `HOST:PORT`
        address: String,
        /// By what the launcher knows us (`PMI_ID`).
        id: usize,
    },
}

/// Several tasks were started, and nothing tells them of each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{scheduler} has started {tasks} tasks, but not told them of each other, so each would be a job of one rank: {}\n\
     If that is what you want, set {ALONE}=1",
    scheduler.remedy()
)]
pub struct SilentSingletons {
    /// Who started them.
    pub scheduler: Scheduler,
    /// How many.
    pub tasks: usize,
}

/// Launchers that do not always speak PMI-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// `srun` without `--mpi=pmi2`.
    Slurm,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// `mpiexec` of HPE's Parallel Application Launch Service.
    Pals,
    /// Anybody else's PMIx.
    Pmix,
}

impl<'a> Environment<'a> {
    /// The process's own.
    pub fn of_process() -> Environment<'static> {
        Environment(&|name| std::env::var(name).ok())
    }

    /// Variables from anywhere.
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self(lookup)
    }

    /// Who started this process. What the user says goes first, then PMI-1: other launchers' variables are inherited by what they
    /// started. Of several the one counts that was started by a rank of another.
    pub fn launcher(&self) -> Result<Launcher, LaunchError> {
        if self.text(ALONE).is_some_and(|value| value != "0") {
            return Ok(Launcher::None { warning: None });
        }
        let within = self.text(SOCKET).is_some() && self.text("PMI_PORT").is_some();
        if let Some(fd) = self.number("PMI_FD")?.filter(|_| !within) {
            let (rank, size) = (self.needed("PMI_RANK")?, self.needed("PMI_SIZE")?);
            if rank >= size {
                return Err(LaunchError::BadEnvironment(format!("PMI_RANK={rank} and PMI_SIZE={size}")));
            }
            return Ok(Launcher::Descriptor { fd, inode: self.socket()?.map(|socket| socket.inode), rank, size });
        }
        if let Some(address) = self.text("PMI_PORT") {
            return Ok(Launcher::Port { address, id: self.number("PMI_ID")?.unwrap_or(0) });
        }
        match self.scheduler() {
            Some((scheduler, tasks)) if tasks > 1 => Err(SilentSingletons { scheduler, tasks }.into()),
            _ => Ok(Launcher::None { warning: self.forgotten() }),
        }
    }

    /// Whether the launcher goes on without ranks that end too early, and tells of them.
    pub fn keeps_going(&self) -> bool {
        self.text(KEEPS_GOING).is_some() && self.socket().is_ok_and(|socket| socket.is_some())
    }

    /// Whether MPICH's launcher has started this process, or one that has.
    pub fn is_of_hydra(&self) -> bool {
        self.text(HYDRA).is_some()
    }

    /// What `sidelane run` says of our connection; nothing, if another launcher was started by a rank of its and has started us.
    fn socket(&self) -> Result<Option<Socket>, LaunchError> {
        let Some(socket) = self.number::<Socket>(SOCKET)? else { return Ok(None) };
        let same = [("PMI_FD", socket.fd as usize), ("PMI_RANK", socket.rank), ("PMI_SIZE", socket.size)];
        let same = same.into_iter().all(|(name, told)| self.text(name).is_some_and(|text| text == told.to_string()));
        let other = OF_OTHERS.iter().any(|name| self.text(name).is_some());
        Ok(Some(socket).filter(|_| same && !other))
    }

    /// A launcher that started this very process, and how many it started.
    fn scheduler(&self) -> Option<(Scheduler, usize)> {
        let count = |names: &[&str]| names.iter().find_map(|name| self.text(name)?.parse().ok());
        if self.text("OMPI_COMM_WORLD_RANK").is_some() {
            return Some((Scheduler::OpenMpi, count(&["OMPI_COMM_WORLD_SIZE"])?));
        }
        // A batch script and what it starts by itself have no step: that is one process, not one of several.
        if self.text("SLURM_STEP_ID").is_some() && self.text("SLURM_PROCID").is_some() {
            return Some((Scheduler::Slurm, count(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"])?));
        }
        // Without `PMI_FD`: its PMI is a library's, whose protocol is not told.
        if self.text("PALS_RANKID").is_some() {
            return Some((Scheduler::Pals, count(&["PMI_SIZE"]).unwrap_or(2)));
        }
        // PMIx tells the size over its own protocol only. A rank other than 0 is proof enough, and rank 0 of a launcher
        // that speaks PMIx is rarely alone.
        self.text("PMIX_RANK").map(|_| (Scheduler::Pmix, count(&["PMIX_SIZE"]).unwrap_or(2)))
    }

    /// One rank may be meant, or `srun` forgotten.
    fn forgotten(&self) -> Option<String> {
        let tasks: usize = self.text("SLURM_NTASKS")?.parse().ok()?;
        let in_step = self.text("SLURM_STEP_ID").is_some();
        (tasks > 1 && !in_step).then(|| {
            format!("this job has one rank, though Slurm has given it {tasks} tasks; for all of them: srun --mpi=pmi2 PROGRAM")
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, LaunchError> {
        let parse = |text: String| text.parse().map_err(|_| LaunchError::BadEnvironment(format!("{name}={text}")));
        self.text(name).map(parse).transpose()
    }

    fn needed(&self, name: &str) -> Result<usize, LaunchError> {
        self.number(name)?.ok_or_else(|| LaunchError::BadEnvironment(format!("PMI_FD without {name}")))
    }
}

/// Besides `PMI_FD`, `sidelane run` tells which socket it means ([`Socket`]): whoever inherits the environment but not the socket
/// knows that the number is another file's.
pub const SOCKET: &str = "SIDELANE_PMI_SOCKET";

/// What a rank finds as [`SOCKET`]. The first three are those of `PMI_FD`, `PMI_RANK` and `PMI_SIZE`: where these are others, another
/// launcher has set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The descriptor.
    pub fd: i32,
    /// The rank.
    pub rank: usize,
    /// Ranks of the job.
    pub size: usize,
    /// Of the socket.
    pub inode: u64,
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.fd, self.rank, self.size, self.inode)
    }
}

/// A text that is none.
#[derive(Debug)]
pub struct NoSocket;

impl FromStr for Socket {
    type Err = NoSocket;

    fn from_str(text: &str) -> Result<Self, NoSocket> {
        let parts: Vec<&str> = text.split(',').collect();
        let [fd, rank, size, inode] = parts[..] else { return Err(NoSocket) };
        let read = || Some((fd.parse().ok()?, rank.parse().ok()?, size.parse().ok()?, inode.parse().ok()?));
        let (fd, rank, size, inode) = read().ok_or(NoSocket)?;
        Ok(Self { fd, rank, size, inode })
    }
}

/// What launchers of others tell the ranks that they start: those by port, and MPICH's hydra. `sidelane run` takes them away, so that
/// who finds them was started by one of those since.
pub const OF_OTHERS: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", HYDRA];

/// Set by `mpiexec.hydra` for each rank.
const HYDRA: &str = "HYDI_CONTROL_FD";

/// Set by `sidelane run --keep-going`.
pub const KEEPS_GOING: &str = "SIDELANE_KEEPS_GOING";

/// Set to anything but 0, it says that each task is meant to be a job of its own. `sidelane run` takes it away, so that only what is
/// set for a rank, or by one, counts there.
pub const ALONE: &str = "SIDELANE_ALONE";

impl Scheduler {
    fn remedy(self) -> &'static str {
        match self {
            Self::Slurm => {
                "type `srun --mpi=pmi2 PROGRAM` (`srun --mpi=list` shows whether this Slurm has its plugin pmi2)"
            }
            Self::OpenMpi => {
                "Open MPI's mpirun speaks PMIx, and we speak PMI-1; type `sidelane run -n N PROGRAM`, or `mpiexec.hydra -n N PROGRAM` (MPICH's)"
            }
            Self::Pals => {
                "its PMI is that of a library of HPE's, and we speak PMI-1; type `mpiexec.hydra -n N PROGRAM` (MPICH's), \
                 or `sidelane run -n N PROGRAM` on one host"
            }
            Self::Pmix => {
                "they speak PMIx, and we speak PMI-1; under Slurm type `srun --mpi=pmi2 PROGRAM`, else `sidelane run -n N PROGRAM`"
            }
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm's srun",
            Self::OpenMpi => "Open MPI's mpirun",
            Self::Pals => "HPE's PALS",
            Self::Pmix => "a PMIx launcher",
        })
    }
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
