//! What applications know of a peer without asking the engine: whether it lives, how long a message it takes, and how much of what
//! they sent is still on its way to the endpoint.

use std::sync::atomic::{AtomicU64, Ordering};

use super::done::Done;
use super::life::Life;
use crate::am::ReplyRoom;
use crate::{PeerId, SendError};

/// One place in the table of peers. The engine writes, applications read; `shared_sent` apart.
#[derive(Default)]
pub(super) struct Gauge {
    life: Life,
    /// Bytes that the endpoint has taken, since the engine began: from the port; from senders.
    pub port_taken: AtomicU64,
    pub shared_taken: AtomicU64,
    /// Bytes that senders have pushed.
    shared_sent: AtomicU64,
    /// Bytes of the port's one-sided operations that the endpoint has begun, since the engine began.
    pub operations_taken: AtomicU64,
    /// Every one of them before this number is done.
    pub operations_done: Done,
}

/// What a message counts for while it is on its way: a large one waits in its own buffer, and must not shut the way alone.
#[inline]
pub(super) fn cost(len: usize) -> u64 {
    (RECORD_COST + len).min(COST_MAX) as u64
}

impl Gauge {
    /// From now on `peer` may be sent messages of at most `message_max` bytes, unless it was closed before; and may be asked for
    /// `room_max` for a reply, if it has told.
    pub fn open(&self, peer: PeerId, message_max: usize, room_max: Option<ReplyRoom>) {
        let room_max = room_max.map_or(NO_BOUND, |most| most.units().into());
        self.life.open(peer.generation, u32::try_from(message_max).unwrap_or(u32::MAX), room_max);
    }

    /// From now on nothing may be sent to `peer`; somebody else may be here already.
    pub fn close(&self, peer: PeerId) {
        self.life.close(peer.generation);
    }

    /// Whether a message of `len` bytes may go to `peer`.
    #[inline]
    pub fn check(&self, peer: PeerId, len: usize) -> Result<(), SendError> {
        let longest = self.life.message_max(peer.generation).ok_or(SendError::NoPeer)?;
        if len as u64 > u64::from(longest) { Err(SendError::TooLong) } else { Ok(()) }
    }

    /// It has told how much room it keeps for a reply.
    pub fn note_room(&self, most: ReplyRoom) {
        self.life.note_room(most.units().into());
    }

    /// Whether so much room may be asked for there, as far as is known.
    pub fn check_room(&self, reply: ReplyRoom) -> Result<(), SendError> {
        let fits = u32::from(reply.units()) <= self.life.room_max();
        if fits { Ok(()) } else { Err(SendError::TooLong) }
    }

    /// Takes room for a sender's message. False: too much is on its way.
    pub fn take_shared(&self, cost: u64) -> bool {
        let sent = self.shared_sent.fetch_add(cost, Ordering::Relaxed) + cost;
        // What is taken may be seen before what was sent: then there is room.
        let fits = sent.wrapping_sub(self.shared_taken.load(Ordering::Relaxed)) as i64 <= ON_THE_WAY_MAX as i64;
        if !fits {
            self.give_shared(cost);
        }
        fits
    }

    /// Gives back room that was not used.
    pub fn give_shared(&self, cost: u64) {
        self.shared_sent.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Whether the port, which has sent `sent` bytes so far, may send another `cost`.
    #[inline]
    pub fn fits_port(&self, sent: u64, cost: u64) -> bool {
        sent + cost - self.port_taken.load(Ordering::Relaxed) <= ON_THE_WAY_MAX
    }

    /// As [`Self::fits_port`], of its one-sided operations.
    #[inline]
    pub fn fits_operation(&self, sent: u64, cost: u64) -> bool {
        sent + cost - self.operations_taken.load(Ordering::Relaxed) <= ON_THE_WAY_MAX
    }
}

/// To one peer, from the port, from all senders and of one-sided operations each: what can lie in a backlog. A quarter of a ring, so that one slow peer does not shut it.
pub(super) const ON_THE_WAY_MAX: u64 = 64 << 10;

/// At least eight messages may be on their way.
const COST_MAX: usize = ON_THE_WAY_MAX as usize / 8;

/// Of a peer that has not told.
const NO_BOUND: u32 = u32::MAX;

/// A record's head in the ring.
const RECORD_COST: usize = 16;
