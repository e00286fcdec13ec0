//! The command as its users meet it.

mod cli;
mod examples;
#[path = "../../../nic/tests/filter/mod.rs"]
mod filter;
mod killed;
mod lab;
mod lab_run;
mod ladder;
mod ladder_mpi;
mod misfit;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
mod programs;
mod qemu;
mod run;
mod stage;
mod survivors;
mod terminal;
mod threads;
mod tune;
mod without_netlink;
mod without_pidfd;
