//! What is counted of Active Messages, beside the endpoint's own counts.

/// Why an Active Message of a peer was dropped. Nothing else came of it, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Shorter than what it says of itself.
    Truncated,
    /// More arguments than there can be.
    Words,
    /// No handler has its index. Its credit counts all the same, as if the handler had done nothing.
    NoHandler,
    /// A request that wants more room for its reply than the peer has left.
    OverBudget,
    /// A reply, or credit, for more requests than are outstanding.
    NoRequest,
    /// Credit for more room than there is.
    Credit,
    /// From a peer that is not known to be connected.
    NoPeer,
}

impl Reject {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 7] =
        [Self::Truncated, Self::Words, Self::NoHandler, Self::OverBudget, Self::NoRequest, Self::Credit, Self::NoPeer];

    /// The name of its counter.
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Truncated => "am.rejected.truncated",
            Self::Words => "am.rejected.words",
            Self::NoHandler => "am.rejected.no-handler",
            Self::OverBudget => "am.rejected.over-budget",
            Self::NoRequest => "am.rejected.no-request",
            Self::Credit => "am.rejected.credit",
            Self::NoPeer => "am.rejected.no-peer",
        }
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
        let Self {
            requests_sent,
            requests_handled,
            replies_sent,
            replies_handled,
            budget_stalls,
            long_reply_stalls,
            credits_sent,
            rejected,
        } = self;
        show("am.requests_sent", *requests_sent);
        show("am.requests_handled", *requests_handled);
        show("am.replies_sent", *replies_sent);
        show("am.replies_handled", *replies_handled);
        show("am.budget_stalls", *budget_stalls);
        show("am.long_reply_stalls", *long_reply_stalls);
        show("am.credits_sent", *credits_sent);
        for (reason, count) in Reject::ALL.into_iter().zip(rejected) {
            show(reason.counter(), *count);
        }
    }

    #[cold]
    pub(super) fn reject(&mut self, reason: Reject) {
        self.rejected[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_counter_of_its_place() {
        for (place, reason) in Reject::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
    }
}
