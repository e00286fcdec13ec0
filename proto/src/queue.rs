//! Peers whose turn it is to be: a FIFO that mostly holds one, and then is one comparison.

use std::collections::VecDeque;

use crate::hint::seldom;
use crate::wire::NO_PEER;

/// Indices of peers in the order in which they came. That each is in it once is the caller's to see to.
#[derive(Debug)]
pub(crate) struct PeerQueue {
    /// NO_PEER when the queue is empty.
    front: u16,
    rest: VecDeque<u16>,
}

impl PeerQueue {
    /// Nobody.
    pub const fn new() -> Self {
        Self { front: NO_PEER, rest: VecDeque::new() }
    }

    /// True when nobody waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.front == NO_PEER
    }

    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_empty() { 0 } else { 1 + self.rest.len() }
    }

    /// Who came first.
    #[inline]
    pub fn front(&self) -> Option<u16> {
        (!self.is_empty()).then_some(self.front)
    }

    /// Puts `index` at the end.
    #[inline]
    pub fn push_back(&mut self, index: u16) {
        if seldom(!self.is_empty()) {
            self.rest.push_back(index);
        } else {
            self.front = index;
        }
    }

    /// Takes out who came first.
    #[inline]
    pub fn pop_front(&mut self) -> Option<u16> {
        let front = self.front()?;
        self.front = NO_PEER;
        if seldom(!self.rest.is_empty()) {
            self.move_up();
        }
        Some(front)
    }

    #[inline(never)]
    fn move_up(&mut self) {
        self.front = self.rest.pop_front().unwrap_or(NO_PEER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut queue = PeerQueue::new();
        assert_eq!((queue.len(), queue.pop_front()), (0, None));
        for index in [7, 0, 3] {
            queue.push_back(index);
        }
        assert_eq!((queue.len(), queue.front()), (3, Some(7)));
        assert_eq!(
            [queue.pop_front(), queue.pop_front(), queue.pop_front(), queue.pop_front()],
            [Some(7), Some(0), Some(3), None]
        );
    }
}
