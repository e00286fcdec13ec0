//! Opening an interface: once, may fail, and says what to do about it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration as Span, Instant};

use super::bpf::{self, Attachment};
use super::chunks::Chunks;
use super::datapath::{RxRing, TxRing};
use super::members::{self, Descriptors, Member, Queue};
use super::ring::Ring;
use super::shared::{MEMBERS_MAX, RX_CHUNKS, RX_SLOTS, Shape, Shared, TX_CHUNKS};
use super::sys::{self, RingKind};
use super::{Config, Mode, Preference, Xdp, locked, program};
use crate::encap::ether;
use crate::event::Alarm;
use crate::interface::{Interface, MtuTooSmall, payload_of};
use crate::link_table::LinkTable;
use crate::names::{self, Name, process_of};
use crate::rights::{Capability, refusal};
use crate::time::Duration;
use crate::{Caps, Counters, LinkAddr};

/// Why an interface could not be opened.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// No right to load an XDP program.
    #[error(
        "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF outside of any user namespace; {}. `uring:` does with less",
        refusal(&[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf])
    )]
    NotPermitted,
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL): use `uring:`")]
    NotInKernel,
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
    /// The interface's packets are too short.
    #[error(transparent)]
    MtuTooSmall(#[from] MtuTooSmall),
    /// The interface has fewer queues.
    #[error("interface `{interface}` has no queue {queue}, only {count}: `ethtool -l {interface}` shows them")]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// What was asked for.
        queue: u32,
        /// Queues that there are.
        count: u32,
    },
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
    /// A program that is not ours decides on the interface's frames.
    #[error(
        "`{0}` has an XDP program of somebody else's (`ip link show {0}`): end that, or `ip link set {0} xdp off` and \
         `xdpgeneric off`, or use `uring:{0}`"
    )]
    ProgramAttached(String),
    /// Another user's endpoints are there, or so they say.
    #[error(
        "`{interface}` has an XDP program and endpoints of user {user}, and only endpoints of one user share an interface: run \
         as that user, or use `uring:{interface}`"
    )]
    OtherUser {
        /// The interface.
        interface: String,
        /// The user.
        user: u32,
    },
    /// Our own endpoints are there, but on another queue.
    #[error("`{0}` has endpoints of ours on another queue: all endpoints of an interface use the same `queue=N`")]
    OtherQueue(String),
    /// A socket that is not ours has the queue.
    #[error("queue {queue} of `{interface}` has an AF_XDP socket of somebody else's: end that, or use `uring:`")]
    QueueTaken {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
    },
    /// All places for endpoints are taken.
    #[error("`{0}` has {MEMBERS_MAX} endpoints already, which is all that fit on one queue")]
    Full(String),
    /// Endpoints of this interface are there, and none lets us join.
    #[error(
        "the endpoints that are on `{interface}` cannot be joined ({source}): run as the same user, with CAP_SYS_PTRACE, \
         in the same PID namespace, and with the same version of this program"
    )]
    CannotJoin {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process may lock too little memory.
    #[error(
        "`{interface}` wants {needed_kib} KiB of locked memory, more than this process may have: `ulimit -l unlimited` lifts \
         the limit, `LimitMEMLOCK=infinity` that of a service; or use `uring:{interface}`"
    )]
    LockedMemory {
        /// The interface.
        interface: String,
        /// For its map and frames.
        needed_kib: usize,
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

impl Xdp {
    /// Opens one endpoint on an interface: the first of its queue with memory and a program, each other one beside it.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let system = |step| failed(config, step);
        let socket = sys::xdp_socket().map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => OpenError::NotInKernel,
            _ => system("opening an AF_XDP socket")(error),
        })?;
        let port = Port::find(config)?;
        let name = names::of_endpoint(port.queue.interface, config.endpoint);
        let reservation = Name::take(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::EndpointTaken {
                interface: config.interface.clone(),
                endpoint: config.endpoint,
                stranger: names::stranger(&name),
            },
            _ => system("reserving the endpoint")(error),
        })?;

        let turn = port.queue.hold().map_err(system("waiting for other endpoints"))?;
        let create = |kind, entries| sys::create_ring(socket.as_fd(), kind, entries).map_err(system("making rings"));
        create(RingKind::Rx, RX_SLOTS)?;
        create(RingKind::Tx, TX_CHUNKS as u32)?;
        let members = port.queue.members();
        let (shared, fds) = match join(config, &port, &members, socket.as_fd())? {
            Some(joined) => joined,
            None => found(config, &port, socket.as_fd())?,
        };
        let shape = shared.shape();
        let zero_copy = sys::is_zero_copy(socket.as_fd());
        let mode = match (shape.native != 0, zero_copy) {
            (_, true) => Mode::ZeroCopy,
            (true, false) => Mode::Native,
            (false, false) => Mode::Generic,
        };

        let rings = system("mapping rings");
        let place = {
            let account = shared.lock().ok_or_else(|| system("joining")(io::ErrorKind::TimedOut.into()))?;
            members::free_place(&members, account.last_place)
        };
        let place = place.ok_or_else(|| OpenError::Full(config.interface.clone()))?;
        let (rx, tx, fill, completion) = (|| {
            Ok((
                Ring::map(socket.as_fd(), RingKind::Rx, RX_SLOTS)?,
                Ring::map(socket.as_fd(), RingKind::Tx, TX_CHUNKS as u32)?,
                Ring::map(socket.as_fd(), RingKind::Fill, FILL_SLOTS)?,
                Ring::map(socket.as_fd(), RingKind::Completion, COMPLETION_SLOTS)?,
            ))
        })()
        .map_err(rings)?;
        let frame_len_max = shape.frame_len_max();
        let chunks = Chunks::new(shared, fill, completion, place, members.len() as u32 + 1, zero_copy)
            .ok_or_else(|| system("joining")(io::ErrorKind::TimedOut.into()))?;
        let Shareable { memory, map, link } = fds;
        bpf::set_socket(map.as_fd(), config.endpoint.into(), socket.as_fd())
            .map_err(system("steering frames to the endpoint"))?;
        let published = port
            .queue
            .publish(place, [socket.as_fd(), memory.as_fd(), map.as_fd(), link.as_fd()])
            .map_err(system("telling other endpoints"))?;
        drop(turn);

        tracing::debug!(interface = config.interface, endpoint = config.endpoint, %mode, place, "open");
        if are_shared_out(port.queues, port.prefers_native, shape.native != 0) {
            tracing::warn!(
                "`{0}` has {1} receive queues and this endpoint listens on queue {2}: frames that the card puts on \
                 others are lost. `ethtool -L {0} combined 1` leaves one; where the card can, `ethtool -N {0} flow-type \
                 ether proto 0x88b5 action {2}` steers them",
                config.interface,
                port.queues,
                config.queue
            );
        }
        let mtu = (ETHERNET_LEN + port.mtu).min(frame_len_max).saturating_sub(ether::HEADER_LEN);
        Ok(Self {
            caps: Caps {
                addr: LinkAddr::Ether { mac: port.mac, endpoint: config.endpoint },
                mtu,
                mtu_safe: mtu,
                rx_frames: RX_SLOTS as usize,
                burst: BURST,
                rto_floor: RTO_FLOOR,
                host_delay: Some(HOST_DELAY),
            },
            mode,
            rx: RxRing::new(rx),
            tx: TxRing::new(tx),
            chunks,
            links: LinkTable::new(),
            mac: port.mac,
            endpoint: config.endpoint,
            counters: Counters::default(),
            alarm: Alarm::default(),
            idle_turns: 0,
            gone: false,
            told_gone: false,
            queue: port.queue,
            published: Some(published),
            socket,
            map,
            _memory: memory,
            _link: link,
            _reservation: reservation,
        })
    }
}

/// What of [`Descriptors`] is a member's own to keep.
struct Shareable {
    memory: OwnedFd,
    map: OwnedFd,
    link: OwnedFd,
}

/// What is to be known of the interface.
struct Port {
    interface: Interface,
    queue: Queue,
    mac: [u8; 6],
    mtu: usize,
    queues: u32,
    /// Whether its driver's own hook is worth trying before the kernel's.
    prefers_native: bool,
}

impl Port {
    fn find(config: &Config) -> Result<Self, OpenError> {
        let name = &config.interface;
        let system = |source| failed(config, "reading the interface's properties")(source);
        let interface = Interface::find(name)
            .ok_or_else(|| OpenError::NoSuchInterface { name: name.clone(), exist: Interface::names() })?;
        // Interfaces are asked through any socket but AF_XDP's.
        let any = UnixDatagram::unbound().map_err(system)?;
        let any = any.as_fd();
        if interface.flags(any).map_err(system)? & libc::IFF_UP == 0 {
            return Err(OpenError::InterfaceDown(name.clone()));
        }
        let mac = interface.mac(any).map_err(system)?.ok_or_else(|| OpenError::NotEthernet(name.clone()))?;
        let mtu = interface.mtu(any).map_err(system)?;
        payload_of(name, mtu, ether::MTU_COST)?;
        let queues = interface.rx_queues(any).unwrap_or(1).max(1);
        if config.queue >= queues {
            return Err(OpenError::NoSuchQueue { interface: name.clone(), queue: config.queue, count: queues });
        }
        // A veth's own hook costs more than the kernel's: 1.4 µs instead of 1.1 a frame, since it makes pages of skbs.
        let prefers_native = interface.driver(any).is_ok_and(|driver| driver != "veth");
        let queue = Queue { interface: interface.index(), number: config.queue };
        Ok(Self { interface, queue, mac, mtu, queues, prefers_native })
    }
}

/// Binds `socket` beside one of `members`. `None`: there is nobody to join.
fn join(
    config: &Config,
    port: &Port,
    members: &[Member],
    socket: BorrowedFd,
) -> Result<Option<(Shared, Shareable)>, OpenError> {
    let mut refusal = None;
    for member in members {
        let attempt = || {
            let Descriptors { socket: lender, memory, map, link } = member.descriptors()?;
            let shared = Shared::join(memory.as_fd())?
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "made by another version"))?;
            sys::bind_xdp(socket, port.interface, config.queue, libc::XDP_SHARED_UMEM, Some(lender.as_fd()))?;
            Ok((shared, Shareable { memory, map, link }))
        };
        match attempt() {
            Ok(joined) => return Ok(Some(joined)),
            Err(error) => refusal = Some(error),
        }
    }
    // Those that have ended between are no obstacle: then the list is empty by now.
    match refusal {
        Some(source) if !port.queue.members().is_empty() => {
            Err(OpenError::CannotJoin { interface: config.interface.clone(), source })
        }
        _ => Ok(None),
    }
}

/// Binds `socket` as the first on its queue, with a program and memory for it and those that come.
fn found(config: &Config, port: &Port, socket: BorrowedFd) -> Result<(Shared, Shareable), OpenError> {
    let system = |step| failed(config, step);
    let locked = || {
        let needed = locked::MAP_LEN as usize + Shape::new(ETHERNET_LEN + port.mtu, true).umem_len();
        OpenError::LockedMemory { interface: config.interface.clone(), needed_kib: needed.div_ceil(1 << 10) }
    };
    let make_map = || bpf::socket_map(1 + u32::from(u16::MAX));
    let map = locked::with_more(locked::lacks_for_map, make_map).map_err(|error| {
        if locked::lacks_for_map(&error) { locked() } else { system("making a map of sockets")(error) }
    })?;
    let program = bpf::load(&program::steering(port.mac, config.queue, map.as_fd()))
        .map_err(system("loading the XDP program"))?;
    let attachments: &[Attachment] = match config.prefer {
        Preference::Generic => &[Attachment::Generic],
        Preference::Native => &[Attachment::Native],
        Preference::Fastest if port.prefers_native => &[Attachment::Native, Attachment::Generic],
        Preference::Fastest => &[Attachment::Generic],
    };
    let (link, attachment) = attach(config, port, program.as_fd(), attachments)?;
    let native = attachment == Attachment::Native;

    let shape = Shape::new(ETHERNET_LEN + port.mtu, native);
    let memory = sys::shared_memory(shape.memory_len()).map_err(system("making room for frames"))?;
    let shared = Shared::create(memory.as_fd(), shape).map_err(system("making room for frames"))?;
    let register = || sys::register_umem(socket, shared.umem(), shape.umem_len(), shape.chunk_len, shape.headroom);
    locked::with_more(locked::lacks_for_frames, register).map_err(|error| {
        if locked::lacks_for_frames(&error) { locked() } else { system("registering the room for frames")(error) }
    })?;
    sys::create_ring(socket, RingKind::Fill, FILL_SLOTS).map_err(system("making rings"))?;
    sys::create_ring(socket, RingKind::Completion, COMPLETION_SLOTS).map_err(system("making rings"))?;
    // Without a word about copies a driver that can do without does (af_xdp.rst, XDP_COPY and XDP_ZEROCOPY).
    let copy = if native { 0 } else { libc::XDP_COPY };
    let until = Instant::now() + QUEUE_TEARDOWN;
    loop {
        match sys::bind_xdp(socket, port.interface, config.queue, copy | libc::XDP_USE_NEED_WAKEUP, None) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if Instant::now() > until {
                    return Err(OpenError::QueueTaken { interface: config.interface.clone(), queue: config.queue });
                }
                std::thread::sleep(Span::from_millis(1));
            }
            Err(error) => return Err(system("binding to the queue")(error)),
        }
    }
    Ok((shared, Shareable { memory, map, link }))
}

/// Attaches the program in the first of these ways that the interface allows.
fn attach(
    config: &Config,
    port: &Port,
    program: BorrowedFd,
    attachments: &[Attachment],
) -> Result<(OwnedFd, Attachment), OpenError> {
    let until = Instant::now() + TEARDOWN;
    let mut refusal = None;
    for &attachment in attachments {
        loop {
            match bpf::attach(program, port.interface, attachment) {
                Ok(link) => return Ok((link, attachment)),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                    if Instant::now() > until {
                        let users = members::users_on(port.interface.index() as u32);
                        let interface = config.interface.clone();
                        return Err(match users.first() {
                            _ if users.contains(&None) => OpenError::OtherQueue(interface),
                            Some(Some(user)) => OpenError::OtherUser { interface, user: *user },
                            _ => OpenError::ProgramAttached(interface),
                        });
                    }
                    std::thread::sleep(Span::from_millis(1));
                }
                Err(error) => {
                    tracing::debug!(interface = config.interface, ?attachment, %error, "not attached");
                    refusal = Some(error);
                    break;
                }
            }
        }
    }
    let source = refusal.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(failed(config, "attaching the XDP program")(source))
}

/// Whether frames come on other queues too, by the driver's own hook (`native`) or by the kernel's.
fn are_shared_out(queues: u32, prefers_native: bool, native: bool) -> bool {
    // Without its own hook a veth's frames all count as those of queue 0.
    queues > 1 && (native || prefers_native)
}

/// What comes of an error at `step`.
fn failed(config: &Config, step: &'static str) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let interface = config.interface.clone();
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted,
        _ => OpenError::System { step, interface, source },
    }
}

/// IEEE 802.3 clause 3: addresses and type.
const ETHERNET_LEN: usize = 14;
/// All chunks for frames to come fit; a power of two.
const FILL_SLOTS: u32 = RX_CHUNKS.next_power_of_two();
/// Twice the chunks to send from: those of a member that was killed may come back after its place is taken again.
const COMPLETION_SLOTS: u32 = (2 * MEMBERS_MAX * TX_CHUNKS) as u32;
/// The kernel frees a queue and an interface some time after the last descriptor is closed: an RCU grace period, which
/// takes milliseconds, 100 under load, and once more than a second beside compilers and AddressSanitizer.
const TEARDOWN: Span = Span::from_secs(3);
/// A queue was once not free after three, twice in a row, beside compilers. Sockets of others are rarer than programs of others.
const QUEUE_TEARDOWN: Span = Span::from_secs(10);
/// What the kernel sends at one kick (`TX_BATCH_SIZE`, net/xdp/xsk.c).
const BURST: usize = 32;
/// A descheduled peer, or a softirq that waits for its turn, is silent for this long without a loss.
const RTO_FLOOR: Duration = Duration::from_millis(1);
/// As much of the floor as on the simulated network, where the control was tuned; with more nothing went faster.
const HOST_DELAY: Duration = Duration::from_nanos(RTO_FLOOR.as_nanos() / 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_queues_are_warned_of_where_frames_come_on_them() {
        assert!(are_shared_out(2, false, true), "a veth by its own hook");
        assert!(!are_shared_out(2, false, false), "a veth by the kernel's");
        assert!(are_shared_out(2, true, false) && are_shared_out(2, true, true), "a card");
        assert!(!are_shared_out(1, true, true));
    }
}
