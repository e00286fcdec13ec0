//! What this command says to a rank. A rank that does not read makes nobody wait: what finds no room in its socket is kept, so that
//! the job's loop hears the others, and signals.
#![allow(unsafe_code)] // send(2) that does not wait: another thread waits for what the rank says by the same socket.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The launcher's end of a rank's connection.
#[derive(Debug)]
pub struct Answers {
    socket: UnixStream,
    /// Said, and not yet in the socket.
    kept: Vec<u8>,
}

/// A rank has left more unread than is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread;

impl Answers {
    /// Nothing was said yet.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, kept: Vec::new() }
    }

    /// Another descriptor of the socket, for who hears the rank.
    pub fn hear(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// Says a line. What cannot be said to a rank that has gone is forgotten: its end is judged by itself.
    pub fn say(&mut self, line: &[u8]) -> Result<(), Unread> {
        if self.kept.len() + line.len() > KEPT_MAX {
            return Err(Unread);
        }
        self.kept.extend_from_slice(line);
        self.go_on();
        Ok(())
    }

    /// Hands over as much as there is room for by now.
    pub fn go_on(&mut self) {
        let mut sent = 0;
        while sent < self.kept.len() {
            let rest = &self.kept[sent..];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: `rest` is readable for its length through the call.
            let outcome = unsafe { libc::send(self.socket.as_raw_fd(), rest.as_ptr().cast(), rest.len(), flags) };
            match usize::try_from(outcome) {
                Ok(count) => sent += count,
                Err(_) => match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                        sent = self.kept.len();
                    }
                    // No room, or no memory for it.
                    _ => break,
                },
            }
        }
        self.kept.drain(..sent);
    }

    /// Whether something is still to be handed over.
    pub fn are_kept(&self) -> bool {
        !self.kept.is_empty()
    }
}

/// A rank that asks and reads leaves nothing. One that is told of others' ends, of thousands in a job, may compute meanwhile.
const KEPT_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    /// Ours with little room, whatever this machine gives sockets, and theirs, which nobody waits at for ever.
    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let room: libc::c_int = 64 << 10;
        // SAFETY: the option's value is read from `room`, of which this is the length.
        let set = unsafe {
            let len = size_of_val(&room) as libc::socklen_t;
            libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const room).cast(), len)
        };
        assert_eq!(set, 0);
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (ours, theirs)
    }

    #[test]
    fn who_does_not_read_is_not_waited_for_and_misses_nothing_later() {
        let (ours, mut theirs) = pair();
        let mut answers = Answers::new(ours);
        // One after the other, each costs a socket far more than its bytes.
        let lines: Vec<String> = (0..10_000).map(|rank| format!("cmd=rank_gone rank={rank}\n")).collect();
        lines.iter().for_each(|line| answers.say(line.as_bytes()).unwrap());
        assert!(answers.are_kept());
        let all = lines.concat();
        let mut read = Vec::new();
        while read.len() < all.len() {
            let mut room = [0; 4096];
            let count = theirs.read(&mut room).unwrap();
            read.extend_from_slice(&room[..count]);
            answers.go_on();
        }
        assert!(read == all.as_bytes() && !answers.are_kept());
    }

    #[test]
    fn who_never_reads_is_told_so_much_and_no_more_and_who_has_gone_nothing() {
        let (ours, theirs) = pair();
        let mut answers = Answers::new(ours);
        let line = vec![b'x'; 64 << 10];
        let said = (0..1_000).take_while(|_| answers.say(&line).is_ok()).count();
        assert!((64..128).contains(&said), "{said}");
        drop(theirs);
        answers.go_on();
        assert!(!answers.are_kept());
        answers.say(&line).unwrap();
    }
}
