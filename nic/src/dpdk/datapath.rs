//! What a driver does: frames in, frames out, and sleep.
#![allow(unsafe_code)] // The promise that one thread at a time uses a queue.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::device::Wire;
use super::frames::TxBatch;
use super::interrupt::{Interrupt, Woken};
use super::sharing::Sharing;
use super::{Dpdk, Way, diagnosis, open};
use crate::encap::{Reject, ether};
use crate::time::{Duration, Instant};
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot, clock, socket};

impl Nic for Dpdk {
    const RELIABLE: bool = false;
    const NAME: &'static str = "dpdk";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Ether { mac, endpoint } = to else { return Err(LinkError::WrongKind(to)) };
        let (src_mac, src) = (self.place.mac, self.endpoint);
        // What was shown last may be of a peer that has gone, and then so is the link.
        let life = self.received_life;
        if self.port.device.is_pair {
            self.links.supersede(to, |way| way.life != life);
        }
        let header = || ether::Header { dst_mac: mac, src_mac, dst: endpoint, src, len: 0 }.emit();
        self.links.link(to, || Ok(Way { header: header(), life }))
    }

    fn unlink(&mut self, link: Link) {
        self.links.unlink(link);
    }

    /// Shows at most `budget` frames; those that are not ours count against it too.
    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let (mut shown, mut left) = (0, budget);
        while left > 0 && (!self.rx.is_empty() || self.fetch(left == budget)) {
            let more = self.rx.is_whole();
            while left > 0
                && let Some(frame) = self.rx.show()
            {
                left -= 1;
                match ether::Header::parse(frame) {
                    Ok((header, payload)) if header.dst == self.endpoint && header.dst_mac == self.place.mac => {
                        self.counters.rx_frames += 1;
                        self.counters.rx_bytes += payload.len() as u64;
                        each(payload, LinkAddr::Ether { mac: header.src_mac, endpoint: header.src });
                        shown += 1;
                    }
                    Ok(_) | Err(Reject::Truncated | Reject::Foreign) => self.counters.rx_foreign += 1,
                }
            }
            // To ask again after a burst that was all there is would keep the answer to it waiting. And links for frames of a peer
            // that has gone are made before another's are shown.
            if !more || self.received_life != self.peers_gone() {
                break;
            }
        }
        shown
    }

    fn has_unread(&mut self) -> bool {
        !self.rx.is_empty() || self.look(true)
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len > self.caps.mtu {
            return None;
        }
        if self.tx.is_due() {
            self.transmit_early();
        }
        if self.peers_gone() != self.life {
            self.turn_to_next_life();
        }
        let way = self.links.get(link)?;
        if way.life != self.life && self.port.device.is_pair {
            return None;
        }
        let Some(frame) = self.tx.lend(&self.port, &mut self.rx, ether::HEADER_LEN + len) else {
            self.counters.tx_full += 1;
            return None;
        };
        frame[..ether::HEADER_LEN].copy_from_slice(&way.header);
        frame[ether::LEN].copy_from_slice(&(len as u16).to_be_bytes());
        Some(Slot { tx: &mut self.tx, len: ether::HEADER_LEN + len })
    }

    #[inline]
    fn flush(&mut self) {
        if self.tx.is_empty() {
            return;
        }
        let (frames, bytes) = match (&self.queue, &self.port.sharing) {
            // SAFETY: the port is started, and the queue's only endpoint is borrowed here.
            (Some(queue), _) => unsafe { self.tx.send(queue, self.life) },
            // SAFETY: the port is started, and all its endpoints send by the dealer.
            (None, Some(Sharing::Dealt(dealer))) => unsafe { dealer.send(self.place, &mut self.tx, self.life) },
            (None, _) => unreachable!("what is not dealt has a queue"),
        };
        self.rest.on_sent(frames);
        self.counters.tx_frames += frames as u64;
        self.counters.tx_bytes += (bytes - frames * ether::HEADER_LEN) as u64;
        if !self.tx.is_empty() {
            self.turn_to_next_life();
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        self.counters.waits += 1;
        let Some(interrupt) = self.interrupt.take() else {
            return self.nap(deadline);
        };
        let slept = self.sleep_armed(&interrupt, deadline);
        interrupt.disarm();
        if self.missed < MISSED_MAX {
            self.interrupt = Some(interrupt);
        } else {
            tracing::debug!(target: "dpdk", "{} does not wake: from now on it is looked at", self.port.driver);
        }
        slept
    }

    fn waker(&mut self) -> io::Result<Waker> {
        self.alarm.waker()
    }

    fn is_gone(&self, _link: Link) -> bool {
        self.device_is_gone()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(Sharing::Dealt(dealer)) = &self.port.sharing {
            let (dropped, foreign) = dealer.lost(self.place);
            counters.rx_dropped += dropped;
            // Nobody's frames are counted by everybody on the port.
            counters.rx_foreign += foreign;
        }
        if let Some(stats) = self.port.stats() {
            counters.rx_dropped += stats.rx_missed + stats.rx_errors + stats.rx_no_mbuf + stats.rx_left;
            // A pair's driver counts as an error what it did not take, and that is not lost.
            if self.port.device.wire == Wire::Network {
                counters.tx_failed += stats.tx_errors;
            }
        }
        counters
    }

    fn diagnosis(&self) -> Option<String> {
        Some(diagnosis::of_ports(&open::ports()))
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl Dpdk {
    /// As [`Self::look`], of who looks again and again.
    #[inline]
    fn fetch(&mut self, is_first: bool) -> bool {
        self.rest.take();
        let came = self.look(is_first);
        self.rest.on_look(came);
        came
    }

    /// Asks the device for a burst. False: nothing came. `is_first`: all that was shown before has its links.
    #[inline]
    fn look(&mut self, is_first: bool) -> bool {
        self.fetch_of_this_life();
        !self.rx.is_empty()
            || (self.peers_gone() != self.received_life || !self.tx.is_empty()) && self.fetch_after_nothing(is_first)
    }

    #[inline]
    fn fetch_of_this_life(&mut self) {
        let life = self.received_life;
        match (&self.queue, &self.port.sharing) {
            // SAFETY: the port is started, and the queue's only endpoint is borrowed here.
            (Some(queue), _) => unsafe { self.rx.fetch(queue, life) },
            // SAFETY: the port is started, and all its endpoints receive by the dealer.
            (None, Some(Sharing::Dealt(dealer))) => unsafe { dealer.fetch(self.place, &mut self.rx, life) },
            (None, _) => unreachable!("what is not dealt has a queue"),
        }
    }

    /// Nothing came, and maybe since it is of the next life.
    #[inline(never)]
    fn fetch_after_nothing(&mut self, is_first: bool) -> bool {
        if is_first && self.peers_gone() != self.received_life {
            self.receive_from_next_life();
            self.fetch_of_this_life();
        }
        if self.rx.is_empty() && !self.tx.is_empty() {
            // The device did not take everything, and whoever only listens does not flush.
            self.transmit_early();
        }
        !self.rx.is_empty()
    }

    /// What a peer left was taken over before its end was counted.
    fn receive_from_next_life(&mut self) {
        let gone = self.peers_gone();
        if self.port.shim.left(self.port.number) == 0 {
            self.received_life = gone;
        }
    }

    /// Without a flush: out of line, since a lone frame never needs it.
    #[inline(never)]
    fn transmit_early(&mut self) {
        self.flush();
    }

    /// What was to go to a peer that is gone is not for the next one.
    #[cold]
    fn turn_to_next_life(&mut self) {
        let gone = self.peers_gone();
        if gone != self.life {
            self.counters.tx_failed += self.tx.forget_staged() as u64;
            self.life = gone;
        }
    }

    /// Peers that have gone since DPDK was started.
    #[inline]
    fn peers_gone(&self) -> u32 {
        // Pairs with the Release in `lives_after_handler`: what the last one left is there.
        self.lives.load(Ordering::Acquire)
    }

    fn sleep_armed(&mut self, interrupt: &Interrupt, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            interrupt.arm()?;
            match self.time_to_sleep(deadline) {
                Some(span) => match interrupt.sleep(self.alarm.event(), span.min(WATCH))? {
                    Woken::Raised => return Ok(()),
                    Woken::Frame => self.missed = 0,
                    // Some drivers take the order for an interrupt, and none comes.
                    Woken::Nothing => self.missed += u32::from(self.look(true) && self.has_own()),
                },
                None => return Ok(()),
            }
        }
    }

    /// Most of DPDK's drivers can't wake a sleeper, so this one looks now and then: the longer nothing came, the longer it
    /// sleeps, [`NAP_MAX`] at most.
    fn nap(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let mut nap = NAP_MIN;
        while let Some(span) = self.time_to_sleep(deadline) {
            if socket::poll(&[], self.alarm.event(), Some(span.min(nap)))? {
                break;
            }
            nap = nap.saturating_mul(2).min(NAP_MAX);
        }
        Ok(())
    }

    /// Time until the deadline; `None` when a frame is there, when whoever would send one is gone and nobody was told, and when the
    /// time has come.
    fn time_to_sleep(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        self.port.look_for_the_end();
        if self.has_own() || self.look(true) && self.has_own() {
            return None;
        }
        if self.port.device.is_pair {
            if std::mem::replace(&mut self.told_life, self.received_life) != self.received_life {
                return None;
            }
        } else if self.device_is_gone() {
            // Once: a server sleeps until the next one comes. One that came and went meanwhile is missed only by who had its frames.
            let passed = Some(self.frames_passed());
            if std::mem::replace(&mut self.told_gone, passed) != passed {
                return None;
            }
        } else {
            self.told_gone = None;
        }
        let left = deadline.map_or(Duration::from_nanos(u64::MAX), |deadline| deadline.since(clock::monotonic()));
        (left > Duration::ZERO).then_some(left)
    }

    /// True when a frame of ours waits to be shown. Others before it are dropped, or on a busy network no sleep would be one.
    fn has_own(&mut self) -> bool {
        while let Some(frame) = self.rx.peek() {
            let header = ether::Header::parse(frame);
            if header.is_ok_and(|(header, _)| header.dst == self.endpoint && header.dst_mac == self.place.mac) {
                return true;
            }
            self.rx.show();
            self.counters.rx_foreign += 1;
        }
        false
    }

    /// Nothing arrives any more on any link.
    pub(super) fn device_is_gone(&self) -> bool {
        if self.port.device.wire == Wire::Network {
            return self.port.shim.is_removed(self.port.number);
        }
        let up = self.port.link_is_up();
        // The other side may come and go between two of these questions: then it is known by its frames.
        let met = self.frames_passed() > 0;
        self.was_up.set(self.was_up.get() || up || met);
        self.was_up.get() && !up
    }

    /// Frames of ours, both ways.
    fn frames_passed(&self) -> u64 {
        self.counters.rx_frames + self.counters.tx_frames
    }

    /// The peer that a pair's link was made for is gone, and everything that it had sent was shown.
    pub(super) fn peer_is_gone(&self, link: Link) -> bool {
        let Some(way) = self.links.get(link) else { return true };
        self.port.look_for_the_end();
        let gone = self.received_life.wrapping_sub(way.life).cast_signed() > 0;
        // A server has another peer one day; a client never.
        gone || self.port.device.wire == Wire::PairClient && self.received_life != self.port.lives_before
    }

    /// Sends what the peer's full ring did not take, as long as there is a peer and time.
    pub(super) fn drain(&mut self, give_up: Instant) {
        while !self.tx.is_empty() && self.port.link_is_up() && clock::monotonic() < give_up {
            self.flush();
            if !self.tx.is_empty() {
                std::thread::sleep(NAP_MIN.into());
            }
        }
    }
}

/// A lent transmit buffer. Dropped without `commit`, it was never taken.
pub(super) struct Slot<'a> {
    tx: &'a mut TxBatch,
    /// Header and payload.
    len: usize,
}

impl Deref for Slot<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.tx.lent(self.len)[ether::HEADER_LEN..]
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.tx.lent_mut(self.len)[ether::HEADER_LEN..]
    }
}

impl TxSlot for Slot<'_> {
    #[inline]
    fn commit(self) {
        self.tx.stage(self.len);
    }
}

/// The kernel adds some 50 µs of its own to every sleep (prctl(2), PR_SET_TIMERSLACK).
const NAP_MIN: Duration = Duration::from_micros(10);
/// About 3,000 wake-ups a second at most: some 3 % of a core.
const NAP_MAX: Duration = Duration::from_micros(250);
/// Frames in a row that woke nobody. One may have come in the moment between a sleep's end and the look.
const MISSED_MAX: u32 = 3;
/// How often a sleeper that is woken by frames looks whether the other side still lives: its end wakes nobody.
const WATCH: Duration = Duration::from_millis(10);
