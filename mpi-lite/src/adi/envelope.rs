//! What messages are matched by, and what asks for them.

use std::fmt;

use super::unexpected::Found;

/// What a message is matched by (MPI-4.1 3.2.3): the context of its communicator, its sender's rank there, and its tag.
///
/// Two numbers, not three, so that a call has it in registers: written to memory in pieces and read across them, it would have a send wait
/// for all stores before it (`bench/NOTES.md` 89).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Envelope {
    context: u32,
    source_and_tag: u64,
}

impl Envelope {
    /// `source` is any but `u32::MAX`, `tag` any but `i32::MIN`: these stand for wildcards.
    #[inline]
    pub const fn new(context: u32, source: u32, tag: i32) -> Self {
        Self { context, source_and_tag: source as u64 | (tag as u32 as u64) << 32 }
    }

    /// Of the communicator.
    #[inline]
    pub const fn context(self) -> u32 {
        self.context
    }

    /// Rank of the sender in it.
    #[inline]
    pub const fn source(self) -> u32 {
        self.source_and_tag as u32
    }

    /// What the sender called the message.
    #[inline]
    pub const fn tag(self) -> i32 {
        (self.source_and_tag >> 32) as i32
    }

    /// The same in another context.
    #[inline]
    pub const fn in_context(self, context: u32) -> Self {
        Self { context, ..self }
    }

    /// The same with another tag.
    #[inline]
    pub const fn with_tag(self, tag: i32) -> Self {
        Self::new(self.context, self.source(), tag)
    }

    /// As records have it: the context, and a word of the rest.
    #[inline]
    pub(super) const fn to_words(self) -> (u32, u64) {
        (self.context, self.source_and_tag)
    }

    /// From what [`Self::to_words`] gave.
    #[inline]
    pub(super) const fn from_words(context: u32, source_and_tag: u64) -> Self {
        Self { context, source_and_tag }
    }
}

/// By its three parts.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("context", &self.context())
            .field("source", &self.source())
            .field("tag", &self.tag())
            .finish()
    }
}

/// What a receive or probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Of the communicator.
    pub context: u32,
    /// `None`: from anybody.
    pub source: Option<Source>,
    /// `None`: with any tag.
    pub tag: Option<i32>,
}

/// A sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Which process of the job that is.
    pub process: u32,
}

/// How a send completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// When its bytes may be overwritten. Ready sends are these, too.
    Standard,
    /// When a receive has matched it.
    Synchronous,
}

/// A message that a matched probe has found, and that only [`Device::recv_matched`](super::Device::recv_matched) can receive.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Message(pub(super) Found);
