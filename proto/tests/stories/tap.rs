//! A NIC around the fabric's: it keeps what it receives, and lets in what a test forges.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use sidelane_nic::mem::MemNic;
use sidelane_nic::{Link, LinkAddr, LinkError, Nic, TxSlot, forward};

/// What it makes of a frame.
pub type Forge = fn(&[u8]) -> Vec<Vec<u8>>;

/// What a test has in its hand while the endpoint owns the NIC.
#[derive(Default)]
pub struct Controls {
    /// Frames are kept here, if there is such a list.
    pub heard: Option<Vec<Vec<u8>>>,
    /// Frames that arrive next, whoever they claim to be from.
    pub forged: VecDeque<(LinkAddr, Vec<u8>)>,
    /// What is forged of a frame arrives right before it, from the same sender.
    pub before: Option<Forge>,
    /// Frames shown to the endpoint.
    pub shown: u64,
    /// Times that the endpoint has asked whether a peer is gone.
    pub asked: u64,
    /// Peers that the endpoint has confirmed, in order.
    pub confirmed: Vec<LinkAddr>,
    /// A flush hands on nothing, as where an interface has no carrier: what was committed keeps its place in the queue.
    pub stuck: bool,
}

pub struct Tap {
    inner: MemNic,
    controls: Rc<RefCell<Controls>>,
    /// Unlike the fabric, real drivers forget what is unlinked.
    linked: HashMap<Link, LinkAddr>,
}

impl Tap {
    pub fn new(inner: MemNic) -> (Self, Rc<RefCell<Controls>>) {
        let controls = Rc::new(RefCell::new(Controls::default()));
        (Self { inner, controls: controls.clone(), linked: HashMap::new() }, controls)
    }
}

impl Nic for Tap {
    const RELIABLE: bool = false;

    forward!(inner: caps, wait, waker, counters, now);

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let link = self.inner.link(to)?;
        self.linked.insert(link, to);
        Ok(link)
    }

    fn confirm(&mut self, link: Link) {
        self.controls.borrow_mut().confirmed.push(self.linked[&link]);
    }

    fn unlink(&mut self, link: Link) {
        self.linked.remove(&link);
    }

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let forged: Vec<_> = {
            let mut controls = self.controls.borrow_mut();
            let count = controls.forged.len().min(budget);
            controls.shown += count as u64;
            controls.forged.drain(..count).collect()
        };
        for (from, bytes) in &forged {
            each(bytes, *from);
        }
        let controls = &self.controls;
        let received = self.inner.rx_burst(budget - forged.len(), |bytes, from| {
            let mut controls = controls.borrow_mut();
            if let Some(heard) = &mut controls.heard {
                heard.push(bytes.to_vec());
            }
            let before = controls.before.map_or(Vec::new(), |make| make(bytes));
            controls.shown += 1 + before.len() as u64;
            drop(controls);
            for forged in before {
                each(&forged, from);
            }
            each(bytes, from);
        });
        forged.len() + received
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        assert!(self.linked.contains_key(&link), "the endpoint uses a link that it has forgotten");
        self.inner.tx_slot(link, len)
    }

    fn flush(&mut self) {
        if !self.controls.borrow().stuck {
            self.inner.flush();
        }
    }

    fn is_gone(&self, link: Link) -> bool {
        self.controls.borrow_mut().asked += 1;
        self.inner.is_gone(link)
    }
}
