//! Small frames that go out together: one packet, which the kernel cuts into frames before the interface.
#![allow(unsafe_code)] // sendmsg reads through raw pointers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::encap::{ether, train};
use crate::tx_buffers::{Filled, TxBuffers};

/// Where trains go out.
pub struct Trains {
    socket: OwnedFd,
    /// One for the header and one a frame, valid for one call of `send`.
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers in `pieces` are read only within the call that wrote them.
unsafe impl Send for Trains {}

impl Trains {
    /// `socket` has `PACKET_VNET_HDR`, and not `PACKET_QDISC_BYPASS`: that way the kernel drops what it would have to cut
    /// (`__dev_direct_xmit`).
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, pieces: Vec::with_capacity(1 + FRAMES_MAX) }
    }

    /// Sends the first of `frames` that can travel together: to one peer, and equally long, but for the last, which may
    /// be shorter. Returns how many and how that went; `None`, and nothing is sent, if they are too few to be worth it.
    pub fn send(
        &mut self,
        buffers: &TxBuffers,
        frames: impl Iterator<Item = Filled> + Clone,
    ) -> Option<(usize, io::Result<()>)> {
        let first = frames.clone().next()?;
        let bytes = buffers.bytes(first);
        // Who sends to whom; the length behind it may differ.
        let way = &bytes[..ether::LEN.start];
        let segment = first.payload_len();
        let (mut count, mut total) = (0, 0);
        for frame in frames.clone() {
            let len = frame.payload_len();
            let joins = len <= segment && total + len <= train::PAYLOADS_MAX && count < FRAMES_MAX;
            // A frame of nothing leaves no piece behind.
            if !joins || len == 0 || &buffers.bytes(frame)[..ether::LEN.start] != way {
                break;
            }
            (count, total) = (count + 1, total + len);
            if len < segment {
                break;
            }
        }
        if count < FRAMES_MIN {
            return None;
        }
        let (ether, _) = ether::Header::parse(bytes).expect("a frame that we wrote");
        let header = train::Header { dst_mac: ether.dst_mac, src_mac: ether.src_mac, dst: ether.dst, src: ether.src };
        let header = header.emit(segment as u16, total);
        self.pieces.clear();
        self.pieces.push(piece(&header));
        self.pieces.extend(frames.take(count).map(|frame| piece(buffers.payload(frame))));
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len();
        // SAFETY: the message points to the pieces, and they to `header` and into `buffers`; all outlive the call.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        Some((count, if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }))
    }
}

/// True for an error that says that this kernel or interface takes no trains, of whatever frames.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP))
}

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Fewer go out faster one by one: three in a packet took as long as three packets, six took two thirds.
const FRAMES_MIN: usize = 4;
/// Two bursts. Of frames that fill the usual MTU, 44 fill a packet.
const FRAMES_MAX: usize = 64;
