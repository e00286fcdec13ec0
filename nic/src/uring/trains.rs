//! Small frames that go out together: one packet, which the kernel cuts into frames before the interface.
#![allow(unsafe_code)] // sendmsg reads through raw pointers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::answers::Answers;
use super::takers::{Takers, Verdict};
use crate::encap::ether;
use crate::encap::train::{self, Kind};
use crate::socket;
use crate::time::Instant;
use crate::tx_buffers::{Filled, TxBuffers};

/// Where trains go out.
pub struct Trains {
    socket: OwnedFd,
    /// Whom they go to.
    takers: Takers,
    /// Probes, with their numbers, that go behind what is being flushed; at most one for each [`FRAMES_MIN`] frames of it.
    probes: Vec<(train::Header, u64)>,
    /// What others have asked us.
    answers: Answers,
    /// One for the header and one a frame, valid for one call of `send`.
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers in `pieces` are read only within the call that wrote them.
unsafe impl Send for Trains {}

impl Trains {
    /// `socket` has `PACKET_VNET_HDR`, and not `PACKET_QDISC_BYPASS`: that way the kernel drops what it would have to cut
    /// (`__dev_direct_xmit`). At most `frames` are flushed at once.
    pub fn new(socket: OwnedFd, frames: u16) -> Self {
        Self {
            socket,
            takers: Takers::default(),
            probes: Vec::with_capacity(usize::from(frames) / FRAMES_MIN),
            answers: Answers::new(),
            pieces: Vec::with_capacity(1 + FRAMES_MAX),
        }
    }

    /// How many of `frames`, from the first on, can travel together: to one peer, and equally long, but for the last, which may
    /// be shorter. At least one, if there is one.
    pub fn together(buffers: &TxBuffers, frames: impl Iterator<Item = Filled> + Clone) -> usize {
        let Some(first) = frames.clone().next() else { return 0 };
        // Who sends to whom; the length behind it may differ.
        let way = &buffers.bytes(first)[..ether::LEN.start];
        let segment = first.payload_len();
        let (mut count, mut total) = (0, 0);
        for frame in frames {
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
        count.max(1)
    }

    /// Whether `count` frames together, of which `first` is one, go as a train: there are enough to be worth it, and their peer
    /// takes them. It is asked for that, if it is time to, by [`Self::send_probes`].
    pub fn go(&mut self, first: &[u8], count: usize, now: impl FnOnce() -> Instant) -> bool {
        if count < FRAMES_MIN {
            return false;
        }
        let (header, now) = (header_of(first), now());
        let Verdict { goes, ask } = self.takers.judge((header.dst_mac, header.dst), now);
        if ask {
            self.probes.push((train::Header { kind: Kind::Probe, ..header }, now.as_nanos()));
        }
        goes
    }

    /// Asks the peers that are to be asked: behind the frames, which do not profit by it. The error is one of [`is_refusal`].
    #[inline]
    pub fn send_probes(&mut self) -> io::Result<()> {
        while let Some((header, number)) = self.probes.pop() {
            match self.send_probe(header, number) {
                Err(error) if is_refusal(&error) => return Err(error),
                // One that does not go now is as good as lost.
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends frames that can travel together.
    pub fn send(&mut self, buffers: &TxBuffers, frames: impl Iterator<Item = Filled> + Clone) -> io::Result<()> {
        let first = frames.clone().next().expect("a train has frames");
        let total = frames.clone().map(Filled::payload_len).sum();
        let header = header_of(buffers.bytes(first)).emit(first.payload_len() as u16, total);
        self.pieces.clear();
        self.pieces.push(piece(&header));
        self.pieces.extend(frames.map(|frame| piece(buffers.payload(frame))));
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len();
        // SAFETY: the message points to the pieces, and they to `header` and into `buffers`; all outlive the call.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes in a piece of a probe or of an answer that came to us.
    pub fn on_probe(&mut self, header: &train::Header, payload: &[u8]) {
        let Some(number) = train::probe_number(payload) else { return };
        match header.kind {
            Kind::Probe => self.answers.owe(*header, number),
            Kind::Answer => self.takers.on_answer((header.src_mac, header.src), Instant::from_nanos(number)),
            Kind::Frame => {}
        }
    }

    /// Answers peers that have asked, so far as it is time to.
    #[inline]
    pub fn answer(&mut self, now: Instant) {
        if !self.answers.is_empty() {
            self.send_answers(now);
        }
    }

    #[cold]
    fn send_answers(&mut self, now: Instant) {
        while let Some((probe, number)) = self.answers.next(now) {
            let back = train::Header {
                dst_mac: probe.src_mac,
                src_mac: probe.dst_mac,
                dst: probe.src,
                src: probe.dst,
                kind: Kind::Answer,
            };
            // If it does not go, the next probe is answered.
            let _ = self.send_probe(back, number);
        }
    }

    #[cold]
    fn send_probe(&self, header: train::Header, number: u64) -> io::Result<()> {
        let header: [u8; train::HEADER_LEN] = header.emit(train::PROBE_SEGMENT as u16, train::PROBE_LEN);
        socket::send_parts(self.socket.as_fd(), [&header, &train::probe(number)])
    }
}

/// The header of a train that `frame` is in.
fn header_of(frame: &[u8]) -> train::Header {
    let (ether, _) = ether::Header::parse(frame).expect("a frame that we wrote");
    train::Header { dst_mac: ether.dst_mac, src_mac: ether.src_mac, dst: ether.dst, src: ether.src, kind: Kind::Frame }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these, each to an endpoint and of a length, travel together.
    fn together(frames: &[(u16, usize)]) -> usize {
        let mut buffers = TxBuffers::new(frames.len() as u16, 9_000);
        let lent = |(dst, len): &(u16, usize)| {
            let header = ether::Header { dst_mac: [2; 6], src_mac: [4; 6], dst: *dst, src: 1, len: *len as u16 };
            buffers.lend(&header.emit(), *len).unwrap().take()
        };
        let frames: Vec<_> = frames.iter().map(lent).collect();
        Trains::together(&buffers, frames.iter().copied())
    }

    #[test]
    fn frames_of_one_way_and_one_length_travel_together() {
        assert_eq!(together(&[]), 0);
        assert_eq!(together(&[(1, 10); 5]), 5);
        assert_eq!(together(&[(1, 10), (1, 10), (2, 10), (1, 10)]), 2, "to another");
        assert_eq!(together(&[(1, 10), (1, 10), (1, 9), (1, 9)]), 3, "a shorter one is the last");
        assert_eq!(together(&[(1, 10), (1, 11)]), 1);
        assert_eq!(together(&[(1, 10), (1, 0)]), 1);
        assert_eq!(together(&[(1, 0); 2]), 1);
        assert_eq!(together(&[(1, 10); 100]), FRAMES_MAX);
        assert_eq!(together(&[(1, 9_000); 10]), train::PAYLOADS_MAX / 9_000);
    }
}
