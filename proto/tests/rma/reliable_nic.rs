//! A driver that is reliable itself, as shared memory is.

use std::io;
use std::task::Waker;

use sidelane_nic::mem::MemNic;
use sidelane_nic::time::Instant;
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

/// A node of a fabric without faults, whose receive queue is never full: as reliable as shared memory.
pub struct Reliable(pub MemNic);

impl Nic for Reliable {
    const RELIABLE: bool = true;

    fn caps(&self) -> &Caps {
        self.0.caps()
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.0.link(to)
    }
    fn unlink(&mut self, link: Link) {
        self.0.unlink(link);
    }
    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.0.rx_burst(budget, each)
    }
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        self.0.tx_slot(link, len)
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.0.wait(deadline)
    }
    fn waker(&mut self) -> io::Result<Waker> {
        self.0.waker()
    }
    fn is_gone(&self, link: Link) -> bool {
        self.0.is_gone(link)
    }
    fn counters(&self) -> Counters {
        self.0.counters()
    }
    fn now(&self) -> Instant {
        self.0.now()
    }
}
