//! Frames in bursts, lent and never owned above.
//!
//! A [`Nic`] is one receive/transmit queue pair, polled by one thread. Frames travel between [`LinkAddr`]esses; the bytes
//! that the layer above reads and writes are a frame's payload, and what stands before it on the wire (the encapsulation:
//! Ethernet with our EtherType, or IP/UDP) belongs to the driver, which also steers by it.
//!
//! | driver | string | what it is |
//! | --- | --- | --- |
//! | [`uring`] | `uring:<interface>` | AF_PACKET: receive ring polled in shared memory, transmit through io_uring |
//! | [`xdp`] | `xdp:<interface>` | AF_XDP: frames in memory shared with the kernel or the network card; root |
//! | [`udp`] | `udp:<address>` | UDP sockets, no privilege, routable |
//! | [`dpdk`] | `dpdk:<device>` | network cards without the kernel, and DPDK's virtual devices |
//! | [`shm`] | `shm:<domain>` | processes on one host; reliable and ordered |
//! | [`mem`] | `mem:` | a simulated fabric within one process, in virtual time |
//!
//! [`fault`], [`pcap`] and [`stamps`] wrap any of them; [`tcpip`] runs smoltcp on any of them.

#![deny(unsafe_code)]

/// `Debug` in words too, for errors of opening: it is what a `main` that returns one prints, and most of them say what to type.
macro_rules! debug_in_words {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

mod addr;
pub mod affinity;
mod arrival;
mod caps;
pub mod clock;
pub mod conformance;
pub mod copy;
mod counters;
pub mod dpdk;
mod driver;
pub mod encap;
mod event;
pub mod fault;
#[cfg(test)]
#[path = "../tests/filter/mod.rs"]
mod filter;
mod forward;
pub mod interface;
mod link_table;
mod mapping;
pub mod mem;
mod memfd;
mod names;
mod netlink;
mod own_slot;
pub mod page;
pub mod passing;
#[cfg(test)]
#[path = "../tests/patience/mod.rs"]
mod patience;
pub mod pcap;
pub mod prefetch;
pub mod process;
pub mod rights;
pub mod rng;
pub mod share;
pub mod shm;
mod socket;
mod socket_filter;
#[cfg(not(loom))]
pub mod spec;
pub mod stamps;
pub mod tcpip;
pub mod time;
mod tx_buffers;
pub mod udp;
pub mod uring;
pub mod xdp;

pub use addr::{AddrError, LinkAddr, parse_mac};
pub use arrival::{Arrival, Begun, Rest};
pub use caps::Caps;
pub use counters::Counters;
pub use driver::{Link, LinkError, Nic, TxSlot};
pub use own_slot::OwnSlot;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
