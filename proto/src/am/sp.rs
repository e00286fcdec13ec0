//! The calls of SP Active Messages (Chang and others, 1996, Table 1) in their own terms: `am_request_M`, `am_reply_M`, with
//! `M` a constant; `am_store`, `am_store_async` and `am_get`. `am_poll` is [`ActiveMessages::poll`]. Where they name an address, ours
//! name a region's key and an offset.

use std::ops::Range;

use sidelane_nic::Nic;

use super::replier::Replier;
use super::{ARGS_MAX, ActiveMessages, LongError, ReplyRoom};
use crate::{Op, PeerId, Region, RemoteKey, RmaError, SendError};

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Runs `handler` at `to` with `M` words. It may reply with words.
    #[inline]
    pub fn request_m<const M: usize>(&mut self, to: PeerId, handler: u8, words: [u64; M]) -> Result<(), SendError> {
        const { assert!(M <= ARGS_MAX) };
        self.request(to, handler, &words, &[], ReplyRoom::SHORT)
    }

    /// Stores `bytes` in the peer's region and runs `handler` there. Theirs waits until the source may be used again; ours
    /// copies, so it may at once.
    pub fn store<const M: usize>(
        &mut self,
        to: PeerId,
        (key, offset): (&RemoteKey, u64),
        bytes: &[u8],
        handler: u8,
        words: [u64; M],
    ) -> Result<Op, LongError> {
        const { assert!(M <= ARGS_MAX) };
        self.long(to, key, offset, bytes, handler, &words, ReplyRoom::NONE)
    }

    /// As [`Self::store`], from a region of ours without a copy; [`crate::Endpoint::is_source_free`] tells when it may be
    /// used again.
    pub fn store_async<const M: usize>(
        &mut self,
        to: PeerId,
        (key, offset): (&RemoteKey, u64),
        (from, range): (Region, Range<usize>),
        handler: u8,
        words: [u64; M],
    ) -> Result<Op, LongError> {
        const { assert!(M <= ARGS_MAX) };
        self.long_from(to, key, offset, from, range, handler, &words, ReplyRoom::NONE)
    }

    /// Fetches bytes of the peer's region into one of ours; [`crate::Event::Got`] follows.
    pub fn get(
        &mut self,
        from: PeerId,
        (key, offset): (&RemoteKey, u64),
        (into, range): (Region, Range<usize>),
    ) -> Result<Op, RmaError> {
        self.endpoint.get(from, key, offset, into, range)
    }
}

impl Replier<'_> {
    /// Replies with `M` words.
    #[inline]
    pub fn reply_m<const M: usize>(self, handler: u8, words: [u64; M]) -> Result<(), SendError> {
        const { assert!(M <= ARGS_MAX) };
        self.reply(handler, &words, &[])
    }
}
