//! Who is measured beside the rungs, round by round, but is no layer of ours: a program that plays the ladder's patterns by
//! itself, from start to end.

pub mod collectives;
pub mod p2p;

use crate::collectives::Cell;
use crate::ladder::Regime;
use crate::pattern::{Outcome, Pattern};

/// A program of somebody else's.
pub trait Contender {
    /// What its rows are called; no rung's name.
    fn name(&self) -> &str;

    /// What exactly it is, once it has played.
    fn version(&self) -> Option<&str>;

    /// Plays `patterns` on the hosts of `regime`, warm. One outcome each, in their order, or why not.
    fn play(&mut self, regime: Regime, patterns: &[Pattern]) -> Result<Vec<Outcome>, String>;
}

/// A job that makes collective calls: ours, or somebody else's.
pub trait Caller {
    /// What its columns are called.
    fn name(&self) -> &str;

    /// What exactly it is, once it has played.
    fn version(&self) -> Option<&str>;

    /// Makes each of these calls for a while, among so many ranks. One time in nanoseconds each, in their order, or why not.
    fn play(&mut self, ranks: usize, measure_ns: u64, cells: &[Cell]) -> Result<Vec<f64>, String>;
}
