//! Errors of single operations.

use sidelane_nic::LinkError;

use crate::wire::NO_PEER;

/// Why a message was not taken. Nothing of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send FIFO to this peer is full. Poll, and try again.
    #[error("the send FIFO to this peer is full")]
    Full,
    /// There is no such peer any more: it was closed, or is gone.
    #[error("the peer is closed or gone")]
    NoPeer,
    /// Longer than [`crate::Config::message_max`] of this side, or of the peer's. For Active Messages: longer than a frame takes, or
    /// more than the peer keeps for a reply.
    #[error("the message is longer than both sides take, or than the request has left room for (`ReplyRoom`)")]
    TooLong,
}

/// A buffer that [`crate::Endpoint::send_owned`] did not take, handed back.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub reason: SendError,
    /// The message, as it was given.
    pub buffer: Vec<u8>,
}

/// Why a connection was not begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint holds [`crate::Config::peers_max`] peers, or 65,535, which is all that it can.
    #[error("this endpoint holds its {0} peers already{more}", more = if *.0 < usize::from(NO_PEER) { "; raise `peers_max`" } else { ", the most that one can hold" })]
    TableFull(usize),
    /// The driver knows no way there.
    #[error(transparent)]
    Link(#[from] LinkError),
}
