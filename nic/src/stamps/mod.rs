//! White box: when did one message cross each border between user, protocol and driver?
//!
//! A driver that wraps a driver, so that no other code knows of it: an endpoint on a bare driver has not one instruction more.

mod buffer;

pub use buffer::{Reader, Writer, buffer};

use std::io;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use crate::clock::ticks;
use crate::time::Instant;
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

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
    sending: bool,
    receiving: bool,
    stamps: Stamps,
}

impl<N: Nic> Stamped<N> {
    /// Wraps `inner`. Nothing is stamped yet.
    pub fn new(inner: N) -> Self {
        Self { inner, sending: false, receiving: false, stamps: [0; BORDERS] }
    }

    /// The next frame that is sent shall be stamped. Costs five readings of the clock, once.
    pub fn stamp_sending(&mut self) {
        self.sending = true;
        self.stamps[Border::Asked as usize..=Border::Flushed as usize].fill(0);
    }

    /// Frames that are received shall be stamped until [`Self::take`]: the last one's stamps stay.
    pub fn stamp_receiving(&mut self) {
        self.receiving = true;
    }

    /// The stamps of both ways, which end here. The user adds its own.
    pub fn take(&mut self) -> Stamps {
        (self.sending, self.receiving) = (false, false);
        std::mem::replace(&mut self.stamps, [0; BORDERS])
    }
}

struct Slot<'a, S> {
    inner: S,
    stamps: Option<&'a mut Stamps>,
}

impl<N: Nic> Nic for Stamped<N> {
    const RELIABLE: bool = N::RELIABLE;
    const NAME: &'static str = N::NAME;

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.inner.link(to)
    }

    fn unlink(&mut self, link: Link) {
        self.inner.unlink(link);
    }

    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        if !self.receiving {
            return self.inner.rx_burst(budget, each);
        }
        let stamps = &mut self.stamps;
        self.inner.rx_burst(budget, |frame, from| {
            stamps[Border::Shown as usize] = ticks();
            each(frame, from);
            stamps[Border::Taken as usize] = ticks();
        })
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if !self.sending {
            return Some(Slot { inner: self.inner.tx_slot(link, len)?, stamps: None });
        }
        self.stamps[Border::Asked as usize] = ticks();
        let inner = self.inner.tx_slot(link, len)?;
        self.stamps[Border::Lent as usize] = ticks();
        Some(Slot { inner, stamps: Some(&mut self.stamps) })
    }

    fn tx_slot_before<'a>(&'a mut self, link: Link, len: usize, tail: &'a [u8]) -> Option<impl TxSlot + 'a> {
        self.inner.tx_slot_before(link, len, tail)
    }

    #[inline]
    fn flush(&mut self) {
        if !self.sending || self.stamps[Border::Committed as usize] == 0 {
            return self.inner.flush();
        }
        self.stamps[Border::Flush as usize] = ticks();
        self.inner.flush();
        self.stamps[Border::Flushed as usize] = ticks();
        self.sending = false;
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.inner.wait(deadline)
    }

    fn waker(&mut self) -> io::Result<Waker> {
        self.inner.waker()
    }

    fn is_gone(&self, link: Link) -> bool {
        self.inner.is_gone(link)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }
}

impl<S: TxSlot> TxSlot for Slot<'_, S> {
    #[inline]
    fn commit(self) {
        if let Some(stamps) = self.stamps {
            stamps[Border::Committed as usize] = ticks();
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

#[cfg(test)]
mod tests {
    use super::*;
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
        pass(&mut a, &mut b);
        assert_eq!((a.take(), b.take()), ([0; BORDERS], [0; BORDERS]), "once, and no more");
    }
}
