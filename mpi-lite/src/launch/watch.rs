//! News of ranks that have ended too early, which come unasked.
#![allow(unsafe_code)] // recv(2) that does not wait: others use the same socket.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::line::Line;
use super::reply::Reply;

/// The rank's end of its connection to the launcher, between its questions: only one of the two reads at a time.
#[derive(Debug)]
pub struct Watch {
    stream: UnixStream,
    /// Read, and not yet told: whole lines only, but for the last one of a launcher that has gone.
    bytes: Vec<u8>,
}

impl Watch {
    /// `bytes` have come already.
    pub(super) fn new(stream: UnixStream, bytes: Vec<u8>) -> Self {
        Self { stream, bytes }
    }

    /// A rank that is gone, if there is news of one. Never waits.
    pub fn poll(&mut self) -> Option<usize> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                match Line::parse(&line).and_then(|line| Reply::parse(&line)) {
                    Ok(Some(Reply::RankGone { rank })) => return Some(rank),
                    _ => continue,
                }
            }
            let mut room = [0u8; ROOM];
            let seen = self.recv(&mut room, libc::MSG_PEEK)?;
            // The rest stays: of a line that was begun here, the end would be taken for the answer to the next question.
            let whole = room[..seen].iter().rposition(|byte| *byte == b'\n')? + 1;
            let read = self.recv(&mut room[..whole], 0)?;
            self.bytes.extend_from_slice(&room[..read]);
        }
    }

    /// `None` when there is nothing, or the launcher has gone, which ends the job by itself.
    fn recv(&self, room: &mut [u8], flags: i32) -> Option<usize> {
        let (fd, at) = (self.stream.as_raw_fd(), room.as_mut_ptr().cast());
        // SAFETY: `room` has so many bytes, and the descriptor is ours.
        let read = unsafe { libc::recv(fd, at, room.len(), libc::MSG_DONTWAIT | flags) };
        usize::try_from(read).ok().filter(|read| *read > 0)
    }
}

/// Some news: one is about 30 bytes.
const ROOM: usize = 256;
