//! The command as its users meet it.

mod cli;
mod lab;
mod ladder;
mod ladder_mpi;
mod run;
mod stage;
mod tune;
