//! `udp:<address>`: plain UDP sockets. No privilege, and any path that IP finds.
//!
//! The socket of the bound address hears everybody. The first few peers that are confirmed ([`Nic::confirm`]) get a connected
//! socket of their own besides: the kernel then looks up neither route nor socket per frame, which makes 250 ns a message of
//! two microseconds. A forged sender's address gets none, and so takes no true peer's. Frames of
//! equal size in one burst to one peer leave as one segmentation-offload datagram (UDP_SEGMENT) and arrive merged
//! (UDP_GRO): a walk through the kernel's network stack for dozens of frames.

mod datapath;
mod filter;
mod merging;
mod messages;
mod open;
mod sockets;
mod sys;
mod tx_queue;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::task::Waker;

use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::time::Instant;
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot, clock};
use sockets::{SocketId, Sockets};
use sys::RawAddr;
use tx_queue::TxQueue;

pub use open::OpenError;

/// What to open.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address that peers send to. Port 0: the system chooses one, see [`Caps::addr`].
    pub bind: SocketAddr,
}

impl Config {
    /// An endpoint at `bind`.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind }
    }
}

/// One endpoint at a UDP address.
pub struct Udp {
    caps: Caps,
    sockets: Sockets,
    /// The datagram that was received last.
    datagram: Box<[u8]>,
    /// The part of `datagram` that was not shown yet, and who sent it.
    unread: Range<usize>,
    unread_from: SocketAddr,
    tx: TxQueue,
    links: LinkTable<Way>,
    counters: Counters,
    alarm: Alarm,
}

/// How frames to a peer go out.
struct Way {
    addr: SocketAddr,
    raw: RawAddr,
    socket: SocketId,
    /// Whether frames leave together, as one datagram that is cut: until the path refuses one.
    segmentation: Cell<bool>,
}

impl Nic for Udp {
    const RELIABLE: bool = false;
    const NAME: &'static str = "udp";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Udp(addr) = to else { return Err(LinkError::WrongKind(to)) };
        if addr.is_ipv4() != self.sockets.addr().is_ipv4() {
            return Err(LinkError::Refused(to, io::Error::from_raw_os_error(libc::EAFNOSUPPORT)));
        }
        self.links.link(to, || {
            Ok(Way { addr, raw: RawAddr::from(addr), socket: SocketId::Main, segmentation: Cell::new(true) })
        })
    }

    fn confirm(&mut self, link: Link) {
        if let Some(way) = self.links.get_mut(link).filter(|way| way.socket == SocketId::Main) {
            way.socket = self.sockets.connect(way.addr);
        }
    }

    fn unlink(&mut self, link: Link) {
        if let Some(way) = self.links.get_mut(link) {
            self.sockets.disconnect(way.socket);
        }
        self.tx.forget(link, &mut self.counters);
        self.links.unlink(link);
    }

    #[inline]
    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.receive(budget, each)
    }

    fn has_unread(&mut self) -> bool {
        !self.unread.is_empty() || self.sockets.has_datagram()
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        self.lend(link, len)
    }

    #[inline]
    fn flush(&mut self) {
        self.tx.flush(&self.links, &self.sockets, &mut self.counters);
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.sleep(deadline)
    }

    fn waker(&mut self) -> io::Result<Waker> {
        self.alarm.waker()
    }

    /// Never known: a peer that refuses today may listen tomorrow.
    fn is_gone(&self, _link: Link) -> bool {
        false
    }

    fn counters(&self) -> Counters {
        Counters { rx_dropped: self.sockets.drops(), ..self.counters }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}
