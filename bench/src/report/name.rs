//! What a row is of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ladder::Rung;

/// A rung, or a contender, which is no layer of the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// A rung.
    Rung(Rung),
    /// A contender by its name.
    Contender(String),
}

impl Name {
    /// The rung, if it is one.
    pub fn rung(&self) -> Option<Rung> {
        match self {
            Self::Rung(rung) => Some(*rung),
            Self::Contender(_) => None,
        }
    }

    /// True where what a ping-pong measures is a whole round trip.
    pub fn takes_whole_round_trips(&self) -> bool {
        self.rung().is_some_and(Rung::takes_whole_round_trips)
    }
}

impl PartialEq<Rung> for Name {
    fn eq(&self, rung: &Rung) -> bool {
        self.rung() == Some(*rung)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rung(rung) => rung.fmt(f),
            Self::Contender(name) => f.pad(name),
        }
    }
}
