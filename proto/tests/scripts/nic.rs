//! A driver that receives what a script says, and keeps what is sent for the script to look at.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use sidelane_nic::time::Instant;
use sidelane_nic::{Arrival, Begun, Caps, Counters, Link, LinkAddr, LinkError, Nic, OwnSlot, Rest, TxSlot};

/// What both the driver and the script hold.
#[derive(Default)]
pub struct Wire {
    pub now: Instant,
    /// Frames that arrive next, and the node that they are from.
    pub arriving: VecDeque<(u32, Vec<u8>)>,
    /// Frames sent and not looked at: when, to whom, and what.
    pub sent: VecDeque<(Instant, u32, Vec<u8>)>,
    /// The driver says that its links are gone.
    pub gone: bool,
    /// The driver shows one frame at a time, however many wait.
    pub one_by_one: bool,
    /// Of longer frames it shows so many bytes, and has the rest fetched.
    pub head: Option<usize>,
    /// The rest is not to be had.
    pub rest_lost: bool,
}

pub struct ScriptNic {
    caps: Caps,
    wire: Rc<RefCell<Wire>>,
}

impl ScriptNic {
    pub fn new(caps: Caps) -> (Self, Rc<RefCell<Wire>>) {
        let wire = Rc::new(RefCell::new(Wire::default()));
        (Self { caps, wire: Rc::clone(&wire) }, wire)
    }
}

/// A frame whose rest is to be fetched, if it is there.
struct Waiting<'a> {
    frame: &'a [u8],
    is_lost: bool,
}

impl Rest for Waiting<'_> {
    fn fetch(&mut self, at: usize, into: &mut [u8]) -> bool {
        into.copy_from_slice(&self.frame[at..]);
        !self.is_lost
    }
    fn whole(&mut self) -> Option<&[u8]> {
        (!self.is_lost).then_some(self.frame)
    }
}

impl Nic for ScriptNic {
    const RELIABLE: bool = false;

    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Mem { node } = to else { return Err(LinkError::WrongKind(to)) };
        Ok(Link(node))
    }
    fn unlink(&mut self, _: Link) {}
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.rx_arrivals(budget, |arrival, from| each(arrival.whole().expect("none is lost"), from))
    }
    fn rx_arrivals(&mut self, budget: usize, mut each: impl FnMut(Arrival<'_>, LinkAddr)) -> usize {
        let (head, rest_lost) = (self.wire.borrow().head, self.wire.borrow().rest_lost);
        let arrived: Vec<_> = {
            let mut wire = self.wire.borrow_mut();
            let budget = if wire.one_by_one { 1 } else { budget };
            let count = wire.arriving.len().min(budget);
            wire.arriving.drain(..count).collect()
        };
        for (node, bytes) in &arrived {
            let mut rest = Waiting { frame: bytes, is_lost: rest_lost };
            let arrival = match head {
                Some(head) if head < bytes.len() => Arrival::Begun(Begun::new(&bytes[..head], bytes.len(), &mut rest)),
                _ => Arrival::Whole(bytes),
            };
            each(arrival, LinkAddr::Mem { node: *node });
        }
        arrived.len()
    }
    fn has_unread(&mut self) -> bool {
        !self.wire.borrow().arriving.is_empty()
    }
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        // A driver's memory holds what the last frame left there.
        (len <= self.caps.mtu).then(|| {
            OwnSlot::new(vec![0xee; len], move |frame| {
                let mut wire = self.wire.borrow_mut();
                let now = wire.now;
                wire.sent.push_back((now, link.0, frame));
            })
        })
    }
    fn flush(&mut self) {}
    fn wait(&mut self, _: Option<Instant>) -> io::Result<()> {
        Ok(())
    }
    fn waker(&mut self) -> io::Result<Waker> {
        Ok(Waker::noop().clone())
    }
    fn is_gone(&self, _: Link) -> bool {
        self.wire.borrow().gone
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn now(&self) -> Instant {
        self.wire.borrow().now
    }
}
