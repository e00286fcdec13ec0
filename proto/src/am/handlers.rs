//! The table of handlers: plain functions by index, the same at both ends.

use super::args::Args;
use super::replier::Replier;
use crate::PeerId;

/// What a request runs. The payload is shown where it arrived and is gone when the handler returns. It gets no endpoint, so it
/// cannot request or wait; it may reply once, since that consumes the [`Replier`].
pub type RequestHandler<S> = fn(&mut S, Replier<'_>, Args<'_>, &[u8]);
/// What a reply runs at the requester; the peer is who replied.
pub type ReplyHandler<S> = fn(&mut S, PeerId, Args<'_>, &[u8]);

/// Handlers by index, those of requests and those of replies apart. `S` is the state that they work on.
pub struct Handlers<S> {
    requests: Vec<Option<RequestHandler<S>>>,
    replies: Vec<Option<ReplyHandler<S>>>,
}

impl<S> Default for Handlers<S> {
    fn default() -> Self {
        Self { requests: Vec::new(), replies: Vec::new() }
    }
}

impl<S> Handlers<S> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests to `index` run `handler`.
    #[must_use]
    pub fn request(mut self, index: u8, handler: RequestHandler<S>) -> Self {
        put(&mut self.requests, index, handler);
        self
    }

    /// Replies to `index` run `handler`.
    #[must_use]
    pub fn reply(mut self, index: u8, handler: ReplyHandler<S>) -> Self {
        put(&mut self.replies, index, handler);
        self
    }

    #[inline]
    pub(super) fn of_request(&self, index: u8) -> Option<RequestHandler<S>> {
        self.requests.get(usize::from(index)).copied().flatten()
    }

    #[inline]
    pub(super) fn of_reply(&self, index: u8) -> Option<ReplyHandler<S>> {
        self.replies.get(usize::from(index)).copied().flatten()
    }
}

fn put<H>(table: &mut Vec<Option<H>>, index: u8, handler: H) {
    let place = usize::from(index);
    if table.len() <= place {
        table.resize_with(place + 1, || None);
    }
    let before = table[place].replace(handler);
    assert!(before.is_none(), "two handlers with index {index}");
}
