//! Who started this process, and with whom: the PMI-1 wire protocol, both sides.
//!
//! A launcher (`sidelane run`, `mpiexec.hydra`, Slurm's `srun --mpi=pmi2`) starts each rank with a socket, over which
//! they exchange lines of `key=value` pairs: the rank asks, the launcher answers. Between them lies a key-value space
//! that all ranks of a job share: what was put before a barrier can be got after it.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `line` | the form of a line |
//! | `request`, `reply` | what ranks and launchers say |
//! | `server` | the launcher's side, without I/O |
//! | `shown` | what ranks say, for people |
//! | `client` | the rank's side |
//! | `abort` | asking for the job's end |
//! | `environment` | what a process's environment says of its launcher |
//! | `arrived` | lines that have come already |
//! | `watch` | news of ranks that have ended, from `sidelane run --keep-going` |
//! | `notice` | the same, from `mpiexec.hydra`, and its signal |
//! | `exchange` | everybody tells everybody a text, however long |

mod abort;
mod arrived;
mod client;
mod environment;
mod exchange;
mod inherited;
mod line;
mod notice;
mod reply;
mod request;
mod server;
mod shown;
mod watch;

pub use abort::Abort;
pub use client::{Client, PmiError};
pub use environment::{
    ALONE, Environment, KEEPS_GOING, Launcher, NoSocket, OF_OTHERS, SOCKET, Scheduler, SilentSingletons, Socket,
};
pub use line::{LINE_MAX, Line, Malformed};
pub use reply::{Maxes, Reply};
pub use request::{NameCommand, Request};
pub use server::{Mapping, Server, ServerEvent};
pub use shown::{Shown, ShownWhole};
pub use watch::Watch;

/// This process's place in its job.
#[derive(Debug)]
pub enum Launch {
    /// No launcher: a job of one rank.
    Alone,
    /// A launcher that speaks PMI-1.
    Pmi(Client),
}

/// The next rank that is gone, once each.
pub type News = Box<dyn FnMut() -> Option<usize> + Send>;

/// Why a process does not know its place.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launcher does not speak PMI-1, so each rank would believe to be alone.
    #[error(transparent)]
    Silent(#[from] SilentSingletons),
    /// What the environment says makes no sense.
    #[error("the launcher has set {0}, which makes no sense; was this process started by hand?")]
    BadEnvironment(String),
    /// The launcher does not answer as it should.
    #[error(transparent)]
    Pmi(#[from] PmiError),
}

impl Launch {
    /// Finds the launcher by the environment, and introduces this process to it. Once in a process: the connection
    /// cannot be had twice.
    pub fn find() -> Result<Self, LaunchError> {
        let environment = Environment::of_process();
        if environment.is_of_hydra() {
            notice::outlive();
        }
        match environment.launcher()? {
            Launcher::None { warning } => {
                if let Some(warning) = warning {
                    tracing::warn!("{warning}");
                }
                Ok(Self::Alone)
            }
            Launcher::Descriptor { fd, inode, rank, size } => {
                Ok(Self::Pmi(Client::of_descriptor(fd, inode, rank, size)?))
            }
            Launcher::Port { address, id } => Ok(Self::Pmi(Client::of_port(&address, id)?)),
        }
    }

    /// Below `size`.
    pub fn rank(&self) -> usize {
        match self {
            Self::Alone => 0,
            Self::Pmi(client) => client.rank(),
        }
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Pmi(client) => client.size(),
        }
    }

    /// Which of several programs of one job this is, where the launcher says so.
    pub fn appnum(&mut self) -> Result<Option<u32>, PmiError> {
        match self {
            Self::Alone => Ok(None),
            Self::Pmi(client) => client.appnum(),
        }
    }

    /// How many ranks the job could have, where the launcher says so.
    pub fn universe_size(&mut self) -> Result<Option<usize>, PmiError> {
        match self {
            Self::Alone => Ok(None),
            Self::Pmi(client) => client.universe_size(),
        }
    }

    /// Tells all ranks `text` and returns everybody's, by rank. All ranks have to call it. Blocks.
    pub fn exchange(&mut self, text: &str) -> Result<Vec<String>, PmiError> {
        match self {
            Self::Alone => Ok(vec![text.to_owned()]),
            Self::Pmi(client) => exchange::all(client, text),
        }
    }

    /// Where news come of ranks that end too early, from a launcher that may go on without them; `None` from others. It is not to be asked
    /// while this is.
    pub fn watch_ranks(&mut self) -> Result<Option<News>, PmiError> {
        let (environment, Self::Pmi(client)) = (Environment::of_process(), self) else { return Ok(None) };
        if environment.keeps_going() {
            let mut watch = client.watch_ranks()?;
            return Ok(Some(Box::new(move || watch.poll())));
        }
        if environment.is_of_hydra() {
            let mut notice = client.notice()?;
            return Ok(Some(Box::new(move || notice.poll())));
        }
        Ok(None)
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self) -> Result<(), PmiError> {
        match self {
            Self::Alone => Ok(()),
            Self::Pmi(client) => client.barrier(),
        }
    }

    /// Tells the launcher that this rank's end, from now on, is as it should be.
    pub fn finalize(self) -> Result<(), PmiError> {
        match self {
            Self::Alone => Ok(()),
            Self::Pmi(client) => client.finalize(),
        }
    }

    /// A way to ask the launcher for the job's end, beside this one.
    pub fn to_abort(&self) -> Result<Abort, PmiError> {
        match self {
            Self::Alone => Ok(Abort::ALONE),
            Self::Pmi(client) => client.to_abort(),
        }
    }
}

#[cfg(test)]
mod tests;
