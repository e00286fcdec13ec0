//! What carries the messages of a pattern: one file a transport.

mod am;
mod establish;
mod mpi;
mod proto;
mod raw;
mod rma;
mod smoltcp;
pub(crate) mod sockopt;
mod tcp;
mod udp;
mod window;

pub use am::Am;
pub(crate) use establish::{close, establish};
pub use mpi::Mpi;
pub use proto::Proto;
pub use raw::Raw;
pub use rma::{Get, Put};
pub use smoltcp::Smoltcp;
pub use tcp::{Tcp, TcpMode};
pub use udp::Udp;

use std::{fmt, io};

/// One end of a path for whole messages, all of one size that both ends know.
pub trait Transport {
    /// True where `send` and `recv` wait in the kernel, for a short while at most.
    const BLOCKING: bool = false;

    /// True where many messages may wait for their answers, as in a flood with a depth. Where it is not, none is compiled (`bench/NOTES.md`, 68).
    const ANSWERS_MANY: bool = true;

    /// Hands over `message`. `false`: there is no room for all of it yet; call [`Transport::recv`], then come again with the same
    /// message. A transport that takes buffers over has its own ones and writes only the first byte of them.
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken>;

    /// Puts on the wire what was handed over.
    fn flush(&mut self) -> Result<(), Broken>;

    /// Takes at most `budget` messages (or those of one read, where a read gives more) and shows each to `each` in memory of the application: `into`, which has
    /// [`SLACK`] bytes behind a message, or a buffer that this read has filled.
    fn recv(&mut self, budget: usize, into: &mut [u8], each: impl FnMut(&[u8])) -> Result<usize, Broken>;

    /// Receives no message, only what lets `send` go on.
    fn make_room(&mut self) -> Result<(), Broken> {
        self.recv(0, &mut [], |_| {}).map(drop)
    }

    /// Messages that may be unanswered at a time: more could overrun the other end, on a path that drops what does.
    fn unanswered_max(&self) -> usize {
        usize::MAX
    }

    /// Stays until everything handed over has arrived, or nothing more can be done about it.
    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken>;

    /// Nothing came. One `pause` is measurably faster than a bare loop, which leaves the core's pipeline full of stale loads.
    #[inline]
    fn relax(&self) {
        crate::idle::relax();
    }
}

/// Which way messages go, seen from one end. Paths that lose frames need to know how their sender is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Every message is answered by one, so that who has its answers has overrun nothing ([`Transport::unanswered_max`]).
    Alternating,
    /// We send; the other end returns counts.
    Outward,
    /// We receive and return counts.
    Inward,
}

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The system refused.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// The other end closed, or died.
    #[error("the other side is gone")]
    PeerGone,
    /// It took too long.
    #[error("no end within the time limit: the other side is silent, or frames were lost")]
    Deadline,
    /// All that was to be sampled came, but never so that it could be.
    #[error("no sample within the time limit: the machine is too busy with other things")]
    NoSample,
    /// Here each message waits for the answer to the one before.
    #[error("no flood with a depth is measured here")]
    OneByOne,
    /// A path without loss detection has lost something.
    #[error("frames were lost on a path that was measured without loss")]
    Lost,
    /// Longer than what is measured of such messages.
    #[error("messages of up to {size_max} B, which one frame carries, can be broken down here, and no longer ones")]
    TooLong {
        /// The longest message.
        size_max: usize,
    },
    /// The driver's own words.
    #[error("{0}")]
    Driver(String),
    /// A message that is none of the pattern's.
    #[error("{got} bytes came where {expected} were expected")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes of a message.
        expected: usize,
    },
}

impl Broken {
    /// In its own words.
    pub(crate) fn driver(error: impl fmt::Display) -> Self {
        Self::Driver(error.to_string())
    }
}

/// Room behind a message for the largest datagram, which may end beyond it.
pub const SLACK: usize = 1 << 16;
