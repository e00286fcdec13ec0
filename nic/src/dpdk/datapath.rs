//! The hot path: frames in, frames out, and sleep.
#![allow(unsafe_code)] // The promise that one thread at a time uses a queue.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::Dpdk;
use super::device::Wire;
use super::frames::TxBatch;
use super::interrupt::Interrupt;
use crate::encap::{Reject, ether};
use crate::time::{Duration, Instant};
use crate::{Counters, Link, LinkAddr, TxSlot, clock, socket};

impl Dpdk {
    /// Shows at most `budget` frames; those that are not ours count against it too.
    #[inline]
    pub(super) fn receive(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let (mut shown, mut left) = (0, budget);
        while left > 0 && (!self.rx.is_empty() || self.fetch()) {
            let more = self.rx.is_whole();
            while left > 0
                && let Some(frame) = self.rx.show()
            {
                left -= 1;
                match ether::Header::parse(frame) {
                    Ok((header, payload)) if header.dst == self.endpoint && header.dst_mac == self.mac => {
                        self.counters.rx_frames += 1;
                        self.counters.rx_bytes += payload.len() as u64;
                        each(payload, LinkAddr::Ether { mac: header.src_mac, endpoint: header.src });
                        shown += 1;
                    }
                    Ok(_) | Err(Reject::Truncated | Reject::Foreign) => self.counters.rx_foreign += 1,
                }
            }
            // To ask again after a burst that was all there is would keep the answer to it waiting.
            if !more {
                break;
            }
        }
        shown
    }

    /// Receives without showing: what comes is shown next time.
    pub(super) fn look(&mut self) {
        if self.rx.is_empty() {
            self.fetch();
        }
    }

    /// Asks the device for a burst. False: nothing came.
    #[inline]
    fn fetch(&mut self) -> bool {
        match &self.port.steering {
            // SAFETY: the port is started, and its only endpoint is borrowed here.
            None => unsafe { self.rx.fetch(self.port.number, &mut self.in_pieces) },
            Some(steering) => {
                let mut steering = steering.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the port is started, and all its endpoints hold this lock while they use it.
                unsafe { steering.fetch(self.port.number, self.endpoint, &mut self.rx) };
            }
        }
        if self.rx.is_empty() && !self.tx.is_empty() {
            // The device did not take everything, and whoever only listens does not flush.
            self.transmit();
        }
        !self.rx.is_empty()
    }

    /// Lends an empty frame with the link's header in it.
    #[inline]
    pub(super) fn lend(&mut self, link: Link, len: usize) -> Option<Slot<'_>> {
        if len > self.caps.mtu {
            return None;
        }
        if self.tx.is_full() {
            self.transmit();
        }
        let header = self.links.get_mut(link)?;
        let full = self.tx.is_full();
        let frame = if full { None } else { self.tx.lend(self.port.pool(), ether::HEADER_LEN + len) };
        let Some(frame) = frame else {
            self.counters.tx_full += 1;
            return None;
        };
        frame[..ether::HEADER_LEN].copy_from_slice(header);
        frame[ether::LEN].copy_from_slice(&(len as u16).to_be_bytes());
        Some(Slot { tx: &mut self.tx, len: ether::HEADER_LEN + len })
    }

    /// Hands what was committed to the device. What it does not take goes at the next turn.
    #[inline]
    pub(super) fn transmit(&mut self) {
        if self.tx.is_empty() {
            return;
        }
        let (frames, bytes) = match &self.port.steering {
            // SAFETY: the port is started, and its only endpoint is borrowed here.
            None => unsafe { self.tx.send(self.port.number) },
            Some(steering) => {
                let _turn = steering.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the port is started, and all its endpoints hold this lock while they use it.
                unsafe { self.tx.send(self.port.number) }
            }
        };
        self.counters.tx_frames += frames as u64;
        self.counters.tx_bytes += (bytes - frames * ether::HEADER_LEN) as u64;
    }

    /// Sleeps until a frame comes or the deadline passes.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> std::io::Result<()> {
        self.transmit();
        self.counters.waits += 1;
        let Some(interrupt) = self.interrupt.take() else {
            return self.nap(deadline);
        };
        let slept = self.sleep_armed(&interrupt, deadline);
        interrupt.disarm();
        self.interrupt = Some(interrupt);
        slept
    }

    fn sleep_armed(&mut self, interrupt: &Interrupt, deadline: Option<Instant>) -> std::io::Result<()> {
        loop {
            interrupt.arm()?;
            match self.time_to_sleep(deadline) {
                Some(span) if interrupt.sleep(self.alarm.event(), span.min(WATCH))? => return Ok(()),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    /// Most of DPDK's drivers can't wake a sleeper, so this one looks now and then: the longer nothing came, the longer it
    /// sleeps, [`NAP_MAX`] at most.
    fn nap(&mut self, deadline: Option<Instant>) -> std::io::Result<()> {
        let mut nap = NAP_MIN;
        while let Some(span) = self.time_to_sleep(deadline) {
            if socket::poll(&[], false, self.alarm.event(), Some(span.min(nap)))? {
                break;
            }
            nap = nap.saturating_mul(2).min(NAP_MAX);
        }
        Ok(())
    }

    /// Time until the deadline; `None` when a frame is there, when none will come, and when the time has come.
    fn time_to_sleep(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        if !self.rx.is_empty() || self.fetch() || self.device_is_gone() {
            return None;
        }
        let left = deadline.map_or(Duration::from_nanos(u64::MAX), |deadline| deadline.since(clock::monotonic()));
        (left > Duration::ZERO).then_some(left)
    }

    /// Nothing arrives any more on any link.
    pub(super) fn device_is_gone(&self) -> bool {
        if self.port.device.wire == Wire::Network {
            return self.port.shim.is_removed(self.port.number);
        }
        let up = self.port.link_is_up();
        self.was_up.set(self.was_up.get() || up);
        self.was_up.get() && !up
    }

    pub(super) fn all_counters(&self) -> Counters {
        let mut counters = self.counters;
        let mut in_pieces = self.in_pieces;
        if let Some(steering) = &self.port.steering {
            let steering = steering.lock().unwrap_or_else(PoisonError::into_inner);
            counters.rx_dropped += steering.dropped(self.endpoint);
            // Nobody's frames are counted by everybody on the port.
            counters.rx_foreign += steering.foreign;
            in_pieces += steering.in_pieces;
        }
        counters.rx_foreign += in_pieces;
        if let Some(stats) = self.port.shim.stats(self.port.number) {
            counters.rx_dropped += stats.rx_missed + stats.rx_errors + stats.rx_no_mbuf;
            // A pair's driver counts as an error what it did not take, and that is not lost.
            if self.port.device.wire == Wire::Network {
                counters.tx_failed += stats.tx_errors;
            }
        }
        counters
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
/// How often a sleeper that is woken by frames looks whether the other side still lives: its end wakes nobody.
const WATCH: Duration = Duration::from_millis(10);
