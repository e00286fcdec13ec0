//! Room for replies: what a peer keeps for ours, and what we keep for its.
//!
//! A reply must find room whenever its handler runs, or two sides whose FIFOs are full of requests wait for each other for
//! ever. So half of each send FIFO is kept for replies, the peer is told how much that is, and each of its requests says how
//! much of it its reply may take. `PROTOCOL.md`, "Active Messages", has the argument.

use super::counters::Reject;
use super::wire::{CREDIT_LEN, Credit, UNIT, record_len};

/// How much room a request asks for at the peer for its reply. One that asks for more than
/// [`super::ActiveMessages::room_max`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReplyRoom(u16);

impl ReplyRoom {
    /// The handler cannot reply.
    pub const NONE: Self = Self(0);
    /// The handler may reply with any number of arguments.
    pub const SHORT: Self = Self::medium(super::ARGS_MAX, 0);

    /// The handler may reply with `words` arguments and `payload` bytes.
    pub const fn medium(words: usize, payload: usize) -> Self {
        // The reply's record, and the credit that may ride on it.
        let units = (record_len(true, words, 0) + payload).div_ceil(UNIT);
        Self(if units > u16::MAX as usize { u16::MAX } else { units as u16 })
    }

    pub(crate) const fn units(self) -> u16 {
        self.0
    }

    pub(crate) const fn of_units(units: u16) -> Self {
        Self(units)
    }
}

/// Both budgets with one peer, in units of [`UNIT`] bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    // What the peer keeps for its replies to us.
    /// What one frame takes.
    frame: u32,
    /// All of it. Zero until the peer has told.
    granted: u32,
    /// What one request may ask for is below this. Zero until the peer has told.
    room_end: u32,
    /// What no outstanding request of ours has taken; at most `granted`.
    room: u32,
    /// Requests sent.
    pub sent: u64,
    /// Of which the peer has told that they are handled.
    pub handled: u64,
    // What we keep for our replies to the peer.
    /// All of it.
    share: u32,
    /// What the peer may yet take, as far as we have told.
    lent: u32,
    /// What requests that were handled give back, and the peer does not know yet.
    untold: Credit,
    /// The peer asked to be told.
    asked: bool,
}

impl Budget {
    /// `reserve` bytes of our send FIFO are kept for replies, of which the peer is to be told. Replies are records of at most
    /// `record_max` bytes.
    pub fn new(reserve: usize, record_max: usize) -> Self {
        let share = (reserve / UNIT) as u32;
        let frame = record_max.div_ceil(UNIT) as u32;
        Self { frame, share, untold: Credit { handled: 0, freed: share }, ..Self::default() }
    }

    /// Room that one request may ask for; `None` until the peer has told.
    pub fn room_max(&self) -> Option<ReplyRoom> {
        self.room_end.checked_sub(1).map(|units| ReplyRoom(u16::try_from(units).unwrap_or(u16::MAX)))
    }

    /// True when a request that asks for `room` may be sent.
    #[inline]
    pub const fn has_room(&self, room: ReplyRoom) -> bool {
        let room = room.0 as u32;
        room <= self.room && room < self.room_end
    }

    /// No further request may be sent.
    pub const fn end_requests(&mut self) {
        self.room_end = 0;
    }

    /// A request is sent that asks for `room`.
    #[inline]
    pub const fn on_request_sent(&mut self, room: ReplyRoom) {
        self.room -= room.0 as u32;
        self.sent += 1;
    }

    /// A reply has come.
    #[inline]
    pub fn on_reply(&mut self, room: u16) -> Result<(), Reject> {
        self.on_credit(Credit { handled: 1, freed: u32::from(room) })
    }

    /// The peer tells what it has handled; for the first time, what it keeps for us.
    #[inline]
    pub fn on_credit(&mut self, credit: Credit) -> Result<(), Reject> {
        if u64::from(credit.handled) > self.sent - self.handled {
            return Err(Reject::NoRequest);
        }
        if self.granted == 0 {
            self.granted = credit.freed;
            // A quarter at most is untold at any time, so a request that waits for half of all will find it.
            self.room_end = (credit.freed / 2).min(self.frame) + 1;
        } else if credit.freed > self.granted - self.room {
            return Err(Reject::Credit);
        }
        self.room += credit.freed;
        self.handled += u64::from(credit.handled);
        Ok(())
    }

    /// A request has come that asks for `room`.
    #[inline]
    pub fn on_request(&mut self, room: u16) -> Result<(), Reject> {
        self.lent = self.lent.checked_sub(u32::from(room)).ok_or(Reject::OverBudget)?;
        Ok(())
    }

    /// Its handler replies, and the reply gives the room back.
    #[inline]
    pub const fn on_replied(&mut self, room: u16) {
        self.lent += room as u32;
    }

    /// Its handler has returned and did not reply.
    #[inline]
    pub const fn on_handled(&mut self, room: u16) {
        self.untold.freed += room as u32;
        self.untold.handled += 1;
    }

    /// The peer asks.
    pub const fn on_ask(&mut self) {
        self.asked = true;
    }

    /// True when the peer should be told.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.untold.handled >= UNTOLD_MAX || self.untold.freed * 4 > self.share || self.asked
    }

    /// What the peer has to be told, if anything.
    #[inline]
    pub fn due(&self) -> Option<Credit> {
        self.is_due().then_some(self.untold)
    }

    /// The peer is told `credit`, which is what [`Self::due`] said.
    #[inline]
    pub fn on_told(&mut self, credit: Option<Credit>) {
        if let Some(credit) = credit {
            self.lent += credit.freed;
            self.untold = Credit::default();
            self.asked = false;
        }
    }
}

/// Requests without a reply that are handled before their sender is told: seldom enough to cost nothing.
const UNTOLD_MAX: u32 = 256;
const _: () = assert!(ReplyRoom::SHORT.0 as usize * UNIT == 8 + CREDIT_LEN + 8 * super::ARGS_MAX);
