//! What went wrong, or went a longer way, counted.

/// Counts since the device was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Records that cannot be read, or came from nobody in the job.
    pub malformed: u64,
    /// Records about requests that are over: their peers could not know yet, or break the rules.
    pub stale: u64,
    /// Messages from peers that sent more than they may.
    pub beyond_credit: u64,
    /// Connections of processes that count as gone, which were closed at once.
    pub strangers: u64,
    /// Messages that were read straight from their sender's memory.
    pub pulled: u64,
    /// Pieces of messages that were written straight into their receiver's memory, while it read others.
    pub given: u64,
    /// Messages that were put into our memory.
    pub put: u64,
    /// Messages that came in parts.
    pub streamed: u64,
}
