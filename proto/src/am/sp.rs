//! The calls of SP Active Messages (Chang and others, 1996, Table 1) in their own terms: `am_request_M`, `am_reply_M`, with
//! `M` a constant. `am_poll` is [`ActiveMessages::poll`].

use sidelane_nic::Nic;

use super::replier::Replier;
use super::{ARGS_MAX, ActiveMessages, ReplyRoom};
use crate::{PeerId, SendError};

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Runs `handler` at `to` with `M` words. It may reply with words.
    #[inline]
    pub fn request_m<const M: usize>(&mut self, to: PeerId, handler: u8, words: [u64; M]) -> Result<(), SendError> {
        const { assert!(M <= ARGS_MAX) };
        self.request(to, handler, &words, &[], ReplyRoom::SHORT)
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
