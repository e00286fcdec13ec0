//! smoltcp on any driver: a user-level TCP/IP stack beside our own protocol, over the same frames.
//!
//! Each IP packet is one frame to one peer, without an Ethernet header: a point-to-point link.
//!
//! ```
//! use sidelane_nic::mem::{Config, Fabric};
//! use sidelane_nic::tcpip::Device;
//! use sidelane_nic::{LinkAddr, Nic};
//! use smoltcp::iface::{Interface, SocketSet};
//!
//! let nic = Fabric::new(0).nic(Config::default());
//! let mut device = Device::new(nic, LinkAddr::Mem { node: 1 }).unwrap();
//! let config = smoltcp::iface::Config::new(smoltcp::wire::HardwareAddress::Ip);
//! let now = device.now();
//! let mut interface = Interface::new(config, &mut device, now);
//! let mut sockets = SocketSet::new(Vec::new());
//! device.poll(&mut interface, &mut sockets);
//! ```

use std::collections::VecDeque;

use smoltcp::iface::{Interface, PollResult, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::{Link, LinkAddr, LinkError, Nic, TxSlot};

/// A link to one peer, as smoltcp wants it. Packets leave with [`Device::poll`] or [`Nic::flush`].
pub struct Device<N: Nic> {
    nic: N,
    link: Link,
    peer: LinkAddr,
    /// Longest packet.
    mtu: usize,
    received: Received,
    /// Where a packet is written that no transmit buffer was free for, to be forgotten.
    nowhere: Vec<u8>,
    unsent: u64,
}

/// Packets copied out of the driver, since smoltcp looks at them later than the driver lends them.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// Where each of them ends in `bytes`.
    ends: VecDeque<usize>,
    /// Where the next one starts.
    start: usize,
}

/// A received packet. See [`phy::RxToken`].
pub struct RxToken<'a>(&'a [u8]);

/// A right to send one packet. See [`phy::TxToken`].
pub struct TxToken<'a, N: Nic> {
    nic: &'a mut N,
    link: Link,
    nowhere: &'a mut Vec<u8>,
    unsent: &'a mut u64,
}

impl<N: Nic> Device<N> {
    /// A device whose only neighbour is `peer`; what others send is dropped. Packets are of a length that every path of the driver
    /// carries. Checksums are made and verified, unless the driver promises unaltered frames.
    pub fn new(mut nic: N, peer: LinkAddr) -> Result<Self, LinkError> {
        let link = nic.link(peer)?;
        nic.confirm(link);
        let mtu = nic.caps().mtu_safe.min(PACKET_LEN_MAX);
        Ok(Self { nic, link, peer, mtu, received: Received::default(), nowhere: Vec::new(), unsent: 0 })
    }

    /// Packets of up to [`crate::Caps::mtu`]: for paths that are known to carry such, as a veth pair with its offloads at both ends does,
    /// and a bridge of such. smoltcp finds out of none that does not; its connections stand still.
    pub fn with_super_frames(mut self) -> Self {
        self.mtu = self.nic.caps().mtu.min(PACKET_LEN_MAX);
        self
    }

    /// One turn: [`Interface::poll`], then everything that it sent goes out.
    pub fn poll(&mut self, interface: &mut Interface, sockets: &mut SocketSet<'_>) -> PollResult {
        let now = self.now();
        let result = interface.poll(now, self, sockets);
        self.nic.flush();
        result
    }

    /// The driver's time in smoltcp's terms.
    pub fn now(&self) -> Instant {
        Instant::from_micros((self.nic.now().as_nanos() / 1_000) as i64)
    }

    /// Packets that smoltcp sent and no transmit buffer was free for. TCP sends them again.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The driver.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The driver, to wait or to flush.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }
}

impl<N: Nic> phy::Device for Device<N> {
    type RxToken<'a>
        = RxToken<'a>
    where
        N: 'a;
    type TxToken<'a>
        = TxToken<'a, N>
    where
        N: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(RxToken<'_>, TxToken<'_, N>)> {
        if self.received.ends.is_empty() {
            self.received.refill(&mut self.nic, self.peer);
        }
        if self.received.ends.is_empty() {
            return None;
        }
        // What is received may have to be answered. Without room a packet is taken in all the same, and its answer forgotten: whoever left it
        // would wait for a peer that may be waiting for just that.
        let packet = self.received.next()?;
        let (nic, link) = (&mut self.nic, self.link);
        let answer = TxToken { nic, link, nowhere: &mut self.nowhere, unsent: &mut self.unsent };
        Some((RxToken(packet), answer))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TxToken<'_, N>> {
        if self.nic.tx_slot(self.link, self.mtu).is_none() {
            self.nic.flush();
            self.nic.tx_slot(self.link, self.mtu)?;
        }
        let (nic, link) = (&mut self.nic, self.link);
        Some(TxToken { nic, link, nowhere: &mut self.nowhere, unsent: &mut self.unsent })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let caps = self.nic.caps();
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // smoltcp keeps its window below what the receive ring holds.
        capabilities.max_burst_size = Some(caps.rx_frames);
        if N::RELIABLE {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
        capabilities
    }
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl<N: Nic> phy::TxToken for TxToken<'_, N> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        for again in [false, true] {
            if again {
                // There was one for the longest packet, of a kind of their own on some drivers (`uring`): short ones have to leave first.
                self.nic.flush();
            }
            if let Some(mut slot) = self.nic.tx_slot(self.link, len) {
                let result = write(&mut slot);
                slot.commit();
                return result;
            }
        }
        *self.unsent += 1;
        self.nowhere.resize(len, 0);
        write(self.nowhere)
    }
}

impl Received {
    fn refill<N: Nic>(&mut self, nic: &mut N, peer: LinkAddr) {
        self.bytes.clear();
        self.start = 0;
        nic.rx_burst(BURST, |frame, from| {
            if from == peer {
                self.bytes.extend_from_slice(frame);
                self.ends.push_back(self.bytes.len());
            }
        });
    }

    fn next(&mut self) -> Option<&[u8]> {
        let end = self.ends.pop_front()?;
        let start = std::mem::replace(&mut self.start, end);
        Some(&self.bytes[start..end])
    }
}

/// The length field of an IP packet has 16 bits.
const PACKET_LEN_MAX: usize = u16::MAX as usize;
/// Packets copied at once: enough to spread a driver's fixed costs, few enough to stay in the cache.
const BURST: usize = 16;
