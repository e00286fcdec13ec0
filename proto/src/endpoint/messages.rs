//! The user's messages: into the FIFOs, and out of them.

use std::cell::Cell;

use sidelane_nic::{Nic, TxSlot};

use super::Endpoint;
use crate::conn::{Answering, Conn, TurnContext};
use crate::counters::Counters;
use crate::queue::PeerQueue;
use crate::router::Router;
use crate::wire::{RECORD_LEN, put_message, put_message_of_two};
use crate::{PeerId, Refused, SendError};

impl<N: Nic> Endpoint<N> {
    /// Copies `message` into the send FIFO, or to the heap when it needs several frames.
    #[inline]
    pub fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        match self.send_record(peer, RECORD_LEN + message.len(), |record| put_message(record, message)) {
            Err(SendError::TooLong) => self.send_copied(peer, &[], message),
            sent => sent,
        }
    }

    /// As [`Self::send`], of a message that is `front` and then `rest`: for a header that stands elsewhere than its payload.
    #[inline]
    pub fn send_two<const L: usize>(&mut self, peer: PeerId, front: &[u8; L], rest: &[u8]) -> Result<(), SendError> {
        match self.send_record(peer, RECORD_LEN + L + rest.len(), |record| put_message_of_two(record, front, rest)) {
            Err(SendError::TooLong) => self.send_copied(peer, front, rest),
            sent => sent,
        }
    }

    /// Sends a record of `len` bytes, which `write` fills where it will stand, header and all. `TooLong` when it does not fit
    /// one frame.
    #[inline]
    pub(crate) fn send_record(
        &mut self,
        peer: PeerId,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let Router { peers, turn, active, .. } = &mut self.router;
        let conn = peers.taking(peer).ok_or(SendError::NoPeer)?;
        if N::RELIABLE
            && let Some(len) = conn.lone_frame_len(len)
            && let Some(mut slot) = self.nic.tx_slot(conn.link, len)
        {
            conn.emit_lone(turn, write, &mut slot);
            slot.commit();
            self.committed = true;
        } else if len <= RECORD_LEN + conn.record_max() {
            conn.send(len, write).inspect_err(|_| turn.counters.messages_refused += 1)?;
        } else {
            return Err(SendError::TooLong);
        }
        turn.counters.messages_sent += 1;
        if !conn.queued {
            conn.queued = true;
            active.push_back(peer.index);
        }
        Ok(())
    }

    #[cold]
    fn send_copied(&mut self, peer: PeerId, front: &[u8], rest: &[u8]) -> Result<(), SendError> {
        let Router { peers, turn: TurnContext { counters, spares, .. }, .. } = &mut self.router;
        let conn = peers.get(peer).ok_or(SendError::NoPeer)?;
        let len = front.len() + rest.len();
        if len > conn.message_max() {
            return Err(SendError::TooLong);
        }
        let Some(mut buffer) = spares.take(len) else {
            counters.messages_refused += 1;
            return Err(SendError::Full);
        };
        buffer.extend_from_slice(front);
        buffer.extend_from_slice(rest);
        conn.send_large(buffer, false).map_err(|buffer| {
            spares.give(buffer);
            counters.messages_refused += 1;
            SendError::Full
        })?;
        counters.messages_sent += 1;
        self.router.activate(peer.index);
        Ok(())
    }

    /// Sends straight from `buffer`, without a copy; it comes back in [`crate::Event::Sent`] once the peer has it all, or in
    /// [`crate::Event::Unsent`].
    pub fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        self.send_buffer(peer, buffer, true)
    }

    /// As [`Self::send_owned`]; a buffer that was not `lent` does not come back.
    pub(crate) fn send_buffer(&mut self, peer: PeerId, buffer: Vec<u8>, lent: bool) -> Result<(), Refused> {
        let router = &mut self.router;
        let Some(conn) = router.peers.taking(peer) else {
            return Err(Refused { reason: SendError::NoPeer, buffer });
        };
        if buffer.len() > conn.message_max() {
            return Err(Refused { reason: SendError::TooLong, buffer });
        }
        if let Err(buffer) = conn.send_large(buffer, lent) {
            router.turn.counters.messages_refused += 1;
            return Err(Refused { reason: SendError::Full, buffer });
        }
        router.turn.counters.messages_sent += 1;
        router.activate(peer.index);
        Ok(())
    }

    /// Shows a message that waits, the oldest of its peer, and takes it out. Peers take turns.
    #[inline]
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        self.router.recv(take)
    }

    /// Shows messages that wait as [`Self::recv`] does, one after the other, until `take` is false or none waits. Returns how many.
    #[inline]
    pub fn recv_each(&mut self, mut take: impl FnMut(PeerId, &[u8]) -> bool) -> usize {
        self.router.recv_each(|peer, message, _, _| take(peer, message))
    }

    /// Shows all messages that wait, and what an answer to each goes into; `take` counts it in the cell if there is one, in the FIFO now or
    /// by [`Self::send_reserved`] later, which holds also when it then panics. Returns how many.
    #[inline]
    pub(crate) fn recv_answering(&mut self, mut take: impl FnMut(PeerId, &[u8], Answering<'_>, &Cell<u64>)) -> usize {
        self.router.recv_each(|peer, message, answer, answers| {
            take(peer, message, answer, answers);
            true
        })
    }

    /// Sends an answer that [`Self::recv_answering`] was told of, a record of `len` bytes for which the FIFO to `peer` has kept room; `NoPeer` when that is gone.
    pub(crate) fn send_reserved(
        &mut self,
        peer: PeerId,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let conn = self.router.peers.taking(peer).ok_or(SendError::NoPeer)?;
        write(conn.outbox().spot(len, true).ok_or(SendError::NoPeer)?);
        conn.outbox().commit(len);
        self.router.activate(peer.index);
        Ok(())
    }

    /// A place for a record of `len` bytes in the FIFO to `peer`, to be written before it is sent. Errors as
    /// [`Self::send_record`].
    pub(crate) fn record_slot(&mut self, peer: PeerId, len: usize) -> Result<RecordSlot<'_>, SendError> {
        let Router { peers, active, turn: TurnContext { counters, .. }, .. } = &mut self.router;
        let conn = peers.taking(peer).ok_or(SendError::NoPeer)?;
        if len > RECORD_LEN + conn.record_max() {
            return Err(SendError::TooLong);
        }
        if conn.outbox().spot(len, false).is_none() {
            counters.messages_refused += 1;
            return Err(SendError::Full);
        }
        Ok(RecordSlot { conn, active, counters })
    }

    /// Keeps half of the FIFO to `peer`, which has connected, for replies. Returns how many bytes that is, and the length of
    /// the longest record.
    pub(crate) fn reserve_for_replies(&mut self, peer: PeerId) -> Option<(usize, usize)> {
        let conn = self.router.peers.get(peer)?;
        Some((conn.outbox().reserve_half(), RECORD_LEN + conn.record_max()))
    }

    /// Ends a connection on which a message was to go that its peer does not take.
    pub(crate) fn end_too_long(&mut self, peer: PeerId) {
        let Some((conn, turn)) = self.router.conn_turn(peer.index) else { return };
        if conn.id == peer && conn.takes_messages() {
            conn.end_too_long(turn);
            self.router.activate(peer.index);
            self.router.after_change(peer.index);
        }
    }
}

/// A record that is written in the FIFO before it is sent.
pub(crate) struct RecordSlot<'a> {
    conn: &'a mut Conn,
    active: &'a mut PeerQueue,
    counters: &'a mut Counters,
}

impl RecordSlot<'_> {
    /// The record's first `len` bytes, of at most as many as were asked for.
    #[inline]
    pub fn record(&mut self, len: usize) -> &mut [u8] {
        self.conn.outbox().spot(len, false).expect("there was room when this was lent")
    }

    /// Sends the record's first `len` bytes.
    #[inline]
    pub fn commit(self, len: usize) {
        self.conn.outbox().commit(len);
        self.counters.messages_sent += 1;
        if !self.conn.queued {
            self.conn.queued = true;
            self.active.push_back(self.conn.id.index);
        }
    }
}
