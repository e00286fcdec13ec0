//! White box: when did one message cross each border between user, protocol and driver?
//!
//! A driver that wraps a driver, so that no other code knows of it: an endpoint on a bare driver has not one instruction more.

mod buffer;
#[cfg(all(loom, test))]
mod models;

pub use buffer::{Reader, Writer, buffer};

use std::ops::{Deref, DerefMut};

use crate::clock::ticks;
use crate::{Link, LinkAddr, Nic, TxSlot, forward};

/// A border that a message crosses on its way. The driver's are stamped by [`Stamped`], the user's by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Border {
    /// The user hands the message over.
    Send,
    /// The protocol asks the driver for a buffer.
    Asked,
    /// The driver has lent it.
    Lent,
    /// The protocol has written the frame.
    Committed,
    /// The protocol rings the doorbell.
    Flush,
    /// The driver comes back from that.
    Flushed,
    /// At the receiver, the driver shows the frame.
    Shown,
    /// The protocol has taken it in.
    Taken,
    /// The user sees the message: takes it, or its handler begins.
    Received,
    /// The user goes on: where a handler ran, out of the call that ran it.
    Returned,
}

/// Borders in all.
pub const BORDERS: usize = Border::Returned as usize + 1;

/// Ticks ([`crate::clock::ticks`]) by [`Border`]; 0: not crossed.
pub type Stamps = [u64; BORDERS];

/// Stamps the next frame each way when it is asked to.
pub struct Stamped<N> {
    inner: N,
    wanted: Borders,
    /// A frame was committed since it was asked for stamps of one that is sent.
    committed: bool,
    stamps: Stamps,
}

/// A set of borders.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Borders(u16);

impl Borders {
    const NONE: Self = Self(0);
    const SENDING: Self = Self::from_to(Border::Asked, Border::Flushed);
    const RECEIVING: Self = Self::from_to(Border::Shown, Border::Taken);

    const fn from_to(first: Border, last: Border) -> Self {
        Self((1 << (last as u16 + 1)) - (1 << first as u16))
    }

    #[inline]
    const fn any_of(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    #[inline]
    const fn has(self, border: Border) -> bool {
        self.any_of(Self::from_to(border, border))
    }
}

impl<N: Nic> Stamped<N> {
    /// Wraps `inner`. Nothing is stamped yet.
    pub fn new(inner: N) -> Self {
        Self { inner, wanted: Borders::NONE, committed: false, stamps: [0; BORDERS] }
    }

    /// The next frame that is sent shall be stamped. Costs five readings of the clock, once.
    pub fn stamp_sending(&mut self) {
        self.want(Borders::SENDING);
    }

    /// Frames that are received shall be stamped until [`Self::take`]: the last one's stamps stay.
    pub fn stamp_receiving(&mut self) {
        self.want(Borders::RECEIVING);
    }

    /// One border of the next frame that is sent, or of those that are received until [`Self::take`], shall be stamped: one reading of
    /// the clock, which delays nothing that is stamped.
    pub fn stamp_only(&mut self, border: Border) {
        self.want(Borders::from_to(border, border));
    }

    fn want(&mut self, borders: Borders) {
        if borders.any_of(Borders::SENDING) {
            self.committed = false;
            self.stamps[Border::Asked as usize..=Border::Flushed as usize].fill(0);
        }
        self.wanted.0 |= borders.0;
    }

    /// Has the driver within lend a slot, and stamps that if it is asked for.
    #[inline]
    fn lend<'a, S: TxSlot>(&'a mut self, lend: impl FnOnce(&'a mut N) -> Option<S>) -> Option<Slot<'a, S>> {
        let Self { inner, stamps, wanted, committed } = self;
        if !wanted.any_of(Borders::SENDING) {
            return Some(Slot { inner: lend(inner)?, commit: None });
        }
        if wanted.has(Border::Asked) {
            stamps[Border::Asked as usize] = ticks();
        }
        let inner = lend(inner)?;
        if wanted.has(Border::Lent) {
            stamps[Border::Lent as usize] = ticks();
        }
        let at = wanted.has(Border::Committed).then_some(&mut stamps[Border::Committed as usize]);
        Some(Slot { inner, commit: Some((at, committed)) })
    }

    /// The stamps of both ways, which end here. The user adds its own.
    pub fn take(&mut self) -> Stamps {
        self.wanted = Borders::NONE;
        std::mem::replace(&mut self.stamps, [0; BORDERS])
    }
}

struct Slot<'a, S> {
    inner: S,
    /// Of a frame of which something is stamped: when it was committed, and that it was.
    commit: Option<(Option<&'a mut u64>, &'a mut bool)>,
}

impl<N: Nic> Nic for Stamped<N> {
    const RELIABLE: bool = N::RELIABLE;
    const NAME: &'static str = N::NAME;

    forward!(inner: caps, link, link_back, confirm, unlink, has_unread, wait, waker, is_gone, counters, diagnosis, now);

    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        if !self.wanted.any_of(Borders::RECEIVING) {
            return self.inner.rx_burst(budget, each);
        }
        let Self { inner, stamps, wanted, .. } = self;
        inner.rx_burst(budget, |frame, from| {
            if wanted.has(Border::Shown) {
                stamps[Border::Shown as usize] = ticks();
            }
            each(frame, from);
            if wanted.has(Border::Taken) {
                stamps[Border::Taken as usize] = ticks();
            }
        })
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        self.lend(|inner| inner.tx_slot(link, len))
    }

    #[inline]
    fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<impl TxSlot + 'a> {
        self.lend(|inner| inner.tx_slot_before(link, len, tail))
    }

    #[inline]
    fn flush(&mut self) {
        if !self.wanted.any_of(Borders::SENDING) || !self.committed {
            return self.inner.flush();
        }
        if self.wanted.has(Border::Flush) {
            self.stamps[Border::Flush as usize] = ticks();
        }
        self.inner.flush();
        if self.wanted.has(Border::Flushed) {
            self.stamps[Border::Flushed as usize] = ticks();
        }
        self.wanted.0 &= !Borders::SENDING.0;
    }
}

impl<S: TxSlot> TxSlot for Slot<'_, S> {
    #[inline]
    fn commit(self) {
        if let Some((at, committed)) = self.commit {
            if let Some(at) = at {
                *at = ticks();
            }
            *committed = true;
        }
        self.inner.commit();
    }
}

impl<S: TxSlot> Deref for Slot<'_, S> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.inner
    }
}

impl<S: TxSlot> DerefMut for Slot<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.inner
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::OwnSlot;
    use crate::mem::{Config, Fabric};

    #[test]
    fn only_what_is_asked_for_is_stamped_and_in_order() {
        let fabric = Fabric::new(0);
        let (mut a, mut b) = (Stamped::new(fabric.nic(Config::default())), Stamped::new(fabric.nic(Config::default())));
        let link = a.link(b.caps().addr).unwrap();
        let pass = |a: &mut Stamped<_>, b: &mut Stamped<_>| {
            a.tx_slot(link, 8).unwrap().commit();
            a.flush();
            fabric.advance_to(b.now() + crate::time::Duration::from_millis(1));
            assert_eq!(b.rx_burst(8, |_, _| {}), 1);
        };
        pass(&mut a, &mut b);
        assert_eq!((a.take(), b.take()), ([0; BORDERS], [0; BORDERS]));
        a.stamp_sending();
        b.stamp_receiving();
        pass(&mut a, &mut b);
        let (sent, received) = (a.take(), b.take());
        let way = [
            &sent[Border::Asked as usize..=Border::Flushed as usize],
            &received[Border::Shown as usize..=Border::Taken as usize],
        ]
        .concat();
        assert!(way.is_sorted() && way[0] > 0, "{way:?}");
        for only in [Border::Asked, Border::Lent, Border::Committed, Border::Flush, Border::Flushed] {
            a.stamp_only(only);
            pass(&mut a, &mut b);
            let stamps = a.take();
            assert!(stamps[only as usize] > 0 && stamps.iter().filter(|stamp| **stamp > 0).count() == 1, "{stamps:?}");
        }
        pass(&mut a, &mut b);
        assert_eq!((a.take(), b.take()), ([0; BORDERS], [0; BORDERS]), "once, and no more");
    }

    #[test]
    fn the_next_frame_is_stamped_and_no_flush_before_it_and_no_frame_behind_it() {
        let fabric = Fabric::new(0);
        let mut a = Stamped::new(fabric.nic(Config::default()));
        let link = a.link(fabric.nic(Config::default()).caps().addr).unwrap();
        let send = |a: &mut Stamped<_>| {
            a.tx_slot(link, 8).unwrap().commit();
            a.flush();
        };
        for _ in 0..2 {
            a.stamp_only(Border::Flushed);
            a.flush();
            let before = ticks();
            send(&mut a);
            let after = ticks();
            send(&mut a);
            let flushed = a.take()[Border::Flushed as usize];
            assert!((before..=after).contains(&flushed), "{before} {flushed} {after}");
        }
        a.stamp_sending();
        send(&mut a);
        a.stamp_only(Border::Asked);
        assert_eq!(a.take(), [0; BORDERS], "those of an earlier frame are gone");
    }

    #[test]
    fn frames_are_shown_while_they_are_stamped() {
        let fabric = Fabric::new(0);
        let (mut a, mut b) = (fabric.nic(Config::default()), Stamped::new(fabric.nic(Config::default())));
        let link = a.link(b.caps().addr).unwrap();
        for only in [Border::Shown, Border::Taken] {
            a.tx_slot(link, 8).unwrap().commit();
            a.flush();
            fabric.advance_to(b.now() + crate::time::Duration::from_millis(1));
            b.stamp_only(only);
            let mut shown = 0;
            assert_eq!(b.rx_burst(8, |frame, _| shown += frame.len()), 1);
            assert_eq!(shown, 8);
            let stamps = b.take();
            assert!(stamps[only as usize] > 0 && stamps.iter().filter(|stamp| **stamp > 0).count() == 1, "{stamps:?}");
        }
    }

    /// Lends slots before a tail, which it copies.
    struct Before<N>(N);

    impl<N: Nic> Nic for Before<N> {
        const RELIABLE: bool = N::RELIABLE;

        forward!(0: caps, link, unlink, rx_burst, tx_slot, flush, wait, waker, is_gone, counters, now);

        fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<impl TxSlot + 'a> {
            let send = move |frame: Vec<u8>| {
                let mut slot = self.0.tx_slot(link, len + tail.len()).unwrap();
                slot.copy_from_slice(&[&frame, tail].concat());
                slot.commit();
            };
            Some(OwnSlot::new(vec![0; len], send))
        }
    }

    #[test]
    fn frames_that_end_elsewhere_are_stamped_too() {
        let fabric = Fabric::new(0);
        let mut a = Stamped::new(Before(fabric.nic(Config::default())));
        let link = a.link(fabric.nic(Config::default()).caps().addr).unwrap();
        a.stamp_sending();
        a.tx_slot_before(link, 8, b"tail").unwrap().commit();
        a.flush();
        let stamps = a.take();
        let way = &stamps[Border::Asked as usize..=Border::Flushed as usize];
        assert!(way.is_sorted() && way[0] > 0, "{way:?}");
    }
}
