//! Sending and receiving through the rings.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread::JoinHandle;

use super::doorbell;
use super::mapping::Bell;
use super::open::{MTU, socket_name};
use super::ring::Room;
use super::steward::{Command, Line, News};
use super::sys;
use super::waker::Alarm;
use super::wire::Wire;
use crate::clock;
use crate::time::{Duration, Instant};
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

/// An endpoint of a shared-memory domain. See [`super`] for what it promises.
pub struct ShmNic {
    pub(super) caps: Caps,
    pub(super) domain: String,
    pub(super) endpoint: u16,
    pub(super) peers_max: usize,
    pub(super) bell: Bell,
    pub(super) line: Line,
    /// News taken from the steward so far.
    pub(super) news_heard: u32,
    /// There was some since the last wait, so that the layer above may have what to do.
    pub(super) news_fresh: bool,
    /// Indexed by link.
    pub(super) peers: Vec<Option<Peer>>,
    /// The present peer of each number; a predecessor that is gone may be in `peers` beside it.
    pub(super) by_endpoint: HashMap<u16, u32>,
    /// Peers that frames were published to since the last flush, each once.
    pub(super) published: Vec<u32>,
    /// Whose ring the next burst begins with.
    pub(super) next_rx: usize,
    /// Connections with the next life of a peer whose last frames are not received yet.
    pub(super) successors: Vec<(u16, Wire)>,
    /// Some peer is gone and has a successor or no link: it is looked at until its frames are received.
    pub(super) leaving: bool,
    pub(super) counters: Counters,
    /// `None` until a waker is asked for.
    pub(super) alarm: Option<Arc<Alarm>>,
    pub(super) steward: Option<JoinHandle<()>>,
}

/// An endpoint that we have a link to, or that has one to us.
pub(super) struct Peer {
    endpoint: u16,
    /// The same, as frames are shown with it.
    addr: LinkAddr,
    /// The layer above holds a link.
    linked: bool,
    /// `None`: not connected yet.
    pub(super) wire: Option<Wire>,
    /// Nobody calls it any more, since the system forbids it; it may still call.
    forbidden: bool,
}

/// A lent part of the ring to one peer. Dropping it costs nothing: nobody knows of it.
struct Slot<'a> {
    index: u32,
    wire: &'a mut Wire,
    room: Room,
    published: &'a mut Vec<u32>,
    counters: &'a mut Counters,
}

impl Nic for ShmNic {
    const RELIABLE: bool = true;
    const NAME: &'static str = "shm";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Shm { endpoint } = to else { return Err(LinkError::WrongKind(to)) };
        if endpoint == self.endpoint {
            let reason = io::Error::new(io::ErrorKind::InvalidInput, "an endpoint has no link to itself");
            return Err(LinkError::Refused(to, reason));
        }
        self.hear_news();
        if let Some(&index) = self.by_endpoint.get(&endpoint)
            && let Some(peer) = &mut self.peers[index as usize]
        {
            match &peer.wire {
                Some(wire) if wire.is_done() => self.line.command(Command::HangUp(wire.number)),
                Some(wire) if wire.hung_up => {}
                _ => {
                    peer.linked = true;
                    return Ok(Link(index));
                }
            }
        }
        // Whoever has a number has a place, also in its next life.
        if self.by_endpoint.len() >= self.peers_max && !self.by_endpoint.contains_key(&endpoint) {
            return Err(LinkError::TableFull(self.peers_max));
        }
        let index = self.add(Peer { endpoint, addr: to, linked: true, wire: None, forbidden: false });
        self.line.command(Command::Dial(endpoint));
        Ok(Link(index))
    }

    fn link_back(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Shm { endpoint } = to else { return Err(LinkError::WrongKind(to)) };
        // News of later lives is not heard before the next burst: nobody is called for what a dead process had asked.
        let there =
            self.by_endpoint.get(&endpoint).and_then(|&index| Some((index, self.peers[index as usize].as_mut()?)));
        match there {
            Some((index, peer)) if peer.wire.as_ref().is_some_and(|wire| !wire.hung_up && !wire.is_done()) => {
                peer.linked = true;
                Ok(Link(index))
            }
            _ => Err(LinkError::Gone(to)),
        }
    }

    fn unlink(&mut self, link: Link) {
        let Some(Some(peer)) = self.peers.get_mut(link.0 as usize) else { return };
        peer.linked = false;
        self.leaving = true;
        if peer.wire.is_none() {
            let endpoint = peer.endpoint;
            self.remove(link.0);
            self.line.command(Command::Forget(endpoint));
        }
    }

    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        if self.has_news() || self.leaving {
            self.hear_news();
        }
        let mut left = budget;
        for _ in 0..self.peers.len() {
            if self.next_rx >= self.peers.len() {
                self.next_rx = 0;
            }
            if let Some(Peer { addr, wire: Some(wire), .. }) = &mut self.peers[self.next_rx] {
                let from = *addr;
                while left > 0 {
                    let counters = &mut self.counters;
                    let taken = wire.take(|frame| {
                        counters.rx_frames += 1;
                        counters.rx_bytes += frame.len() as u64;
                        each(frame, from);
                    });
                    let Some(starved) = taken else {
                        wire.was_empty = true;
                        break;
                    };
                    left -= 1;
                    if starved {
                        wire.wake();
                    }
                    // A second look fetches a line from the other core, and an answer to this frame would wait for it: mostly for
                    // nothing, where the frame before came alone too (bench/NOTES.md 49).
                    if std::mem::take(&mut wire.was_empty) {
                        break;
                    }
                }
            }
            if left == 0 {
                // This ring may have more: the next burst begins with another, so that none is starved.
                self.next_rx += 1;
                break;
            }
            self.next_rx += 1;
        }
        budget - left
    }

    // A slot that is handed over through memory is read before it has left the store buffer, behind the frames before it (`bench/NOTES.md`, 87).
    #[inline(always)]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len > MTU {
            return None;
        }
        let wire = self.peers.get_mut(link.0 as usize).and_then(Option::as_mut).and_then(|peer| peer.wire.as_mut());
        let Some((wire, room)) = wire.and_then(|wire| wire.reserve(len).map(|room| (wire, room))) else {
            self.counters.tx_full += 1;
            return None;
        };
        let (published, counters) = (&mut self.published, &mut self.counters);
        Some(Slot { index: link.0, wire, room, published, counters })
    }

    #[inline]
    fn flush(&mut self) {
        if self.published.is_empty() {
            return;
        }
        doorbell::published();
        for index in &self.published {
            if let Some(Peer { wire: Some(wire), .. }) = &mut self.peers[*index as usize] {
                wire.published = false;
                self.counters.wakes += u64::from(wire.ring());
            }
        }
        self.published.clear();
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        self.hear_news();
        let timeout = deadline.map_or(SLEEP_MAX, |deadline| deadline.since(clock::monotonic()).min(SLEEP_MAX));
        if mem::take(&mut self.news_fresh) || timeout.as_nanos() == 0 {
            return Ok(());
        }
        self.counters.waits += 1;
        let wait = |word: &_| sys::futex_wait(word, doorbell::ASLEEP, Some(timeout));
        let slept = doorbell::sleep(self.bell.word(), || self.is_ready(), wait);
        if let Some(alarm) = &self.alarm {
            alarm.knock().hear();
        }
        slept
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Ok(self.alarm.get_or_insert_with(|| Arc::new(Alarm::new(self.bell.clone()))).waker())
    }

    fn is_gone(&self, link: Link) -> bool {
        match self.peers.get(link.0 as usize) {
            Some(Some(Peer { wire: Some(wire), .. })) => wire.is_done(),
            Some(Some(peer)) => peer.forbidden,
            _ => true,
        }
    }

    fn counters(&self) -> Counters {
        Counters { peers_put_off: self.line.put_off(), peers_refused: self.line.refused(), ..self.counters }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl ShmNic {
    /// Whether nobody has `endpoint` of the domain now: who had it has left, or has ended. Asks the system.
    pub fn is_absent(&self, endpoint: u16) -> bool {
        let called = sys::connect(&socket_name(&self.domain, endpoint));
        called.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    #[inline]
    fn has_news(&self) -> bool {
        // Pairs with the Release in `Steward::tell`.
        self.line.news_sent.load(Ordering::Acquire) != self.news_heard
    }

    /// True when there is a reason not to sleep.
    pub(super) fn is_ready(&self) -> bool {
        // Room is asked after only where somebody may still want it.
        let has_work = |peer: &Peer| {
            peer.wire.as_ref().is_some_and(|wire| wire.rx.is_ready() || peer.linked && wire.tx.may_have_room())
        };
        let knocked = self.alarm.as_ref().is_some_and(|alarm| alarm.knock().is_knocked());
        knocked || self.has_news() || self.peers.iter().flatten().any(has_work)
    }

    #[cold]
    fn hear_news(&mut self) {
        while self.has_news() {
            let Ok(news) = self.line.news.try_recv() else { break };
            self.news_heard = self.news_heard.wrapping_add(1);
            self.news_fresh = true;
            match news {
                News::Up { endpoint, connection, shared, held } => {
                    self.connect(endpoint, Wire::new(connection, shared, held));
                }
                News::Forbidden { endpoint } => {
                    let index = self.by_endpoint.get(&endpoint).copied();
                    if let Some(peer) = index.and_then(|index| self.peers[index as usize].as_mut()) {
                        peer.forbidden = true;
                    }
                }
                News::Down { connection } => self.hang_up(connection),
            }
        }
        if self.leaving {
            self.forget_gone();
        }
    }

    fn connect(&mut self, endpoint: u16, wire: Wire) {
        let is_unread =
            |peer: &Peer| peer.endpoint == endpoint && peer.wire.as_ref().is_some_and(|wire| !wire.is_done());
        if self.peers.iter().flatten().any(is_unread) {
            self.successors.push((endpoint, wire));
            self.leaving = true;
        } else if let Some(&index) = self.by_endpoint.get(&endpoint)
            && let Some(peer @ Peer { wire: None, .. }) = &mut self.peers[index as usize]
        {
            peer.wire = Some(wire);
        } else {
            self.add(Peer {
                endpoint,
                addr: LinkAddr::Shm { endpoint },
                linked: false,
                wire: Some(wire),
                forbidden: false,
            });
        }
    }

    fn hang_up(&mut self, number: u64) {
        // A successor that is gone itself before it was let in.
        for (_, wire) in &mut self.successors {
            wire.hung_up |= wire.number == number;
        }
        for wire in self.peers.iter_mut().flatten().filter_map(|peer| peer.wire.as_mut()) {
            wire.hung_up |= wire.number == number;
        }
        self.leaving = true;
    }

    /// Frees what belongs to peers that are gone, have nothing unread, and no link; lets their successors in.
    fn forget_gone(&mut self) {
        self.leaving = false;
        for (endpoint, wire) in mem::take(&mut self.successors) {
            self.connect(endpoint, wire);
        }
        for index in 0..self.peers.len() {
            if let Some(Peer { linked: false, wire: Some(wire), .. }) = &self.peers[index] {
                if wire.is_done() {
                    self.line.command(Command::HangUp(wire.number));
                    self.remove(index as u32);
                } else {
                    self.leaving |= wire.hung_up;
                }
            }
        }
    }

    fn add(&mut self, peer: Peer) -> u32 {
        let index = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        if index == self.peers.len() {
            self.peers.push(None);
        }
        self.by_endpoint.insert(peer.endpoint, index as u32);
        self.peers[index] = Some(peer);
        index as u32
    }

    fn remove(&mut self, index: u32) {
        if let Some(peer) = self.peers[index as usize].take()
            && self.by_endpoint.get(&peer.endpoint) == Some(&index)
        {
            self.by_endpoint.remove(&peer.endpoint);
        }
        self.published.retain(|&published| published != index);
    }
}

impl Drop for ShmNic {
    fn drop(&mut self) {
        self.flush();
        self.line.command(Command::Stop);
        if let Some(steward) = self.steward.take() {
            let _ = steward.join();
        }
    }
}

impl TxSlot for Slot<'_> {
    #[inline]
    fn commit(self) {
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += self.room.len() as u64;
        self.wire.publish(self.room);
        if !self.wire.published {
            self.wire.published = true;
            self.published.push(self.index);
        }
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.wire.tx.payload(&self.room)
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.wire.tx.payload_mut(&mut self.room)
    }
}

/// Who wakes a sleeper may be stopped right before it does, and keeps others from it until it goes on: nobody sleeps through more than that.
const SLEEP_MAX: Duration = Duration::from_millis(1_000);

/// Peers of one endpoint, whoever called whom; a few more when both come at once. A pair's memory is 1.8 MiB, of which it has what was ever written.
pub(super) const PEERS_MAX: usize = 4096;
