//! Kernel TCP, blocking or busy-polling. The stream is cut into messages by their size.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::{Broken, Transport, sockopt};
use crate::clock::now_ns;

/// How a TCP socket is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpMode {
    /// Congestion control by its kernel name; `None`: the system's default.
    pub congestion: Option<String>,
    /// Sends each write at once (TCP_NODELAY). Without it the kernel gathers small writes.
    pub no_delay: bool,
}

/// One end of a connection. `BLOCKING`: reads sleep in the kernel; otherwise they return at once and the caller spins.
pub struct Tcp<const BLOCKING: bool> {
    stream: TcpStream,
    size: usize,
    /// Bytes of the message under way that the kernel has taken.
    sent: usize,
    /// Bytes of the message under way that have been read.
    filled: usize,
    /// What a read has brought, when messages are small.
    inbox: Vec<u8>,
}

impl<const BLOCKING: bool> Tcp<BLOCKING> {
    /// Opens a listening socket for [`Tcp::accept`].
    pub fn listen(at: IpAddr) -> Result<TcpListener, Broken> {
        TcpListener::bind((at, 0)).map_err(|error| Broken::System("listen", error))
    }

    /// Waits for the peer until `deadline_ns`.
    pub fn accept(listener: &TcpListener, size: usize, mode: &TcpMode, deadline_ns: u64) -> Result<Self, Broken> {
        let failed = |error| Broken::System("accept", error);
        listener.set_nonblocking(true).map_err(failed)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::with_stream(stream, size, mode),
                Err(error) if error.kind() == ErrorKind::WouldBlock && now_ns() < deadline_ns => {
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Broken::Deadline),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Connects to a listening peer.
    pub fn connect(to: SocketAddr, size: usize, mode: &TcpMode, deadline_ns: u64) -> Result<Self, Broken> {
        let limit = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()).max(1));
        let stream = TcpStream::connect_timeout(&to, limit).map_err(|error| Broken::System("connect", error))?;
        Self::with_stream(stream, size, mode)
    }

    fn with_stream(stream: TcpStream, size: usize, mode: &TcpMode) -> Result<Self, Broken> {
        let failed = |error| Broken::System("TCP socket option", error);
        if let Some(name) = &mode.congestion {
            sockopt::set_congestion(stream.as_fd(), name).map_err(|error| Broken::System("TCP_CONGESTION", error))?;
        }
        stream.set_nodelay(mode.no_delay).map_err(failed)?;
        stream.set_nonblocking(!BLOCKING).map_err(failed)?;
        if BLOCKING {
            // So that a side whose peer is gone looks at its deadline now and then.
            stream.set_read_timeout(Some(BLOCK_MAX)).map_err(failed)?;
            stream.set_write_timeout(Some(BLOCK_MAX)).map_err(failed)?;
        }
        Ok(Self { stream, size, sent: 0, filled: 0, inbox: vec![0; INBOX] })
    }

    /// Small messages: one read takes as many as there are.
    #[inline]
    fn recv_small(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let Some(got) = some(self.stream.read(&mut self.inbox[self.filled..]), "recv")? else { return Ok(0) };
        self.filled += got;
        let mut messages = 0;
        for message in self.inbox[..self.filled].chunks_exact(self.size) {
            each(message);
            messages += 1;
        }
        let taken = messages * self.size;
        if taken < self.filled {
            self.inbox.copy_within(taken..self.filled, 0);
        }
        self.filled -= taken;
        Ok(messages)
    }

    /// Large messages: straight to where they belong.
    #[inline]
    fn recv_large(&mut self, into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let Some(got) = some(self.stream.read(&mut into[self.filled..self.size]), "recv")? else { return Ok(0) };
        self.filled += got;
        if self.filled < self.size {
            return Ok(0);
        }
        self.filled = 0;
        each(&into[..self.size]);
        Ok(1)
    }
}

impl<const BLOCKING: bool> Transport for Tcp<BLOCKING> {
    const BLOCKING: bool = BLOCKING;
    const ANSWERS_MANY: bool = !BLOCKING;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let Some(got) = some(self.stream.write(&message[self.sent..]), "send")? else { return Ok(false) };
        self.sent += got;
        if self.sent < message.len() {
            return Ok(false);
        }
        self.sent = 0;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, into: &mut [u8], each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        if budget == 0 {
            return Ok(0);
        }
        if self.size <= INBOX / 4 { self.recv_small(each) } else { self.recv_large(into, each) }
    }

    fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
        // The kernel delivers what it has taken, also after a close.
        Ok(())
    }

    #[inline]
    fn relax(&self) {
        // The system call that found nothing was pause enough, unless another poller waits for this core.
        crate::idle::make_way();
    }
}

/// Bytes moved, or `None` when there was nothing to move, or no room, within the time that a call may take.
#[inline]
fn some(moved: io::Result<usize>, call: &'static str) -> Result<Option<usize>, Broken> {
    match moved {
        Ok(0) => Err(Broken::PeerGone),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            Err(Broken::PeerGone)
        }
        Err(error) => Err(Broken::System(call, error)),
    }
}

/// Messages up to a quarter of this are read many at a time: as much as a super-packet carries.
const INBOX: usize = 1 << 16;
/// Between two tries to accept; connecting is not measured.
const ACCEPT_PAUSE: Duration = Duration::from_micros(200);
/// Longest that a blocking call sleeps; far above any latency that is measured.
const BLOCK_MAX: Duration = Duration::from_millis(100);
