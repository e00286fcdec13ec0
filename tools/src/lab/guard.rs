//! A killed tool ends nothing any more. So a process of its own waits for the tool's end, and ends what is left inside.
//!
//! The tool holds one end of a socket of which the guard reads the other: its end, however it comes, closes the socket. The guard
//! holds the namespaces open, so that none of their inode numbers can be another namespace's by then. They are sent to it: a tool
//! with file capabilities (`setcap`) has its descriptors in /proc where only root may open them.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use sidelane_nic::passing;

use super::{Lab, process};
use crate::guard;

/// The guard of a lab, for as long as this value lives. Then it ends by itself.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    /// `None` when the guard shall end.
    held: Option<UnixStream>,
}

impl Guard {
    /// Posts a guard; returns once it is on duty.
    pub fn post(lab: &Lab) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let namespaces: Vec<RawFd> = lab.hosts.iter().map(|host| host.entry.net.as_raw_fd()).collect();
        passing::send(ours.as_fd(), b"n", &namespaces, 0)?;
        Ok(Self { process: guard::post(&["lab", "guard"], OwnedFd::from(theirs))?, held: Some(ours) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.held.take());
        let _ = self.process.wait();
    }
}

/// The life of a guard, whose standard input is the socket.
pub fn stand() -> io::Result<()> {
    process::detach()?;
    let (_, namespaces) = passing::receive(io::stdin().as_fd(), &mut [0], 0)?;
    guard::on_duty()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    process::end_all(&namespaces.iter().collect::<Vec<_>>(), Duration::ZERO).map(drop)
}
