//! `uring:<interface>`: AF_PACKET on an Ethernet interface, with the kernel's own driver underneath.
//!
//! Frames are received from rings that the kernel fills and we poll in shared memory, without a system call; they are
//! sent by one `send`, or several by one io_uring submission. Small frames travel under our own EtherType. On a veth a
//! second socket carries more: with segmentation offload, frames of up to 64 KB as super-packets
//! ([`crate::encap::gso`]); without, many frames at once that the kernel cuts apart ([`crate::encap::train`]), to peers that
//! take them. To a third come super-packets that are copied out of the kernel straight to their place. Socket filters steer by
//! destination endpoint, so processes share an interface; small frames go without one while no others come.
//!
//! Needs CAP_NET_RAW: root, `setcap cap_net_raw+ep`, or a user namespace with the interface in it (`unshare -Urn`).

mod answers;
mod datapath;
mod early;
mod filter;
mod open;
mod pace;
mod placing;
mod rx_ring;
mod steering;
mod sys;
mod takers;
mod trains;
mod tx_queue;
mod tx_slot;

use std::cell::Cell;

use crate::encap::{ether, gso};
use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::names::Name;
use crate::{Caps, Counters};
use pace::Pace;
use placing::{Balance, Placing};
use rx_ring::RxRing;
use steering::Steering;
use tx_queue::TxQueue;

pub use open::OpenError;

/// What to open.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the interface, as in `ip link`.
    pub interface: String,
    /// Our number among the endpoints on this interface; two may not have the same.
    pub endpoint: u16,
    /// Send no frame above the interface's MTU, even where the interface takes larger ones.
    pub real_frames: bool,
    /// Frames that the receive ring of small frames holds. More of them survive a stall of this process; fewer stay in
    /// the cache (256 slots: 660 ns half round trip, 4096: 760).
    pub rx_slots: usize,
}

impl Config {
    /// Endpoint `endpoint` on `interface`, and for the rest what measured best.
    pub fn new(interface: impl Into<String>, endpoint: u16) -> Self {
        Self { interface: interface.into(), endpoint, real_frames: false, rx_slots: 256 }
    }
}

/// One endpoint on an interface.
pub struct Uring {
    caps: Caps,
    /// Frames under our EtherType.
    small: RxRing,
    steering: Steering,
    seen_early: u64,
    /// Those in the shape of IP packets, where the interface carries such.
    dressed: Option<(RxRing, Offload)>,
    /// Super-packets that go to their place without a ring, where the system allows so much to wait.
    placing: Option<Placing>,
    /// Bytes that may go to peers' so.
    balance: Balance,
    /// Super-packets so far that were fetched out of the kernel.
    fetched: u64,
    /// How we keep behind those that are cut on the way.
    pace: Pace,
    tx: TxQueue,
    links: LinkTable<Headers>,
    mac: [u8; 6],
    endpoint: u16,
    /// What a super-packet would be cut to: the interface's MTU less the headers of IP and TCP.
    segment: u16,
    counters: Counters,
    alarm: Alarm,
    /// Drops at the rings, collected whenever somebody looks: the kernel forgets them when they are read.
    rx_dropped: Cell<u64>,
    /// The interface no longer exists, so nothing arrives any more on any link.
    gone: bool,
    /// A sleep has ended since.
    told_gone: bool,
    /// Its name reserves the endpoint's number on the interface.
    _reservation: Name,
}

/// What an interface makes of packets that are to be cut into segments later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offload {
    /// Passes them on as they are: one is a frame of up to 64 KB.
    SuperPackets,
    /// Has the kernel cut them before they get there: each piece is a frame.
    Trains,
}

impl Uring {
    /// Of the frames shown so far, those that were seen before the kernel had handed them over.
    pub fn seen_early(&self) -> u64 {
        self.seen_early
    }

    /// True where long super-packets may wait to be fetched: on a veth with the offload, if the system allows a socket so much.
    pub fn can_fetch(&self) -> bool {
        self.placing.is_some()
    }

    /// Super-packets so far that came to be placed, without a ring.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Times so far that it was asked for frames while it kept behind a train that comes.
    pub fn rested(&self) -> u64 {
        self.pace.rested()
    }
}

/// A peer's headers, built once. Only the length changes from frame to frame.
struct Headers {
    small: [u8; ether::HEADER_LEN],
    large: [u8; gso::HEADER_LEN],
}
