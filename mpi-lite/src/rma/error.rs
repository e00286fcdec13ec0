//! Why a one-sided operation failed.

use crate::adi;
use crate::comm::ErrorClass;

/// Why a call on a window, or an operation that it waited for, failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RmaError {
    /// Bytes at the target that are not in its window, or not attached to it. None of those that were asked for together was touched: of what
    /// goes piece by piece (accumulates of more than 32 KiB, pieces of a datatype) those before may have been.
    #[error("the target's memory is not in the window")]
    Range,
    /// Outside of an epoch that allows it, or inside of one that does not.
    #[error("the window is not in the right epoch for this")]
    Sync,
    /// The window has no such rank.
    #[error("the window has no such rank")]
    Rank,
    /// More bytes than there is room for.
    #[error("the operation's bytes do not fit")]
    Truncated,
    /// Elements of more bytes than there are addresses for.
    #[error("the type is too large")]
    Overflow,
    /// The operator is not defined for these elements, or they are not all of one predefined type.
    #[error("the operator is not defined for these elements")]
    Op,
    /// Only of windows of another kind.
    #[error("the window is of the wrong kind for this")]
    Flavor,
    /// Memory that overlaps what is attached, or that is not attached.
    #[error("the memory can't be attached or detached")]
    Attach,
    /// The ranks are not all on one host, or cannot map one another's memory.
    #[error("the memory can't be shared")]
    Shared,
    /// A rank has no memory for its part of the window.
    #[error("no memory left")]
    NoMemory,
    /// A target has got what this version would not have sent.
    #[error("a request that makes no sense")]
    Malformed,
    /// The device's reason: a process is gone, or the context was revoked.
    #[error(transparent)]
    Device(#[from] adi::Error),
}

impl From<RmaError> for ErrorClass {
    fn from(error: RmaError) -> Self {
        match error {
            RmaError::Device(error) => error.into(),
            other => other.class().unwrap_or(Self::Intern),
        }
    }
}

impl RmaError {
    /// The standard's class; `None` of what only the device knows.
    pub const fn class(self) -> Option<ErrorClass> {
        Some(match self {
            Self::Range => ErrorClass::RmaRange,
            Self::Sync => ErrorClass::RmaSync,
            Self::Rank => ErrorClass::Rank,
            Self::Truncated => ErrorClass::Truncate,
            Self::Overflow => ErrorClass::Type,
            Self::Op => ErrorClass::Op,
            Self::Flavor => ErrorClass::RmaFlavor,
            Self::Attach => ErrorClass::RmaAttach,
            Self::Shared => ErrorClass::RmaShared,
            Self::NoMemory => ErrorClass::NoMem,
            Self::Malformed => ErrorClass::Intern,
            Self::Device(_) => return None,
        })
    }

    /// Of a verdict: what a target says of all that was asked of it.
    pub(super) const fn to_wire(verdict: Option<Self>) -> u8 {
        match verdict {
            None => 0,
            Some(Self::Range) => 1,
            Some(Self::Op) => 2,
            Some(Self::Device(_)) => 3,
            Some(_) => 4,
        }
    }

    pub(super) const fn from_wire(verdict: u8) -> Option<Self> {
        match verdict {
            0 => None,
            1 => Some(Self::Range),
            2 => Some(Self::Op),
            // Its own connection to us was lost for a while.
            3 => Some(Self::Device(adi::Error::ProcFailed)),
            _ => Some(Self::Malformed),
        }
    }
}
