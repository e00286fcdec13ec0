//! Orders that a full send FIFO keeps waiting, so that those to other peers need not.

use std::collections::VecDeque;

use super::operation::Operation;
use crate::{Event, PeerId};

/// One peer's, in the order in which they came. Bounded by what may be on its way to the peer.
#[derive(Default)]
pub(super) struct Backlog {
    items: VecDeque<Item>,
    /// The bytes of all short ones, from `taken` on.
    bytes: Vec<u8>,
    taken: usize,
    /// Beside them: these wait for other room, and may overtake messages but not be overtaken.
    operations: VecDeque<Operation>,
    /// How many of them have gone, and with those that wait.
    gone: u64,
    came: u64,
}

/// One order.
pub(super) struct Item {
    pub peer: PeerId,
    pub source: Source,
    pub what: What,
    /// How many operations go first.
    behind: u64,
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
        self.items.is_empty() && self.operations.is_empty()
    }

    pub fn push_short(&mut self, peer: PeerId, source: Source, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.push(peer, source, What::Short(message.len()));
    }

    pub fn push(&mut self, peer: PeerId, source: Source, what: What) {
        self.items.push_back(Item { peer, source, what, behind: self.came });
    }

    pub fn push_operation(&mut self, operation: Operation) {
        self.operations.push_back(operation);
        self.came += 1;
    }

    /// The oldest operation.
    pub fn operation(&mut self) -> Option<&mut Operation> {
        self.operations.front_mut()
    }

    /// The oldest operation is done.
    pub fn pop_operation(&mut self) {
        self.gone += u64::from(self.operations.pop_front().is_some());
    }

    pub fn has_operations(&self) -> bool {
        !self.operations.is_empty()
    }

    /// The oldest other order that no operation goes before, and its bytes if it is a short message.
    pub fn front(&mut self) -> Option<(&mut Item, &[u8])> {
        let item = self.items.front_mut().filter(|item| item.behind <= self.gone)?;
        let len = if let What::Short(len) = item.what { len } else { 0 };
        Some((item, &self.bytes[self.taken..self.taken + len]))
    }

    /// Gives up everything: what was lent goes back.
    pub fn into_unsent(self) -> impl Iterator<Item = Event> {
        self.items.into_iter().filter_map(|Item { peer, what, .. }| match what {
            What::Large { buffer, lent: true } => Some(Event::Unsent { peer, buffer }),
            _ => None,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Change;
    use crate::{RemoteKey, engine::operation};

    const PEER: PeerId = PeerId { index: 1, generation: 0 };

    fn addition(number: u64) -> Operation {
        let what = operation::What::Atomic(Change::Add(1));
        let key = RemoteKey { region: 0, key: 0, len: 8 };
        Operation { peer: PEER, number, cost: 0, is_fenced: false, key, offset: 0, what }
    }

    #[test]
    fn a_message_waits_for_the_operations_before_it_and_for_none_behind() {
        let mut backlog = Backlog::default();
        backlog.push_short(PEER, Source::Port, b"first");
        backlog.push_operation(addition(0));
        backlog.push_operation(addition(1));
        backlog.push(PEER, Source::Port, What::Close);
        backlog.push_operation(addition(2));
        assert_eq!(backlog.front().map(|(_, bytes)| bytes), Some(&b"first"[..]));
        backlog.pop();
        for number in 0..2 {
            assert!(backlog.front().is_none());
            assert_eq!(backlog.operation().map(|operation| operation.number), Some(number));
            backlog.pop_operation();
        }
        assert!(matches!(backlog.front(), Some((Item { what: What::Close, .. }, b""))));
        backlog.pop();
        assert!(backlog.front().is_none() && backlog.has_operations() && !backlog.is_empty());
        backlog.pop_operation();
        assert!(backlog.is_empty());
    }
}
