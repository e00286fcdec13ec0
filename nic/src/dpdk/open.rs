//! Opening a device: once, may fail, and says what to do about it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sidelane_dpdk_sys::LoadError;

use super::device::{Device, Wire};
use super::eal::last_words;
use super::frames::{BURST, RxBatch, TxBatch};
use super::interrupt::Interrupt;
use super::port::Port;
use super::rest::Rest;
use super::sharing::{ENDPOINTS_MAX, NoPlace, Place, Sharing};
use super::sys::{Cache, take_log};
use super::{Config, Dpdk, eal, hugepages};
use crate::encap::ether;
use crate::event::Alarm;
use crate::link_table::LinkTable;
use crate::time::Duration;
use crate::{Caps, Counters, LinkAddr, Nic};

/// Why a device could not be opened.
#[derive(Clone, thiserror::Error)]
pub enum OpenError {
    /// There is no libdpdk.
    #[error(transparent)]
    NoDpdk(#[from] LoadError),
    /// The text names no device.
    #[error("`{device}` is no device: {reason}")]
    NoSuchDevice {
        /// What was written.
        device: String,
        /// What could be.
        reason: String,
    },
    /// DPDK's environment did not start. It can't be tried again in this process.
    #[error("DPDK's environment did not start ({error}): {log}")]
    Environment {
        /// What it returned.
        error: String,
        /// What it said.
        log: String,
    },
    /// The environment was started for virtual devices.
    #[error(
        "{0} is a PCI device, and this process has opened a virtual one first: open the PCI device first, or in a \
         process of its own"
    )]
    NoPciHere(String),
    /// The kernel knows no such PCI device.
    #[error("there is no PCI device {0}; `lspci -D` lists them")]
    NoPciDevice(String),
    /// The card belongs to another driver.
    #[error(
        "{device} belongs to {owner}; if nothing on this machine needs it there (`ip route`), give it to DPDK: {remedy}"
    )]
    NotBound {
        /// The device.
        device: String,
        /// Whose it is.
        owner: String,
        /// The command that changes that.
        remedy: String,
    },
    /// Another process has claimed the card.
    #[error("{0} is in use by another process: a card belongs to one")]
    InUseElsewhere(String),
    /// A card bound to UIO, or to VFIO without an IOMMU, needs memory at known physical addresses.
    #[error(
        "{0} needs hugepages, and this process cannot have 64 MiB of them: `echo 128 | sudo tee /proc/sys/vm/nr_hugepages`, unless its \
         control group limits them"
    )]
    NoHugepages(String),
    /// There are hugepages, and too few.
    #[error(
        "the packet buffers of {device} take {mib} MiB, and there are not so many hugepages left{}: make more (`{}`), or take a \
         smaller mtu= or fewer devices",
        node.map(|node| format!(" on memory node {node}, where it is")).unwrap_or_default(), hugepages::command_for_more(*mib, *node)
    )]
    FewHugepages {
        /// The device.
        device: String,
        /// What was asked for.
        mib: u64,
        /// Where, on a machine with several nodes.
        node: Option<u32>,
    },
    /// Its packet buffers are in hugepages of several sizes, or behind more than 4 GiB of other devices'.
    #[error(
        "the packet buffers of {0} are not in one piece of 4 GiB of memory at most, and so its server can't be lent them: leave out \
         `zero-copy=yes`, or have hugepages of one size, and this device first"
    )]
    InPieces(String),
    /// What DPDK has for a process without hugepages is used up.
    #[error(
        "the packet buffers of {device} take {mib} MiB, and all devices of a process have {} MiB without hugepages: have some before \
         it starts (`echo 512 | sudo tee /proc/sys/vm/nr_hugepages`), or take a smaller mtu= or fewer devices",
        eal::NO_HUGE_MIB
    )]
    NoMemory {
        /// The device.
        device: String,
        /// What was asked for.
        mib: u64,
    },
    /// The device's driver is not installed.
    #[error("{device} needs a driver of DPDK's that is not installed here (Debian: apt-get install {package})")]
    NoDriver {
        /// The device.
        device: String,
        /// The package that has its driver.
        package: String,
    },
    /// A pair's server needs more of DPDK's vhost than its driver.
    #[error(
        "{0} needs DPDK's vhost library, of which rte_vhost.h was not there when this binary was built: install that (Debian: \
         libdpdk-dev) and build again, or write `,lossy` at both ends"
    )]
    NoVhost(String),
    /// No driver that is installed is for such a card.
    #[error(
        "no driver of DPDK's that is installed here is for {device} ({id}); `apt-get install libdpdk-dev` brings all that there are, \
         and `uring:` and `xdp:` run on any interface of the kernel's"
    )]
    NoCardDriver {
        /// The device.
        device: String,
        /// Its vendor and device number.
        id: String,
    },
    /// The other end of a pair is not there.
    #[error(
        "nobody serves the other end ({args}): start that first, with `,server` behind the same name, and with `secret=`, \
         `mtu=`, `shared` and `lossy` as here; the end of a pair, and of no other, has to be another process of this user{}",
        and_of_dpdk(log)
    )]
    NobodyThere {
        /// What DPDK was told of the device.
        args: String,
        /// What it said.
        log: String,
    },
    /// The other end of a vhost pair is there, and says nothing.
    #[error(
        "{} serves {socket} and does not answer: if it is stopped, let it go on (`kill -CONT {}`), else end it and start it anew",
        process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}")),
        process.map_or_else(|| "PROCESS".to_owned(), |process| process.to_string())
    )]
    NoAnswer {
        /// Its file.
        socket: String,
        /// Whose it is, where that is known.
        process: Option<u32>,
    },
    /// A server's socket was to be made where something else is.
    #[error("{0} is there already and is no socket: a server makes its own, under a name that is free")]
    NotASocket(String),
    /// Another process serves there, or another device of this one.
    #[error("{0} is served already: give this server another name, or leave out `,server` to be the client there")]
    Served(String),
    /// The device carries no such frames.
    #[error("{device} carries at most {max} bytes a frame: write mtu={max} or less, not {mtu}")]
    MtuTooLarge {
        /// The device.
        device: String,
        /// What was asked for.
        mtu: u16,
        /// What it has.
        max: u16,
    },
    /// This process has the device open, and one of both is not to be shared.
    #[error("{0} is open in this process already; to share it, write `,shared` and the same options in both places")]
    InUse(String),
    /// This process has the endpoint open.
    #[error("endpoint {endpoint} on {device} is taken: give this one another number")]
    EndpointTaken {
        /// The device.
        device: String,
        /// The number.
        endpoint: u16,
    },
    /// What is no pair promises nothing.
    #[error("{0} is no pair: that is memif:NAME or vhost:PATH, neither shared nor lossy")]
    NoPair(String),
    /// As many endpoints as can share the device do.
    #[error(
        "all places of {0} are taken: at most {ENDPOINTS_MAX} endpoints share a device, fewer where it steers by few queues"
    )]
    NoPlace(String),
    /// DPDK refused a step.
    #[error("{device}, {step}: {error}{}", and_of_dpdk(log))]
    Refused {
        /// The device.
        device: String,
        /// What was being done.
        step: &'static str,
        /// What DPDK returned.
        error: String,
        /// What it said.
        log: String,
    },
}

debug_in_words!(OpenError);

/// Its last words behind ours, if it had any.
fn and_of_dpdk(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (DPDK: {log})") }
}

impl Dpdk {
    /// Opens an endpoint behind a device, as one that may lose frames ([`Config::lossy`]). The client's end of memif or vhost
    /// waits for its server, 2.5 s at most; a card for its link, 9 s at most.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        Self::open_as_it_is(&Config { lossy: true, ..config.clone() })
    }

    /// As [`Self::open`], or as the end of a pair, if the configuration says so.
    pub(super) fn open_as_it_is(config: &Config) -> Result<Self, OpenError> {
        let port = find_or_open(config)?;
        port.wait_for_link();
        let endpoint = config.endpoint;
        let place = match &port.sharing {
            None => Place { number: 0, mac: port.mac },
            Some(sharing) => sharing.join(endpoint).map_err(|refused| no_place(config, refused))?,
        };
        let queue = port.shim.queue(port.number, place.number as u16);
        let mtu = usize::from(port.device.mtu) - ether::MTU_COST;
        let caps = Caps {
            addr: LinkAddr::Ether { mac: place.mac, endpoint },
            mtu,
            mtu_safe: mtu,
            rx_frames: port.rx_frames,
            burst: BURST,
            rto_floor: RTO_FLOOR,
            host_delay: (port.device.wire == Wire::Network).then_some(HOST_DELAY),
        };
        let cache = Cache::new(port.shim, port.pool());
        let mut dpdk = Self {
            rx: RxBatch::new(port.shim, cache.number()),
            tx: TxBatch::new(&port, cache.number()),
            _cache: cache,
            caps,
            links: LinkTable::new(),
            place,
            endpoint,
            counters: Counters::default(),
            alarm: Alarm::default(),
            // A client's end was not opened before its server answered.
            was_up: Cell::new(port.device.wire == Wire::PairClient),
            told_gone: None,
            missed: 0,
            rest: if port.device.wire == Wire::Network { Rest::NONE } else { Rest::of_pairs() },
            life: port.lives_before,
            received_life: port.lives_before,
            told_life: port.lives_before,
            lives: port.lives,
            queue: match &port.sharing {
                Some(Sharing::Dealt(_)) => None,
                None | Some(Sharing::Steered(_)) => Some(queue),
            },
            interrupt: port.wakes.then(|| Interrupt::new(port.shim, queue)).flatten(),
            port,
        };
        // A pair's client lends the server its slots while it receives, so until then no frame can come.
        dpdk.has_unread();
        Ok(dpdk)
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        if let Some(sharing) = &self.port.sharing {
            sharing.leave(self.place);
        }
    }
}

/// A device of this process: its port, locked while it is being opened, which may last seconds.
type Opened = Arc<Mutex<Weak<Port>>>;

/// Devices that are open in this process or being opened, by their [`Device::id`]. To open one twice would be to end it: DPDK gives out the
/// port that is there, and refuses to start it again.
static OPEN: Mutex<Vec<(String, Opened)>> = Mutex::new(Vec::new());

/// Their ports, but for those that are being opened.
pub fn ports() -> Vec<Arc<Port>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().filter_map(|(_, opened)| opened.try_lock().ok()?.upgrade()).collect()
}

/// The port of `config`'s device: one that is shared, or a new one.
fn find_or_open(config: &Config) -> Result<Arc<Port>, OpenError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let device = Device::read(config, NUMBER.fetch_add(1, Ordering::Relaxed))?;
    let opened = entry(&device.id);
    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(port) = opened.upgrade() {
        let both = config.shared && port.sharing.is_some() && port.device.is_as_asked(&device);
        return if both { Ok(port) } else { Err(OpenError::InUse(config.device.clone())) };
    }
    // One of ours that is being closed has its claim until it is.
    super::port::wait_for_closing();
    let (eal, claim) = eal::up(&device, config.eal.as_deref())?;
    let port = Arc::new(Port::open(eal, device, config.shared, claim)?);
    *opened = Arc::downgrade(&port);
    Ok(port)
}

/// The place of a device in the list, by its id, which forgets those that nobody has open or opens.
fn entry(id: &str) -> Opened {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Whoever opens one holds its entry, and gets it here only.
    open.retain(|(_, opened)| Arc::strong_count(opened) > 1 || opened.lock().is_ok_and(|port| port.strong_count() > 0));
    if let Some((_, opened)) = open.iter().find(|(known, _)| known == id) {
        return Arc::clone(opened);
    }
    let opened = Opened::default();
    open.push((id.to_owned(), Arc::clone(&opened)));
    opened
}

fn no_place(config: &Config, refused: NoPlace) -> OpenError {
    let (device, endpoint) = (config.device.clone(), config.endpoint);
    match refused {
        NoPlace::Taken => OpenError::EndpointTaken { device, endpoint },
        NoPlace::Full => OpenError::NoPlace(device),
        NoPlace::Refused(error) => OpenError::Refused {
            device,
            step: "leading frames to it",
            error: error.to_string(),
            log: last_words(&take_log()),
        },
    }
}

/// A neighbour that polls answers within microseconds; ten times the longest stall that 99 of 100 round trips saw.
const RTO_FLOOR: Duration = Duration::from_micros(100);
/// As much of the floor as on the simulated network, where the control was tuned.
const HOST_DELAY: Duration = Duration::from_nanos(RTO_FLOOR.as_nanos() / 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// A shim that does not compile is no such build: every other test would skip itself.
    #[test]
    fn built_without_libdpdk_one_line_says_what_to_install() {
        if sidelane_dpdk_sys::missing_at_build().is_none() {
            return println!("skipped: it was built with libdpdk");
        }
        for device in ["net_null0", "memif:x", "vhost:/x,server", "00:04.0"] {
            let line = Dpdk::open(&Config::new(device)).map(drop).unwrap_err().to_string();
            assert!(line.starts_with("this binary was built without DPDK, since there was no "), "{device}: {line}");
            assert!(line.ends_with("libdpdk-dev): install that and build again"), "{device}: {line}");
            assert_eq!(line.lines().count(), 1, "{device}: {line}");
        }
    }
}
