//! `sidelane ladder --mpi`: MPI libraries that are installed here, measured beside the rungs on the same hosts.

mod install;
mod launch;

pub use install::{InstallError, Installation};
pub use launch::{Launch, Stages};
