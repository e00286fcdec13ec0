//! The contract between a driver and the layer above it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use crate::time::Instant;
use crate::{Arrival, Caps, Counters, LinkAddr};

/// One receive/transmit queue pair, polled by one thread. Nothing blocks but [`Nic::wait`].
///
/// Frames are lent. A received frame is the driver's memory, readable for the length of one call of `each`; a transmit
/// buffer is the driver's memory too, written in place between [`Nic::tx_slot`] and [`TxSlot::commit`]. Nobody above owns,
/// counts or frees a frame: what has to be sent again is written again from the sender's own data.
pub trait Nic {
    /// Frames arrive exactly once, in order per sender, and unaltered, and a full peer pushes back through `tx_slot`.
    /// The layer above compiles its reliability out.
    const RELIABLE: bool;

    /// What `sidelane stat` calls this driver.
    const NAME: &'static str = "other";

    /// What this driver can do. Fixed since it was opened.
    fn caps(&self) -> &Caps;

    /// Prepares the way to `to` once, so that nothing is looked up per frame. The same address gives the same link.
    /// Never waits for the peer, which need not be there yet: then frames on this link are lost, or find no slot.
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError>;

    /// The way back to the sender of a frame that was shown: as [`Nic::link`], and none if the driver knows that it has gone since. Asked
    /// after further bursts, it may be the way to whoever has the address then.
    fn link_back(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.link(to)
    }

    /// The peer of this link is no stranger's invention: our user has named it, or it answered what only it can have got. From now
    /// on a driver may spend on it what it has little of, to make its frames cheaper. Everything works without it.
    fn confirm(&mut self, _link: Link) {}

    /// Forgets a link. Frames committed on it before the last flush may still go out.
    fn unlink(&mut self, link: Link);

    /// Shows received frames to `each` with their sender's address, at most `budget`; returns how many.
    /// Fewer than `budget` does not say that no more wait. The bytes are the driver's and are gone when `each` returns.
    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize;

    /// As [`Nic::rx_burst`]; of a frame that would have to be copied once more to be shown, only the beginning is.
    fn rx_arrivals(&mut self, budget: usize, mut each: impl FnMut(Arrival<'_>, LinkAddr)) -> usize {
        self.rx_burst(budget, |frame, from| each(Arrival::Whole(frame), from))
    }

    /// True when frames wait that the last [`Nic::rx_burst`] did not come to, however few it showed: not every driver asks all its
    /// queues each time. Asked seldom, so it may take a system call.
    fn has_unread(&mut self) -> bool {
        false
    }

    /// Lends a transmit buffer of exactly `len` bytes (at most [`Caps::mtu`], or `None`), with undefined content.
    /// `None` also when the ring is full: flush, receive, come again. Sent by `commit`, forgotten when dropped.
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_>;

    /// As [`Nic::tx_slot`], for a frame that ends in `tail`, which stays where it is: lends the `len` bytes before it, and
    /// `commit` sends the frame. `None` too where that saves no copy: then take [`Nic::tx_slot`].
    fn tx_slot_before<'a>(&'a mut self, _link: Link, _len: usize, _tail: &'a [u8]) -> Option<impl TxSlot + 'a> {
        None::<NoSlot>
    }

    /// Rings the doorbell for everything committed since the last flush. A driver may also send earlier.
    fn flush(&mut self);

    /// Sleeps until a frame may be there, or the time is `deadline` (`None`: no limit). May wake for nothing.
    /// Flushes first. Receive once more between the last empty burst and this call: the driver need not remember
    /// what arrived before it.
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()>;

    /// What ends [`Nic::wait`] from any thread: the one that is under way, or else one of the next that would sleep. Several
    /// wake-ups may become one; none is lost. All wakers of a driver are equal, and outlive it without harm. It costs nothing
    /// until it is asked for the first time.
    fn waker(&mut self) -> io::Result<Waker>;

    /// True once the driver knows that nothing sent on `link` can arrive any more (its process died, its
    /// interface is gone). False means only that nothing is known.
    fn is_gone(&self, link: Link) -> bool;

    /// What was counted since the driver was opened.
    fn counters(&self) -> Counters;

    /// What else the driver and its device can tell about frames that do not come, in words for people; `None`: nothing. Not
    /// for the hot path.
    fn diagnosis(&self) -> Option<String> {
        None
    }

    /// The time that deadlines are compared with.
    fn now(&self) -> Instant;
}

/// A way to one peer: an index into the driver's own table, cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link(pub u32);

/// A lent transmit buffer: the frame's payload, to be written in place.
pub trait TxSlot: Deref<Target = [u8]> + DerefMut {
    /// Hands the frame to the driver; the next [`Nic::flush`] sends it.
    fn commit(self);
}

/// The slot of a driver that lends none.
enum NoSlot {}

impl Deref for NoSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match *self {}
    }
}

impl DerefMut for NoSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        match *self {}
    }
}

impl TxSlot for NoSlot {
    fn commit(self) {
        match self {}
    }
}

/// Why there is no way to an address.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The address is of another driver's kind.
    #[error("{0} is not an address of this driver")]
    WrongKind(LinkAddr),
    /// The driver's table of links is full.
    #[error("no room for another peer: this driver holds {0}")]
    TableFull(usize),
    /// Whoever was to be answered has gone.
    #[error("{0} has gone")]
    Gone(LinkAddr),
    /// The system refused.
    #[error("no way to {0}: {1}")]
    Refused(LinkAddr, io::Error),
}
