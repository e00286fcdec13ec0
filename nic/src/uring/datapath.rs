//! What a driver does: frames in, frames out, and sleep.

use std::io;
use std::task::Waker;

use super::placing::{Manner, Placing};
use super::rx_ring::Frame;
use super::takers::Peer;
use super::tx_queue::Kind;
use super::{Headers, Offload, Uring, filter, sys};
use crate::encap::gso::Service;
use crate::encap::{Reject, ether, gso, train};
use crate::time::{Duration, Instant};
use crate::{Arrival, Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot, clock, socket};

impl Nic for Uring {
    const RELIABLE: bool = false;
    const NAME: &'static str = "uring";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Ether { mac, endpoint } = to else { return Err(LinkError::WrongKind(to)) };
        let (src_mac, src, segment) = (self.mac, self.endpoint, self.segment);
        self.links.link(to, || {
            Ok(Headers {
                small: ether::Header { dst_mac: mac, src_mac, dst: endpoint, src, len: 0 }.emit(),
                large: gso::Header { dst_mac: mac, src_mac, dst: endpoint, src, len: 0 }.emit(segment),
            })
        })
    }

    fn unlink(&mut self, link: Link) {
        self.links.unlink(link);
    }

    /// Shows at most `budget` frames. Frames that are not ours count against it too, so that a flood of them cannot
    /// hold the caller.
    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.rx_arrivals(budget, |arrival, from| {
            if let Some(frame) = arrival.whole() {
                each(frame, from);
            }
        })
    }

    #[inline]
    fn rx_arrivals(&mut self, budget: usize, mut each: impl FnMut(Arrival<'_>, LinkAddr)) -> usize {
        if budget == 0 || !self.small.settle() {
            return 0;
        }
        // What waits in the other ring, such as an ack of our own stream, ends a rest.
        if self.pace.rests(clock::monotonic) && !self.small.has_frame() {
            return 0;
        }
        // A turn of the layers above takes as long as many looks, and what comes meanwhile waits for the next.
        for _ in 0..LOOKS {
            if self.has_frame() {
                return self.show_waiting(budget, each);
            }
            if self.show_early(&mut each) {
                return 1;
            }
        }
        self.pace.on_nothing(clock::monotonic);
        0
    }

    fn has_unread(&mut self) -> bool {
        self.small.settle();
        self.has_frame()
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len > self.caps.mtu {
            return None;
        }
        let headers = self.links.get_mut(link)?;
        let lent = if len <= self.caps.mtu_safe {
            let header = &mut headers.small;
            header[ether::LEN].copy_from_slice(&(len as u16).to_be_bytes());
            self.tx.lend(Kind::Small, header, len)
        } else {
            let header = &mut headers.large;
            gso::set(header, len as u16, Service::Ordinary);
            self.tx.lend(Kind::Large, header, len)
        };
        if lent.is_none() {
            self.counters.tx_full += 1;
        }
        lent
    }

    /// Lends a buffer with the link's header in it, for a super-packet that ends in `tail`; `None` where that is none,
    /// or must wait its turn.
    #[inline]
    fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<impl TxSlot + 'a> {
        let whole = len + tail.len();
        if whole <= self.caps.mtu_safe || whole > self.caps.mtu {
            return None;
        }
        self.flush();
        let header = &mut self.links.get_mut(link)?.large;
        // Of a long message's frames, and no others, whoever receives them may know the place beforehand.
        let manner = if whole == self.caps.mtu { self.balance.next(whole) } else { Manner::default() };
        gso::set(header, whole as u16, manner.service);
        self.tx.lend_before(header, len, tail, manner.in_one_piece, &mut self.counters)
    }

    #[inline]
    fn flush(&mut self) {
        if self.tx.flush(&mut self.counters).is_err() {
            self.look_for_interface();
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        self.look_for_interface();
        let limit = deadline.map(|deadline| deadline.since(clock::monotonic()));
        // Else the kernel would wake us for a frame that was shown.
        let _ = (0..8 * LOOKS).any(|_| self.small.settle());
        if self.tell_gone() || self.has_frame() || limit.is_some_and(|limit| limit.as_nanos() == 0) {
            return Ok(());
        }
        self.counters.waits += 1;
        if self.gone {
            socket::poll(&[], self.alarm.event(), limit)?;
            return Ok(());
        }
        let limit = [limit, self.tx.again_after(), Some(INTERFACE_TURN)].into_iter().flatten().min();
        let (small, event) = (self.small.socket(), self.alarm.event());
        match (&self.dressed, &self.placing) {
            (Some((dressed, _)), Some(placing)) => {
                socket::poll(&[small, dressed.socket(), placing.socket()], event, limit)?
            }
            (Some((dressed, _)), None) => socket::poll(&[small, dressed.socket()], event, limit)?,
            (None, _) => socket::poll(&[small], event, limit)?,
        };
        self.look_for_interface();
        self.tell_gone();
        Ok(())
    }

    fn waker(&mut self) -> std::io::Result<Waker> {
        self.alarm.waker()
    }

    fn is_gone(&self, _link: Link) -> bool {
        self.gone
    }

    fn counters(&self) -> Counters {
        let dressed = self.dressed.as_ref().map(|(ring, _)| ring.socket());
        let placing = self.placing.as_ref().map(Placing::socket);
        for socket in [Some(self.small.socket()), dressed, placing].into_iter().flatten() {
            self.rx_dropped.set(self.rx_dropped.get() + sys::take_drops(socket));
        }
        Counters { rx_dropped: self.rx_dropped.get() + self.counters.rx_dropped, ..self.counters }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl Uring {
    /// Shows a frame that is there although the kernel has not said so. False: there is none, or it is not ours, which will show when
    /// the kernel says so.
    #[inline]
    fn show_early(&mut self, each: &mut impl FnMut(Arrival<'_>, LinkAddr)) -> bool {
        let Some(glance) = self.small.glance() else { return false };
        // Whoever sees a frame in one ring and then looks at the others sees all that came before it.
        if self.has_large() {
            return false;
        }
        let Some((from, payload)) = glance.to(self.mac, self.endpoint) else { return false };
        self.small.on_shown_early();
        self.seen_early += 1;
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += payload.len() as u64;
        each(Arrival::Whole(payload), from);
        if self.steering.on_ours() {
            self.set_filter(false);
        }
        true
    }

    /// Shows what the kernel has handed over.
    #[inline]
    fn show_waiting(&mut self, budget: usize, mut each: impl FnMut(Arrival<'_>, LinkAddr)) -> usize {
        let (mut shown, mut train_frames, mut filter) = (0, 0, None);
        let own = (self.mac, self.endpoint);
        for _ in 0..budget {
            let (ring, dress) = match self.next_ring() {
                None => break,
                Some(Next::Small) => (&mut self.small, None),
                Some(Next::Dressed) => {
                    let (ring, offload) = self.dressed.as_mut().expect("a frame is in it");
                    (ring, Some(*offload))
                }
                Some(Next::Placing) => {
                    let placing = self.placing.as_mut().expect("a packet is in it");
                    if let Some(len) = placing.show(&mut self.counters, &mut each) {
                        self.balance.on_placed(len);
                        self.fetched += 1;
                        shown += 1;
                    }
                    continue;
                }
            };
            let Some(frame) = ring.frame() else { break };
            train_frames += u32::from(dress == Some(Offload::Trains));
            match parse(dress, &frame) {
                Ok(Parsed::Frame(to, from, payload)) if to.is_none_or(|to| to == own) => {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += payload.len() as u64;
                    each(Arrival::Whole(payload), from);
                    shown += 1;
                    if to.is_some() && self.steering.on_ours() {
                        filter = Some(false);
                    }
                }
                Ok(Parsed::Probe(header, payload)) => self.tx.on_probe(&header, payload),
                Ok(Parsed::Frame(..)) => {
                    self.counters.rx_foreign += 1;
                    if self.steering.on_others() {
                        filter = Some(true);
                    }
                }
                Err(Reject::Truncated | Reject::Foreign) => {
                    self.counters.rx_foreign += 1;
                    // Whose it is cannot be told, and who sends one may send more.
                    if dress.is_none() && self.steering.on_others() {
                        filter = Some(true);
                    }
                }
            }
            ring.release();
        }
        if let Some(on) = filter {
            self.set_filter(on);
        }
        if train_frames > 0 {
            let (more, now) = (self.has_frame(), clock::monotonic());
            self.pace.on_shown(train_frames, more, now);
            self.tx.answer(now);
        }
        shown
    }

    /// True when the interface is gone and no sleep has ended by that yet. Only the first one does: nothing comes any more.
    fn tell_gone(&mut self) -> bool {
        self.gone && !std::mem::replace(&mut self.told_gone, true)
    }

    /// True when a frame waits, ours or not.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.small.has_frame() || self.has_large()
    }

    /// True when one waits that is none of the small ones.
    #[inline]
    fn has_large(&self) -> bool {
        self.dressed.as_ref().is_some_and(|(ring, _)| ring.has_frame())
            || self.placing.as_ref().is_some_and(Placing::has_frame)
    }

    /// The ring whose first frame arrived first.
    ///
    /// The order between the rings matters: the layer above takes a late frame for a lost one. A sender's frames reach the
    /// rings in order, so whoever sees a frame in one ring and then looks at the others sees all that came before it.
    #[inline]
    fn next_ring(&self) -> Option<Next> {
        let small_waits = self.small.has_frame();
        if self.has_large() { Some(self.first_arrived()) } else { small_waits.then_some(Next::Small) }
    }

    /// Of what waits, when some is not small. All rings are looked at once more.
    fn first_arrived(&self) -> Next {
        let dressed = self.dressed.as_ref().and_then(|(ring, _)| ring.frame());
        let placing = self.placing.as_ref().and_then(Placing::frame);
        let waiting = [(Next::Small, self.small.frame()), (Next::Dressed, dressed), (Next::Placing, placing)];
        let waiting = waiting.into_iter().filter_map(|(ring, frame)| Some((ring, frame?.arrived_at())));
        waiting.min_by_key(|(_, arrived_at)| *arrived_at).expect("some is there").0
    }

    /// Where the kernel does not do it, others' frames are still told from ours.
    #[cold]
    fn set_filter(&self, on: bool) {
        let socket = self.small.socket();
        let done = if on {
            socket::attach_filter(socket, &filter::ether_frames_to(self.mac, self.endpoint))
        } else {
            socket::detach_filter(socket)
        };
        if let Err(error) = done {
            tracing::debug!("the filter of small frames stays as it is: {error}");
        }
    }

    #[cold]
    fn look_for_interface(&mut self) {
        self.gone |= sys::interface_is_gone(self.small.socket());
    }
}

/// One of the rings.
#[derive(Clone, Copy)]
enum Next {
    Small,
    Dressed,
    Placing,
}

#[inline]
fn parse<'a>(dress: Option<Offload>, frame: &Frame<'a>) -> Result<Parsed<'a>, Reject> {
    let (to, mac, endpoint, payload) = match dress {
        None => {
            let (header, payload) = ether::Header::parse(frame.bytes())?;
            (Some((header.dst_mac, header.dst)), header.src_mac, header.src, payload)
        }
        Some(Offload::SuperPackets) => {
            let vnet = frame.vnet_header().ok_or(Reject::Truncated)?;
            let (header, payload) = gso::Header::parse(vnet, frame.bytes())?;
            (None, header.src_mac, header.src, payload)
        }
        Some(Offload::Trains) => {
            let (header, payload) = train::Header::parse(frame.bytes())?;
            if header.kind != train::Kind::Frame {
                return Ok(Parsed::Probe(header, payload));
            }
            (None, header.src_mac, header.src, payload)
        }
    };
    Ok(Parsed::Frame(to, LinkAddr::Ether { mac, endpoint }, payload))
}

/// What a ring has.
enum Parsed<'a> {
    /// A frame: whose it is where no filter has told, the sender's address, and the payload.
    Frame(Option<Peer>, LinkAddr, &'a [u8]),
    /// A piece that asks, or tells, whether trains get through.
    Probe(train::Header, &'a [u8]),
}

/// Looks at the rings, of a few nanoseconds each, before a burst is empty (`bench/NOTES.md` 48).
const LOOKS: usize = 8;

/// How soon the end of the interface is seen by a sleeper. One that goes is down first: that wakes sleepers, and its end, some
/// milliseconds later, none that sleep again (`packet_notifier`, Linux 6.18).
const INTERFACE_TURN: Duration = Duration::from_millis(100);
