//! Opening an interface: once, may fail, and says what to do about it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::pace::Pace;
use super::placing::{Balance, Placing};
use super::rx_ring::RxRing;
use super::steering::Steering;
use super::sys;
use super::trains::Trains;
use super::tx_queue::{LaneConfig, TxQueue};
use super::{Config, Offload, Uring, filter};
use crate::encap::gso::Service;
use crate::encap::{ether, gso, train};
use crate::event::Alarm;
use crate::interface::{Interface, MtuTooSmall, Switch, payload_of};
use crate::link_table::LinkTable;
use crate::names::{self, Name, process_of};
use crate::rights::{Capability, Who, refusal};
use crate::time::Duration;
use crate::{Caps, Counters, LinkAddr, socket};

/// Why an interface could not be opened.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// No CAP_NET_RAW.
    #[error("raw frames need CAP_NET_RAW; {}{}", refusal(&[Capability::NetRaw]), other_ways())]
    NotPermitted,
    /// No interface of this name here.
    #[error("no interface `{name}`; there are: {}", .exist.join(", "))]
    NoSuchInterface {
        /// What was asked for.
        name: String,
        /// All interfaces of this network namespace.
        exist: Vec<String>,
    },
    /// The interface is switched off.
    #[error("interface `{0}` is down: `ip link set {0} up`")]
    InterfaceDown(String),
    /// The interface carries no Ethernet frames (a tunnel, for example).
    #[error("interface `{0}` is no Ethernet interface; use `udp:` over it")]
    NotEthernet(String),
    /// A bridge takes all frames that come to the interface.
    #[error(
        "interface `{0}` is a port of `{1}`, which takes its frames before they could be received here: use `uring:{1}` or \
         `xdp:{0}`"
    )]
    BridgePort(String, String),
    /// Open vSwitch takes all frames that come to the interface.
    #[error(
        "interface `{0}` is a port of Open vSwitch, which takes its frames before they could be received here: use \
         `uring:` on an internal port of that, or `xdp:{0}`"
    )]
    OpenVswitchPort(String),
    /// The interface's packets are too short.
    #[error(transparent)]
    MtuTooSmall(#[from] MtuTooSmall),
    /// Another process has this endpoint.
    #[error("endpoint {endpoint} on `{interface}` is taken by {}; give this one another number", process_of(*.stranger))]
    EndpointTaken {
        /// The interface.
        interface: String,
        /// The endpoint's number on it.
        endpoint: u16,
        /// The other user whose process it is, where it is known to be another's.
        stranger: Option<u32>,
    },
    /// The system refused one step.
    #[error("{step} on `{interface}`: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
}

debug_in_words!(OpenError);

/// What else gives a user the right to raw frames.
fn other_ways() -> &'static str {
    match Who::am_i() {
        Who::User if !Capability::NetRaw.is_effective() => {
            ", or once `sudo setcap cap_net_raw+ep PROGRAM`, or in a user namespace that has the interface (`unshare -Urn`)"
        }
        _ => "",
    }
}

impl Uring {
    /// Opens one endpoint on an interface. From here on its frames are kept; nothing is sent.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let system = |step: &'static str| {
            let interface = config.interface.clone();
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted,
                _ => OpenError::System { step, interface, source },
            }
        };
        let socket = sys::packet_socket().map_err(system("opening a packet socket"))?;
        let port = Port::find(config, socket.as_fd()).map_err(|error| match error {
            PortError::Open(error) => error,
            PortError::System(source) => system("reading the interface's properties")(source),
        })?;
        let name = names::of_endpoint(port.interface.index(), config.endpoint);
        let reservation = Name::take(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::EndpointTaken {
                interface: config.interface.clone(),
                endpoint: config.endpoint,
                stranger: names::stranger(&name),
            },
            _ => system("reserving the endpoint")(error),
        })?;

        let small = open_small(socket, &port, config).map_err(system("setting up the receive ring"))?;
        let placing = match port.offload {
            Some(Offload::SuperPackets) => {
                open_placing(&port, config).map_err(system("setting up the queue of packets to be placed"))?
            }
            _ => None,
        };
        let dressed = match port.offload {
            Some(offload) => {
                let ring = open_dressed(&port, offload, placing.is_some(), config)
                    .map_err(system("setting up the receive ring of segmented packets"))?;
                Some((ring, offload))
            }
            None => None,
        };
        let tx = transmit_queue(&small, dressed.as_ref(), &port).map_err(system("setting up the transmit queue"))?;
        let super_packets = port.offload == Some(Offload::SuperPackets);
        let caps = Caps {
            addr: LinkAddr::Ether { mac: port.mac, endpoint: config.endpoint },
            mtu: if super_packets { LARGE_PAYLOAD_MAX } else { port.mtu_safe },
            mtu_safe: port.mtu_safe,
            rx_frames: small.slots().min(dressed.as_ref().map_or(usize::MAX, |(ring, _)| ring.slots())),
            burst: BURST,
            rto_floor: RTO_FLOOR,
            host_delay: Some(HOST_DELAY),
        };
        Ok(Self {
            caps,
            small,
            steering: Steering::START,
            seen_early: 0,
            dressed,
            placing,
            balance: Balance::START,
            fetched: 0,
            pace: Pace::START,
            tx,
            links: LinkTable::new(),
            mac: port.mac,
            endpoint: config.endpoint,
            segment: port.segment,
            counters: Counters::default(),
            alarm: Alarm::default(),
            rx_dropped: Default::default(),
            gone: false,
            told_gone: false,
            _reservation: reservation,
        })
    }
}

/// What is to be known of the interface.
struct Port {
    interface: Interface,
    mac: [u8; 6],
    /// Payload that fits the interface's MTU.
    mtu_safe: usize,
    /// Segments that the interface's MTU allows TCP.
    segment: u16,
    /// `None` where packets that are to be cut have no use.
    offload: Option<Offload>,
}

enum PortError {
    Open(OpenError),
    System(io::Error),
}

impl From<io::Error> for PortError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Port {
    fn find(config: &Config, socket: BorrowedFd) -> Result<Self, PortError> {
        let name = &config.interface;
        let interface = Interface::find(name).ok_or_else(|| {
            PortError::Open(OpenError::NoSuchInterface { name: name.clone(), exist: Interface::names() })
        })?;
        if interface.flags(socket)? & libc::IFF_UP == 0 {
            return Err(PortError::Open(OpenError::InterfaceDown(name.clone())));
        }
        match interface.switch()? {
            None => {}
            Some(Switch::Bridge(bridge)) => return Err(PortError::Open(OpenError::BridgePort(name.clone(), bridge))),
            Some(Switch::OpenVswitch) => return Err(PortError::Open(OpenError::OpenVswitchPort(name.clone()))),
        }
        let mac = interface.mac(socket)?.ok_or_else(|| PortError::Open(OpenError::NotEthernet(name.clone())))?;
        let mtu = interface.mtu(socket)?;
        let offload = offload_of(&interface, socket, mtu, config.real_frames);
        let headers = if offload == Some(Offload::Trains) { train::MTU_COST } else { ether::MTU_COST };
        let payload = payload_of(name, mtu, headers).map_err(|error| PortError::Open(error.into()))?;
        let mtu_safe = payload.min(LARGE_PAYLOAD_MAX);
        let segment = mtu.saturating_sub(IP_TCP_LEN).min(usize::from(u16::MAX)) as u16;
        Ok(Self { interface, mac, mtu_safe, segment, offload })
    }
}

/// Only veth hands a super-packet to its peer uncut; a physical interface would put segments on the wire, which the far
/// side does not put together again. Nor does a physical interface receive what goes to a disguised address.
fn offload_of(interface: &Interface, socket: BorrowedFd, mtu: usize, real_frames: bool) -> Option<Offload> {
    // An interface without ethtool is no veth.
    if mtu <= IP_TCP_LEN || interface.driver(socket).ok()? != "veth" {
        return None;
    }
    if interface.takes_super_packets(socket).ok()? && !real_frames {
        Some(Offload::SuperPackets)
    } else {
        // One that takes trains passes them on uncut.
        (!interface.takes_trains(socket).ok()?).then_some(Offload::Trains)
    }
}

fn open_small(socket: OwnedFd, port: &Port, config: &Config) -> io::Result<RxRing> {
    let fd = socket.as_fd();
    prepare(fd)?;
    socket::attach_filter(fd, &filter::ether_frames_to(port.mac, config.endpoint))?;
    let frame_len = ether::HEADER_LEN + port.mtu_safe;
    let ring = RxRing::new(socket, frame_len, slots(frame_len, config))?;
    sys::bind_packet(ring.socket(), port.interface, ether::ETHERTYPE)?;
    Ok(ring)
}

fn open_dressed(port: &Port, offload: Offload, has_placing: bool, config: &Config) -> io::Result<RxRing> {
    let socket = sys::packet_socket()?;
    let fd = socket.as_fd();
    // Before the ring is made: it decides on the layout of slots.
    socket::set_int_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    prepare(fd)?;
    let (filter, frame_len, slots) = match offload {
        Offload::SuperPackets => {
            let service = has_placing.then_some(Service::Ordinary);
            (filter::super_packets_to(port.mac, config.endpoint, service), PACKET_MAX, RX_LARGE)
        }
        Offload::Trains => {
            // The direct way to the interface drops what it would have to cut.
            socket::set_int_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 0)?;
            let frame_len = train::HEADER_LEN - gso::VNET_LEN + port.mtu_safe;
            (filter::trains_to(port.mac, config.endpoint), frame_len, slots(frame_len, config))
        }
    };
    socket::attach_filter(fd, &filter)?;
    let ring = RxRing::new(socket, frame_len, slots)?;
    sys::bind_packet(ring.socket(), port.interface, gso::ETHERTYPE)?;
    Ok(ring)
}

/// `None` where the system does not let so much wait in a socket's queue.
fn open_placing(port: &Port, config: &Config) -> io::Result<Option<Placing>> {
    let socket = sys::packet_socket()?;
    let fd = socket.as_fd();
    socket::grow_buffers(fd, (RX_LARGE * QUEUED_LEN) as i32);
    if socket::rx_buffer_len(fd) < RX_LARGE * QUEUED_LEN {
        tracing::debug!("net.core.rmem_max is too small for packets that are placed; all of them take the ring");
        return Ok(None);
    }
    socket::set_int_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    prepare(fd)?;
    socket::set_int_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
    socket::attach_filter(fd, &filter::super_packets_to(port.mac, config.endpoint, Some(Service::Placed)))?;
    let ring = RxRing::new(socket, FRONT_LEN, RX_LARGE)?;
    sys::bind_packet(ring.socket(), port.interface, gso::ETHERTYPE)?;
    Ok(Some(Placing::new(ring)))
}

fn transmit_queue(small: &RxRing, dressed: Option<&(RxRing, Offload)>, port: &Port) -> io::Result<TxQueue> {
    let lane = |ring: &RxRing, buffers, payload_max| {
        Ok::<_, io::Error>(LaneConfig { socket: ring.socket().try_clone_to_owned()?, buffers, payload_max })
    };
    let small = lane(small, TX_SMALL, port.mtu_safe)?;
    Ok(match dressed {
        None => TxQueue::new(small, None, None),
        Some((ring, Offload::SuperPackets)) => {
            TxQueue::new(small, Some(lane(ring, TX_LARGE, LARGE_PAYLOAD_MAX)?), None)
        }
        Some((ring, Offload::Trains)) => {
            TxQueue::new(small, None, Some(Trains::new(ring.socket().try_clone_to_owned()?, TX_SMALL)))
        }
    })
}

/// Jumbo frames take more memory a slot: fewer slots then, that all of them stay in the cache.
fn slots(frame_len: usize, config: &Config) -> usize {
    config.rx_slots.min(RING_BYTES_MAX / frame_len).max(RX_SLOTS_MIN)
}

/// What every socket of ours is set to before it has a ring.
fn prepare(socket: BorrowedFd) -> io::Result<()> {
    let set = |option, value| socket::set_int_option(socket, libc::SOL_PACKET, option, value);
    set(libc::PACKET_VERSION, TPACKET_V2)?;
    // Not the frames that we and our neighbours send (Linux 4.20): on `lo` each would appear twice.
    set(libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(libc::PACKET_QDISC_BYPASS, 1)
}

/// `enum tpacket_versions` (linux/if_packet.h). Version 3 hands frames over in blocks, after a timer: 500 µs.
const TPACKET_V2: i32 = 1;

/// Payload of the largest super-packet. With its headers it stays below 64 KiB, from which on the kernel would cut it
/// (`gso_max_size`), and the kernel needs two pieces of 32 KiB for its payload; 61,440 takes four smaller pieces and ran at 66 Gbit/s
/// instead of 70. In one piece of 64 KiB ([`gso::in_one_piece`]) there is room besides for the kernel's own bytes.
const LARGE_PAYLOAD_MAX: usize = 65_024;
/// `struct skb_shared_info` behind a packet, and what a veth has in front of one (`LL_RESERVED_SPACE`; Linux 6.18, x86-64).
const KERNEL_LEN: usize = 320 + 16;
const _: () = assert!(KERNEL_LEN + PACKET_MAX <= 64 << 10, "one piece holds the longest");
const IP_TCP_LEN: usize = 40;
/// A super-packet from the Ethernet header on.
const PACKET_MAX: usize = gso::HEADER_LEN - gso::VNET_LEN + LARGE_PAYLOAD_MAX;
/// What a super-packet counts for in a socket's queue, at most: the kernel's own data beside its bytes are less than a page.
const QUEUED_LEN: usize = PACKET_MAX.next_multiple_of(4096) + 4096;
/// Of a super-packet that waits to be placed, in the ring. A slot takes the 2 KiB of the smallest.
const FRONT_LEN: usize = 1900;

/// 24 super-packets of 17 pages: 1.6 MiB, which the second-level cache holds (`bench/NOTES.md` 78).
const RX_LARGE: usize = 24;
/// Most memory of a ring that still makes good use of the second-level cache.
const RING_BYTES_MAX: usize = 4 << 20;
/// Fewer frames than a few peers send in one burst each would drop in normal operation.
const RX_SLOTS_MIN: usize = 64;

/// Frames that may be queued until the interface takes them: eight bursts.
const TX_SMALL: u16 = 256;
/// Super-packets likewise: 1 MiB, that they stay in the cache.
const TX_LARGE: u16 = 16;

/// A submission of 8 to 64 frames costs the same a frame.
const BURST: usize = 32;
/// A descheduled peer, or a softirq that waits for its turn, is silent for this long without a loss.
const RTO_FLOOR: Duration = Duration::from_millis(1);
/// As much of the floor as on the simulated network, where the control was tuned; with more nothing went faster.
const HOST_DELAY: Duration = Duration::from_nanos(RTO_FLOOR.as_nanos() / 16);
