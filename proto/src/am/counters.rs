//! What is counted of Active Messages, beside the endpoint's own counts.

use crate::counters::reasons;

reasons! {
    /// Why an Active Message of a peer was dropped. Nothing else came of it, unless said otherwise.
    pub enum Reject {
        /// Shorter than what it says of itself.
        Truncated = "am.rejected.truncated",
        /// More arguments than there can be.
        Words = "am.rejected.words",
        /// No handler has its index. Its credit counts all the same, as if the handler had done nothing.
        NoHandler = "am.rejected.no-handler",
        /// A request that wants more room for its reply than the peer has left.
        OverBudget = "am.rejected.over-budget",
        /// A reply, or credit, for more requests than are outstanding.
        NoRequest = "am.rejected.no-request",
        /// Credit for more room than there is.
        Credit = "am.rejected.credit",
        /// From a peer that is not known to be connected.
        NoPeer = "am.rejected.no-peer",
    }
}

/// Counts since the Active Messages were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent.
    pub requests_sent: u64,
    /// Requests of peers that ran a handler.
    pub requests_handled: u64,
    /// Replies that these handlers sent.
    pub replies_sent: u64,
    /// Replies that ran a handler here.
    pub replies_handled: u64,
    /// Requests refused as [`crate::SendError::Full`] for want of the peer's room for replies.
    pub budget_stalls: u64,
    /// Long replies whose put had to wait for room.
    pub long_reply_stalls: u64,
    /// Credits sent for want of anything to ride on.
    pub credits_sent: u64,
    /// Messages dropped, by [`Reject`] as index.
    pub rejected: [u64; Reject::ALL.len()],
}

impl Counters {
    /// Messages dropped for `reason`.
    pub fn rejected(&self, reason: Reject) -> u64 {
        self.rejected[reason as usize]
    }

    /// Messages dropped for any reason.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// Shows every count with its name.
    pub fn each(&self, mut show: impl FnMut(&'static str, u64)) {
        // A pattern without `..`, so that a count which is added above cannot be forgotten here.
        macro_rules! fields {
            ($($name:ident)*) => {
                let Self { $($name,)* rejected: _ } = self;
                $(show(concat!("am.", stringify!($name)), *$name);)*
            };
        }
        fields!(requests_sent requests_handled replies_sent replies_handled budget_stalls long_reply_stalls credits_sent);
        for (reason, count) in Reject::ALL.into_iter().zip(self.rejected) {
            show(reason.counter(), count);
        }
    }

    #[cold]
    pub(super) fn reject(&mut self, reason: Reject) {
        self.rejected[reason as usize] += 1;
    }
}
