//! A driver that is reliable itself, as shared memory is.

use std::cell::Cell;
use std::io;
use std::task::Waker;

use sidelane_nic::mem::MemNic;
use sidelane_nic::time::Instant;
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

/// A node of a fabric without faults, whose receive queue is never full: as reliable as shared memory.
pub struct Reliable {
    pub node: MemNic,
    /// There is no room in the ring, as when the other side is slow.
    pub full: Cell<bool>,
}

impl Reliable {
    pub fn new(node: MemNic) -> Self {
        Self { node, full: Cell::new(false) }
    }
}

impl Nic for Reliable {
    const RELIABLE: bool = true;

    fn caps(&self) -> &Caps {
        self.node.caps()
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.node.link(to)
    }
    fn unlink(&mut self, link: Link) {
        self.node.unlink(link);
    }
    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.node.rx_burst(budget, each)
    }
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if self.full.get() { None } else { self.node.tx_slot(link, len) }
    }
    fn flush(&mut self) {
        self.node.flush();
    }
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.node.wait(deadline)
    }
    fn waker(&mut self) -> io::Result<Waker> {
        self.node.waker()
    }
    fn is_gone(&self, link: Link) -> bool {
        self.node.is_gone(link)
    }
    fn counters(&self) -> Counters {
        self.node.counters()
    }
    fn now(&self) -> Instant {
        self.node.now()
    }
}
