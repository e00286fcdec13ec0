//! Long messages: bytes into a region that the peer has published, then the handler.

use std::ops::Range;

use sidelane_nic::Nic;

use super::{ActiveMessages, ReplyRoom};
use crate::{Op, PeerId, PutHow, Region, RemoteKey, RmaError, SendError};

/// Why a long message was not taken. Nothing of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LongError {
    /// The request was refused.
    #[error(transparent)]
    Request(#[from] SendError),
    /// The put was refused.
    #[error(transparent)]
    Put(#[from] RmaError),
}

impl LongError {
    /// True when it can be tried again later.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Request(SendError::Full) | Self::Put(RmaError::Full))
    }
}

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Copies `bytes`, puts them at `offset` of the peer's region, and then runs `handler` there with `args`, which say what it
    /// should know of them. When it runs they are in place. They can be used again at once.
    ///
    /// A put that the peer refuses is told by [`crate::Event::OpFailed`]; the handler runs all the same.
    #[allow(clippy::too_many_arguments, reason = "those of a put and those of a request")]
    pub fn long(
        &mut self,
        to: PeerId,
        key: &RemoteKey,
        offset: u64,
        bytes: &[u8],
        handler: u8,
        args: &[u64],
        reply: ReplyRoom,
    ) -> Result<Op, LongError> {
        self.check(to, args.len(), reply)?;
        let op = self.endpoint.put(to, key, offset, bytes, PutHow::default())?;
        self.request(to, handler, args, &[], reply)?;
        Ok(op)
    }

    /// As [`Self::long`], straight from a region of ours, whose bytes must stay as they are until
    /// [`crate::Endpoint::is_source_free`].
    #[allow(clippy::too_many_arguments, reason = "those of a put and those of a request")]
    pub fn long_from(
        &mut self,
        to: PeerId,
        key: &RemoteKey,
        offset: u64,
        from: Region,
        range: Range<usize>,
        handler: u8,
        args: &[u64],
        reply: ReplyRoom,
    ) -> Result<Op, LongError> {
        self.check(to, args.len(), reply)?;
        let op = self.endpoint.put_from(to, key, offset, from, range, PutHow::default())?;
        self.request(to, handler, args, &[], reply)?;
        Ok(op)
    }

    /// A request that follows at once will be taken: operations have a queue of their own.
    fn check(&mut self, to: PeerId, words: usize, reply: ReplyRoom) -> Result<(), SendError> {
        self.prepare(to, words, 0, reply).map(|_| ())
    }
}
