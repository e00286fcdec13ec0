//! What an endpoint tells its user besides messages.

use sidelane_nic::LinkAddr;

use crate::rma::{Op, OpError, Region};

/// A peer of one endpoint. Never reused for another life or another peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PeerId {
    /// Index into the endpoint's table.
    pub(crate) index: u16,
    /// Which use of that entry.
    pub(crate) generation: u32,
}

impl PeerId {
    /// Its place in the endpoint's table of peers, for tables beside it. Another peer may have it once this one is gone.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// Something happened to a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer answered; messages flow both ways. Also how a peer that connected to us announces itself.
    Connected {
        /// The peer.
        peer: PeerId,
        /// Its address.
        addr: LinkAddr,
    },
    /// A message given to [`crate::Endpoint::send_owned`] is at the peer; here is its buffer.
    Sent {
        /// The peer.
        peer: PeerId,
        /// The message.
        buffer: Vec<u8>,
    },
    /// A message given to [`crate::Endpoint::send_owned`] that the peer did not acknowledge before it was gone. It may
    /// have arrived all the same.
    Unsent {
        /// The peer.
        peer: PeerId,
        /// The message.
        buffer: Vec<u8>,
    },
    /// A get is over: its bytes are in its region.
    Got {
        /// Which.
        op: Op,
    },
    /// An atomic is over.
    Fetched {
        /// Which.
        op: Op,
        /// The word as it was before.
        value: u64,
    },
    /// A one-sided operation has failed. One to a peer that is gone may have been carried out all the same.
    OpFailed {
        /// Which. Of silent puts only those before one that was not silent.
        op: Op,
        /// Why.
        why: OpError,
    },
    /// A region that was unregistered is not needed by any operation any more.
    Unregistered {
        /// Which.
        region: Region,
        /// Its memory, if it was the endpoint's.
        memory: Option<Vec<u8>>,
    },
    /// The peer closed, after everything it sent was delivered; or our own close is done.
    Closed {
        /// The peer.
        peer: PeerId,
    },
    /// The peer is gone. What it had not acknowledged may or may not have been delivered; nothing more will be.
    Gone {
        /// The peer.
        peer: PeerId,
        /// How we know.
        reason: GoneReason,
    },
}

/// How we know that a peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GoneReason {
    /// It never answered our first frame.
    NoAnswer,
    /// It was silent for four times [`crate::Config::keep_alive`], and answered no Ping.
    Silent,
    /// It knows nothing of this connection any more: another process answers at its address, or it had to end the connection.
    Restarted,
    /// The driver says so: its process died, or the interface is gone.
    LinkGone,
    /// A message that was sent before it answered is longer than it takes.
    MessageTooLong,
    /// It closed while messages to it were not yet acknowledged.
    ClosedByPeer,
    /// A frame of it was not taken in, on a reliable driver, where none comes again: there was no memory for its message, or what
    /// stood in it broke the rules.
    Untaken,
    /// It answers, and yet what was sent to it never arrived, however often it was written again: the path does not carry such long
    /// frames any more.
    Undelivered,
}
