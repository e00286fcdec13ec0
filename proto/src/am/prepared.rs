//! A request whose payload is written where it leaves from.

use super::budget::Budget;
use super::wire::{Credit, Head, Kind, put, record_len};
use super::{Counters, ReplyRoom};
use crate::endpoint::RecordSlot;

/// A place in the send FIFO. Dropped, nothing is sent.
pub struct Prepared<'a> {
    pub(super) slot: RecordSlot<'a>,
    pub(super) budget: &'a mut Budget,
    pub(super) counters: &'a mut Counters,
    pub(super) credit: Option<Credit>,
    pub(super) words: usize,
    pub(super) payload: usize,
    pub(super) reply: ReplyRoom,
}

impl Prepared<'_> {
    /// Where the payload is written; what is there before is anything.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        let len = record_len(self.credit.is_some(), self.words, self.payload);
        &mut self.slot.record(len)[len - self.payload..]
    }

    /// Sends the first `payload` bytes that were written. Panics when these are more, or the arguments not as many, as was
    /// prepared.
    #[inline]
    pub fn commit(mut self, handler: u8, args: &[u64], payload: usize) {
        assert!(args.len() == self.words && payload <= self.payload, "as prepared");
        let len = record_len(self.credit.is_some(), self.words, payload);
        let (has_credit, words, room) = (self.credit.is_some(), self.words as u8, self.reply.units());
        put(self.slot.record(len), Head { kind: Kind::Request, has_credit, words, handler, room }, self.credit, args);
        self.slot.commit(len);
        self.budget.on_request_sent(self.reply);
        self.budget.on_told(self.credit);
        self.counters.requests_sent += 1;
    }
}
