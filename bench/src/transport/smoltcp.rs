//! TCP of smoltcp, a user-level stack, over a driver: what the same frames cost with somebody else's protocol above them.

use sidelane_nic::tcpip::Device;
use sidelane_nic::{LinkAddr, Nic};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::proto::LINGER_NS;
use super::{Broken, Transport};
use crate::clock::now_ns;
use crate::pattern::Role;

/// One end of a connection.
pub struct Smoltcp<N: Nic> {
    device: Device<N>,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    size: usize,
    /// Bytes of the message under way that the socket has taken.
    sent: usize,
    /// Bytes of the message under way that have been read.
    filled: usize,
}

impl<N: Nic> Smoltcp<N> {
    /// Connects both ends: the initiator calls, the responder listens.
    pub fn new(nic: N, peer: LinkAddr, role: Role, size: usize, deadline_ns: u64) -> Result<Self, Broken> {
        // As the bare frames of rung `raw`, on whatever paths those pass.
        let mut device = Device::new(nic, peer).map_err(Broken::driver)?.with_super_frames();
        let mut config = Config::new(HardwareAddress::Ip);
        // Sequence numbers and ports of two runs must differ.
        config.random_seed = now_ns();
        let now = device.now();
        let mut interface = Interface::new(config, &mut device, now);
        let (own, other) = match role {
            Role::Initiator => (ADDRESS_A, ADDRESS_B),
            Role::Responder => (ADDRESS_B, ADDRESS_A),
        };
        interface.update_ip_addrs(|addresses| {
            // The list is empty and holds two at least.
            let _ = addresses.push(IpCidr::new(own, 24));
        });
        // smoltcp has no congestion control that would keep a window below what the receive ring holds.
        let bytes = BUFFER_MAX.min(device.nic().caps().rx_frames / 2 * device.nic().caps().mtu);
        let buffer = || SocketBuffer::new(vec![0; bytes]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let refused = |error: &dyn std::fmt::Display| Broken::Driver(format!("smoltcp: {error}"));
        match role {
            Role::Initiator => {
                let port = EPHEMERAL + (now_ns() % 16_384) as u16;
                socket.connect(interface.context(), (other, PORT), port).map_err(|error| refused(&error))?;
            }
            Role::Responder => socket.listen(PORT).map_err(|error| refused(&error))?,
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let mut end = Self { device, interface, sockets, handle, size, sent: 0, filled: 0 };
        while !end.socket().may_send() {
            end.poll();
            if now_ns() > deadline_ns {
                return Err(Broken::Deadline);
            }
            end.relax();
        }
        Ok(end)
    }

    #[inline]
    fn poll(&mut self) {
        self.device.poll(&mut self.interface, &mut self.sockets);
    }

    #[inline]
    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

impl<N: Nic> Transport for Smoltcp<N> {
    const ANSWERS_MANY: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let sent = self.sent;
        let taken = self.socket().send_slice(&message[sent..]).map_err(|_| Broken::PeerGone)?;
        self.sent += taken;
        if self.sent < message.len() {
            return Ok(false);
        }
        self.sent = 0;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.poll();
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        self.poll();
        let (size, mut filled, mut messages) = (self.size, self.filled, 0);
        let socket = self.socket();
        while messages < budget {
            let taken = match socket.recv_slice(&mut into[filled..size]) {
                Ok(0) => break,
                Ok(taken) => taken,
                // The peer has closed behind what was just taken. Said when there is nothing else to say.
                Err(_) if messages > 0 => break,
                Err(_) => return Err(Broken::PeerGone),
            };
            filled += taken;
            if filled == size {
                each(&into[..size]);
                filled = 0;
                messages += 1;
            }
        }
        self.filled = filled;
        Ok(messages)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        let deadline_ns = deadline_ns.min(now_ns() + LINGER_NS);
        self.socket().close();
        while !matches!(self.socket().state(), State::Closed | State::TimeWait) && now_ns() < deadline_ns {
            self.poll();
            self.relax();
        }
        Ok(())
    }
}

/// The link joins just these two, so any addresses will do.
const ADDRESS_A: IpAddress = IpAddress::v4(192, 168, 69, 1);
const ADDRESS_B: IpAddress = IpAddress::v4(192, 168, 69, 2);
const PORT: u16 = 7;
/// First of the dynamic ports (RFC 6335, 6).
const EPHEMERAL: u16 = 49_152;
/// Bytes of each direction's buffer at most: eight super-packets, as much as the bare frames have under way.
const BUFFER_MAX: usize = 512 << 10;
