//! Who is spoken to, and how it ended.

use super::ErrorClass;
use crate::adi;

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A rank; of an intercommunicator, one of the remote group.
    Rank(u32),
    /// Nowhere (`MPI_PROC_NULL`).
    Null,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Anybody (`MPI_ANY_SOURCE`).
    Any,
    /// A rank; of an intercommunicator, one of the remote group.
    Rank(u32),
    /// Nowhere (`MPI_PROC_NULL`): a message of no data is there at once.
    Null,
}

/// How an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Who sent the message; `None` for the null process, and of sends.
    pub source: Option<u32>,
    /// Its tag; `None` as for `source`.
    pub tag: Option<i32>,
    /// Bytes of data that came, packed; of a probe, that will come.
    pub bytes: usize,
    /// It was cancelled, and nothing was sent or received.
    pub cancelled: bool,
    /// What went wrong.
    pub error: Option<ErrorClass>,
}

/// The neighbour of a grid: beyond its border there is nobody.
impl From<Option<u32>> for Destination {
    fn from(rank: Option<u32>) -> Self {
        rank.map_or(Self::Null, Self::Rank)
    }
}

impl From<u32> for Destination {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

/// The neighbour of a grid: beyond its border there is nobody.
impl From<Option<u32>> for Source {
    fn from(rank: Option<u32>) -> Self {
        rank.map_or(Self::Null, Self::Rank)
    }
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

impl Status {
    /// Of what never was, or had to do with nobody (MPI-4.1 3.7.3 and 3.10).
    pub const EMPTY: Self = Self { source: None, tag: None, bytes: 0, cancelled: false, error: None };

    pub(super) fn of_receive(status: adi::Status) -> Self {
        Self { source: Some(status.source), tag: Some(status.tag), bytes: status.bytes, ..Self::of_send(status) }
    }

    pub(super) fn of_send(status: adi::Status) -> Self {
        Self { cancelled: status.cancelled, error: status.error.map(ErrorClass::from), ..Self::EMPTY }
    }

    /// As a result, for calls that return one.
    pub fn ok(self) -> Result<Self, ErrorClass> {
        self.error.map_or(Ok(self), Err)
    }
}
