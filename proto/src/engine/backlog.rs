//! Orders that a full send FIFO keeps waiting, so that those to other peers need not.

use std::collections::VecDeque;

use crate::PeerId;

/// One peer's, in the order in which they came. Bounded by what may be on its way to the peer.
#[derive(Default)]
pub(super) struct Backlog {
    items: VecDeque<Item>,
    /// The bytes of all short ones, from `taken` on.
    bytes: Vec<u8>,
    taken: usize,
}

/// One order.
pub(super) struct Item {
    pub peer: PeerId,
    pub source: Source,
    pub what: What,
}

/// Who ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Port,
    Shared,
}

pub(super) enum What {
    /// So many of the backlog's bytes.
    Short(usize),
    Large {
        buffer: Vec<u8>,
        lent: bool,
    },
    Close,
}

impl Backlog {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn push_short(&mut self, peer: PeerId, source: Source, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.items.push_back(Item { peer, source, what: What::Short(message.len()) });
    }

    pub fn push(&mut self, peer: PeerId, source: Source, what: What) {
        self.items.push_back(Item { peer, source, what });
    }

    /// The oldest order, and its bytes if it is a short message.
    pub fn front(&mut self) -> Option<(&mut Item, &[u8])> {
        let item = self.items.front_mut()?;
        let len = if let What::Short(len) = item.what { len } else { 0 };
        Some((item, &self.bytes[self.taken..self.taken + len]))
    }

    /// The oldest order is done.
    pub fn pop(&mut self) {
        if let Some(Item { what: What::Short(len), .. }) = self.items.pop_front() {
            self.taken += len;
            // Moved together now and then, each byte once on average.
            if self.taken * 2 >= self.bytes.len() {
                self.bytes.drain(..self.taken);
                self.taken = 0;
            }
        }
    }
}
