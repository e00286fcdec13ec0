//! A sleep that ends when a frame comes, on devices whose driver can wake a sleeper.
#![allow(unsafe_code)] // epoll(7), and a descriptor of DPDK's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::sys::{Queue, Shim};
use crate::event::Event;
use crate::socket;
use crate::time::Duration;

/// The receive interrupt of a queue, as an epoll(7) of our own.
pub struct Interrupt {
    shim: Shim,
    queue: Queue,
    epoll: OwnedFd,
}

impl Interrupt {
    /// That of a started port; `None` where its driver has none after all.
    pub fn new(shim: Shim, queue: Queue) -> Option<Self> {
        let fd = shim.rx_fd(queue)?;
        // SAFETY: takes no memory; the descriptor that comes back is ours alone.
        let epoll = unsafe { OwnedFd::from_raw_fd(socket::check(libc::epoll_create1(libc::EPOLL_CLOEXEC)).ok()?) };
        // Edges, as DPDK's own rte_epoll_wait has them: nobody reads the counters behind them, which stay above zero.
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: `event` lives through the call; whether `fd` is open the kernel checks.
        let added = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        socket::check(added).ok()?;
        Some(Self { shim, queue, epoll })
    }

    /// From now on, until [`Interrupt::disarm`], a frame that comes wakes. What came before does not: look once more.
    pub fn arm(&self) -> io::Result<()> {
        self.shim.rx_arm(self.queue)
    }

    /// Frames cost no system call at their sender any more.
    pub fn disarm(&self) {
        self.shim.rx_disarm(self.queue);
    }

    /// Sleeps, armed, until a frame comes or `wake` is raised, `limit` at most. A signal ends it early, and so does a frame from
    /// before.
    pub fn sleep(&self, wake: Option<&Event>, limit: Duration) -> io::Result<Woken> {
        let raised = socket::poll(&[self.epoll.as_fd()], wake, Some(limit))?;
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // Takes the edge, so that the next sleep is one.
        // SAFETY: room for the one event that is asked for.
        let edges = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, 0) };
        Ok(match (raised, edges) {
            (true, _) => Woken::Raised,
            (false, 1..) => Woken::Frame,
            (false, _) => Woken::Nothing,
        })
    }
}

/// What ended a sleep.
pub enum Woken {
    /// The device's interrupt.
    Frame,
    /// Another thread.
    Raised,
    /// Its time, or a signal.
    Nothing,
}
