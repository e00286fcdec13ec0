//! A knock at a vhost server: whether it answers, asked before DPDK asks.
//!
//! DPDK's virtio-user waits for every answer without limit (22.11: vhost_user_read), in the way of all other devices of the process. And
//! where a server hangs up instead, which has a client already, it keeps the descriptors of what it had made (virtio_user_dev_init).
#![allow(unsafe_code)] // connect(2) and send(2) that do not wait.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crate::{passing, socket};

/// Nobody opens the door.
pub struct Unheard {
    /// `TimedOut`: somebody is there.
    pub error: io::Error,
    /// Whoever listens, where that is known.
    pub process: Option<u32>,
}

/// Asks the server at `place` what changes nothing, and goes. It has taken note of that when this comes back.
pub fn knock(place: &Path, give_up: Instant) -> Result<(), Unheard> {
    let mut server = dial(place).map_err(|error| Unheard { error, process: None })?;
    let process =
        passing::peer(server.as_fd()).ok().and_then(|peer| u32::try_from(peer.pid).ok()).filter(|pid| *pid > 0);
    ask(&mut server, give_up).map_err(|error| Unheard { error, process })
}

fn ask(server: &mut UnixStream, give_up: Instant) -> io::Result<()> {
    // SAFETY: readable for its length through the call. Who has hung up raises no signal.
    let sent =
        unsafe { libc::send(server.as_raw_fd(), GET_FEATURES.as_ptr().cast(), GET_FEATURES.len(), libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    server.set_nonblocking(false)?;
    let mut answer = [0; ANSWER_LEN];
    within(server, give_up, |server| server.read_exact(&mut answer))?;
    // It looks at who has gone on the thread by which it lets the next one in.
    server.shutdown(Shutdown::Write)?;
    within(server, give_up, |server| server.read(&mut answer).map(drop))
}

fn within(
    server: &mut UnixStream,
    give_up: Instant,
    work: impl FnOnce(&mut UnixStream) -> io::Result<()>,
) -> io::Result<()> {
    let left = give_up.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    server.set_read_timeout(Some(left))?;
    work(server).map_err(|error| if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error })
}

/// Does not wait where too many wait already, as they do at a server that is stopped.
fn dial(place: &Path) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers; the descriptor that comes back is ours alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket::check(libc::socket(libc::AF_UNIX, kind, 0))?) };
    // SAFETY: all zeroes is an address of no family.
    let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    at.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let (name, last) = (place.as_os_str().as_bytes(), at.sun_path.len() - 1);
    for (to, byte) in at.sun_path[..last].iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: an address of that length, alive through the call.
    let connected =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const at).cast(), size_of_val(&at) as libc::socklen_t) };
    match socket::check(connected) {
        Ok(_) => Ok(UnixStream::from(socket)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

/// VHOST_USER_GET_FEATURES, version 1, nothing behind it: may be sent at any time (QEMU, docs/interop/vhost-user.rst).
const GET_FEATURES: [u8; 12] = header();
/// As much, and a word.
const ANSWER_LEN: usize = GET_FEATURES.len() + 8;

const fn header() -> [u8; 12] {
    let ([a, b, c, d], [e, f, g, h]) = (1u32.to_ne_bytes(), 1u32.to_ne_bytes());
    [a, b, c, d, e, f, g, h, 0, 0, 0, 0]
}
