//! Super-packets whose bytes are copied once at their receiver: out of the kernel, to where the layer above wants them.
//!
//! A ring would have them copied twice, into it by the sender's core and out of it by ours. Here a slot of the ring holds a packet's
//! beginning only, and the packet itself waits in the socket's queue (`PACKET_COPY_THRESH`, networking/packet_mmap.rst; `tpacket_rcv`, Linux 6.18), to be
//! read into its place.
//!
//! That pays while both sides send. The pages of a packet are freed by the core that copies out of them, and the next packet which that
//! core sends lies in them, in its cache; the pages of a stream one way would all be cold (`bench/NOTES.md` 78). So who has received so
//! many bytes here may send as many here ([`Balance`]), and for the rest the ring is the better way. Where the pages are cold, one piece of
//! memory is better than many (86).

use std::os::fd::BorrowedFd;

use super::rx_ring::{Frame, RxRing};
use crate::encap::Reject;
use crate::encap::gso::{self, Service};
use crate::{Arrival, Begun, Counters, LinkAddr, Rest, socket};

/// The ring of beginnings, and memory for a packet that has no place.
pub struct Placing {
    ring: RxRing,
    bounce: Box<[u8]>,
}

/// What has come and gone in full super-packets, by which the next one goes: every other one to be placed. With all of them the
/// receiver's core would have too much to do, and with none the sender's (`bench/NOTES.md` 78).
#[derive(Debug)]
pub struct Balance {
    /// Bytes that may go to be placed.
    credit: usize,
    /// The last one that could be was.
    was_placed: bool,
    /// Bytes sent since one came that was to be placed.
    unanswered: usize,
}

/// How a super-packet goes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Manner {
    /// How its receiver shall take it.
    pub service: Service,
    /// It lies in one piece of the kernel's memory, not in several.
    pub in_one_piece: bool,
}

impl Placing {
    /// What comes to `ring`'s socket.
    pub fn new(ring: RxRing) -> Self {
        // Written, not just zero-allocated, so that every page is there; and as long as a packet can say it is.
        Self { ring, bounce: vec![0xff; gso::HEADER_LEN + gso::PAYLOAD_MAX].into() }
    }

    /// The socket that it belongs to.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.ring.socket()
    }

    /// True when a packet waits.
    #[inline]
    pub fn has_frame(&self) -> bool {
        self.ring.has_frame()
    }

    /// The beginning of the packet that waits.
    pub fn frame(&self) -> Option<Frame<'_>> {
        self.ring.frame()
    }

    /// Shows the packet that waits, and lets it go. How many bytes were shown; `None` when there was none, or it was not to be had.
    pub fn show(&mut self, counters: &mut Counters, each: &mut impl FnMut(Arrival<'_>, LinkAddr)) -> Option<usize> {
        let Self { ring, bounce } = self;
        let frame = ring.frame()?;
        let state = if frame.waits_in_queue() { State::Waits } else { State::Taken };
        let mut packet = Packet { socket: ring.socket(), bounce, head: &[], len: 0, state };
        let mut shown = None;
        match parse(&frame) {
            Ok((header, head)) => {
                let (len, from) =
                    (usize::from(header.len), LinkAddr::Ether { mac: header.src_mac, endpoint: header.src });
                (packet.head, packet.len) = (head, len);
                if let Some(whole) = head.get(..len) {
                    each(Arrival::Whole(whole), from);
                    shown = Some(len);
                } else if packet.state == State::Waits {
                    each(Arrival::Begun(Begun::new(head, len, &mut packet)), from);
                    shown = (packet.state != State::Lost).then_some(len);
                }
                // Else the queue had no room for it.
                counters.rx_dropped += u64::from(shown.is_none());
            }
            Err(Reject::Truncated | Reject::Foreign) => counters.rx_foreign += 1,
        }
        packet.drop_rest();
        ring.release();
        counters.rx_frames += u64::from(shown.is_some());
        counters.rx_bytes += shown.unwrap_or(0) as u64;
        shown
    }
}

/// The header of a packet, and the beginning of its payload.
fn parse<'a>(frame: &Frame<'a>) -> Result<(gso::Header, &'a [u8]), Reject> {
    gso::Header::parse_front(frame.vnet_header().ok_or(Reject::Truncated)?, frame.bytes())
}

/// A packet in the socket's queue.
struct Packet<'a> {
    socket: BorrowedFd<'a>,
    bounce: &'a mut [u8],
    /// The beginning of its payload, as the ring has it.
    head: &'a [u8],
    /// Of its payload.
    len: usize,
    state: State,
}

/// What became of a packet in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waits,
    /// It is there no more.
    Taken,
    /// It is there no more, and was not what the ring says.
    Lost,
}

impl Packet<'_> {
    /// Reads it: `front` bytes to our own memory, and what follows to `into`. False when it has not so many, or is another one.
    fn read(&mut self, front: usize, into: &mut [u8]) -> bool {
        let wanted = front + into.len();
        let mut read = || socket::receive_parts(self.socket, [&mut self.bounce[..front], &mut *into]);
        let read = match read() {
            // The socket tells once that the interface was down, and be it of long ago; the packet still waits then. After any other
            // error it is gone.
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => read(),
            read => read,
        };
        let seen = self.bounce[..front].get(gso::HEADER_LEN..).unwrap_or_default();
        let known = seen.len().min(self.head.len());
        let is_this = seen[..known] == self.head[..known];
        let is_had = is_this && matches!(read, Ok(read) if read == wanted);
        self.state = if is_had { State::Taken } else { State::Lost };
        is_had
    }

    fn drop_rest(&mut self) {
        if self.state == State::Waits {
            self.read(gso::VNET_LEN, &mut []);
        }
    }
}

impl Rest for Packet<'_> {
    fn fetch(&mut self, at: usize, into: &mut [u8]) -> bool {
        self.read(gso::HEADER_LEN + at, into)
    }

    fn whole(&mut self) -> Option<&[u8]> {
        let end = gso::HEADER_LEN + self.len;
        if !self.read(end, &mut []) {
            return None;
        }
        Some(&self.bounce[gso::HEADER_LEN..end])
    }
}

impl Balance {
    /// With enough credit to find out whether the peer answers in kind.
    pub const START: Self = Self { credit: CREDIT_MAX, was_placed: false, unanswered: 0 };

    /// So many bytes have come to be placed.
    #[inline]
    pub fn on_placed(&mut self, len: usize) {
        self.credit = CREDIT_MAX.min(self.credit + len);
        self.unanswered = 0;
    }

    /// How the next full super-packet goes, of `len` bytes: every other one to be placed, as long as the credit lasts.
    #[inline]
    pub fn next(&mut self, len: usize) -> Manner {
        let left = if self.was_placed { None } else { self.credit.checked_sub(len) };
        self.was_placed = left.is_some();
        self.credit = left.unwrap_or(self.credit);
        self.unanswered = self.unanswered.saturating_add(len);
        Manner {
            service: if self.was_placed { Service::Placed } else { Service::Ordinary },
            in_one_piece: self.unanswered > IN_PIECES_MAX,
        }
    }
}

/// Two messages of the longest that were measured.
const CREDIT_MAX: usize = 8 << 20;
/// What has gone since anything came, from which on the pages of what came are used up (`bench/NOTES.md` 86).
const IN_PIECES_MAX: usize = 1 << 20;
