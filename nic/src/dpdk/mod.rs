//! `dpdk:<device>`: network cards without the kernel, and DPDK's virtual devices.
//!
//! A device is a PCI address (`dpdk:0000:00:04.0`), one of the short forms `memif:NAME[,server]` and
//! `vhost:PATH[,server]` for two processes on one host, or any virtual device in DPDK's own words
//! (`dpdk:net_tap0,iface=tap0`). A `NAME` of memif without a slash is no file: an abstract socket, of which nothing stays
//! behind. vhost needs a file; with `once` at the client's end its name goes as soon as both are connected. Frames travel under our own EtherType ([`crate::encap::ether`]); they are received and
//! written in place, in DPDK's packet buffers.
//!
//! DPDK's environment is started when the first device is opened, once a process: in hugepages if 64 MiB of them are
//! free, in ordinary memory otherwise, always without files, so that nothing stays behind however the process ends.
//!
//! What two of our processes open as `memif:NAME` or `vhost:PATH`, neither `shared` nor `lossy`, is reliable by itself: a [`Pair`]. Over
//! all else frames may be lost.
//!
//! A device belongs to one endpoint. Up to eight endpoints of one process share it when all of them say `shared`. Where the
//! card's rules (rte_flow) can, each has a queue pair of its own, and a MAC address by which the card leads its frames
//! there. Elsewhere whoever receives deals out the others' frames, through rings without locks (`dealer`); then each still
//! has a queue of its own to send by, where the card has several. Frames for nobody are counted and dropped.
//!
//! Over memif and vhost the link is up only while the other process lives, so a link that goes down means that every
//! peer is gone. On a network a link may come back, so there only a device that was taken away is: whoever is silent
//! because of a pulled cable is found out by the protocol's own time limits.
//!
//! DPDK's memif driver takes memory down that a burst may be using, on a thread of its own, when a peer goes. The shim
//! keeps the two apart (`dpdk-sys/shim/memif.c`), and takes out first what the peer has sent (`dpdk-sys/shim/lives.c`); also what a
//! vhost client has (`dpdk-sys/shim/vhost.c`).

mod datapath;
mod dealer;
mod device;
mod diagnosis;
mod eal;
mod frames;
mod hugepages;
mod installed;
mod interrupt;
mod knock;
mod open;
mod pair;
pub mod pci;
mod pipes;
mod port;
mod refused;
mod rest;
mod sharing;
mod socket_file;
mod steered;
mod sys;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::encap::ether;
use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::{Caps, Counters};
use device::Device;
use frames::{RxBatch, TxBatch};
use interrupt::Interrupt;
use port::Port;
use rest::Rest;
use sharing::{Place, Sharing};
use sys::{Cache, Queue};

pub use installed::{Installed, KnownCards, free_hugepages, try_start};
pub use open::OpenError;
pub use pair::Pair;
pub use sidelane_dpdk_sys::LoadError;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The device with its own arguments, as above.
    pub device: String,
    /// Our number among the endpoints behind this device. 0 unless it is shared.
    pub endpoint: u16,
    /// Largest payload behind the Ethernet header; both sides have to agree. `None`: 1500.
    pub mtu: Option<u16>,
    /// Other endpoints of this process use the device too.
    pub shared: bool,
    /// A memif or vhost may lose frames, and is no [`Pair`]. Both ends say it, or neither.
    pub lossy: bool,
    /// Further arguments of DPDK's environment; only those of the first device that is opened count.
    pub eal: Option<String>,
}

impl Config {
    /// Endpoint 0, alone on `device`.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), endpoint: 0, mtu: None, shared: false, lossy: false, eal: None }
    }

    /// True of what [`Pair`] opens: both ends are ours, and each has one endpoint. A device in DPDK's own words may lead to a
    /// switch, which drops; and who shares a device, in software, drops what an endpoint does not fetch.
    pub fn is_pair(&self) -> bool {
        ["memif:", "vhost:"].iter().any(|short| self.device.starts_with(short)) && !self.shared && !self.lossy
    }

    /// The file of the socket that a server makes, or that a client removes (`once`); `None`: it has none.
    pub fn socket(&self) -> Option<PathBuf> {
        let device = Device::read(self, 0).ok()?;
        device.socket.or(device.socket_once)
    }
}

/// One endpoint behind a device. Moved to another thread it works as well.
pub struct Dpdk {
    // These two hold frames of the port's pool and use the cache, so they are dropped before both.
    rx: RxBatch,
    tx: TxBatch,
    /// Of the port's pool, so it is dropped before that.
    _cache: Cache,
    caps: Caps,
    links: LinkTable<Way>,
    place: Place,
    endpoint: u16,
    counters: Counters,
    alarm: Alarm,
    /// The link was up once; on a pair, down means gone from then on.
    was_up: Cell<bool>,
    /// Frames that had passed when a sleeper was told that the device is gone; `None`: it was not, since it was there last.
    told_gone: Option<u64>,
    /// Between two looks for frames.
    rest: Rest,
    /// Where the device wakes sleepers.
    interrupt: Option<Interrupt>,
    /// Frames in a row that it did not wake for.
    missed: u32,
    /// How many have gone: [`Port::lives`].
    lives: &'static AtomicU32,
    /// Its own, where nothing is dealt.
    queue: Option<Queue>,
    /// Peers that had gone when this one was first heard of: frames that wait are for it.
    life: u32,
    /// Peers that have gone and of whom everything was shown.
    received_life: u32,
    /// As many as a sleeper was woken for.
    told_life: u32,
    port: Arc<Port>,
}

/// What is prepared for a peer.
struct Way {
    header: [u8; ether::HEADER_LEN],
    /// Peers that had gone before.
    life: u32,
}

impl Dpdk {
    /// Name of DPDK's driver: `net_memif`, `net_e1000_em`.
    pub fn driver(&self) -> &str {
        &self.port.driver
    }

    /// How it comes to its frames and sleeps, in a line for people.
    pub fn about(&self) -> String {
        let sharing = match &self.port.sharing {
            None => "alone",
            Some(Sharing::Steered(_)) => "a queue pair of its own, to which the card steers",
            Some(Sharing::Dealt(_)) => "frames dealt out in software",
        };
        let sleep = if self.interrupt.is_some() { "woken by the device's interrupt" } else { "looks for frames" };
        let device = &self.port.device;
        let pair = if device.is_pair { "a reliable pair, " } else { "" };
        let copies = if device.is_zero_copy() { "without a copy, " } else { "" };
        format!("{}, MTU {}, {pair}{copies}{sharing}, {sleep}", self.port.driver, device.mtu)
    }

    /// Whether the link is up.
    pub fn link_is_up(&self) -> bool {
        self.port.link_is_up()
    }

    /// The device's own counters by name. Not for the hot path: cards are asked over the bus.
    pub fn extended_stats(&self) -> Vec<(String, u64)> {
        self.port.extended_stats()
    }
}
