//! Eager credit: how much a peer may send before it is asked to.
//!
//! Whoever receives holds at most `window` units of [`UNIT`] bytes for each peer that no receive has taken; what a message
//! takes is given back when a receive has it. Credit travels in every record, and alone when half of it is outstanding.
//! Without credit a message is only announced, which takes an entry in the receiver's queue and none of its memory for
//! bytes: so what waits there is bounded by this credit and by the sends that are open at the senders.

/// Credit of both directions with one peer.
#[derive(Debug)]
pub(super) struct Credit {
    window: u32,
    /// What we may send.
    left: u32,
    /// What the peer sent and no receive has taken.
    held: u32,
    /// What it may be told to have back.
    owed: u32,
}

/// Bytes of a unit: the least that a message takes.
const UNIT: usize = 32;

impl Credit {
    /// Both sides begin with a window of `bytes`, which all processes of a job agree on.
    pub fn new(bytes: usize) -> Self {
        let window = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, u32::from(u16::MAX));
        Self { window, left: window, held: 0, owed: 0 }
    }

    /// What a message with `bytes` takes.
    #[inline]
    pub const fn units(bytes: usize) -> u32 {
        (bytes / UNIT) as u32 + 1
    }

    /// True if `bytes` may be sent. A message that takes a fifth of the window goes unasked only alone: in a stream of such, puts are
    /// quicker (bench/NOTES.md 84).
    #[inline]
    pub const fn allows(&self, bytes: usize) -> bool {
        let units = Self::units(bytes);
        units <= self.left && (units * 5 <= self.window || self.left >= self.window - self.window / 8)
    }

    /// True if a peer with all its credit may send `bytes`.
    pub const fn covers(&self, bytes: usize) -> bool {
        bytes / UNIT < self.window as usize
    }

    /// As many bytes, of at most `bytes`, as may be sent.
    pub fn most(&self, bytes: usize) -> usize {
        bytes.min((self.left as usize * UNIT).saturating_sub(1))
    }

    /// They were sent.
    #[inline]
    pub const fn spend(&mut self, bytes: usize) {
        self.left -= Self::units(bytes);
    }

    /// The peer gives credit back. One that gives more than it got gains nothing.
    #[inline]
    pub fn earn(&mut self, units: u16) {
        self.left = (self.left + u32::from(units)).min(self.window);
    }

    /// A message of the peer's with `bytes` waits. False when it may not have sent it.
    pub const fn hold(&mut self, bytes: usize) -> bool {
        let held = self.held + Self::units(bytes);
        let allowed = held + self.owed <= self.window;
        if allowed {
            self.held = held;
        }
        allowed
    }

    /// A message that waited is taken.
    pub const fn release(&mut self, bytes: usize) {
        self.held -= Self::units(bytes);
        self.owe(bytes);
    }

    /// A message was taken at once.
    #[inline]
    pub const fn owe(&mut self, bytes: usize) {
        self.owed += Self::units(bytes);
    }

    /// What the next record gives back.
    #[inline]
    pub const fn due(&self) -> u16 {
        if self.owed > u16::MAX as u32 { u16::MAX } else { self.owed as u16 }
    }

    /// It was sent.
    #[inline]
    pub const fn paid(&mut self, units: u16) {
        self.owed -= units as u32;
    }

    /// True when it has to be told alone.
    #[inline]
    pub const fn is_urgent(&self) -> bool {
        self.owed * 2 >= self.window
    }

    /// True if it was not before the last `added` units.
    pub const fn became_urgent(&self, added: u32) -> bool {
        self.is_urgent() && (self.owed - added) * 2 < self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::Config;
    use crate::adi::record::EAGER_LEN;

    #[test]
    fn what_is_long_goes_unasked_only_while_nearly_all_is_free() {
        let mut credit = Credit::new(80 * UNIT);
        let (long, short) = (30 * UNIT, 15 * UNIT);
        credit.spend(9 * UNIT);
        assert!(credit.allows(long));
        credit.spend(0);
        assert!(!credit.allows(long) && credit.allows(short));
        credit.earn(1);
        assert!(credit.allows(long));
    }

    #[test]
    fn what_is_spent_comes_back_by_the_half() {
        let (mut sender, mut receiver) = (Credit::new(10 * UNIT), Credit::new(10 * UNIT));
        for _ in 0..4 {
            assert!(sender.allows(8));
            sender.spend(8);
            receiver.owe(8);
            assert!(!receiver.is_urgent());
        }
        sender.spend(8);
        assert!(receiver.hold(8));
        receiver.release(8);
        assert!(receiver.is_urgent() && sender.most(1000) == 5 * UNIT - 1 && !sender.allows(5 * UNIT));
        let units = receiver.due();
        receiver.paid(units);
        sender.earn(units);
        assert!(receiver.due() == 0 && sender.allows(10 * UNIT - 1) && !sender.allows(10 * UNIT));
    }

    #[test]
    fn who_sends_beyond_the_window_is_refused() {
        let mut receiver = Credit::new(4 * UNIT);
        assert!((0..4).all(|_| receiver.hold(0)) && !receiver.hold(0));
        receiver.release(0);
        // Given back, but not told yet.
        assert!(!receiver.hold(0));
    }

    /// Else who owes more than that would still owe much, and nobody would tell it.
    #[test]
    fn all_that_a_peer_may_have_back_is_told_in_one_record() {
        let mut receiver = Credit::new(4 << 20);
        let held = (0..).take_while(|_| receiver.hold(0)).count();
        assert!(receiver.covers((held - 1) * UNIT) && !receiver.covers(held * UNIT));
        (0..held).for_each(|_| receiver.release(0));
        receiver.paid(receiver.due());
        assert_eq!(receiver.due(), 0);
    }

    #[test]
    fn credit_that_was_never_spent_is_not_earned() {
        let mut sender = Credit::new(4 * UNIT);
        sender.earn(u16::MAX);
        assert!(!sender.allows(4 * UNIT));
    }

    /// Else who receives more slowly than it is sent to is asked about each message (`bench/NOTES.md`, 70).
    #[test]
    fn fifos_are_full_of_the_shortest_messages_before_the_credit_is_used_up() {
        let Config { credit, endpoint, .. } = Config::default();
        // Each is a record of the protocol's, of four bytes and what an empty eager message has.
        let messages = (endpoint.send_fifo + endpoint.recv_fifo) / (4 + EAGER_LEN);
        let mut sender = Credit::new(credit);
        (0..messages).for_each(|_| sender.spend(0));
        assert!(sender.allows(0));
    }
}
