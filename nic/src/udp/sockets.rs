//! The sockets of one endpoint: one that hears everybody, and connected ones for the first few peers that are confirmed.
//!
//! All are bound to the same address. The kernel gives a datagram to the socket that is connected to its sender, and to
//! the unconnected one if there is none. So each has to be asked, and each asking is a system call: the one that was busy
//! last is asked every turn, the others in rotation.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::merging::Merging;
use super::tx_queue::DATAGRAM_MAX;
use super::{filter, sys};
use crate::encap::datagram;
use crate::event::Event;
use crate::socket;
use crate::time::Duration;

/// The sockets, and whose turn it is.
pub struct Sockets {
    addr: SocketAddr,
    main: UdpSocket,
    connected: [Option<Connected>; CONNECTED_MAX],
    /// The socket that is asked every turn.
    hot: SocketId,
    /// Datagrams that may still wait on the unconnected socket from before the last peer was connected. They come before those of
    /// sockets that are new, so that a peer's frames keep their order.
    older: usize,
    /// Counts calls of `receive`.
    turn: u32,
    /// The socket that was asked last in rotation.
    rotation: usize,
    /// Drops of connected sockets that are closed by now, and what waited there unread.
    drops_before: u64,
}

struct Connected {
    socket: UdpSocket,
    peer: SocketAddr,
    merging: Merging,
    /// Some of the peer's datagrams may be among the older ones.
    is_new: bool,
}

/// Which socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketId {
    /// The unconnected one.
    Main,
    /// A place among the connected ones.
    Connected(u8),
}

/// What `receive` found.
pub enum Received {
    /// A datagram of so many bytes from this peer.
    Datagram(usize, SocketAddr),
    /// Nothing waits on the sockets that were asked.
    Nothing,
    /// A peer's host, or a router before it, has refused an earlier frame (by ICMP).
    Refusal,
}

impl Sockets {
    /// Binds the unconnected socket.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let main = UdpSocket::bind(addr)?;
        prepare(&main)?;
        merge_datagrams(&main, true);
        Ok(Self {
            addr: main.local_addr()?,
            main,
            connected: [const { None }; CONNECTED_MAX],
            hot: SocketId::Main,
            older: 0,
            turn: 0,
            rotation: 0,
            drops_before: 0,
        })
    }

    /// The bound address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The unconnected socket.
    pub fn main(&self) -> &UdpSocket {
        &self.main
    }

    /// Memory that the kernel keeps for frames that wait, per socket.
    pub fn rx_bytes(&self) -> usize {
        socket::rx_buffer_len(self.main.as_fd())
    }

    /// Connects a socket to `peer` if there is a place for one. Otherwise its frames go by the unconnected one.
    pub fn connect(&mut self, peer: SocketAddr) -> SocketId {
        let Some(place) = self.connected.iter().position(Option::is_none) else { return SocketId::Main };
        match self.connected_to(peer) {
            Ok(socket) => {
                self.connected[place] = Some(Connected { socket, peer, merging: Merging::START, is_new: true });
                self.older = OLDER_MIN + sys::rx_buffer_used(self.main.as_fd()) / KERNEL_MEMORY_MIN;
                SocketId::Connected(place as u8)
            }
            Err(error) => {
                tracing::debug!("no connected socket to {peer} ({error}): its frames go by the unconnected one");
                SocketId::Main
            }
        }
    }

    fn connected_to(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        // Two sockets may have one address if both say so; the unconnected one says so only for this moment, so that
        // no stranger binds our address.
        socket::set_int_option(self.main.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        let socket = sys::bind_beside(self.addr, peer);
        socket::set_int_option(self.main.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 0)?;
        let socket = socket?;
        socket.connect(peer)?;
        socket::detach_filter(socket.as_fd())?;
        prepare(&socket)?;
        Ok(socket)
    }

    /// Closes the socket of a peer that is forgotten.
    pub fn disconnect(&mut self, id: SocketId) {
        let SocketId::Connected(place) = id else { return };
        if let Some(closed) = self.connected[usize::from(place)].take() {
            self.drops_before += closed.close();
        }
        if self.hot == id {
            self.hot = SocketId::Main;
        }
    }

    /// Receives one datagram into `buffer` if the busiest socket, or the one whose turn it is, has any.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Received {
        if self.older > 0 {
            match self.receive_older(buffer) {
                Received::Nothing => {}
                received => return received,
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(ROTATION) {
            let next = self.next_in_rotation();
            if next != self.hot {
                match self.receive_from(next, buffer) {
                    Received::Nothing => {}
                    received => {
                        self.hot = next;
                        return received;
                    }
                }
            }
        }
        self.receive_from(self.hot, buffer)
    }

    /// As [`Self::receive`], while older datagrams come first. Who keeps the unconnected socket full keeps none but the new ones from
    /// their turns.
    #[cold]
    fn receive_older(&mut self, buffer: &mut [u8]) -> Received {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(ROTATION)
            && let SocketId::Connected(place) = self.next_in_rotation()
            && self.connected[usize::from(place)].as_ref().is_some_and(|connected| !connected.is_new)
        {
            match self.receive_from(SocketId::Connected(place), buffer) {
                Received::Nothing => {}
                received => return received,
            }
        }
        let received = self.receive_from(SocketId::Main, buffer);
        self.older = if matches!(received, Received::Nothing) { 0 } else { self.older - 1 };
        if self.older == 0 {
            self.connected.iter_mut().flatten().for_each(|connected| connected.is_new = false);
        }
        received
    }

    #[inline]
    fn receive_from(&mut self, id: SocketId, buffer: &mut [u8]) -> Received {
        let received = match id {
            SocketId::Main => self.main.recv_from(buffer),
            SocketId::Connected(place) => match &mut self.connected[usize::from(place)] {
                Some(connected) => connected.receive(buffer),
                None => return Received::Nothing,
            },
        };
        match received {
            Ok((len, from)) => Received::Datagram(len, from),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Received::Nothing
            }
            Err(_) => Received::Refusal,
        }
    }

    /// Takes in that the last datagram held several frames. While older ones come first it may be of any socket, and tells nothing.
    #[inline]
    pub fn on_merged(&mut self) {
        if self.older == 0
            && let SocketId::Connected(place) = self.hot
            && let Some(connected) = &mut self.connected[usize::from(place)]
        {
            connected.merging = connected.merging.on_merged();
        }
    }

    /// Empty places take their turn too: the fewer sockets, the fewer system calls go into asking the quiet ones.
    fn next_in_rotation(&mut self) -> SocketId {
        self.rotation = (self.rotation + 1) % (CONNECTED_MAX + 1);
        if self.rotation == CONNECTED_MAX { SocketId::Main } else { SocketId::Connected(self.rotation as u8) }
    }

    /// The socket by which frames go out; the unconnected one in the place of one that is closed.
    #[inline]
    pub fn get(&self, id: SocketId) -> (&UdpSocket, bool) {
        if let SocketId::Connected(place) = id
            && let Some(connected) = &self.connected[usize::from(place)]
        {
            return (&connected.socket, true);
        }
        (&self.main, false)
    }

    /// Sleeps until a socket has a datagram, one that `is_full` has room to send, or `event` is raised, at most `limit`. Returns how
    /// many refusals ([`Received::Refusal`]) it was told of.
    pub fn poll(
        &self,
        is_full: impl Fn(SocketId) -> bool,
        event: Option<&Event>,
        limit: Option<Duration>,
    ) -> io::Result<u64> {
        let (fds, count) = self.fds();
        // Only of those: one with nothing to send always has room.
        let mut full = [false; CONNECTED_MAX + 1];
        full.iter_mut().zip(self.ids()).for_each(|(full, id)| *full = is_full(id));
        let mut refusals = 0;
        socket::poll_telling(&fds[..count], &full[..count], event, limit, |error| {
            refusals += u64::from(error != 0);
        })?;
        Ok(refusals)
    }

    /// True when a datagram waits on any socket.
    pub fn has_datagram(&self) -> bool {
        let (fds, count) = self.fds();
        socket::is_any_readable(&fds[..count])
    }

    /// Datagrams that found their socket's buffer full, and frames that were unread when theirs was closed.
    pub fn drops(&self) -> u64 {
        let (fds, count) = self.fds();
        self.drops_before + fds[..count].iter().copied().map(sys::drops).sum::<u64>()
    }

    /// All of them, in the order of [`Self::ids`], and how many they are.
    fn fds(&self) -> ([BorrowedFd<'_>; CONNECTED_MAX + 1], usize) {
        let mut fds = [self.main.as_fd(); CONNECTED_MAX + 1];
        let mut count = 0;
        for id in self.ids() {
            fds[count] = self.get(id).0.as_fd();
            count += 1;
        }
        (fds, count)
    }

    fn ids(&self) -> impl Iterator<Item = SocketId> {
        let connected = (0..).zip(&self.connected).filter(|(_, connected)| connected.is_some());
        std::iter::once(SocketId::Main).chain(connected.map(|(place, _)| SocketId::Connected(place)))
    }
}

impl Connected {
    /// Closes it. Returns how many frames waited there unread, and how many datagrams it had dropped.
    #[cold]
    fn close(self) -> u64 {
        let mut unread = 0;
        // From here on none come, which could go on for ever: the kernel drops and counts them.
        if socket::attach_filter(self.socket.as_fd(), &[filter::NOTHING]).is_ok() {
            // A refusal would be told before what waits.
            let _ = self.socket.take_error();
            let mut buffer = vec![0; DATAGRAM_MAX];
            while let Ok(len) = self.socket.recv(&mut buffer) {
                unread += datagram::count(&buffer[..len]).max(1) as u64;
            }
        }
        unread + sys::drops(self.socket.as_fd())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        // Not asking for the sender's address saves 70 ns of copying it.
        let received = self.socket.recv(buffer);
        let before = self.merging;
        self.merging = if received.is_ok() { before.on_datagram() } else { before.on_nothing() };
        if self.merging.is_on() != before.is_on() {
            merge_datagrams(&self.socket, self.merging.is_on());
        }
        received.map(|len| (len, self.peer))
    }
}

/// What every socket of ours is set to.
fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket::grow_buffers(socket.as_fd(), BUFFER_LEN);
    Ok(())
}

#[cold]
fn merge_datagrams(socket: &UdpSocket, on: bool) {
    // Linux 5.0. Without it frames come one by one.
    let _ = socket::set_int_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, on.into());
}

/// Each more makes the others wait longer for their turn in the rotation.
const CONNECTED_MAX: usize = 4;
/// Turns between two places of the rotation. A quiet socket is asked every 20 turns, which is 3 µs: as long as a frame
/// takes on its way.
const ROTATION: u32 = 4;

/// Less than the kernel charges a receive buffer for any datagram: 256 and 320 bytes of bookkeeping alone (`skb->truesize`).
const KERNEL_MEMORY_MIN: usize = 512;
/// What may be on its way through the kernel and not charged yet: what a card's driver handles in one go (`NAPI_POLL_WEIGHT`).
const OLDER_MIN: usize = 64;

/// Asked for each direction of a socket, given to root and clamped to `net.core.{r,w}mem_max` for others. It holds 64
/// super-datagrams, or 2,000 small frames: a peer's window through any stall that we saw.
const BUFFER_LEN: i32 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_has_our_address_once_a_peer_has_a_socket() {
        let mut sockets = Sockets::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let [peer, other] = [7, 9].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(sockets.connect(peer), SocketId::Connected(0));
        let stranger = sys::bind_beside(sockets.addr(), other).map(drop);
        assert_eq!(stranger.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
