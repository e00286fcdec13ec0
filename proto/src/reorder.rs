//! Frames that arrived before their turn, kept until the gap is filled.

use std::collections::VecDeque;

use crate::in_flight::{SACK_MAX, WINDOW_MAX};
use crate::rma::Placed;
use crate::wire::Seq;

/// The receiving end of one direction's numbering.
#[derive(Debug)]
pub(crate) struct Reorder {
    /// The number that is due: everything before it was passed on.
    next: Seq,
    /// What is kept of frames `next + 1 + i`, where they have arrived. Empty in the common case.
    ahead: VecDeque<Option<Kept>>,
    /// Bytes in `ahead`.
    held: usize,
    /// Bytes that may be held: what a sender that keeps to its credit can have under way.
    held_max: usize,
}

/// What is kept of an early frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its body.
    Body(Vec<u8>),
    /// Its bytes are where they belong already.
    Placed(Placed),
}

/// Where an arriving frame belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the one that is due.
    Now,
    /// It came before its turn and can be kept.
    Early,
    /// It has been here before.
    Duplicate,
    /// It lies beyond any window.
    Beyond,
}

impl Reorder {
    /// Nothing has arrived; `first` is due.
    pub const fn new(first: Seq, held_max: usize) -> Self {
        Self { next: first, ahead: VecDeque::new(), held: 0, held_max }
    }

    /// The number that is due; the cumulative ack.
    #[inline]
    pub const fn next(&self) -> Seq {
        self.next
    }

    /// True when a frame is missing that later ones have overtaken.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Where frame `seq` belongs.
    #[inline]
    pub fn turn(&self, seq: Seq) -> Turn {
        match seq.since(self.next) {
            0 => Turn::Now,
            ahead if ahead < 0 => Turn::Duplicate,
            ahead if ahead >= WINDOW_MAX as i32 => Turn::Beyond,
            ahead => match self.ahead.get(ahead as usize - 1) {
                Some(Some(_)) => Turn::Duplicate,
                _ => Turn::Early,
            },
        }
    }

    /// The frame that was due was passed on.
    #[inline]
    pub fn advance(&mut self) {
        self.next = self.next.plus(1);
        if !self.ahead.is_empty() {
            // Slot 0 was the frame behind the one just passed on: it is now the one that is due.
            debug_assert!(self.ahead[0].is_none(), "taken by `take_due` before the advance");
            self.ahead.pop_front();
        }
    }

    /// Keeps an early frame's body. False when too much is held already: then it counts as never arrived.
    pub fn keep(&mut self, seq: Seq, body: &[u8]) -> bool {
        debug_assert_eq!(self.turn(seq), Turn::Early);
        if self.held + body.len() > self.held_max {
            return false;
        }
        self.note(seq, Kept::Body(body.to_vec()));
        self.held += body.len();
        true
    }

    /// Notes that an early frame is here, and its bytes where they belong.
    pub fn keep_placed(&mut self, seq: Seq, placed: Placed) {
        debug_assert_eq!(self.turn(seq), Turn::Early);
        self.note(seq, Kept::Placed(placed));
    }

    fn note(&mut self, seq: Seq, kept: Kept) {
        let place = seq.since(self.next) as usize - 1;
        if self.ahead.len() <= place {
            self.ahead.resize(place + 1, None);
        }
        self.ahead[place] = Some(kept);
    }

    /// What is kept of the frame behind the one that is due, if it is here. To be passed on after it.
    pub fn take_following(&mut self) -> Option<Kept> {
        let kept = self.ahead.front_mut()?.take()?;
        if let Kept::Body(body) = &kept {
            self.held -= body.len();
        }
        Some(kept)
    }

    /// Bit `i`: frame `next + 1 + i` is here.
    #[inline]
    pub fn sack(&self) -> u32 {
        if self.ahead.is_empty() { 0 } else { self.sack_bits() }
    }

    /// True if [`Self::sack`] tells of frame `seq`, which is early.
    pub fn is_in_sack(&self, seq: Seq) -> bool {
        seq.since(self.next) as usize <= SACK_MAX
    }

    /// Gives memory back if nothing is held.
    pub fn shrink(&mut self) {
        if self.ahead.is_empty() {
            self.ahead.shrink_to_fit();
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.ahead.capacity() * size_of::<Option<Kept>>() + self.held
    }

    fn sack_bits(&self) -> u32 {
        self.ahead.iter().take(SACK_MAX).enumerate().fold(0, |bits, (i, kept)| bits | u32::from(kept.is_some()) << i)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_gap_lets_everything_behind_it_through() {
        let mut reorder = Reorder::new(Seq(u32::MAX), 100);
        assert!(reorder.keep(Seq(0), b"b"));
        assert!(reorder.keep(Seq(2), b"d"));
        assert_eq!(reorder.sack(), 0b101);
        assert_eq!(reorder.turn(Seq(0)), Turn::Duplicate);
        assert_eq!(reorder.turn(Seq(1)), Turn::Early);

        assert_eq!(reorder.turn(Seq(u32::MAX)), Turn::Now);
        let following = reorder.take_following();
        reorder.advance();
        assert_eq!(following, Some(Kept::Body(b"b".to_vec())));
        assert_eq!(reorder.take_following(), None);
        reorder.advance();
        assert_eq!((reorder.next(), reorder.sack()), (Seq(1), 0b1));
    }

    #[test]
    fn past_and_far_future_are_told_apart() {
        let reorder = Reorder::new(Seq(5), 100);
        assert_eq!(reorder.turn(Seq(4)), Turn::Duplicate);
        assert_eq!(reorder.turn(Seq(5 + WINDOW_MAX)), Turn::Beyond);
        assert_eq!(reorder.turn(Seq(4 + WINDOW_MAX)), Turn::Early);
    }

    #[test]
    fn memory_is_bounded() {
        let mut reorder = Reorder::new(Seq(0), 10);
        assert!(reorder.keep(Seq(1), &[0; 6]));
        assert!(!reorder.keep(Seq(2), &[0; 6]));
        assert_eq!(reorder.sack(), 0b1);
    }
}
