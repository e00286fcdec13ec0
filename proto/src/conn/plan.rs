//! What a connection has to send: which frames beside records, and the next one.

use std::ops::Range;

use crate::rma::OpSpan;
use crate::send_fifo::Span;
use crate::wire::Seq;

/// Frames that have to go out besides records: a set, so that "none" is one comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owed(u8);

impl Owed {
    pub const NONE: Self = Self(0);
    pub const HELLO: Self = Self(1);
    pub const HELLO_ACK: Self = Self(2);
    pub const PING: Self = Self(4);
    pub const PROBE: Self = Self(8);
    /// The Close record is not in the FIFO yet.
    pub const CLOSE: Self = Self(16);
    /// One-sided operations, or answers to them, wait.
    pub const OPERATIONS: Self = Self(32);
    /// Alone of all, in [`super::Phase::Gone`]: the peer has to be told of an end that only we know of.
    pub const RESET: Self = Self(64);

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// The next frame to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Hello { len: usize },
    HelloAck,
    Ping,
    Reset,
    Ack,
    New { span: Span },
    Again { seq: Seq, span: Span, probe: bool },
}

impl Plan {
    /// The part of a large message that the frame carries: the message's number, and which of its bytes.
    #[inline]
    pub fn part(self) -> Option<(u32, Range<usize>)> {
        match self {
            Self::New { span } | Self::Again { span, .. } => span.part(),
            _ => None,
        }
    }

    /// The one-sided operations that the frame carries.
    #[inline]
    pub fn operations(self) -> Option<OpSpan> {
        match self {
            Self::New { span: Span::Operations(span) } | Self::Again { span: Span::Operations(span), .. } => Some(span),
            _ => None,
        }
    }
}
