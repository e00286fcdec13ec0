//! A node of the fabric with a clock of its own, which may leap.

use std::io;

use sidelane_nic::mem::MemNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, LinkAddr, Nic, forward};

use crate::wire::{FULL_LEN, crc32c, flags};

pub(super) struct Clocked {
    inner: MemNic,
    caps: Caps,
    /// Nanoseconds that its clock is ahead of the fabric's.
    ahead: u64,
    /// How long it takes to receive a frame, and when the next one may be.
    per_frame: Duration,
    free_at: Instant,
    /// Frames are shown without [`flags::AWAY`].
    deaf: bool,
    heard: Vec<u8>,
}

impl Clocked {
    pub fn new(inner: MemNic) -> Self {
        let (per_frame, free_at) = (Duration::ZERO, Instant::ZERO);
        let caps = *inner.caps();
        Self { inner, caps, ahead: AHEAD.as_nanos(), per_frame, free_at, deaf: false, heard: Vec::new() }
    }

    /// Shows one frame a burst, and the next no sooner than `per_frame` later, as `udp` does, and claims to be as slow.
    pub fn one_by_one(mut self, per_frame: Duration) -> Self {
        self.per_frame = per_frame;
        self.caps.rto_floor = Duration::from_millis(1);
        self.caps.host_delay = Some(Duration::from_micros(500));
        self
    }

    /// Nobody is heard saying that he was away.
    pub fn deaf(mut self) -> Self {
        self.deaf = true;
        self
    }

    /// When a frame that waits can be shown, by the fabric's clock.
    pub fn next_frame(&self) -> Option<Instant> {
        (self.per_frame > Duration::ZERO && self.has_received()).then_some(self.free_at)
    }

    fn has_received(&self) -> bool {
        matches!(self.caps.addr, LinkAddr::Mem { node } if self.inner.fabric().has_received(node))
    }

    /// Moves its clock, by [`AHEAD`] at most backwards.
    pub fn leap(&mut self, nanos: i64) {
        self.ahead = self.ahead.saturating_add_signed(nanos);
    }

    /// What the fabric's clock shows when this one shows `time`.
    pub fn fabric_time(&self, time: Instant) -> Instant {
        Instant::from_nanos(time.as_nanos().saturating_sub(self.ahead))
    }
}

impl Nic for Clocked {
    const RELIABLE: bool = false;

    forward!(inner: link, unlink, tx_slot, flush, waker, is_gone, counters);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let now = self.inner.now();
        if self.per_frame == Duration::ZERO && !self.deaf {
            return self.inner.rx_burst(budget, each);
        }
        if now < self.free_at {
            return 0;
        }
        let budget = if self.per_frame == Duration::ZERO { budget } else { 1 };
        let Self { inner, heard, deaf, .. } = self;
        let shown = inner.rx_burst(budget, |frame, from| {
            heard.clear();
            heard.extend_from_slice(frame);
            if *deaf {
                silence(heard);
            }
            each(heard, from);
        });
        if shown > 0 {
            self.free_at = now + self.per_frame;
        }
        shown
    }

    fn has_unread(&mut self) -> bool {
        self.has_received()
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let deadline = deadline.map(|deadline| self.fabric_time(deadline));
        self.inner.wait(deadline)
    }

    fn now(&self) -> Instant {
        self.inner.now() + Duration::from_nanos(self.ahead)
    }
}

/// Takes AWAY out of a frame, whose check stays as right or wrong as it was: what it covers changes it by xor.
fn silence(frame: &mut [u8]) {
    if frame.len() < FULL_LEN || frame[FLAGS] & flags::AWAY == 0 {
        return;
    }
    let before = crc32c(&frame[CHECKED_FROM..]);
    frame[FLAGS] &= !flags::AWAY;
    let change = (before ^ crc32c(&frame[CHECKED_FROM..])).to_le_bytes();
    frame[..CHECKED_FROM].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
}

/// Where the header's flags stand, and what the check covers, which stands before it.
const FLAGS: usize = 5;
const CHECKED_FROM: usize = 4;

/// How far it is ahead at first, so that it can leap back.
const AHEAD: Duration = Duration::from_millis(10_000);
