//! A node of the fabric with a clock of its own, which may leap.

use std::io;
use std::task::Waker;

use sidelane_nic::mem::MemNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

pub(super) struct Clocked {
    inner: MemNic,
    /// Nanoseconds that its clock is ahead of the fabric's.
    ahead: u64,
}

impl Clocked {
    pub fn new(inner: MemNic) -> Self {
        Self { inner, ahead: AHEAD.as_nanos() }
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

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.inner.link(to)
    }
    fn unlink(&mut self, link: Link) {
        self.inner.unlink(link);
    }
    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.inner.rx_burst(budget, each)
    }
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        self.inner.tx_slot(link, len)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let deadline = deadline.map(|deadline| self.fabric_time(deadline));
        self.inner.wait(deadline)
    }
    fn waker(&mut self) -> io::Result<Waker> {
        self.inner.waker()
    }
    fn is_gone(&self, link: Link) -> bool {
        self.inner.is_gone(link)
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
    fn now(&self) -> Instant {
        self.inner.now() + Duration::from_nanos(self.ahead)
    }
}

/// How far it is ahead at first, so that it can leap back.
const AHEAD: Duration = Duration::from_millis(10_000);
