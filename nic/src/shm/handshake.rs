//! How two endpoints come to share memory: one message each way over a socket, with descriptors beside it.
//!
//! The dialler sends its number, the memory of the pair and its doorbell; the answerer its number and its doorbell.
//! The socket stays open without another word: when it closes, the other process is gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::cells::Cells;
use super::mapping::{Bell, PAIR_BYTES, Ring, map_pair, sealed_memory};
use super::sys::{self, Socket};
use crate::passing;
use crate::rights;

/// What one endpoint tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    endpoint: u16,
}

/// The memory that two endpoints share, from one's point of view.
pub(super) struct Shared {
    pub(super) tx: Ring,
    pub(super) rx: Ring,
    pub(super) cells: Cells,
    /// The peer's doorbell.
    pub(super) bell: Bell,
}

/// A dialler that waits for the answer.
pub(super) struct Asked {
    pub(super) socket: Socket,
    memory: OwnedFd,
}

/// Dials the endpoint at `name`. Never waits.
pub(super) fn dial(name: &str, own: u16, bell: &OwnedFd) -> io::Result<Asked> {
    let socket = sys::connect(name)?;
    same_user(&socket)?;
    let memory = sealed_memory(PAIR_BYTES)?;
    let hello = Hello { endpoint: own }.emit();
    passing::send(socket.as_fd(), &hello, &[memory.as_raw_fd(), bell.as_raw_fd()], libc::MSG_DONTWAIT)?;
    Ok(Asked { socket, memory })
}

impl Asked {
    /// Reads the answer of `peer`, once the socket is readable.
    pub(super) fn conclude(&self, peer: u16) -> io::Result<Shared> {
        let (hello, [bell]) = receive(&self.socket)?;
        if hello.endpoint != peer {
            return Err(refusal("the answer of another endpoint than was asked"));
        }
        let [tx, rx] = map_pair(&self.memory)?;
        Ok(Shared { tx, rx, cells: Cells::new(true), bell: Bell::map(&bell)? })
    }
}

/// A dialler's greeting, received and not answered.
pub(super) struct Greeting {
    /// Who dials.
    pub(super) endpoint: u16,
    shared: Shared,
}

/// Reads a dialler's greeting, once the socket is readable.
pub(super) fn greeting(socket: &Socket) -> io::Result<Greeting> {
    let (hello, [memory, bell]) = receive(socket)?;
    let [rx, tx] = map_pair(&memory)?;
    Ok(Greeting {
        endpoint: hello.endpoint,
        shared: Shared { tx, rx, cells: Cells::new(false), bell: Bell::map(&bell)? },
    })
}

impl Greeting {
    /// Answers the dialler.
    pub(super) fn answer(self, socket: &Socket, own: u16, bell: &OwnedFd) -> io::Result<Shared> {
        passing::send(socket.as_fd(), &Hello { endpoint: own }.emit(), &[bell.as_raw_fd()], libc::MSG_DONTWAIT)?;
        Ok(self.shared)
    }
}

/// Refuses connections with other users' processes: shared memory is shared trust.
pub(super) fn same_user(socket: &Socket) -> io::Result<()> {
    if passing::peer(socket.as_fd())?.uid == rights::own_user() {
        Ok(())
    } else {
        Err(refusal("a process of another user"))
    }
}

fn receive<const FDS: usize>(socket: &Socket) -> io::Result<(Hello, [OwnedFd; FDS])> {
    let mut bytes = [0; HELLO_LEN + 1];
    let (len, fds) = passing::receive(socket.as_fd(), &mut bytes, libc::MSG_DONTWAIT)?;
    let hello = Hello::parse(&bytes[..len]).ok_or_else(|| refusal("no greeting of this version"))?;
    let fds = fds.try_into().map_err(|_| refusal("a greeting with other descriptors than it needs"))?;
    Ok((hello, fds))
}

fn refusal(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Hello {
    fn emit(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&(PAIR_BYTES as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&self.endpoint.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO_LEN] = bytes.try_into().ok()?;
        let endpoint = u16::from_le_bytes([bytes[12], bytes[13]]);
        (Self { endpoint }.emit() == *bytes).then_some(Self { endpoint })
    }
}

/// Magic 8, bytes of a pair's memory 4, endpoint 2.
const HELLO_LEN: usize = 14;

/// The last byte is the version of the layout of shared memory.
const MAGIC: [u8; 8] = *b"sidelan\x02";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_reads_back_and_nothing_else_does() {
        let bytes = Hello { endpoint: 700 }.emit();
        assert_eq!(Hello::parse(&bytes), Some(Hello { endpoint: 700 }));
        assert_eq!(Hello::parse(&bytes[1..]), None);
        assert_eq!(Hello::parse(&[&bytes[..], &[0]].concat()), None);
        for at in 0..12 {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Hello::parse(&other), None);
        }
    }
}
