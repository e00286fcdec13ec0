//! The `uring` driver on real interfaces of the kernel: veth pairs, a bridge, the loopback.

mod namespace;
mod patience;
#[allow(dead_code, reason = "some of it is for tests of another driver")]
mod raw_socket;

use namespace::run_inside;

macro_rules! inside_a_namespace {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run_inside(concat!("inside::", stringify!($name)));
            }
        )*

        mod inside {
            $(
                #[test]
                #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
                fn $name() {
                    super::cases::$name();
                }
            )*
        }
    };
}

inside_a_namespace! {
    veth_keeps_the_contract
    real_frames_on_veth_keep_the_contract
    trains_on_veth_keep_the_contract
    trains_and_lone_frames_come_in_the_order_of_sending
    readers_rest_behind_trains_alone_and_miss_nothing
    bridge_keeps_the_contract
    loopback_keeps_the_contract
    open_errors_say_what_to_do
    foreign_protocols_are_not_seen
    others_frames_are_not_seen_and_put_the_filter_back
    frames_of_both_rings_come_in_the_order_of_sending
    short_frames_that_come_alone_and_many_at_once_are_whole
    short_frames_that_follow_large_ones_come_after_them
    full_rings_drop_and_count
    removed_interface_is_gone
    interface_that_was_down_carries_frames_again
    lost_offload_fails_large_frames_only
    mtu_follows_the_interface
}

mod cases {
    use std::ops::Range;
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use sidelane_nic::conformance::{self, Setup};
    use sidelane_nic::rng::Rng;
    use sidelane_nic::time::Duration;
    use sidelane_nic::uring::{Config, OpenError, Uring};
    use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

    use super::namespace::{ip, veth};
    use super::patience::until;
    use super::raw_socket::RawSocket;

    fn open(interface: &str, endpoint: u16) -> Uring {
        Uring::open(&Config::new(interface, endpoint)).unwrap()
    }

    fn veth_pair() -> (Uring, Uring, Link) {
        veth("vA", "vB");
        let (mut a, b) = (open("vA", 1), open("vB", 1));
        let to_b = a.link(b.caps().addr).unwrap();
        (a, b, to_b)
    }

    fn commit(nic: &mut Uring, link: Link, bytes: &[u8]) -> bool {
        let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
        slot.copy_from_slice(bytes);
        slot.commit();
        true
    }

    fn send(nic: &mut Uring, link: Link, bytes: &[u8]) {
        assert!(commit(nic, link, bytes), "no slot");
        nic.flush();
    }

    fn receive_one(nic: &mut Uring) -> Vec<u8> {
        let deadline = nic.now() + Duration::from_millis(5_000);
        let mut got = None;
        while nic.rx_burst(1, |frame, _| got = Some(frame.to_vec())) == 0 {
            assert!(nic.now() < deadline, "no frame came");
            nic.wait(Some(deadline)).unwrap();
        }
        got.unwrap()
    }

    /// Endpoints on interfaces, in this order; all of one interface after the other have numbers of their own.
    struct On {
        interfaces: &'static [&'static str],
        real_frames: bool,
    }

    impl Setup for On {
        type Nic = Uring;

        fn open(&mut self, count: usize) -> Result<Vec<Uring>, String> {
            let endpoints = self.interfaces.iter().zip(1..).take(count).map(|(interface, endpoint)| {
                let config = Config { real_frames: self.real_frames, ..Config::new(*interface, endpoint) };
                Uring::open(&config).map_err(|error| error.to_string())
            });
            endpoints.collect()
        }

        fn absent(&mut self) -> Option<LinkAddr> {
            Some("02:00:00:00:00:99/9".parse().unwrap())
        }

        fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
            RawSocket::on(self.interfaces[0]).throw(victim, bytes);
            true
        }
    }

    fn keeps_the_contract(mut setup: On) {
        // A skipped suite would be a suite that proves nothing: here it has to open.
        setup.open(3).unwrap();
        conformance::run(&mut setup).assert_passed();
        conformance::run_threads(&mut setup).assert_passed();
    }

    pub fn veth_keeps_the_contract() {
        veth("vA", "vB");
        keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: false });
    }

    pub fn real_frames_on_veth_keep_the_contract() {
        veth("vA", "vB");
        keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: true });
    }

    /// False where there is no ethtool.
    fn turn_offloads_off(interfaces: &[&str]) -> bool {
        interfaces.iter().all(|interface| {
            let status = Command::new("ethtool").args(["-K", interface, "tso", "off", "tx", "off"]).status();
            status.is_ok_and(|status| status.success())
        })
    }

    pub fn trains_on_veth_keep_the_contract() {
        veth("vA", "vB");
        if !turn_offloads_off(&["vA", "vB"]) {
            return println!("skipped: wants ethtool");
        }
        assert_eq!(open("vA", 1).caps().mtu, 1_500 - 28);
        keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: false });
    }

    pub fn trains_and_lone_frames_come_in_the_order_of_sending() {
        veth("vA", "vB");
        if !turn_offloads_off(&["vA", "vB"]) {
            return println!("skipped: wants ethtool");
        }
        let (mut a, mut b, mut c) = (open("vA", 1), open("vB", 1), open("vB", 2));
        let to = [b.caps().addr, c.caps().addr].map(|addr| a.link(addr).unwrap());
        let mtu = a.caps().mtu;
        let mut next = [0u8; 2];
        // Who gets frames of which length, and how many of them: trains with a short end, too short ones, too long ones.
        let runs = [(0, mtu, 100), (0, 8, 1), (1, 8, 90), (0, 0, 5), (0, 64, 3), (1, mtu, 30), (1, 100, 1), (0, 1, 7)];
        for _ in 0..20 {
            for (peer, len, count) in runs {
                for _ in 0..count {
                    let mut frame = vec![next[peer]; len];
                    if let Some(last) = frame.last_mut() {
                        *last ^= 0x80;
                    }
                    assert!(commit(&mut a, to[peer], &frame), "no slot");
                    next[peer] = next[peer].wrapping_add(u8::from(len > 0));
                }
            }
            a.flush();
            for (peer, nic) in [&mut b, &mut c].into_iter().enumerate() {
                let sent = |of_length: fn(usize) -> bool| -> usize {
                    runs.iter().filter(|run| run.0 == peer && of_length(run.1)).map(|run| run.2).sum()
                };
                let (full, empty) = (sent(|len| len > 0), sent(|len| len == 0));
                let mut expected = next[peer].wrapping_sub(full as u8);
                let mut seen = (0, 0);
                // A burst of nothing is not the end: it may keep behind what comes.
                until("all are shown", || {
                    nic.rx_burst(64, |frame, _| match frame {
                        [] => seen.1 += 1,
                        [first, rest @ ..] => {
                            let first = if rest.is_empty() { first ^ 0x80 } else { *first };
                            let last = rest.last().map_or(first, |last| last ^ 0x80);
                            assert_eq!((first, last), (expected, expected), "peer {peer}");
                            expected = expected.wrapping_add(1);
                            seen.0 += 1;
                        }
                    });
                    seen == (full, empty)
                });
            }
        }
        assert_eq!((a.counters().tx_failed, b.counters().rx_dropped, b.counters().rx_foreign), (0, 0, 0));
    }

    pub fn readers_rest_behind_trains_alone_and_miss_nothing() {
        let (a, b, _) = veth_pair();
        let super_packets = a.caps().mtu;
        let exchange = |a: &mut Uring, b: &mut Uring, len: usize, count: usize| {
            let to_b = a.link(b.caps().addr).unwrap();
            (0..count).for_each(|_| assert!(commit(a, to_b, &vec![1; len]), "no slot"));
            a.flush();
            let mut seen = 0;
            until("all are shown", || {
                seen += b.rx_burst(64, |_, _| ());
                seen == count
            });
            // In a moment in which it may rest.
            assert_eq!(b.rx_burst(64, |_, _| panic!("one too many")), 0);
            // Which a small frame ends.
            send(a, to_b, &[1]);
            assert_eq!(b.rx_burst(64, |_, _| ()), 1);
        };
        let play = |(mut a, mut b): (Uring, Uring), len, count| {
            (0..50).for_each(|_| exchange(&mut a, &mut b, len, count));
            // Whoever would sleep is told of a frame that came while it rests.
            let to_b = a.link(b.caps().addr).unwrap();
            send(&mut a, to_b, &[1]);
            b.wait(None).unwrap();
            until("it is shown", || b.rx_burst(64, |_, _| ()) > 0);
            b.rested()
        };
        assert_eq!(play((a, b), super_packets, 4), 0);
        assert_eq!(play((open("vA", 1), open("vB", 1)), 1_000, 1), 0);
        if !turn_offloads_off(&["vA", "vB"]) {
            return println!("skipped: wants ethtool");
        }
        let (a, b) = (open("vA", 1), open("vB", 1));
        let mtu = a.caps().mtu;
        assert!(play((a, b), mtu, 60) > 0);
    }

    pub fn bridge_keeps_the_contract() {
        ip("link add hub type bridge");
        ip("link set hub up");
        for (end, port) in [("vA", "pA"), ("vB", "pB"), ("vC", "pC")] {
            veth(end, port);
            ip(&format!("link set {port} master hub"));
        }
        keeps_the_contract(On { interfaces: &["vA", "vB", "vC"], real_frames: false });
    }

    pub fn loopback_keeps_the_contract() {
        ip("link set lo up");
        keeps_the_contract(On { interfaces: &["lo", "lo", "lo"], real_frames: false });
    }

    pub fn open_errors_say_what_to_do() {
        let refusal = |interface: &str| Uring::open(&Config::new(interface, 1)).err().expect("a refusal");
        ip("link add vA type veth peer name vB");

        let error = refusal("vX");
        assert!(matches!(error, OpenError::NoSuchInterface { .. }));
        assert!(error.to_string().contains("vA") && error.to_string().contains("lo"), "{error}");

        let error = refusal("vA");
        assert!(matches!(error, OpenError::InterfaceDown(_)));
        assert!(error.to_string().contains("ip link set vA up"), "{error}");

        ip("link set vA up");
        let first = open("vA", 1);
        assert!(matches!(refusal("vA"), OpenError::EndpointTaken { endpoint: 1, .. }));
        drop(first);
        drop(open("vA", 1));
    }

    pub fn foreign_protocols_are_not_seen() {
        let (mut a, mut b, to_b) = veth_pair();
        let LinkAddr::Ether { mac, endpoint } = b.caps().addr else { unreachable!() };
        let neighbour = RawSocket::on("vA");
        let [high, low] = endpoint.to_be_bytes();
        // IPv4 without a segmentation mark, ARP, the other experimental EtherType.
        for ethertype in [[0x08, 0x00], [0x08, 0x06], [0x88, 0xb6]] {
            let frame = [&mac[..], &[2; 6], &ethertype, &[high, low, 0, 0, 0, 4, 0, 1], b"evil", &[0; 40]].concat();
            neighbour.send(&frame);
        }
        // Ours, but shorter than it says.
        neighbour.send(&[&mac[..], &[2; 6], &[0x88, 0xb5, high, low, 0, 0, 0xff, 0xff, 0, 1], b"evil"].concat());
        send(&mut a, to_b, b"ours");
        assert_eq!(receive_one(&mut b), b"ours");
        assert_eq!((b.counters().rx_frames, b.counters().rx_foreign), (1, 1));
    }

    pub fn others_frames_are_not_seen_and_put_the_filter_back() {
        let (mut a, mut b, to_b) = veth_pair();
        let mut beside = open("vB", 2);
        let to_beside = a.link(beside.caps().addr).unwrap();
        let elsewhere = a.link("02:00:00:00:00:99/1".parse().unwrap()).unwrap();
        for (ours, others) in [(1_000, 6), (2_000, 12)] {
            // So many that it goes without a filter.
            for _ in 0..ours {
                send(&mut a, to_b, b"ours");
                assert_eq!(receive_one(&mut b), b"ours");
            }
            for _ in 0..2 {
                for to in [to_beside, elsewhere, to_beside] {
                    send(&mut a, to, b"others");
                }
            }
            assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
            assert_eq!(b.counters().rx_foreign, others, "all were there before it looked");
            for to in [to_beside, elsewhere] {
                send(&mut a, to, b"others");
            }
            assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
            assert_eq!(b.counters().rx_foreign, others, "a filter keeps them away");
            (0..5).for_each(|_| assert_eq!(receive_one(&mut beside), b"others"));
        }
        assert_eq!((b.counters().rx_frames, beside.counters().rx_foreign), (3_000, 0));
        // What nobody can read, to anybody.
        for _ in 0..4_000 {
            send(&mut a, to_b, b"ours");
            receive_one(&mut b);
        }
        let neighbour = RawSocket::on("vA");
        let unknown = [&[2; 12][..], &[0x88, 0xb5, 0, 9, 0, 9, 0, 0, 0, 2], &[0; 40]].concat();
        for counted in [13, 13] {
            neighbour.send(&unknown);
            assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
            assert_eq!(b.counters().rx_foreign, counted);
        }
    }

    pub fn frames_of_both_rings_come_in_the_order_of_sending() {
        let (mut a, mut b, to_b) = veth_pair();
        assert!(a.caps().mtu > a.caps().mtu_safe, "a veth has the offload: {:?}", a.caps());
        let (small, large) = (a.caps().mtu_safe, a.caps().mtu);
        let mut next = 0u8;
        for round in 0..50 {
            let sent = next;
            for at in 0..16 {
                // Runs of one to three of a kind.
                let len = if (at + round) / 2 % 2 == 0 { small } else { large };
                assert!(commit(&mut a, to_b, &vec![next; len]));
                next = next.wrapping_add(1);
            }
            a.flush();
            for number in 0..16u8 {
                assert_eq!(receive_one(&mut b)[0], sent.wrapping_add(number));
            }
        }
    }

    pub fn short_frames_that_come_alone_and_many_at_once_are_whole() {
        let (mut a, mut b, to_b) = veth_pair();
        let (mut frames, begun) = (0, Instant::now());
        until("a frame is seen early", || {
            // Mostly alone, so that it is seen before the kernel hands it over.
            let under_way = |number| if number % 1_000 < 900 { 1 } else { 64 };
            receive_numbered(&mut a, &mut b, to_b, frames..frames + PART, under_way, |_| 16);
            frames += PART;
            (b.seen_early() > 0 || shares_the_only_core()) && is_enough(frames, 200_000, begun)
        });
        assert_eq!((b.counters().rx_frames, b.counters().rx_dropped), (frames, 0));
        println!("{} of {frames} frames were seen early", b.seen_early());
    }

    /// What is seen early waits for what came before it in the ring of super-packets.
    pub fn short_frames_that_follow_large_ones_come_after_them() {
        let (mut a, mut b, to_b) = veth_pair();
        let large = a.caps().mtu_safe as u64 + 1;
        assert!(large < a.caps().mtu as u64, "a veth has the offload: {:?}", a.caps());
        // Pairs of a large frame and a short one, sent with nothing between them.
        let len = |number| if number % 2 == 0 { large } else { 16 };
        let (mut frames, begun) = (0, Instant::now());
        until("a frame is seen early", || {
            receive_numbered(&mut a, &mut b, to_b, frames..frames + PART, |number| 1 + number % 2, len);
            frames += PART;
            (b.seen_early() > 0 || shares_the_only_core()) && is_enough(frames, 100_000, begun)
        });
        assert_eq!((b.counters().rx_frames, b.counters().rx_dropped), (frames, 0));
        println!("{} of {frames} frames were seen early", b.seen_early());
    }

    /// Frames that come one after the other, each after a turn on a core that other programs may want as well.
    const PART: u64 = 2_000;

    /// As many as wanted, or as many as come in a few seconds.
    fn is_enough(frames: u64, wanted: u64, begun: Instant) -> bool {
        frames >= wanted || begun.elapsed().as_secs() >= 10
    }

    /// Who shares a core with the sender sees no frame early.
    fn shares_the_only_core() -> bool {
        std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
    }

    /// Frames of these numbers, each of at least `len` bytes and sent when fewer than `under_way` are, come whole and in order.
    fn receive_numbered(
        a: &mut Uring,
        b: &mut Uring,
        to_b: Link,
        numbers: Range<u64>,
        under_way: impl Fn(u64) -> u64 + Sync,
        len: impl Fn(u64) -> u64 + Sync,
    ) {
        let (sender, mut next, end) = (a.caps().addr, numbers.start, numbers.end);
        let (received, mut rng) = (AtomicU64::new(next), Rng::new(1 + next));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in numbers {
                    let room = || number - received.load(Ordering::Acquire) < under_way(number);
                    until("what was sent is received", room);
                    let mut frame = vec![0; (len(number) + rng.below(160)) as usize];
                    rng.fill(&mut frame[16..]);
                    frame[8..16].copy_from_slice(&number.to_le_bytes());
                    let check = check_of(&frame);
                    frame[..8].copy_from_slice(&check.to_le_bytes());
                    send(a, to_b, &frame);
                }
            });
            until("all frames come", || {
                b.rx_burst(64, |frame, from| {
                    assert_eq!(from, sender);
                    assert!(frame[..8] == check_of(frame).to_le_bytes(), "frame {next} is not as it was sent");
                    assert_eq!(frame[8..16], u64::to_le_bytes(next));
                    next += 1;
                    received.store(next, Ordering::Release);
                });
                received.load(Ordering::Relaxed) == end
            });
        });
    }

    /// Of all but the first eight bytes (FNV-1a, 64 bits).
    fn check_of(frame: &[u8]) -> u64 {
        let step = |check: u64, byte: &u8| (check ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        frame.iter().skip(8).fold(0xcbf2_9ce4_8422_2325, step)
    }

    pub fn full_rings_drop_and_count() {
        let (mut a, mut b, to_b) = veth_pair();
        for (len, slots) in [(8, 256), (a.caps().mtu, 64)] {
            let dropped_before = b.counters().rx_dropped;
            for _ in 0..slots + 40 {
                send(&mut a, to_b, &vec![7; len]);
            }
            let mut received = 0;
            while b.rx_burst(1_000, |_, _| {}) > 0 {
                received += 1;
            }
            assert!(received > 0);
            assert_eq!(b.counters().rx_dropped - dropped_before, 40, "{len} B");
            assert_eq!(b.counters().rx_dropped - dropped_before, 40, "reading the counters changes nothing");
        }
    }

    pub fn removed_interface_is_gone() {
        let (mut a, mut b, to_b) = veth_pair();
        send(&mut a, to_b, b"up");
        receive_one(&mut b);
        assert!(!a.is_gone(to_b));
        ip("link del vA");
        let deadline = a.now() + Duration::from_millis(2_000);
        a.wait(Some(deadline)).unwrap();
        assert!(a.is_gone(to_b), "noticed by waiting");

        let to_a = b.link(a.caps().addr).unwrap();
        send(&mut b, to_a, b"to nobody");
        assert!(b.is_gone(to_a), "noticed by sending");
        assert_eq!(b.counters().tx_failed, 1);
        assert!(commit(&mut b, to_a, b"again"), "no slot is stuck");
    }

    pub fn interface_that_was_down_carries_frames_again() {
        let (mut a, mut b, to_b) = veth_pair();
        ip("link set vA down");
        for count in [1, 2] {
            for _ in 0..count {
                assert!(commit(&mut a, to_b, b"lost"));
            }
            a.flush();
        }
        assert_eq!(a.counters().tx_failed, 3);
        assert!(!a.is_gone(to_b));
        // The socket's pending error wakes a sleeper once, not for ever.
        for _ in 0..2 {
            a.wait(Some(a.now())).unwrap();
        }
        let (before, span) = (a.now(), Duration::from_millis(20));
        a.wait(Some(before + span)).unwrap();
        a.wait(Some(before + span)).unwrap();
        assert!(a.now() >= before + span);
        ip("link set vA up");
        until("a frame crosses the interface", || {
            send(&mut a, to_b, b"found");
            b.rx_burst(1, |frame, _| assert_eq!(frame, b"found")) > 0
        });
    }

    pub fn lost_offload_fails_large_frames_only() {
        let (mut a, mut b, to_b) = veth_pair();
        let Ok(status) = Command::new("ethtool").args(["-K", "vA", "tso", "off"]).status() else {
            return println!("skipped: wants ethtool");
        };
        assert!(status.success());
        let large = vec![1; a.caps().mtu];
        send(&mut a, to_b, &large);
        for number in 0..20u8 {
            send(&mut a, to_b, &[number]);
            assert_eq!(receive_one(&mut b), [number], "small frames pass by");
        }
        // More flushes than the driver tries.
        for _ in 0..10_000 {
            a.flush();
        }
        assert_eq!(a.counters().tx_failed, 1);
        assert!(!matches!(Uring::open(&Config::new("vA", 2)), Ok(nic) if nic.caps().mtu > nic.caps().mtu_safe));
    }

    pub fn mtu_follows_the_interface() {
        ip("link add vA mtu 9000 type veth peer name vB mtu 9000");
        ip("link set vA up");
        ip("link set vB up");
        let config = Config { real_frames: true, ..Config::new("vA", 1) };
        let mut a = Uring::open(&config).unwrap();
        assert_eq!((a.caps().mtu, a.caps().mtu_safe), (8_992, 8_992));
        let mut b = open("vB", 1);
        let to_b = a.link(b.caps().addr).unwrap();
        send(&mut a, to_b, &[5; 8_992]);
        assert_eq!(receive_one(&mut b), [5; 8_992]);
    }
}
