//! A driver that gives the frames that it is told to, and keeps what is sent.

use std::io;
use std::task::Waker;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, OwnSlot, TxSlot};

pub(super) struct WireNic<const RELIABLE: bool> {
    caps: Caps,
    pub now: Instant,
    /// The next frame to arrive. Always from the other of two nodes.
    pub arriving: Option<Vec<u8>>,
    pub sent: Vec<Vec<u8>>,
}

impl<const RELIABLE: bool> WireNic<RELIABLE> {
    pub fn new(node: u32, now: Instant) -> Self {
        let caps = Caps {
            addr: LinkAddr::Mem { node },
            mtu: 160,
            mtu_safe: 160,
            // A window of four frames, so that it is full at times.
            rx_frames: 8,
            burst: 64,
            rto_floor: Duration::from_millis(1),
            host_delay: Some(Duration::from_micros(62)),
        };
        Self { caps, now, arriving: None, sent: Vec::new() }
    }
}

impl<const RELIABLE: bool> Nic for WireNic<RELIABLE> {
    const RELIABLE: bool = RELIABLE;

    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Mem { node } = to else { return Err(LinkError::WrongKind(to)) };
        Ok(Link(node))
    }
    fn unlink(&mut self, _: Link) {}
    fn rx_burst(&mut self, _: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let LinkAddr::Mem { node } = self.caps.addr else { unreachable!("set in `new`") };
        let Some(frame) = self.arriving.take() else { return 0 };
        each(&frame, LinkAddr::Mem { node: 1 - node });
        1
    }
    fn tx_slot(&mut self, _: Link, len: usize) -> Option<impl TxSlot + '_> {
        (len <= self.caps.mtu).then(|| OwnSlot::new(vec![0; len], |frame| self.sent.push(frame)))
    }
    fn flush(&mut self) {}
    fn wait(&mut self, _: Option<Instant>) -> io::Result<()> {
        Ok(())
    }
    fn waker(&mut self) -> io::Result<Waker> {
        Ok(Waker::noop().clone())
    }
    fn is_gone(&self, _: Link) -> bool {
        false
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn now(&self) -> Instant {
        self.now
    }
}
