//! The command as its users meet it.

mod cli;
mod lab;
mod ladder;
mod run;
mod stage;
