//! Lines that have come already, from a connection that others read too.
#![allow(unsafe_code)] // recv(2) that does not wait: others use the same socket; poll(2).

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::line::LINE_MAX;

/// The rank's end of its connection to the launcher, between its questions: only one of the two reads at a time.
#[derive(Debug)]
pub struct Arrived {
    stream: UnixStream,
    aside: Aside,
    /// For what is looked at before it is read.
    room: Box<[u8]>,
}

/// Read, and not yet told: whole lines only, but for the last one of a launcher that has gone. Who asks a question adds what is not its
/// answer.
pub type Aside = Arc<Mutex<Vec<u8>>>;

impl Arrived {
    pub fn new(stream: UnixStream, aside: Aside) -> Self {
        Self { stream, aside, room: vec![0; LINE_MAX].into() }
    }

    /// Where to write.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next line, with its newline; `None` when none has come, or the launcher has gone, which ends the job by itself. Never waits.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        let aside = Arc::clone(&self.aside);
        let mut aside = aside.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(end) = aside.iter().position(|byte| *byte == b'\n') {
                return Some(aside.drain(..=end).collect());
            }
            let seen = self.recv(LINE_MAX, libc::MSG_PEEK)?;
            // The rest stays: of a line that was begun here, the end would be taken for the answer to the next question.
            let whole = self.room[..seen].iter().rposition(|byte| *byte == b'\n')? + 1;
            let read = self.recv(whole, 0)?;
            aside.extend_from_slice(&self.room[..read]);
        }
    }

    /// Waits until something is there to be read, for so long at most. A signal may end that too.
    pub fn wait(&self, at_most: Duration) {
        let mut polled = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: One pollfd, alive during the call.
        unsafe { libc::poll(&raw mut polled, 1, at_most.as_millis() as i32) };
    }

    fn recv(&mut self, most: usize, flags: i32) -> Option<usize> {
        let (fd, room) = (self.stream.as_raw_fd(), &mut self.room[..most]);
        // SAFETY: `room` has so many bytes, and the descriptor is ours.
        let read = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT | flags) };
        usize::try_from(read).ok().filter(|read| *read > 0)
    }
}
