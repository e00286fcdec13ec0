//! A driver that is reliable itself, as shared memory is.

use std::cell::Cell;

use sidelane_nic::mem::MemNic;
use sidelane_nic::{Link, Nic, TxSlot, forward};

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

    forward!(node: caps, link, unlink, rx_burst, flush, wait, waker, is_gone, counters, now);

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if self.full.get() { None } else { self.node.tx_slot(link, len) }
    }
}
