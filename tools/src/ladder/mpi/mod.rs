//! `--mpi`: MPI libraries that are installed here, measured beside ours on the same hosts.

mod install;
mod launch;

pub use install::{InstallError, Installation, Program};
pub use launch::{Launch, Stages, alone, output_of};
