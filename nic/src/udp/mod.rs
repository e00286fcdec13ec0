//! `udp:<address>`: plain UDP sockets. No privilege, and any path that IP finds.
//!
//! The socket of the bound address hears everybody. The first few peers that are confirmed ([`Nic::confirm`](crate::Nic::confirm)) get a connected
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
use std::net::SocketAddr;
use std::ops::Range;

use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::{Caps, Counters};
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
