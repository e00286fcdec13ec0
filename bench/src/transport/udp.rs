//! Kernel UDP, busy-polling: connected sockets, non-blocking calls, and for large messages trains of datagrams that the
//! kernel cuts and joins (UDP_SEGMENT, UDP_GRO). UDP has no flow control, so a sender is held back by counts.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use super::window::{REPORT_LEN, Windows, cut};
use super::{Broken, Flow, Transport, sockopt};

/// One end of a pair of sockets.
pub struct Udp {
    socket: UdpSocket,
    size: usize,
    /// Bytes of one write: a train of datagrams, or one.
    chunk: usize,
    /// Whether the kernel cuts writes.
    segmented: bool,
    /// Bytes of the message under way that were sent.
    sent: usize,
    /// Bytes of the message under way that were received.
    filled: usize,
    windows: Windows,
    unanswered_max: usize,
}

impl Udp {
    /// Opens a socket for [`Udp::connect`].
    pub fn bind(at: IpAddr) -> Result<UdpSocket, Broken> {
        let socket = UdpSocket::bind((at, 0)).map_err(|error| Broken::System("bind", error))?;
        // Now, since the peer may begin before we connect.
        sockopt::set_receive_buffer(socket.as_fd(), SOCKET_BUFFER)
            .map_err(|error| Broken::System("SO_RCVBUF", error))?;
        Ok(socket)
    }

    /// Ties the socket to its peer. Both ends have the same kernel and route, hence the same window.
    pub fn connect(socket: UdpSocket, to: SocketAddr, size: usize, flow: Flow) -> Result<Self, Broken> {
        let failed = |error| Broken::System("UDP socket option", error);
        socket.connect(to).map_err(|error| Broken::System("connect", error))?;
        socket.set_nonblocking(true).map_err(failed)?;
        let room = sockopt::receive_buffer(socket.as_fd()).map_err(failed)?;
        sockopt::set_send_buffer(socket.as_fd(), SOCKET_BUFFER).map_err(failed)?;
        let datagram =
            sockopt::ip_mtu(socket.as_fd()).map_err(failed)?.saturating_sub(IP_UDP_HEADERS).min(DATAGRAM_MAX);
        let datagram = cut(size, datagram);
        let segmented = size > datagram
            && sockopt::set_udp_gro(socket.as_fd()).is_ok()
            && sockopt::set_udp_segment(socket.as_fd(), datagram as i32).is_ok();
        let chunk = if segmented { (DATAGRAM_MAX / datagram).min(SEGMENTS_MAX) * datagram } else { datagram };
        let unit = chunk.min(size);
        let window = unit * (room / (2 * (unit + DATAGRAM_OVERHEAD))).min(WINDOW_BYTES / unit).clamp(1, WINDOW_MAX);
        let windows = Windows::new(flow, window, size);
        let unanswered_max = (window / size).max(1);
        Ok(Self { socket, size, chunk, segmented, sent: 0, filled: 0, windows, unanswered_max })
    }

    /// Sends one datagram or train. False when the socket's buffer is full.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        match self.socket.send(bytes) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EIO) && self.segmented => {
                // This kernel wants checksum offload for trains, and the interface has none.
                self.segmented = false;
                self.chunk = self.chunk.min(DATAGRAM_UNCUT);
                sockopt::set_udp_segment(self.socket.as_fd(), 0)
                    .map_err(|error| Broken::System("UDP_SEGMENT", error))?;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => self.refused().map(|()| false),
            Err(error) => Err(Broken::System("send", error)),
        }
    }

    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        match self.socket.recv(into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => self.refused().map(|()| None),
            Err(error) => Err(Broken::System("recv", error)),
        }
    }

    /// The peer's socket is closed. A sender closes when it has sent all, while we still take it from our queue.
    fn refused(&self) -> Result<(), Broken> {
        if self.windows.recv.is_some() { Ok(()) } else { Err(Broken::PeerGone) }
    }

    fn send_report(&mut self, bytes: usize) -> Result<(), Broken> {
        let Some(window) = &mut self.windows.recv else { return Ok(()) };
        window.on_taken(bytes);
        let Some(report) = window.report() else { return Ok(()) };
        if self.write(&report)?
            && let Some(window) = &mut self.windows.recv
        {
            window.on_reported();
        }
        Ok(())
    }
}

impl Transport for Udp {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        while self.sent < message.len() {
            if self.windows.send.as_ref().is_some_and(|window| !window.is_open()) {
                return Ok(false);
            }
            let end = message.len().min(self.sent + self.chunk);
            if !self.write(&message[self.sent..end])? {
                return Ok(false);
            }
            if let Some(window) = &mut self.windows.send {
                window.on_sent(end - self.sent);
            }
            self.sent = end;
        }
        self.sent = 0;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let mut spare = [0; REPORT_LEN];
        let (mut messages, mut reports) = (0, self.windows.send.is_some());
        while messages < budget || reports {
            // A sender has nowhere to put a message, and gets none.
            let room = if into.is_empty() { &mut spare[..] } else { &mut into[self.filled..] };
            let Some(bytes) = self.read(room)? else { break };
            if self.windows.is_report(bytes, self.size - self.filled) {
                self.windows.send.as_mut().expect("only a sender takes reports").on_report(&room[..bytes]);
                continue;
            }
            self.filled += bytes;
            // A datagram of ours is never longer than what is left of a message.
            if self.filled > self.size {
                return Err(Broken::Lost);
            }
            if self.filled == self.size {
                each(&into[..self.size]);
                self.filled = 0;
                messages += 1;
                reports = false;
            }
            self.send_report(bytes)?;
        }
        Ok(messages)
    }

    fn unanswered_max(&self) -> usize {
        self.unanswered_max
    }

    fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
        Ok(())
    }

    #[inline]
    fn relax(&self) {
        crate::idle::make_way();
    }
}

/// Asked for; `net.core.rmem_max` may give less.
const SOCKET_BUFFER: i32 = 8 << 20;
/// IPv4 and UDP (RFC 791, RFC 768).
const IP_UDP_HEADERS: usize = 28;
/// Most payload of an IPv4 datagram, and of a train.
const DATAGRAM_MAX: usize = 65_507;
/// Fits every Ethernet path: 1500 less the headers.
const DATAGRAM_UNCUT: usize = 1472;
/// Datagrams of a train at most (UDP_MAX_SEGMENTS in linux/udp.h; 64 before Linux 6.9).
const SEGMENTS_MAX: usize = 64;
/// What the kernel charges a datagram beside its bytes (`struct sk_buff` and the rounding of its data).
const DATAGRAM_OVERHEAD: usize = 1024;
/// Bytes under way at most: beyond about 1 MiB they leave the second-level cache.
const WINDOW_BYTES: usize = 512 << 10;
/// Datagrams under way at most. More gains nothing and only leaves the caches.
const WINDOW_MAX: usize = 512;
