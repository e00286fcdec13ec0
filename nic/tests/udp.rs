//! The `udp` driver on the loopback, and on a veth pair within a network namespace.
#![allow(unsafe_code)] // This process's sockets, by their numbers.

mod namespace;
mod patience;
mod polls;

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::time::Duration;
use sidelane_nic::udp::{Config, OpenError, Udp};
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

/// Endpoints at these hosts' addresses, on ports that the system chooses.
struct At(&'static [&'static str]);

impl Setup for At {
    type Nic = Udp;

    fn open(&mut self, count: usize) -> Result<Vec<Udp>, String> {
        let endpoints = self.0.iter().cycle().take(count).map(|host| {
            Udp::open(&Config::new(format!("{host}:0").parse().unwrap())).map_err(|error| error.to_string())
        });
        endpoints.collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        // Discard: nobody listens, and the host says so by ICMP.
        Some(LinkAddr::Udp(format!("{}:9", self.0[0]).parse().unwrap()))
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        let LinkAddr::Udp(victim) = victim else { unreachable!() };
        let host: SocketAddr = format!("{}:0", self.0[0]).parse().unwrap();
        UdpSocket::bind(host).unwrap().send_to(bytes, victim).unwrap();
        true
    }
}

fn addr_of(nic: &Udp) -> SocketAddr {
    let LinkAddr::Udp(addr) = nic.caps().addr else { unreachable!() };
    addr
}

fn open() -> Udp {
    Udp::open(&Config::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

/// An address that nobody has, or had before: a process that another test starts keeps a copy of ours until its exec.
fn unused() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, CALLS.fetch_add(1, Ordering::Relaxed), high, low], 4_000))
}

/// At an address that another endpoint had, as soon as nobody has a copy of that one's sockets.
fn open_again(at: SocketAddr) -> Udp {
    let mut again = None;
    patience::until("the address is free", || match Udp::open(&Config::new(at)) {
        Err(OpenError::Taken(_)) => false,
        opened => again.replace(opened.unwrap()).is_none(),
    });
    again.unwrap()
}

/// Waits until nobody is at an address that an endpoint had.
fn until_left(at: SocketAddr) {
    let mut probe = None;
    patience::until("the address is free", || UdpSocket::bind(at).is_ok_and(|socket| probe.replace(socket).is_none()));
    // Of this one there may be a copy, too. It hears only port 9 from now on.
    probe.unwrap().connect("127.0.0.1:9").unwrap();
}

fn link(from: &mut Udp, to: &Udp) -> Link {
    link_at(from, addr_of(to))
}

fn link_at(from: &mut Udp, to: SocketAddr) -> Link {
    let link = from.link(LinkAddr::Udp(to)).unwrap();
    from.confirm(link);
    link
}

/// Whom this process has a socket for that is bound to `nic`'s address and connected. Each socket is asked, since a list of all
/// (`/proc/net/udp`) has some twice and others not at all while other processes' come and go.
fn connected_peers(nic: &Udp) -> Vec<SocketAddr> {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = numbers.map(|number| number.file_name().to_str().unwrap().parse().unwrap());
    // SAFETY: it is only asked, and never closed; whether the number is that of a socket the kernel checks.
    let sockets = numbers.map(|number| ManuallyDrop::new(unsafe { UdpSocket::from_raw_fd(number) }));
    let own = sockets.filter(|socket| socket.local_addr().is_ok_and(|local| local == addr_of(nic)));
    own.filter_map(|socket| socket.peer_addr().ok()).collect()
}

fn commit(nic: &mut Udp, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

fn send(nic: &mut Udp, link: Link, bytes: &[u8]) {
    assert!(commit(nic, link, bytes), "no slot");
    nic.flush();
}

/// The next frame and its sender, waited for.
fn receive(nic: &mut Udp) -> (Vec<u8>, LinkAddr) {
    let deadline = nic.now() + Duration::from_millis(5_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, from| got = Some((frame.to_vec(), from))) == 0 {
        assert!(nic.now() < deadline, "no frame came");
        let soon = nic.now() + Duration::from_millis(1);
        nic.wait(Some(soon)).unwrap();
    }
    got.unwrap()
}

#[test]
fn loopback_keeps_the_contract() {
    let mut setup = At(&["127.0.0.1"]);
    setup.open(3).unwrap();
    conformance::run(&mut setup).assert_passed();
    conformance::run_threads(&mut setup).assert_passed();
}

#[test]
fn ipv6_keeps_the_contract() {
    // Where there is no IPv6 every case is skipped, with the reason.
    conformance::run(&mut At(&["[::1]"])).assert_passed();
}

#[test]
fn veth_keeps_the_contract() {
    namespace::run_inside("inside::veth_keeps_the_contract");
}

#[test]
fn a_narrow_path_keeps_no_other_peers_frames_from_leaving_together() {
    namespace::run_inside("inside::a_narrow_path_keeps_no_other_peers_frames_from_leaving_together");
}

#[test]
fn a_socket_that_drains_slowly_is_slept_over_and_loses_nothing() {
    namespace::run_inside("inside::a_socket_that_drains_slowly_is_slept_over_and_loses_nothing");
}

#[test]
fn what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other() {
    namespace::run_inside("inside::what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other");
}

/// As if a router had refused a datagram from `from` to `to`: an ICMP message of type 3 with this code (RFC 792).
fn refuse(from: SocketAddr, to: SocketAddr, code: u8) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { unreachable!() };
    // The rest of it is of use to code 4: an MTU (RFC 1191).
    let mut message = [&[3, code, 0, 0, 0, 0][..], &65_000u16.to_be_bytes()].concat();
    // The headers of the datagram: IP (RFC 791) and UDP (RFC 768).
    message.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    message.extend([from.ip().octets(), to.ip().octets()].concat());
    message.extend([from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat());
    let mut sum: u32 = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
    // SAFETY: no pointer is passed; the descriptor is new and ours, and send_to(2) is the same for all sockets of IPv4.
    let raw = unsafe { UdpSocket::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)) };
    raw.send_to(&message, (*from.ip(), 0)).unwrap();
}

mod inside {
    use super::*;

    #[test]
    #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
    fn what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other() {
        namespace::ip("link set lo up");
        // One frame, one run of equal frames, and several.
        for lengths in [vec![500; 1], vec![500; 12], (500..512).collect()] {
            // What was asked for is not there, a link is too narrow, a host or a filter forbids it.
            for code in [2, 4, 10, 13] {
                let (mut a, mut b) = (open(), open());
                let to_b = link(&mut a, &b);
                let (from, to) = (addr_of(&a), addr_of(&b));
                let mut burst = |a: &mut Udp| {
                    lengths.iter().for_each(|len| assert!(commit(a, to_b, &vec![*len as u8; *len])));
                    a.flush();
                    let (mut came, mut most) = (Vec::new(), 0);
                    patience::until("all come", || {
                        let shown = b.rx_burst(64, |frame, _| came.push(frame.len()));
                        most = shown.max(most);
                        came.len() == lengths.len()
                    });
                    // What leaves again leaves last.
                    came.sort_unstable();
                    assert_eq!(came, lengths, "code {code}");
                    most
                };
                let together = burst(&mut a);
                // On the loopback it has come when the call returns.
                refuse(from, to, code);
                assert_eq!(burst(&mut a), together, "code {code}: they go on leaving together");
                assert_eq!(a.counters().tx_failed, 1, "code {code}");
                refuse(from, to, code);
                pass_quietly(&mut a);
                assert_eq!(a.counters().tx_failed, 2, "code {code}, told by receiving");
                refuse(from, to, code);
                let far = a.now() + Duration::from_millis(10_000);
                a.wait(Some(far)).unwrap();
                assert!(a.now() < far);
                assert_eq!(a.counters().tx_failed, 3, "code {code}, told while it sleeps");
            }
        }
    }

    #[test]
    #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
    fn a_socket_that_drains_slowly_is_slept_over_and_loses_nothing() {
        namespace::veth("vA", "vB");
        for words in [
            "link set vA mtu 65535",
            "link set vB mtu 65535",
            "addr add 10.0.0.1/24 dev vA",
            // Nobody answers, by ICMP neither: the kernel's own few buffers for that are of all namespaces.
            "neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev vA",
        ] {
            namespace::ip(words);
        }
        let shape = "qdisc add dev vA root tbf rate 200mbit burst 80kb limit 100mb";
        if !Command::new("tc").args(shape.split(' ')).status().is_ok_and(|status| status.success()) {
            return println!("skipped: wants tc, and a kernel with tbf");
        }
        let mut a = Udp::open(&Config::new("10.0.0.1:7001".parse().unwrap())).unwrap();
        let to_b = link_at(&mut a, "10.0.0.9:7001".parse().unwrap());
        // The socket is full, and then all slots are taken.
        let (frame, mut committed) = (vec![7; 60_000], 0u64);
        let is_full = |a: &mut Udp| a.tx_slot(to_b, 1).is_none();
        patience::until("the socket takes no more", || {
            while !is_full(&mut a) {
                assert!(commit(&mut a, to_b, &frame));
                committed += 1;
            }
            a.flush();
            is_full(&mut a)
        });
        let waits = a.counters().waits;
        let have_gone = |a: &Udp| a.counters().tx_frames == committed;
        patience::until("all have gone", || {
            a.flush();
            if !have_gone(&a) {
                let far = a.now() + Duration::from_millis(5_000);
                a.wait(Some(far)).unwrap();
                assert!(a.now() < far || have_gone(&a), "room to send ends a sleep");
            }
            have_gone(&a)
        });
        // A loop of sleeps that do not sleep has thousands.
        assert!(a.counters().waits - waits <= 20, "{} waits", a.counters().waits - waits);
        assert_eq!(a.counters().tx_failed, 0);
    }

    #[test]
    #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
    fn a_narrow_path_keeps_no_other_peers_frames_from_leaving_together() {
        namespace::veth("vA", "vB");
        namespace::ip("link set lo up");
        namespace::ip("addr add 10.0.0.1/24 dev vA");
        namespace::ip("route add 10.0.0.9 dev vA mtu 700");
        let at = |port| Udp::open(&Config::new(format!("10.0.0.1:{port}").parse().unwrap())).unwrap();
        let (mut a, mut b) = (at(7_001), at(7_002));
        let (to_b, narrow) = (link(&mut a, &b), link_at(&mut a, "10.0.0.9:7003".parse().unwrap()));
        let most_at_once = |a: &mut Udp, b: &mut Udp| {
            (0..16).for_each(|_| assert!(commit(a, to_b, &[7; 1_000]), "no slot"));
            a.flush();
            let (mut came, mut most) = (0, 0);
            patience::until("all come", || {
                let shown = b.rx_burst(64, |frame, _| assert_eq!(frame, [7; 1_000]));
                (came, most) = (came + shown, most.max(shown));
                came == 16
            });
            most
        };
        if most_at_once(&mut a, &mut b) == 1 {
            return println!("skipped: this kernel sends no datagrams together");
        }
        (0..16).for_each(|_| assert!(commit(&mut a, narrow, &[7; 1_000]), "no slot"));
        let tx_frames = a.counters().tx_frames;
        patience::until("they go one by one, and are cut by IP", || {
            a.flush();
            a.counters().tx_frames == tx_frames + 16
        });
        assert!(most_at_once(&mut a, &mut b) > 1);
    }

    #[test]
    #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
    fn veth_keeps_the_contract() {
        namespace::veth("vA", "vB");
        namespace::ip("link set lo up");
        namespace::ip("addr add 10.0.0.1/24 dev vA");
        namespace::ip("addr add 10.0.0.2/24 dev vB");
        // Both ends in one namespace: the kernel takes the loopback between its own addresses, but the MTU is veth's.
        let mut setup = At(&["10.0.0.1", "10.0.0.2", "10.0.0.2"]);
        let mtu = setup.open(1).unwrap()[0].caps().mtu;
        assert_eq!(mtu, 1_500 - 20 - 8 - 4);
        conformance::run(&mut setup).assert_passed();
        conformance::run_threads(&mut setup).assert_passed();
    }
}

#[test]
fn open_errors_say_what_to_do() {
    let refusal = |text: &str| Udp::open(&Config::new(text.parse().unwrap())).err().expect("a refusal");
    assert!(matches!(refusal("0.0.0.0:0"), OpenError::Unspecified(_)));
    // TEST-NET-1, RFC 5737.
    assert!(matches!(refusal("192.0.2.1:0"), OpenError::NotOurs(_)));
    let mut first = open();
    let taken = addr_of(&first).to_string();
    assert!(matches!(refusal(&taken), OpenError::Taken(_)));
    let somebody = open();
    link(&mut first, &somebody);
    assert!(matches!(refusal(&taken), OpenError::Taken(_)), "connected sockets keep strangers out too");
}

#[test]
fn each_peer_is_heard_on_whichever_socket() {
    let mut hub = open();
    // More than there are connected sockets, linked one after the other, all of them talking all the time.
    let mut peers: Vec<Udp> = (0..8).map(|_| open()).collect();
    for round in 0..peers.len() {
        let linked = link(&mut hub, &peers[round]);
        send(&mut hub, linked, b"hello");
        assert_eq!(receive(&mut peers[round]).0, b"hello");
        for (number, peer) in (0u8..).zip(&mut peers) {
            let to_hub = link(peer, &hub);
            send(peer, to_hub, &[number]);
        }
        let mut heard: Vec<(Vec<u8>, LinkAddr)> = peers.iter().map(|_| receive(&mut hub)).collect();
        heard.sort();
        let expected: Vec<_> = peers.iter().enumerate().map(|(at, peer)| (vec![at as u8], peer.caps().addr)).collect();
        assert_eq!(heard, expected);
    }
    assert_eq!(hub.counters().rx_foreign, 0);
}

/// Whoever can write a sender's address can have a link made to it.
#[test]
fn only_who_is_confirmed_gets_a_socket() {
    let (mut hub, mut peer) = (open(), open());
    let strangers: Vec<Udp> = (0..8).map(|_| open()).collect();
    let links: Vec<Link> = strangers.iter().map(|stranger| hub.link(stranger.caps().addr).unwrap()).collect();
    assert_eq!(connected_peers(&hub), []);
    let to_peer = hub.link(peer.caps().addr).unwrap();
    let to_hub = link(&mut peer, &hub);
    // What is on its way by one socket stays before what comes by the other.
    send(&mut peer, to_hub, b"one");
    hub.confirm(to_peer);
    assert_eq!(connected_peers(&hub), [addr_of(&peer)]);
    send(&mut peer, to_hub, b"two");
    assert_eq!([receive(&mut hub).0, receive(&mut hub).0], [b"one", b"two"]);
    send(&mut hub, to_peer, b"three");
    assert_eq!(receive(&mut peer).0, b"three");
    // Once is enough, and there are four.
    hub.confirm(to_peer);
    links.iter().for_each(|link| hub.confirm(*link));
    assert_eq!(connected_peers(&hub).len(), 4);
    hub.unlink(to_peer);
    assert_eq!(connected_peers(&hub).len(), 3);
}

/// A socket is deaf to others until it is connected, and never to its peer.
#[test]
fn who_gets_a_socket_while_it_sends_loses_nothing() {
    // Fewer than a socket's buffer holds, however small the system makes it.
    const FRAMES: u8 = 200;
    for _ in 0..40 {
        let (mut hub, mut peer) = (open(), open());
        let (to_peer, to_hub) = (hub.link(peer.caps().addr).unwrap(), link(&mut peer, &hub));
        let flood = std::thread::spawn(move || {
            (0..FRAMES).for_each(|number| send(&mut peer, to_hub, &[number]));
            peer
        });
        for number in 0..FRAMES {
            assert_eq!(receive(&mut hub).0, [number], "{:?}", hub.counters());
            hub.confirm(to_peer);
        }
        flood.join().unwrap();
    }
}

/// What waits on the socket that hears everybody comes before what waits on a new one, and on no other.
#[test]
fn a_flood_of_strangers_makes_nobody_deaf_while_peers_get_sockets() {
    let (mut hub, mut first, mut second, mut stranger) = (open(), open(), open(), open());
    let [from_first, from_second, flood] = [&mut first, &mut second, &mut stranger].map(|nic| link(nic, &hub));
    link(&mut hub, &first);
    pass_quietly(&mut hub);
    // Fewer than a socket's buffer holds, however small the system makes it.
    (0..200).for_each(|_| send(&mut stranger, flood, b"flood"));
    send(&mut second, from_second, b"second's old");
    send(&mut first, from_first, b"first's");
    link(&mut hub, &second);
    send(&mut second, from_second, b"second's new");
    let mut shown = Vec::new();
    for turn in 0..2_000 {
        hub.rx_burst(1, |frame, _| {
            if frame != b"flood" {
                shown.push((turn, String::from_utf8(frame.to_vec()).unwrap()));
            }
        });
        send(&mut stranger, flood, b"flood");
    }
    shown.sort_by_key(|(_, frame)| frame.clone());
    let [(first_at, first), (new_at, new), (old_at, old)] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!([first, new, old], ["first's", "second's new", "second's old"]);
    assert!(*first_at < 100 && old_at < new_at, "{shown:?}");
}

#[test]
fn bursts_of_all_shapes_arrive_whole_and_in_order() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let (to_b, to_c) = (link(&mut a, &b), link(&mut a, &c));
    // Equal, growing, shrinking, empty; runs that end with a shorter frame; two peers mixed.
    let lengths = [100, 100, 100, 40, 40, 0, 0, 0, 7, 8, 9, 8, 7, 1_200, 1_200, 1_200, 1_199, 1_200];
    for round in 0..20usize {
        for (at, len) in lengths.iter().enumerate() {
            let to = if at % (round + 1) == round { to_c } else { to_b };
            assert!(commit(&mut a, to, &vec![at as u8; *len]));
        }
        a.flush();
        for (at, len) in lengths.iter().enumerate() {
            let receiver = if at % (round + 1) == round { &mut c } else { &mut b };
            assert_eq!(receive(receiver).0, vec![at as u8; *len], "round {round}, frame {at}");
        }
    }
    assert_eq!(a.counters().tx_frames, 20 * lengths.len() as u64);
}

#[test]
fn refusals_are_counted_and_a_late_peer_is_reached() {
    let mut a = open();
    let late = unused();
    let to_late = link_at(&mut a, late);
    for number in 0..20u8 {
        send(&mut a, to_late, &[number]);
        let now = a.now();
        a.rx_burst(1, |_, _| unreachable!());
        a.wait(Some(now)).unwrap();
    }
    assert!(a.counters().tx_failed > 0, "{:?}", a.counters());
    assert!(!a.is_gone(to_late));
    let mut b = Udp::open(&Config::new(late)).unwrap();
    send(&mut a, to_late, b"at last");
    assert_eq!(receive(&mut b).0, b"at last");
}

#[test]
fn a_refusal_that_comes_while_it_sleeps_is_counted() {
    let mut a = open();
    let nobody = unused();
    let to_nobody = link_at(&mut a, nobody);
    for refused in 1..=5 {
        // On the loopback a refusal has come when the call returns, and wakes whoever would sleep.
        send(&mut a, to_nobody, b"nobody there");
        a.wait(Some(a.now() + Duration::from_millis(10_000))).unwrap();
        assert_eq!(a.counters().tx_failed, refused);
    }
}

#[test]
fn a_burst_behind_a_refusal_arrives_whole() {
    // One run of equal frames, and several.
    for lengths in [[500; 12], std::array::from_fn(|at| 500 + at)] {
        let mut a = open();
        let late = unused();
        let to_late = link_at(&mut a, late);
        // On the loopback a refusal has come when the call returns.
        for _ in 0..3 {
            send(&mut a, to_late, b"nobody there");
        }
        let mut b = Udp::open(&Config::new(late)).unwrap();
        for len in lengths {
            assert!(commit(&mut a, to_late, &vec![len as u8; len]));
        }
        a.flush();
        let mut got: Vec<usize> = lengths.iter().map(|_| receive(&mut b).0.len()).collect();
        // What leaves again leaves last.
        got.sort_unstable();
        assert_eq!(got, lengths);
    }
}

#[test]
fn frames_of_a_forgotten_link_go_nowhere() {
    let (mut a, mut b) = (open(), open());
    let to_b = link(&mut a, &b);
    assert!(commit(&mut a, to_b, b"too late"));
    a.unlink(to_b);
    a.flush();
    assert_eq!(a.counters().tx_failed, 1);
    assert!(a.tx_slot(to_b, 1).is_none());
    let again = link(&mut a, &b);
    send(&mut a, again, b"again");
    assert_eq!(receive(&mut b).0, b"again");
}

#[test]
fn frames_of_a_forgotten_link_do_not_go_to_who_has_its_number_next() {
    let (mut a, mut first, mut second) = (open(), open(), open());
    let to_first = link(&mut a, &first);
    (0..3).for_each(|byte| assert!(commit(&mut a, to_first, &[byte])));
    a.unlink(to_first);
    let to_second = link(&mut a, &second);
    assert_eq!(to_second, to_first);
    send(&mut a, to_second, b"yours");
    assert_eq!(receive(&mut second), (b"yours".to_vec(), a.caps().addr));
    assert_eq!((a.counters().tx_frames, a.counters().tx_failed), (1, 3));
    pass_quietly(&mut first);
}

#[test]
fn frames_that_are_unread_when_their_link_is_forgotten_are_counted() {
    for refusal in [false, true] {
        let (mut a, mut b) = (open(), open());
        let (to_b, to_a) = (link(&mut a, &b), link(&mut b, &a));
        // One by one; and merged, where the kernel does that for bulk.
        for (flushes, frames) in [(5, 1), (40, 1), (2, 20)] {
            for _ in 0..flushes {
                (0..frames).for_each(|_| assert!(commit(&mut b, to_a, b"unread")));
                b.flush();
            }
            if flushes == 40 {
                patience::until("they are shown", || {
                    a.rx_burst(64, |_, _| {});
                    a.counters().rx_frames == 45
                });
            }
        }
        if refusal {
            let at = addr_of(&b);
            drop(b);
            until_left(at);
            send(&mut a, to_b, b"nobody listens");
        }
        a.unlink(to_b);
        assert_eq!((a.counters().rx_frames, a.counters().rx_dropped), (45, 40), "refusal: {refusal}");
    }
}

#[test]
fn address_of_another_family_is_refused() {
    let mut a = open();
    assert!(a.link(LinkAddr::Udp("[::1]:9".parse().unwrap())).is_err());
}

/// A quiet socket is asked seldom, and one datagram is shown a call.
#[test]
fn what_waits_unshown_is_known() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let (to_b, to_c) = (link(&mut a, &b), link(&mut a, &c));
    let (from_b, from_c) = (link(&mut b, &a), link(&mut c, &a));
    // Each has a socket of its own at `a`, and that of `b` was busy last.
    for (nic, to, back) in [(&mut c, from_c, to_c), (&mut b, from_b, to_b)] {
        send(&mut a, back, b"hello");
        receive(nic);
        send(nic, to, b"hello");
        receive(&mut a);
    }
    assert!(!a.has_unread());
    for nic in [(&mut b, from_b), (&mut c, from_c)] {
        let (nic, to) = nic;
        send(nic, to, b"one");
        send(nic, to, b"two");
    }
    let mut shown = 0;
    let deadline = a.now() + Duration::from_millis(5_000);
    while shown < 4 {
        // On the loopback a datagram is there when its system call is over.
        assert!(a.has_unread(), "{shown} of 4");
        shown += a.rx_burst(64, |_, _| {});
        assert!(a.now() < deadline);
    }
    assert!(!a.has_unread());
}

/// One system call for all: a socket of its own for each of the first peers, and the one that hears the others.
#[test]
fn all_sockets_are_asked_at_once() {
    let mut hub = open();
    let mut peers: Vec<Udp> = (0..6).map(|_| open()).collect();
    let to_hub: Vec<Link> = peers.iter_mut().map(|peer| link(peer, &hub)).collect();
    // The last one is a stranger.
    for (peer, to_hub) in peers.iter_mut().zip(&to_hub).take(5) {
        let back = link(&mut hub, peer);
        send(&mut hub, back, b"hello");
        receive(peer);
        send(peer, *to_hub, b"hello");
        receive(&mut hub);
    }
    for (number, (peer, to_hub)) in peers.iter_mut().zip(to_hub).enumerate() {
        let calls = polls::calls();
        assert!(!hub.has_unread(), "before peer {number}");
        // On the loopback a datagram is there when its system call is over.
        send(peer, to_hub, b"one");
        assert!(hub.has_unread(), "peer {number}");
        assert_eq!(polls::calls() - calls, 2);
        let deadline = hub.now() + Duration::from_millis(5_000);
        hub.wait(Some(deadline)).unwrap();
        assert!(hub.now() < deadline, "slept beside the datagram of peer {number}");
        assert_eq!(polls::calls() - calls, 3);
        assert_eq!(receive(&mut hub).1, peer.caps().addr);
    }
}

/// Turns of `nic` that find nothing, as many as make it take the next datagram for a lone one.
fn pass_quietly(nic: &mut Udp) {
    for _ in 0..100 {
        assert_eq!(nic.rx_burst(64, |_, _| {}), 0);
    }
}

/// A refusal is reported before what waits.
#[test]
fn a_refusal_behind_a_lone_datagram_costs_none() {
    let mut a = open();
    for _ in 0..20 {
        let mut b = open();
        let (to_b, to_a) = (link(&mut a, &b), link(&mut b, &a));
        pass_quietly(&mut a);
        send(&mut b, to_a, b"lone");
        assert_eq!(receive(&mut a).0, b"lone");
        send(&mut b, to_a, b"last");
        let at = addr_of(&b);
        drop(b);
        until_left(at);
        let failed = a.counters().tx_failed;
        send(&mut a, to_b, b"nobody listens");
        assert_eq!(receive(&mut a).0, b"last");
        pass_quietly(&mut a);
        assert_eq!(a.counters().tx_failed, failed + 1);
        a.unlink(to_b);
    }
}

/// Who comes back at the same address is heard by the socket that its predecessor had.
#[test]
fn a_peer_that_restarts_at_its_address_is_heard() {
    let (mut a, at) = (open(), unused());
    let to_b = link_at(&mut a, at);
    for round in 0..10u8 {
        let mut b = open_again(at);
        let to_a = link(&mut b, &a);
        pass_quietly(&mut a);
        for number in [round, round + 100] {
            send(&mut b, to_a, &[number]);
            assert_eq!(receive(&mut a), (vec![number], LinkAddr::Udp(at)));
            send(&mut a, to_b, &[number]);
            assert_eq!(receive(&mut b).0, [number]);
        }
    }
    assert_eq!(connected_peers(&a), [at]);
}
