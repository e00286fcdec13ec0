//! `xdp:<interface>`: AF_XDP sockets on an Ethernet interface.
//!
//! An XDP program (`program.rs`) looks at every frame before the kernel does: those of our EtherType it puts into the
//! receive ring of the endpoint that they are for, all others it passes on. Received frames are read and frames to send
//! are written in one piece of memory that the kernel, or the network card itself, reads and writes too.
//!
//! Endpoints of one interface share that memory, the program and a queue (`members.rs`, `shared.rs`): all in one process,
//! or each in its own. Whatever they share is gone when the last of them is, however it ended.
//!
//! Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: root. A user namespace does not do. Linux 5.9 (XDP links); for several
//! endpoints on an interface the right to trace the other processes (root has it).

mod bpf;
mod chunks;
mod datapath;
mod locked;
mod members;
mod open;
mod program;
mod ring;
mod shared;
mod sys;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use crate::encap::ether;
use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::names::Name;
use crate::{Caps, Counters};
use chunks::Chunks;
use datapath::{RxRing, TxRing};
use members::Queue;

pub use members::endpoints_on;
pub use open::OpenError;

/// What to open.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the interface, as in `ip link`.
    pub interface: String,
    /// Our number among the endpoints on this interface; two may not have the same.
    pub endpoint: u16,
    /// Which of the interface's queues. Frames that arrive on others are not seen.
    pub queue: u32,
    /// Where the program shall run. The first endpoint on a queue decides for all.
    pub prefer: Preference,
}

/// Where the XDP program shall run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preference {
    /// Wherever it is fastest: in the driver where the driver can, but for veth.
    #[default]
    Fastest,
    /// In the driver or not at all.
    Native,
    /// In the kernel, behind the driver.
    Generic,
}

/// How frames get to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The card writes into our memory and reads from it.
    ZeroCopy,
    /// The driver copies, before the kernel has made an skb of the frame.
    Native,
    /// The kernel copies, out of an skb.
    Generic,
}

impl Config {
    /// Endpoint `endpoint` on the first queue of `interface`.
    pub fn new(interface: impl Into<String>, endpoint: u16) -> Self {
        Self { interface: interface.into(), endpoint, queue: 0, prefer: Preference::default() }
    }
}

/// One endpoint on an interface.
pub struct Xdp {
    caps: Caps,
    mode: Mode,
    rx: RxRing,
    tx: TxRing,
    chunks: Chunks,
    links: LinkTable<[u8; ether::HEADER_LEN]>,
    mac: [u8; 6],
    endpoint: u16,
    counters: Counters,
    alarm: Alarm,
    /// Calls of `rx_burst` in a row that found nothing.
    idle_turns: u32,
    /// The interface no longer exists, so nothing arrives any more on any link.
    gone: bool,
    /// A sleep has ended since.
    told_gone: bool,
    queue: Queue,
    /// `None` once we are leaving.
    published: Option<Name>,
    socket: OwnedFd,
    map: OwnedFd,
    _memory: OwnedFd,
    _link: OwnedFd,
    _reservation: Name,
}

impl Xdp {
    /// How frames get to us on this interface.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl Drop for Xdp {
    /// Leaves the others their chunks. Who is killed instead leaves a gap, for which there are spare ones.
    fn drop(&mut self) {
        // Nobody may take copies of our descriptors while we close them.
        let _turn = self.queue.hold();
        self.published = None;
        // The kernel does the same when the socket is closed; now, so that the ring can be emptied for good.
        let _ = bpf::clear_socket(self.map.as_fd(), self.endpoint.into());
        self.discard();
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "native, zero-copy",
            Self::Native => "native, copied",
            Self::Generic => "generic",
        })
    }
}
