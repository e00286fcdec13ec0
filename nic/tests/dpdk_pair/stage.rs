//! This side's end of a pair, and the other process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sidelane_nic::dpdk::{Config, Pair};
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use crate::other::Other;
use crate::{DEVICE, FRAMES, MTU, PEER, libdpdk};

/// What a pair is of.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Memif,
    /// Whose client does not lend its packet buffers.
    MemifWithCopies,
    Vhost,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Memif, Self::MemifWithCopies, Self::Vhost];
    /// Those whose client's memory its server reads and writes.
    pub const LENDING: [Self; 2] = [Self::Memif, Self::Vhost];

    /// A place where two of ours meet.
    pub fn device(self, name: &str) -> String {
        let name = format!("sidelane-pair-{name}-{}", std::process::id());
        match self {
            Self::Memif => format!("memif:{name}"),
            // A server does not mind. It has another name, since DPDK closes a server's socket some time after its port where its own
            // thread is just looking at it.
            Self::MemifWithCopies => format!("memif:{name}-copies,zero-copy=no"),
            Self::Vhost => format!("vhost:{}", std::env::temp_dir().join(name).display()),
        }
    }

    /// The address of an end that is the first of its process: the one chosen, where it can choose.
    fn addr(self, chosen: &str, is_server: bool) -> LinkAddr {
        let addr = match self {
            // rte_eth_vhost.c, base_eth_addr, and the port's number.
            Self::Vhost if is_server => "56:48:4f:53:54:00/0",
            _ => chosen,
        };
        addr.parse().unwrap()
    }
}

/// This side's end, and the process at the other.
pub struct Stage {
    pub pair: Pair,
    pub link: Link,
    pub other: Other,
    /// The other end's.
    pub device: String,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// The other side has flushed so many frames, and nobody has received any. `None` without DPDK.
    pub fn new(kind: Kind, name: &str, here: &str, there: &str, frames: u32) -> Option<Self> {
        let turn = alone();
        if libdpdk::is_missing() {
            return None;
        }
        let name = kind.device(name);
        let device = format!("{name}{there}");
        let to_other = kind.addr(THERE, !there.is_empty());
        // The server's end first: a client does not wait long for it.
        let early = (!here.is_empty()).then(|| open(&format!("{name}{here}"), HERE, to_other));
        let own = early.as_ref().map_or_else(|| kind.addr(HERE, false), |(pair, _)| pair.caps().addr);
        let mut other = start(&device, frames, own);
        other.heard("open");
        let (pair, link) = early.unwrap_or_else(|| open(&format!("{name},once"), HERE, to_other));
        other.heard("flushed");
        Some(Self { pair, link, other, device, _turn: turn })
    }

    /// All frames of the other side come, and its end is told only then.
    pub fn expect_all(&mut self, frames: u32) {
        for number in 0..frames {
            assert!(!self.pair.is_gone(self.link), "gone before frame {number}");
            assert_eq!(receive(&mut self.pair), number);
        }
        self.wait_until_gone();
    }

    pub fn wait_until_gone(&mut self) {
        let give_up = self.pair.now() + Duration::from_millis(1_000);
        while !self.pair.is_gone(self.link) {
            assert!(self.pair.now() < give_up, "its end was not told within a second");
            self.pair.wait(Some(give_up)).unwrap();
        }
    }
}

/// The other side, which sends so many frames to `peer`.
pub fn start(device: &str, frames: u32, peer: LinkAddr) -> Other {
    start_as("other_side", device, frames, peer)
}

pub fn start_as(test: &str, device: &str, frames: u32, peer: LinkAddr) -> Other {
    Other::start(test, &[(DEVICE, device), (FRAMES, &frames.to_string()), (PEER, &peer.to_string())])
}

/// One test at a time: each has two processes that poll.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An end, with an address of its own where it can choose one.
pub fn open(device: &str, own: &str, peer: LinkAddr) -> (Pair, Link) {
    let device = if device.starts_with("vhost:") && device.ends_with(",server") {
        device.to_owned()
    } else {
        format!("{device},mac={}", own.split('/').next().unwrap())
    };
    let mtu = std::env::var(MTU).ok().map(|mtu| mtu.parse().unwrap());
    let mut pair = Pair::open(&Config { mtu, ..Config::new(device) }).unwrap();
    let link = pair.link(peer).unwrap();
    (pair, link)
}

/// Commits a numbered frame, as soon as there is a slot.
pub fn send(pair: &mut Pair, link: Link, number: u32) {
    let give_up = pair.now() + PATIENCE;
    loop {
        if let Some(mut slot) = pair.tx_slot(link, 100) {
            slot.fill(0);
            slot[..4].copy_from_slice(&number.to_le_bytes());
            return slot.commit();
        }
        assert!(pair.now() < give_up, "no slot for frame {number}");
        pair.wait(Some(pair.now() + Duration::from_millis(1))).unwrap();
    }
}

/// The number of the next frame.
pub fn receive(pair: &mut Pair) -> u32 {
    let give_up = pair.now() + PATIENCE;
    let mut number = None;
    while pair.rx_burst(1, |frame, _| number = frame.first_chunk().map(|number| u32::from_le_bytes(*number))) == 0 {
        assert!(pair.now() < give_up, "nothing came");
        pair.wait(Some(give_up)).unwrap();
    }
    number.expect("every frame has a number")
}

pub const HERE: &str = "02:00:00:00:00:01/0";
pub const THERE: &str = "02:00:00:00:00:02/0";
/// Frames that a ring takes at the usual MTU.
pub const RING: u32 = 256;
pub const PATIENCE: Duration = Duration::from_millis(20_000);
