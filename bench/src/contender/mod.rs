//! Who is measured beside the rungs, round by round, but is no layer of ours: a program that plays the ladder's patterns by
//! itself, from start to end.

pub mod p2p;

use crate::ladder::Regime;
use crate::pattern::{Outcome, Pattern};

/// A program of somebody else's.
pub trait Contender {
    /// What its rows are called; no rung's name.
    fn name(&self) -> &str;

    /// What exactly it is, once it has played.
    fn version(&self) -> Option<&str>;

    /// Plays `patterns` once on the hosts of `regime`. One outcome each, in their order, or why not.
    fn play(&mut self, regime: Regime, patterns: &[Pattern]) -> Result<Vec<Outcome>, String>;
}
