//! A node's NIC.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use super::frame::Frame;
use super::{Config, Fabric, NODES_MAX};
use crate::time::{Duration, Instant};
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

/// The NIC of one node of a [`Fabric`]. Dropping it ends the node's life, as [`Fabric::crash`] does.
pub struct MemNic {
    fabric: Fabric,
    node: u32,
    /// Which of the node's lives this NIC belongs to. It is dead once the fabric says another.
    life: u32,
    caps: Caps,
    tx_frames: usize,
    /// Committed and not yet flushed, with the path of each.
    staged: Vec<(Link, Frame)>,
    counters: Counters,
    woken: Arc<Woken>,
}

/// Somebody wants the next wait to end. Nobody sleeps in virtual time, so there is nobody to be woken.
#[derive(Default)]
struct Woken(AtomicBool);

/// A lent transmit buffer of a [`MemNic`].
struct Slot<'a> {
    nic: &'a mut MemNic,
    link: Link,
    /// Empty only once it is committed.
    frame: Option<Frame>,
}

impl MemNic {
    pub(super) fn new(fabric: Fabric, node: u32, life: u32, config: Config) -> Self {
        let caps = Caps {
            addr: LinkAddr::Mem { node },
            mtu: config.mtu,
            mtu_safe: config.mtu_safe,
            rx_frames: config.rx_frames,
            burst: config.tx_frames,
            rto_floor: config.rto_floor,
            host_delay: Some(Duration::from_nanos(config.rto_floor.as_nanos() / 16)),
        };
        let (tx_frames, staged) = (config.tx_frames, Vec::with_capacity(config.tx_frames));
        Self { fabric, node, life, caps, tx_frames, staged, counters: Counters::default(), woken: Arc::default() }
    }

    /// The fabric that it belongs to.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }
}

impl Nic for MemNic {
    const RELIABLE: bool = false;
    const NAME: &'static str = "mem";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        match to {
            LinkAddr::Mem { node } if node < NODES_MAX => {
                Ok(Link(self.fabric.state.borrow_mut().path(self.node, node)))
            }
            LinkAddr::Mem { .. } => Err(LinkError::TableFull(NODES_MAX as usize)),
            _ => Err(LinkError::WrongKind(to)),
        }
    }

    // A path costs nothing while it is not used, and the fabric's links keep their settings.
    fn unlink(&mut self, _link: Link) {}

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        if !self.fabric.state.borrow().lives(self.node, self.life) {
            return 0;
        }
        for received in 0..budget {
            // The borrow ends before `each` begins: it may use the fabric.
            let Some((from, frame)) = self.fabric.state.borrow_mut().receive(self.node) else { return received };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            each(&frame, LinkAddr::Mem { node: from });
            self.fabric.state.borrow_mut().pool.give_back(frame);
        }
        budget
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len > self.caps.mtu {
            return None;
        }
        let mut state = self.fabric.state.borrow_mut();
        if self.staged.len() >= self.tx_frames || !state.uplink_has_room(self.node, len) {
            self.counters.tx_full += 1;
            return None;
        }
        let frame = Some(state.pool.take(len));
        drop(state);
        Some(Slot { nic: self, link, frame })
    }

    fn flush(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let mut state = self.fabric.state.borrow_mut();
        let lives = state.lives(self.node, self.life);
        for (link, frame) in self.staged.drain(..) {
            if lives {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += frame.len() as u64;
                state.send(link.0, frame);
            } else {
                self.counters.tx_failed += 1;
                state.pool.give_back(frame);
            }
        }
    }

    /// Moves the fabric's time to the next frame for this node, or to `deadline`; nobody else gets to run meanwhile, unless
    /// [`Fabric::on_wait`] was called.
    /// Returns at once when there is neither.
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        self.counters.waits += 1;
        if self.woken.0.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let others = self.fabric.state.borrow().others.clone();
        if let Some(others) = others {
            others(self.node, deadline);
            return Ok(());
        }
        let mut state = self.fabric.state.borrow_mut();
        while !state.has_received(self.node) {
            match (state.next_arrival(), deadline) {
                (Some(next), None) => state.advance_to(next),
                (Some(next), Some(deadline)) if next <= deadline => state.advance_to(next),
                (_, Some(deadline)) => {
                    state.advance_to(deadline);
                    break;
                }
                (None, None) => break,
            }
        }
        Ok(())
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Ok(Waker::from(Arc::clone(&self.woken)))
    }

    // Nobody on a network is told that a node crashed.
    fn is_gone(&self, _link: Link) -> bool {
        false
    }

    fn counters(&self) -> Counters {
        Counters { rx_dropped: self.fabric.state.borrow().rx_dropped(self.node, self.life), ..self.counters }
    }

    fn now(&self) -> Instant {
        self.fabric.now()
    }
}

impl Drop for MemNic {
    fn drop(&mut self) {
        let mut state = self.fabric.state.borrow_mut();
        if state.lives(self.node, self.life) {
            state.crash(self.node);
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl TxSlot for Slot<'_> {
    fn commit(mut self) {
        if let Some(frame) = self.frame.take() {
            self.nic.staged.push((self.link, frame));
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.nic.fabric.state.borrow_mut().pool.give_back(frame);
        }
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.frame.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.as_deref_mut().unwrap_or_default()
    }
}
