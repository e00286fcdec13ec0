//! What stands before a frame's payload on the wire.
//!
//! A frame's payload is the upper layer's; the bytes in front of it steer it from endpoint to endpoint and are written
//! and read here, by whichever driver carries such frames. There are four forms:
//!
//! - [`ether`]: Ethernet with our own EtherType, for every frame that fits the interface's MTU.
//! - [`gso`]: a segmentation-offload super-packet (Ethernet, IPv4, TCP), for frames of up to 64 KB between interfaces
//!   that pass such packets on uncut.
//! - [`train`]: many frames of MTU size in one packet (Ethernet, IPv4, UDP) that the sender's kernel cuts into frames.
//! - [`datagram`]: within UDP datagrams, which bring addresses and ports of their own.
//!
//! Bytes from the wire never panic: they give a [`Reject`].

pub mod datagram;
pub mod ether;
pub mod gso;
pub mod train;

/// Why bytes from the wire are no frame of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// Shorter than its header, or than the length that its header states.
    Truncated,
    /// The header is of another protocol, or of another version of ours.
    Foreign,
}

/// Ethernet, common to three forms (IEEE 802.3 clause 3).
mod field {
    use std::ops::Range;

    pub const DST_MAC: Range<usize> = 0..6;
    pub const SRC_MAC: Range<usize> = 6..12;
    pub const ETHERTYPE: Range<usize> = 12..14;
}

fn read_u16(bytes: &[u8], at: std::ops::Range<usize>) -> u16 {
    u16::from_be_bytes([bytes[at.start], bytes[at.start + 1]])
}

#[inline]
fn read_mac(bytes: &[u8], at: std::ops::Range<usize>) -> [u8; 6] {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at]);
    mac
}
