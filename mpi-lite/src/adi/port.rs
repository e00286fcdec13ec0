//! A way out of this process: an endpoint on whichever driver, with one `match` a call.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::task::Waker;

use sidelane_nic::dpdk::{Dpdk, Pair};
use sidelane_nic::mem::MemNic;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::spec::{NicUser, OpenError, Spec};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::udp::Udp;
use sidelane_nic::uring::Uring;
use sidelane_nic::xdp::Xdp;
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{ConnectError, Counters, Endpoint, Event, PeerId, PutHow, Region, RemoteKey, RmaError, SendError};

use super::Config;
use super::memory::{Incoming, Outgoing};

/// Who takes messages.
pub(super) trait Taker {
    /// Takes one. False when further ones had better wait for the next turn.
    fn take(&mut self, peer: PeerId, message: &[u8]) -> bool;
    /// Takes one from where its driver received it, or leaves it for later: false ([`Endpoint::poll_offering`]).
    fn offer(&mut self, peer: PeerId, message: &[u8]) -> bool;
}

/// An endpoint with its driver.
#[allow(clippy::large_enum_variant, reason = "a device has two ports, and no pointer to follow for each call")]
#[allow(missing_docs, reason = "each is named as its driver")]
pub enum Port {
    Shm(Endpoint<ShmNic>),
    Uring(Endpoint<Uring>),
    Xdp(Endpoint<Xdp>),
    Udp(Endpoint<Udp>),
    Dpdk(Endpoint<Dpdk>),
    Pair(Endpoint<Pair>),
    Mem(Endpoint<MemNic>),
}

/// The same call on whichever endpoint it is.
macro_rules! on {
    ($port:expr, $endpoint:ident => $call:expr) => {
        match $port {
            Port::Shm($endpoint) => $call,
            Port::Uring($endpoint) => $call,
            Port::Xdp($endpoint) => $call,
            Port::Udp($endpoint) => $call,
            Port::Dpdk($endpoint) => $call,
            Port::Pair($endpoint) => $call,
            Port::Mem($endpoint) => $call,
        }
    };
}

impl Port {
    /// Opens the driver that `spec` names, for a device that will be opened with `config`.
    pub fn open(spec: &Spec, config: &Config) -> Result<Self, OpenError> {
        spec.open(Opening(config)).map(|port| port.expect("`spec` opens no other drivers"))
    }

    /// On a driver that was opened already. `None` for drivers of other types.
    pub fn new<N: Nic + 'static>(nic: N, config: &Config) -> Option<Self> {
        let mut nic = Some(nic);
        let nic: &mut dyn Any = &mut nic;
        macro_rules! if_it_is {
            ($driver:ty, $port:expr) => {
                if let Some(nic) = nic.downcast_mut::<Option<$driver>>() {
                    return nic.take().map(|nic| $port(Endpoint::new(nic, config.endpoint)));
                }
            };
        }
        if_it_is!(ShmNic, Self::Shm);
        if_it_is!(Uring, Self::Uring);
        if_it_is!(Xdp, Self::Xdp);
        if_it_is!(Udp, Self::Udp);
        if_it_is!(Dpdk, Self::Dpdk);
        if_it_is!(Pair, Self::Pair);
        if_it_is!(MemNic, Self::Mem);
        None
    }

    /// Where others reach it.
    pub fn addr(&self) -> LinkAddr {
        on!(self, endpoint => endpoint.nic().caps().addr)
    }

    /// True of what reaches only processes of this host.
    pub const fn is_on_host(&self) -> bool {
        matches!(self, Self::Shm(_))
    }

    /// True of a reliable pair of DPDK's.
    pub(super) const fn is_pair(&self) -> bool {
        matches!(self, Self::Pair(_))
    }

    /// True where parts of a message gain by being copied while the next is written. A system call a part costs more than that.
    pub(super) const fn gains_by_parts(&self) -> bool {
        match self {
            Self::Shm(_) | Self::Dpdk(_) | Self::Pair(_) | Self::Mem(_) => true,
            Self::Uring(_) | Self::Xdp(_) | Self::Udp(_) => false,
        }
    }

    /// How long a turn without news takes, in turns of a driver that looks into memory for it (some 20 ns).
    pub(super) const fn turn_cost(&self) -> u32 {
        match self {
            // Two sockets are asked, by a system call of 0.27 us each: 4,000 such turns would keep a core from whoever is waited for
            // for milliseconds, and hosts of a lab have their cores in common.
            Self::Udp(_) => 25,
            Self::Shm(_) | Self::Uring(_) | Self::Xdp(_) | Self::Dpdk(_) | Self::Pair(_) | Self::Mem(_) => 1,
        }
    }

    /// True if `addr` is of this port's kind.
    pub(super) const fn reaches(&self, addr: LinkAddr) -> bool {
        match self {
            Self::Shm(_) => matches!(addr, LinkAddr::Shm { .. }),
            Self::Uring(_) | Self::Xdp(_) | Self::Dpdk(_) | Self::Pair(_) => matches!(addr, LinkAddr::Ether { .. }),
            Self::Udp(_) => matches!(addr, LinkAddr::Udp(_)),
            Self::Mem(_) => matches!(addr, LinkAddr::Mem { .. }),
        }
    }

    /// What the endpoint has counted.
    pub fn counters(&self) -> &Counters {
        on!(self, endpoint => endpoint.counters())
    }

    /// Lets only those at `addrs` connect, and has a place for each.
    pub(super) fn expect_only(&mut self, addrs: impl IntoIterator<Item = LinkAddr>) {
        on!(self, endpoint => endpoint.expect_only(addrs));
    }

    /// Whoever is connected to may answer after hours: that it has ended is known otherwise.
    pub(super) fn wait_for_answers(&mut self) {
        on!(self, endpoint => endpoint.set_connect_timeout(Duration::from_millis(365 * 24 * 3_600_000)));
    }

    #[cold]
    pub(super) fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        on!(self, endpoint => endpoint.connect(to))
    }

    #[inline]
    pub(super) fn send<const L: usize>(&mut self, peer: PeerId, front: &[u8; L], rest: &[u8]) -> Result<(), SendError> {
        on!(self, endpoint => endpoint.send_two(peer, front, rest))
    }

    /// Longest message that goes to `peer` in one frame; `None` until there is a connection.
    pub(super) fn record_max(&mut self, peer: PeerId) -> Option<usize> {
        on!(self, endpoint => endpoint.record_max(peer))
    }

    /// Whether nobody is at `addr` any more, where `peer` has not answered yet; false where nothing tells.
    pub(super) fn is_absent(&mut self, peer: PeerId, addr: LinkAddr) -> bool {
        match (self, addr) {
            (Self::Shm(port), LinkAddr::Shm { endpoint }) => {
                port.record_max(peer).is_none() && port.nic().is_absent(endpoint)
            }
            _ => false,
        }
    }

    pub(super) fn poll(&mut self) -> usize {
        on!(self, endpoint => endpoint.poll())
    }

    /// Receives, offers what can be taken from where it came, and shows the messages that wait, until the taker has enough; unless
    /// events wait, which come first.
    /// True if anything came; true if events wait.
    #[inline]
    pub(super) fn turn(&mut self, taker: &mut impl Taker) -> (bool, bool) {
        on!(self, endpoint => {
            let received = endpoint.poll_offering(&mut |peer, message| taker.offer(peer, message));
            let has_events = endpoint.has_events();
            let shown = if has_events { 0 } else { endpoint.recv_each(|peer, message| taker.take(peer, message)) };
            (received + shown > 0, has_events)
        })
    }

    #[inline]
    pub(super) fn flush(&mut self) {
        on!(self, endpoint => endpoint.flush());
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        on!(self, endpoint => endpoint.poll_event())
    }

    /// Shows every message that waits.
    pub(super) fn recv_all(&mut self, mut take: impl FnMut(PeerId, &[u8])) {
        on!(self, endpoint => _ = endpoint.recv_each(|peer, message| {
            take(peer, message);
            true
        }));
    }

    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        on!(self, endpoint => endpoint.wait(deadline))
    }

    pub(super) fn waker(&mut self) -> io::Result<Waker> {
        on!(self, endpoint => endpoint.nic_mut().waker())
    }

    pub(super) fn now(&self) -> Instant {
        on!(self, endpoint => endpoint.nic().now())
    }

    pub(super) fn close(&mut self, peer: PeerId) {
        on!(self, endpoint => endpoint.close(peer));
    }

    /// A region of what is received, and the key by which only `peer` may write it; `None` when that is gone.
    pub(super) fn expose(&mut self, room: Incoming, range: Range<usize>, peer: PeerId) -> Option<(Region, RemoteKey)> {
        on!(self, endpoint => {
            let region = room.register(range, endpoint);
            let key = endpoint.publish_to_fill(region, peer);
            key.map(|key| (region, key)).inspect_err(|_| _ = endpoint.withdraw(region)).ok()
        })
    }

    /// Puts some of the bytes, and gives the region that they leave by: its end is told by `Unregistered`.
    pub(super) fn put(
        &mut self,
        peer: PeerId,
        key: &RemoteKey,
        bytes: Outgoing,
        Range { start, end }: Range<usize>,
        backwards: bool,
    ) -> Result<Region, RmaError> {
        // Nobody asks when it is in place: a message behind it says so to whom it concerns.
        let how = PutHow { signal: false, silent: true, backwards };
        on!(self, endpoint => {
            let region = bytes.register(start, endpoint);
            // What found no room ends without an event, as by `withdraw`.
            let put = endpoint.put_from(peer, key, 0, region, 0..end - start, how);
            let _ = if put.is_ok() { endpoint.unregister(region) } else { endpoint.withdraw(region).map(drop) };
            put.map(|_| region)
        })
    }

    /// Ends a region that nobody was told of. Unlike of [`Self::unregister`] no event tells of it, which would keep whoever waits for
    /// room from sleeping.
    pub(super) fn withdraw(&mut self, region: Region) {
        // An unknown region is one that has ended.
        let _ = on!(self, endpoint => endpoint.withdraw(region));
    }

    /// Nobody may write the region any more, and nothing here does.
    pub(super) fn unregister(&mut self, region: Region) {
        // An unknown region is one that has ended.
        let _ = on!(self, endpoint => endpoint.unregister(region));
    }
}

struct Opening<'a>(&'a Config);

impl NicUser for Opening<'_> {
    type Out = Option<Port>;

    fn run<N: Nic + 'static>(self, nic: N) -> Option<Port> {
        Port::new(nic, self.0)
    }
}
