//! Endpoints and links for tests, and what goes between them.

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use sidelane_nic::time::Duration;
use sidelane_nic::udp::{Config, OpenError, Udp};
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use crate::patience;

pub fn addr_of(nic: &Udp) -> SocketAddr {
    let LinkAddr::Udp(addr) = nic.caps().addr else { unreachable!() };
    addr
}

pub fn open() -> Udp {
    Udp::open(&Config::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

/// An address that nobody has, or had before: a process that another test starts keeps a copy of ours until its exec.
pub fn unused() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, CALLS.fetch_add(1, Ordering::Relaxed), high, low], 4_000))
}

/// At an address that another endpoint had, as soon as nobody has a copy of that one's sockets.
pub fn open_again(at: SocketAddr) -> Udp {
    let mut again = None;
    patience::until("the address is free", || match Udp::open(&Config::new(at)) {
        Err(OpenError::Taken(_)) => false,
        opened => again.replace(opened.unwrap()).is_none(),
    });
    again.unwrap()
}

/// Waits until nobody is at an address that an endpoint had.
pub fn until_left(at: SocketAddr) {
    let mut probe = None;
    patience::until("the address is free", || UdpSocket::bind(at).is_ok_and(|socket| probe.replace(socket).is_none()));
    // Of this one there may be a copy, too. It hears only port 9 from now on.
    probe.unwrap().connect("127.0.0.1:9").unwrap();
}

pub fn link(from: &mut Udp, to: &Udp) -> Link {
    link_at(from, addr_of(to))
}

pub fn link_at(from: &mut Udp, to: SocketAddr) -> Link {
    let link = from.link(LinkAddr::Udp(to)).unwrap();
    from.confirm(link);
    link
}

pub fn commit(nic: &mut Udp, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

pub fn send(nic: &mut Udp, link: Link, bytes: &[u8]) {
    assert!(commit(nic, link, bytes), "no slot");
    nic.flush();
}

/// The next frame and its sender, waited for.
pub fn receive(nic: &mut Udp) -> (Vec<u8>, LinkAddr) {
    let deadline = nic.now() + Duration::from_millis(5_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, from| got = Some((frame.to_vec(), from))) == 0 {
        assert!(nic.now() < deadline, "no frame came");
        let soon = nic.now() + Duration::from_millis(1);
        nic.wait(Some(soon)).unwrap();
    }
    got.unwrap()
}

/// Turns of `nic` that find nothing, as many as make it take the next datagram for a lone one.
pub fn pass_quietly(nic: &mut Udp) {
    for _ in 0..100 {
        assert_eq!(nic.rx_burst(64, |_, _| {}), 0);
    }
}

/// Whom this process has a socket for that is bound to `nic`'s address and connected. Each socket is asked, since a list of all
/// (`/proc/net/udp`) has some twice and others not at all while other processes' come and go.
pub fn connected_peers(nic: &Udp) -> Vec<SocketAddr> {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = numbers.map(|number| number.file_name().to_str().unwrap().parse().unwrap());
    // SAFETY: it is only asked, and never closed; whether the number is that of a socket the kernel checks.
    let sockets = numbers.map(|number| ManuallyDrop::new(unsafe { UdpSocket::from_raw_fd(number) }));
    let own = sockets.filter(|socket| socket.local_addr().is_ok_and(|local| local == addr_of(nic)));
    own.filter_map(|socket| socket.peer_addr().ok()).collect()
}
