//! Ending the sleep of a driver that sleeps on descriptors, from any thread: eventfd(2).
#![allow(unsafe_code)] // eventfd, read and write on a descriptor that we own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::socket::check;

/// A descriptor that is readable from [`Event::raise`] until [`Event::lower`].
pub(crate) struct Event(OwnedFd);

impl Event {
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain call; the descriptor that comes back is ours alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) }))
    }

    pub fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the kernel reads eight bytes. It can fail only when the counter is about to overflow, thus is raised.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes back all raises so far.
    pub fn lower(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the kernel writes eight bytes. It fails when nothing was raised, which is as well.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

/// A driver's event, made when its waker is first asked for.
#[derive(Default)]
pub(crate) struct Alarm(Option<Arc<Event>>);

impl Alarm {
    pub fn waker(&mut self) -> io::Result<Waker> {
        let event = match &self.0 {
            Some(event) => Arc::clone(event),
            None => Arc::clone(self.0.insert(Arc::new(Event::new()?))),
        };
        Ok(Waker::from(event))
    }

    /// What to poll besides; `None` while there is no waker.
    pub fn event(&self) -> Option<&Event> {
        self.0.as_deref()
    }
}
