//! Opening an address: once, may fail, and says what to do about it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::sockets::Sockets;
use super::tx_queue::{DATAGRAM_MAX, SEGMENTS_MAX, TxQueue};
use super::{Config, Udp, datapath};
use crate::encap::datagram;
use crate::event::Alarm;
use crate::interface::Interface;
use crate::link_table::LinkTable;
use crate::time::Duration;
use crate::{Caps, Counters, LinkAddr};

/// Why an address could not be opened.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// `0.0.0.0` or `[::]`: peers could not be told where we are.
    #[error("{0} is no address that a peer can send to; name one of this host's, as in `ip addr`")]
    Unspecified(SocketAddr),
    /// No interface of this host has the address.
    #[error("no interface here has the address {0}; `ip addr` lists those that there are")]
    NotOurs(IpAddr),
    /// Somebody has the port.
    #[error("{0} is taken by another socket; choose another port, or 0 for any")]
    Taken(SocketAddr),
    /// The system refused.
    #[error("opening {0}: {1}")]
    System(SocketAddr, io::Error),
}

debug_in_words!(OpenError);

impl Udp {
    /// Opens one endpoint. From here on its frames are kept; nothing is sent.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let bind = config.bind;
        if bind.ip().is_unspecified() {
            return Err(OpenError::Unspecified(bind));
        }
        let sockets = Sockets::bind(bind).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => OpenError::NotOurs(bind.ip()),
            io::ErrorKind::AddrInUse => OpenError::Taken(bind),
            _ => OpenError::System(bind, error),
        })?;
        let mtu = frame_mtu(&sockets);
        let caps = Caps {
            addr: LinkAddr::Udp(sockets.addr()),
            mtu,
            mtu_safe: mtu,
            rx_frames: (sockets.rx_bytes() / kernel_memory(mtu)).max(1),
            burst: (DATAGRAM_MAX / (datagram::HEADER_LEN + mtu)).clamp(BURST_MIN, SEGMENTS_MAX),
            rto_floor: RTO_FLOOR,
            host_delay: Some(HOST_DELAY),
        };
        let buffers = (TX_BYTES / mtu).clamp(2 * caps.burst, TX_BUFFERS_MAX);
        Ok(Self {
            caps,
            tx: TxQueue::new(buffers as u16, mtu),
            unread_from: sockets.addr(),
            sockets,
            // Written, so that its pages are there before the first frame.
            datagram: vec![0xff; datapath::DATAGRAM_AT + DATAGRAM_MAX].into_boxed_slice(),
            unread: 0..0,
            links: LinkTable::new(),
            counters: Counters::default(),
            alarm: Alarm::default(),
        })
    }
}

/// What a datagram carries without being cut into IP fragments on the interface of the bound address. Beyond it the
/// kernel learns the path's own MTU and cuts.
fn frame_mtu(sockets: &Sockets) -> usize {
    let addr = sockets.addr();
    let interface_mtu = Interface::with_address(addr.ip())
        .and_then(|interface| interface.mtu(sockets.main().as_fd()).ok())
        .unwrap_or(ETHERNET_MTU);
    let ip_header = if addr.is_ipv4() { 20 } else { 40 };
    const UDP_HEADER: usize = 8;
    interface_mtu.saturating_sub(ip_header + UDP_HEADER + datagram::HEADER_LEN).clamp(FRAME_MIN, FRAME_MAX)
}

/// What the kernel charges a receive buffer for one frame: the packet in a power of two with its bookkeeping
/// (`skb->truesize`), whole pages for long ones.
fn kernel_memory(mtu: usize) -> usize {
    const SHARED_INFO: usize = 320;
    const SK_BUFF: usize = 256;
    const PAGE: usize = 4096;
    let data = mtu + SHARED_INFO;
    SK_BUFF + if data <= PAGE { data.next_power_of_two() } else { data.next_multiple_of(PAGE) + PAGE }
}

/// RFC 894.
const ETHERNET_MTU: usize = 1500;
/// Interfaces below IPv6's least MTU (1280, RFC 8200) have their frames cut by IP.
const FRAME_MIN: usize = 1_200;
/// Where the interface has no MTU to speak of (the loopback's 64 KiB): as the `uring` driver. 48 Gbit/s over the
/// loopback; 35 with 8 KiB, 17 with frames of Ethernet's size.
const FRAME_MAX: usize = 65_408;

/// Buffers for frames that wait for a flush, and two bursts of them at least. Only those that are in use together are
/// ever touched, so their number costs no cache.
const TX_BYTES: usize = 1 << 20;
const TX_BUFFERS_MAX: usize = 256;

/// Where a frame may be as long as a datagram, short ones still gain by leaving together.
const BURST_MIN: usize = 32;
/// A descheduled peer, or a softirq that waits for its turn, is silent for this long without a loss.
const RTO_FLOOR: Duration = Duration::from_millis(1);
/// Where no offload merges them a receiver takes frames from its socket one by one, at two system calls' time each, and
/// 200 wait there while it runs as fast as it can. With 62 µs 1 MiB went at half to two thirds of the rate.
const HOST_DELAY: Duration = Duration::from_micros(500);
