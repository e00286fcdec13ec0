//! A handler's right to reply: once, to whom the request came from.

use std::cell::Cell;

use super::ARGS_MAX;
use super::peer::Peer;
use super::wire::{Credit, Head, Kind, UNIT, put, put_whole, record_len};
use crate::conn::Answering;
use crate::send_fifo::SendFifo;
use crate::{PeerId, SendError};

/// Consumed by a reply. Dropped, it means that there is none. The reply leaves when the handlers of this poll are done.
pub struct Replier<'a> {
    /// Not open once our side was closed: nothing may follow the Close.
    pub(super) peer: &'a mut Peer,
    /// What the request's reply may take.
    pub(super) room: u16,
    pub(super) outlets: Outlets<'a>,
    pub(super) replied: &'a mut bool,
}

/// Where replies go.
pub(super) struct Outlets<'a> {
    pub short: Answering<'a>,
    /// Peers to whom long replies wait, which begin with them.
    pub long: &'a mut Vec<u16>,
    /// Replies in this turn of the peer's, of both kinds.
    pub count: &'a Cell<u64>,
}

impl<'a> Replier<'a> {
    /// Who sent the request.
    #[inline]
    pub const fn from(&self) -> PeerId {
        self.peer.id
    }

    /// Longest payload that a reply with `words` arguments may have; `None` when not even that is allowed.
    #[inline]
    pub fn payload_max(&self, words: usize) -> Option<usize> {
        let most = self.peer.record_max.min(usize::from(self.room) * UNIT);
        most.checked_sub(record_len(true, words, 0)).filter(|_| words <= ARGS_MAX)
    }

    /// Replies: `args`, at most [`ARGS_MAX`] of them, and a copy of `payload` run `handler` at the requester. There is always
    /// room for what the request allowed; more is `TooLong`. `NoPeer` when the requester is gone meanwhile.
    #[inline]
    pub fn reply(self, handler: u8, args: &[u64], payload: &[u8]) -> Result<(), SendError> {
        let credit = self.peer.budget.due();
        let len = record_len(credit.is_some(), args.len(), payload.len());
        let head = self.head(handler, args.len(), credit);
        self.fits(args.len(), payload.len())?;
        let record = spot(self.outlets.short.fifo, self.peer.open, len)?;
        put_whole(record, head, credit, args, payload);
        self.outlets.short.fifo.commit(len);
        self.on_replied(credit);
        Ok(())
    }

    /// As [`Self::reply`] with `words` arguments and up to `payload` bytes, which the caller writes where they leave from.
    #[inline]
    pub fn prepare(self, words: usize, payload: usize) -> Result<PreparedReply<'a>, SendError> {
        self.fits(words, payload)?;
        let credit = self.peer.budget.due();
        let len = record_len(credit.is_some(), words, payload);
        spot(self.outlets.short.fifo, self.peer.open, len)?;
        Ok(PreparedReply { replier: self, credit, words, payload })
    }

    #[inline]
    pub(super) fn fits(&self, words: usize, payload: usize) -> Result<(), SendError> {
        // With the credit, whether it rides on this one or not, so that the same reply fits each time.
        let fits = self.payload_max(words).is_some_and(|most| payload <= most);
        if fits { Ok(()) } else { Err(SendError::TooLong) }
    }

    /// The reply is in the FIFO, and `credit` with it.
    #[inline]
    fn on_replied(self, credit: Option<Credit>) {
        self.peer.budget.on_told(credit);
        self.peer.budget.on_replied(self.room);
        self.note_reply();
    }

    #[inline]
    pub(super) fn note_reply(self) {
        *self.replied = true;
        self.outlets.count.set(self.outlets.count.get() + 1);
    }

    #[inline]
    const fn head(&self, handler: u8, words: usize, credit: Option<Credit>) -> Head {
        Head { kind: Kind::Reply, has_credit: credit.is_some(), words: words as u8, handler, room: self.room }
    }
}

/// A reply whose payload is being written. Dropped, it is none.
pub struct PreparedReply<'a> {
    replier: Replier<'a>,
    credit: Option<Credit>,
    words: usize,
    payload: usize,
}

impl PreparedReply<'_> {
    /// Where the payload is written; what is there before is anything.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        let len = record_len(self.credit.is_some(), self.words, self.payload);
        let record = self.replier.outlets.short.fifo.spot(len, true).expect("there was room when this was prepared");
        &mut record[len - self.payload..]
    }

    /// Replies with the first `payload` bytes that were written. Panics when these are more, or the arguments not as many,
    /// as was prepared.
    #[inline]
    pub fn commit(self, handler: u8, args: &[u64], payload: usize) {
        assert!(args.len() == self.words && payload <= self.payload, "as prepared");
        let len = record_len(self.credit.is_some(), self.words, payload);
        let head = self.replier.head(handler, self.words, self.credit);
        let record = self.replier.outlets.short.fifo.spot(len, true).expect("there was room when this was prepared");
        put(record, head, self.credit, args);
        self.replier.outlets.short.fifo.commit(len);
        self.replier.on_replied(self.credit);
    }
}

/// A requester that kept to its budget finds room; one that is gone has none.
#[inline]
fn spot(fifo: &mut SendFifo, open: bool, len: usize) -> Result<&mut [u8], SendError> {
    if !open {
        return Err(SendError::NoPeer);
    }
    fifo.spot(len, true).ok_or(SendError::NoPeer)
}
