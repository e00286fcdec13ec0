//! The `xdp` driver on real interfaces of the kernel: veth pairs, a bridge, the loopback. As root; who is not is told so.
#![allow(unsafe_code)] // A raw socket, to send what the driver would not, and network namespaces for threads.

mod namespace;

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
                    if super::cases::may_open() {
                        super::cases::$name();
                    }
                }
            )*

            #[test]
            #[ignore = "a process that is killed by the tests of that"]
            fn endpoint_until_killed() {
                super::cases::endpoint_until_killed();
            }
        }
    };
}

inside_a_namespace! {
    veth_keeps_the_contract
    native_mode_keeps_the_contract
    bridge_keeps_the_contract
    loopback_keeps_the_contract
    open_errors_say_what_to_do
    foreign_frames_are_the_kernels
    queues_are_chosen
    uring_and_xdp_share_an_interface
    full_rings_drop_and_count
    removed_interface_is_gone
    interface_that_was_down_carries_frames_again
    driver_moves_between_threads
    mtu_follows_the_interface_as_far_as_chunks_go
    the_first_endpoint_may_leave_first
    killed_endpoints_leave_nothing_behind
    endpoints_come_and_go_without_end
    the_kernel_goes_on_pinging_and_streaming
}

mod cases {
    use std::process::{Child, Command, Stdio};

    use sidelane_nic::conformance::{self, Setup};
    use sidelane_nic::time::Duration;
    use sidelane_nic::uring::{self, Uring};
    use sidelane_nic::xdp::{Config, Mode, OpenError, Preference, Xdp};
    use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

    use super::namespace::{ip, veth};
    use super::raw::RawSocket;

    /// Where it is forbidden, the test says why and passes.
    pub fn may_open() -> bool {
        ip("link set lo up");
        match Xdp::open(&Config::new("lo", 1)) {
            Err(error @ (OpenError::NotPermitted | OpenError::NotInKernel)) => {
                println!("skipped: {error}");
                false
            }
            _ => true,
        }
    }

    fn open(interface: &str, endpoint: u16) -> Xdp {
        Xdp::open(&Config::new(interface, endpoint)).unwrap()
    }

    fn veth_pair() -> (Xdp, Xdp, Link) {
        veth("vA", "vB");
        let (mut a, b) = (open("vA", 1), open("vB", 1));
        let to_b = a.link(b.caps().addr).unwrap();
        (a, b, to_b)
    }

    fn commit(nic: &mut impl Nic, link: Link, bytes: &[u8]) -> bool {
        let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
        slot.copy_from_slice(bytes);
        slot.commit();
        true
    }

    fn send(nic: &mut impl Nic, link: Link, bytes: &[u8]) {
        assert!(commit(nic, link, bytes), "no slot");
        nic.flush();
    }

    fn receive_one(nic: &mut impl Nic) -> Vec<u8> {
        let deadline = nic.now() + Duration::from_millis(5_000);
        let mut got = None;
        while nic.rx_burst(1, |frame, _| got = Some(frame.to_vec())) == 0 {
            assert!(nic.now() < deadline, "no frame came");
            nic.wait(Some(deadline)).unwrap();
        }
        got.unwrap()
    }

    /// Sends a few frames one way and checks that they come.
    fn exchange(from: &mut impl Nic, to: &mut impl Nic) {
        let link = from.link(to.caps().addr).unwrap();
        for number in 0..100u8 {
            send(from, link, &[number; 90]);
            assert_eq!(receive_one(to), [number; 90]);
        }
    }

    /// Endpoints on interfaces, in this order; all of one interface after the other have numbers of their own.
    struct On {
        interfaces: &'static [&'static str],
        prefer: Preference,
    }

    impl Setup for On {
        type Nic = Xdp;

        fn open(&mut self, count: usize) -> Result<Vec<Xdp>, String> {
            let endpoints = self.interfaces.iter().zip(1..).take(count).map(|(interface, endpoint)| {
                let config = Config { prefer: self.prefer, ..Config::new(*interface, endpoint) };
                Xdp::open(&config).map_err(|error| error.to_string())
            });
            endpoints.collect()
        }

        fn absent(&mut self) -> Option<LinkAddr> {
            Some("02:00:00:00:00:99/9".parse().unwrap())
        }

        fn throw(&mut self, victim: &Xdp, bytes: &[u8]) -> bool {
            let LinkAddr::Ether { mac, endpoint } = victim.caps().addr else { unreachable!() };
            // Every other one is steered to the driver, so that it meets it.
            let steered = bytes.first().is_some_and(|byte| byte % 2 == 0);
            let start = if steered { endpoint.to_be_bytes() } else { [0xee; 2] };
            RawSocket::on(self.interfaces[0]).send(&[&mac[..], &[2; 6], &[0x88, 0xb5], &start, bytes].concat());
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
        keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], prefer: Preference::Fastest });
    }

    pub fn native_mode_keeps_the_contract() {
        veth("vA", "vB");
        let (a, b) = (Config { prefer: Preference::Native, ..Config::new("vA", 1) }, Config::new("vB", 1));
        assert_eq!(Xdp::open(&a).unwrap().mode(), Mode::Native);
        assert_eq!(Xdp::open(&b).unwrap().mode(), Mode::Generic);
        keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], prefer: Preference::Native });
    }

    pub fn bridge_keeps_the_contract() {
        ip("link add hub type bridge");
        ip("link set hub up");
        for (end, port) in [("vA", "pA"), ("vB", "pB"), ("vC", "pC")] {
            veth(end, port);
            ip(&format!("link set {port} master hub"));
        }
        keeps_the_contract(On { interfaces: &["vA", "vB", "vC"], prefer: Preference::Fastest });
    }

    pub fn loopback_keeps_the_contract() {
        ip("link set lo up");
        keeps_the_contract(On { interfaces: &["lo", "lo", "lo"], prefer: Preference::Fastest });
    }

    pub fn open_errors_say_what_to_do() {
        let refusal = |config: Config| Xdp::open(&config).err().expect("a refusal");
        let at = |interface: &str| Config::new(interface, 1);
        ip("link add vA type veth peer name vB");

        let error = refusal(at("vX"));
        assert!(matches!(error, OpenError::NoSuchInterface { .. }));
        assert!(error.to_string().contains("vA") && error.to_string().contains("lo"), "{error}");

        let error = refusal(at("vA"));
        assert!(matches!(error, OpenError::InterfaceDown(_)));
        assert!(error.to_string().contains("ip link set vA up"), "{error}");

        ip("link set vA up");
        assert!(matches!(refusal(Config { queue: 9, ..at("vA") }), OpenError::NoSuchQueue { queue: 9, .. }));
        let error = refusal(Config { prefer: Preference::Native, ..at("lo") });
        assert!(error.to_string().contains("attaching the XDP program"), "{error}");

        let first = open("vA", 1);
        assert!(matches!(refusal(at("vA")), OpenError::EndpointTaken { endpoint: 1, .. }));
        assert!(Uring::open(&uring::Config::new("vA", 1)).is_err(), "an endpoint is one driver's only");
        let all: Vec<Xdp> = (2..17).map(|endpoint| open("vA", endpoint)).collect();
        assert!(matches!(refusal(Config::new("vA", 17)), OpenError::Full(_)));
        drop((first, all));
        drop(open("vA", 1));
    }

    pub fn foreign_frames_are_the_kernels() {
        let (mut a, mut b, to_b) = veth_pair();
        let LinkAddr::Ether { mac, endpoint } = b.caps().addr else { unreachable!() };
        let (neighbour, kernel) = (RawSocket::on("vA"), RawSocket::on("vB"));
        let [high, low] = endpoint.to_be_bytes();
        // IPv4, ARP, the other experimental EtherType, an endpoint that is not there, another host's address, a runt.
        let ours = [0x88, 0xb5, high, low];
        let others: [Vec<u8>; 6] = [
            [&mac[..], &[2; 6], &[0x08, 0x00, high, low]].concat(),
            [&mac[..], &[2; 6], &[0x08, 0x06, high, low]].concat(),
            [&mac[..], &[2; 6], &[0x88, 0xb6, high, low]].concat(),
            [&mac[..], &[2; 6], &[0x88, 0xb5, 0x77, 0x77]].concat(),
            [&[2, 0, 0, 0, 0, 9][..], &[2; 6], &ours].concat(),
            [&mac[..], &[2; 6], &[0x88, 0xb5, high]].concat(),
        ];
        for start in &others {
            let len = if start.len() < 16 { 0 } else { 40 };
            neighbour.send(&[start, &vec![0; len][..]].concat());
        }
        // Ours, but shorter than it says.
        neighbour.send(&[&mac[..], &[2; 6], &ours, &[0, 0, 0xff, 0xff, 0, 1], b"evil"].concat());
        send(&mut a, to_b, b"ours");
        assert_eq!(receive_one(&mut b), b"ours");
        assert_eq!((b.counters().rx_frames, b.counters().rx_foreign), (1, 1));
        let seen: Vec<Vec<u8>> = std::iter::from_fn(|| kernel.receive()).collect();
        for start in &others {
            assert!(seen.iter().any(|frame| frame.starts_with(start)), "{start:x?} did not reach the kernel");
        }
        assert!(!seen.iter().any(|frame| frame.ends_with(b"ours")), "what is ours did");
    }

    pub fn queues_are_chosen() {
        ip("link add vA numtxqueues 2 numrxqueues 2 type veth peer name vB numtxqueues 2 numrxqueues 2");
        ip("link set vA up");
        ip("link set vB up");
        let native = Preference::Native;
        let at = |interface, endpoint, queue| {
            Xdp::open(&Config { queue, prefer: native, ..Config::new(interface, endpoint) })
        };
        // What is sent on a queue of a veth arrives on the same queue of its peer's driver. To the kernel behind it,
        // and so to a generic program, all of it comes from queue 0.
        let (mut a, mut b, mut c) = (at("vA", 1, 1).unwrap(), at("vB", 1, 1).unwrap(), at("vB", 2, 1).unwrap());
        exchange(&mut a, &mut b);
        exchange(&mut c, &mut a);
        let error = at("vA", 2, 0).err().expect("one queue an interface");
        assert!(matches!(error, OpenError::OtherQueue(_)), "{error}");
    }

    pub fn uring_and_xdp_share_an_interface() {
        veth("vA", "vB");
        let (mut a, mut b) = (open("vA", 1), open("vB", 1));
        let real = |interface, endpoint| uring::Config { real_frames: true, ..uring::Config::new(interface, endpoint) };
        let (mut c, mut d) = (Uring::open(&real("vA", 2)).unwrap(), Uring::open(&real("vB", 2)).unwrap());
        exchange(&mut a, &mut b);
        exchange(&mut c, &mut d);
        exchange(&mut a, &mut d);
        exchange(&mut c, &mut b);
    }

    pub fn full_rings_drop_and_count() {
        let (mut a, mut b, to_b) = veth_pair();
        let slots = b.caps().rx_frames;
        for round in 1..4 {
            for _ in 0..slots + 40 {
                send(&mut a, to_b, &[7; 60]);
            }
            let received: usize =
                std::iter::from_fn(|| Some(b.rx_burst(100, |_, _| {})).filter(|count| *count > 0)).sum();
            assert_eq!((received, b.counters().rx_dropped), (slots, 40 * round));
            assert_eq!(b.counters().rx_dropped, 40 * round, "reading the counters changes nothing");
        }
        assert_eq!(a.counters().tx_failed, 0);
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
        for round in 1..=300 {
            send(&mut b, to_a, b"to nobody");
            assert!(b.is_gone(to_a), "noticed by sending");
            assert_eq!(b.counters().tx_failed, round, "and no slot is stuck");
        }
    }

    pub fn interface_that_was_down_carries_frames_again() {
        let (mut a, mut b, to_b) = veth_pair();
        ip("link set vA down");
        // They stay in the ring, and go out when the interface does.
        for _ in 0..3 {
            send(&mut a, to_b, b"late");
        }
        assert!(!a.is_gone(to_b));
        let (before, span) = (a.now(), Duration::from_millis(20));
        while a.now() < before + span {
            a.wait(Some(before + span)).unwrap();
        }
        ip("link set vA up");
        while b.rx_burst(1, |_, _| {}) == 0 {
            send(&mut a, to_b, b"found");
        }
        assert!(!a.is_gone(to_b));
    }

    pub fn driver_moves_between_threads() {
        let (mut a, mut b, to_b) = veth_pair();
        for _ in 0..3 {
            let mover = std::thread::spawn(move || {
                for _ in 0..10 {
                    assert!(commit(&mut a, to_b, b"burst"));
                }
                a.flush();
                a
            });
            a = mover.join().unwrap();
            for _ in 0..10 {
                assert_eq!(receive_one(&mut b), b"burst");
            }
        }
    }

    pub fn mtu_follows_the_interface_as_far_as_chunks_go() {
        for (mtu, payload) in [(1_500, 1_492), (2_500, 2_492), (9_000, 3_776)] {
            ip(&format!("link add vA mtu {mtu} type veth peer name vB mtu {mtu}"));
            ip("link set vA up");
            ip("link set vB up");
            let (mut a, mut b) = (open("vA", 1), open("vB", 1));
            assert_eq!((a.caps().mtu, a.caps().mtu_safe), (payload, payload));
            let to_b = a.link(b.caps().addr).unwrap();
            for _ in 0..500 {
                send(&mut a, to_b, &vec![5; payload]);
                assert_eq!(receive_one(&mut b), vec![5; payload]);
            }
            // What others on a larger MTU may send is dropped and counted.
            if mtu == 9_000 {
                let mut large =
                    Uring::open(&uring::Config { real_frames: true, ..uring::Config::new("vA", 2) }).unwrap();
                let link = large.link(b.caps().addr).unwrap();
                send(&mut large, link, &[1; 8_000]);
                send(&mut large, link, b"small");
                assert_eq!(receive_one(&mut b), b"small");
                assert_eq!(b.counters().rx_dropped, 1);
            }
            drop((a, b));
            ip("link del vA");
        }
    }

    pub fn the_first_endpoint_may_leave_first() {
        veth("vA", "vB");
        let (first, mut second, mut peer) = (open("vA", 1), open("vA", 2), open("vB", 1));
        drop(first);
        exchange(&mut second, &mut peer);
        exchange(&mut peer, &mut second);
        let mut third = open("vA", 1);
        exchange(&mut third, &mut peer);
        drop(second);
        exchange(&mut peer, &mut third);
    }

    /// Another process with an endpoint on `interface`.
    fn other_process(interface: &str, endpoint: u16) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "inside::endpoint_until_killed", "--ignored", "--nocapture"])
            .env(ENDPOINT, format!("{interface} {endpoint}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It is open once it answers.
        let (mut probe, deadline) = (open(if interface == "vA" { "vB" } else { "vA" }, 99), 10_000);
        let to = LinkAddr::Ether { mac: mac_of(interface), endpoint };
        let link = probe.link(to).unwrap();
        let until = probe.now() + Duration::from_millis(deadline);
        loop {
            send(&mut probe, link, b"there?");
            probe.wait(Some(probe.now() + Duration::from_millis(10))).unwrap();
            if probe.rx_burst(100, |_, _| {}) > 0 {
                return child;
            }
            assert_eq!(child.try_wait().unwrap(), None, "it did not open");
            assert!(probe.now() < until, "no answer");
        }
    }

    fn mac_of(interface: &str) -> [u8; 6] {
        let LinkAddr::Ether { mac, .. } = open(interface, 98).caps().addr else { unreachable!() };
        mac
    }

    const ENDPOINT: &str = "SIDELANE_TEST_ENDPOINT";

    /// Sends back whatever comes.
    pub fn endpoint_until_killed() {
        let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
        let (interface, number) = endpoint.split_once(' ').unwrap();
        let mut nic = open(interface, number.parse().unwrap());
        // Killed or not, a minute is enough for every test.
        let end = nic.now() + Duration::from_millis(60_000);
        while nic.now() < end {
            let mut got = Vec::new();
            nic.rx_burst(8, |frame, from| got.push((frame.to_vec(), from)));
            for (bytes, from) in got {
                let back = nic.link(from).unwrap();
                commit(&mut nic, back, &bytes);
            }
            nic.wait(Some(end)).unwrap();
        }
    }

    fn ask(nic: &mut Xdp, interface: &str, endpoint: u16) {
        let link = nic.link(LinkAddr::Ether { mac: mac_of(interface), endpoint }).unwrap();
        for number in 0..100u8 {
            send(nic, link, &[number; 30]);
            assert_eq!(receive_one(nic), [number; 30]);
        }
    }

    fn has_program(interface: &str) -> bool {
        let output = Command::new("ip").args(["link", "show", interface]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(interface), "{text}");
        text.contains("xdp")
    }

    pub fn killed_endpoints_leave_nothing_behind() {
        veth("vA", "vB");
        let mut first = other_process("vB", 1);
        let mut second = other_process("vB", 2);
        let mut nic = open("vA", 1);
        ask(&mut nic, "vB", 1);
        ask(&mut nic, "vB", 2);
        // The first of the queue, which made everything, is killed.
        first.kill().unwrap();
        first.wait().unwrap();
        ask(&mut nic, "vB", 2);
        // Its number is free again; the new one joins the one that is left.
        let mut third = other_process("vB", 1);
        ask(&mut nic, "vB", 1);
        ask(&mut nic, "vB", 2);
        for child in [&mut second, &mut third] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        drop(nic);
        let mut tries = 0;
        while has_program("vA") || has_program("vB") {
            tries += 1;
            assert!(tries < 200, "the program stays behind");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        drop(open("vB", 1));
    }

    /// More often than there are places and chunks.
    pub fn endpoints_come_and_go_without_end() {
        veth("vA", "vB");
        let (mut stays, mut peer) = (open("vB", 1), open("vA", 1));
        for round in 0..60 {
            let mut comes = open("vB", 2 + round % 3);
            let link = peer.link(comes.caps().addr).unwrap();
            // Some of them leave with a full ring.
            for _ in 0..(round % 2) * 300 {
                send(&mut peer, link, b"unread");
            }
            if round % 2 == 0 {
                exchange(&mut comes, &mut peer);
            }
            drop(comes);
            exchange(&mut peer, &mut stays);
        }
        assert_eq!(stays.counters().rx_dropped, 0);
    }

    /// The kernel's own traffic crosses the interfaces while the driver has them.
    pub fn the_kernel_goes_on_pinging_and_streaming() {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};

        let far = super::far::Far::start();
        ip("link add vA type veth peer name vB");
        ip(&format!("link set vB netns {}", far.pid()));
        ip("addr add 10.77.0.1/24 dev vA");
        ip("link set vA up");
        far.ip("addr add 10.77.0.2/24 dev vB");
        far.ip("link set vB up");
        let mut near = open("vA", 1);
        let (at_near, (tell, told)) = (near.caps().addr, std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            let far = &far;
            scope.spawn(move || {
                far.enter();
                let listener = TcpListener::bind("10.77.0.2:7000").unwrap();
                let mut echo = open("vB", 1);
                let to_near = echo.link(at_near).unwrap();
                tell.send(echo.caps().addr).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        let mut total = 0;
                        let (mut stream, mut bytes) = (listener.accept().unwrap().0, vec![0; 1 << 16]);
                        while total < STREAM {
                            total += stream.read(&mut bytes).unwrap();
                        }
                        stream.write_all(b"all").unwrap();
                    });
                    for number in 0..FRAMES {
                        assert_eq!(receive_one(&mut echo), number.to_be_bytes());
                        send(&mut echo, to_near, &number.to_be_bytes());
                    }
                });
            });
            let to_far = near.link(told.recv().unwrap()).unwrap();
            let streaming = scope.spawn(|| {
                let mut stream = TcpStream::connect("10.77.0.2:7000").unwrap();
                stream.write_all(&vec![7; STREAM]).unwrap();
                let mut answer = [0; 3];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"all");
            });
            let pinging = scope.spawn(|| super::raw::ping("10.77.0.2".parse().unwrap(), 100));
            for number in 0..FRAMES {
                send(&mut near, to_far, &number.to_be_bytes());
                assert_eq!(receive_one(&mut near), number.to_be_bytes());
            }
            streaming.join().unwrap();
            assert_eq!(pinging.join().unwrap(), 100);
        });
    }

    /// Bytes of TCP, and frames of ours beside them.
    const STREAM: usize = 20 << 20;
    const FRAMES: u32 = 5_000;
}

mod far {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command};

    /// A network namespace beside ours, which ends with this.
    pub struct Far(Child);

    impl Far {
        pub fn start() -> Self {
            let child = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
            let far = Self(child);
            let own = std::fs::read_link("/proc/self/ns/net").unwrap();
            while std::fs::read_link(far.namespace()).unwrap() == own {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            far
        }

        pub fn pid(&self) -> u32 {
            self.0.id()
        }

        pub fn ip(&self, words: &str) {
            let status = Command::new("nsenter")
                .args(["-t", &self.pid().to_string(), "-n", "ip"])
                .args(words.split(' '))
                .status();
            assert!(status.unwrap().success(), "{words}");
        }

        /// Moves the calling thread there.
        pub fn enter(&self) {
            let namespace = File::open(self.namespace()).unwrap();
            // SAFETY: no pointer is passed.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
        }

        fn namespace(&self) -> String {
            format!("/proc/{}/ns/net", self.pid())
        }
    }

    impl Drop for Far {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

mod raw {
    use std::ffi::CString;
    use std::net::Ipv4Addr;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// Sends `count` echo requests (RFC 792), one after another, and counts the replies.
    pub fn ping(to: Ipv4Addr, count: u16) -> usize {
        // SAFETY: all pointers live through the calls and have the lengths that are stated; the descriptor is new.
        unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP));
            let patience = libc::timeval { tv_sec: 5, tv_usec: 0 };
            let len = size_of_val(&patience) as u32;
            let fd = socket.as_raw_fd();
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const patience).cast(), len);
            let mut addr: libc::sockaddr_in = std::mem::zeroed();
            addr.sin_family = libc::AF_INET as u16;
            addr.sin_addr.s_addr = u32::from_ne_bytes(to.octets());
            let answered = |number: u16| {
                let [high, low] = number.to_be_bytes();
                let checksum = !(0x0800 + number);
                let request = [8, 0, (checksum >> 8) as u8, checksum as u8, 0, 0, high, low];
                let len = size_of_val(&addr) as u32;
                let sent = libc::sendto(fd, request.as_ptr().cast(), 8, 0, (&raw const addr).cast(), len);
                assert_eq!(sent, 8, "{}", std::io::Error::last_os_error());
                let mut reply = [0u8; 128];
                let got = libc::recv(fd, reply.as_mut_ptr().cast(), reply.len(), 0);
                // Behind the IP header: type 0, and our number.
                got >= 28 && reply[20] == 0 && reply[26..28] == [high, low]
            };
            (0..count).filter(|number| answered(*number)).count()
        }
    }

    /// Sends any bytes as an Ethernet frame, and sees what the kernel sees.
    pub struct RawSocket(OwnedFd);

    impl RawSocket {
        pub fn on(interface: &str) -> Self {
            let name = CString::new(interface).unwrap();
            // SAFETY: the name and the address live through the calls; the descriptor is new and ours.
            unsafe {
                let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0));
                let mut addr: libc::sockaddr_ll = std::mem::zeroed();
                addr.sll_family = libc::AF_PACKET as u16;
                addr.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
                addr.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
                let bound = libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), size_of_val(&addr) as u32);
                assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
                Self(socket)
            }
        }

        pub fn send(&self, frame: &[u8]) {
            // SAFETY: the frame is readable for its length.
            let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        }

        pub fn receive(&self) -> Option<Vec<u8>> {
            let mut bytes = vec![0; 2048];
            // SAFETY: the bytes are writable for their length.
            let got =
                unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
            bytes.truncate(usize::try_from(got).ok()?);
            Some(bytes)
        }
    }
}
