//! What makes a pair of the `dpdk` driver reliable, where a memif by itself is not: two processes, of which one ends. Where
//! there is no libdpdk, each test says so and passes.

mod hugepages;
#[path = "../libdpdk/mod.rs"]
mod libdpdk;
#[path = "../other/mod.rs"]
mod other;
#[path = "../patience/mod.rs"]
mod patience;
mod stage;
mod stopped;
mod strangers;

use std::io::Write;
use std::process::{Command, Stdio};

use sidelane_nic::dpdk::{Config, Dpdk, OpenError, Pair};
use sidelane_nic::time::Duration;
use sidelane_nic::{Nic, TxSlot};

use patience::until;
use stage::{HERE, Kind, PATIENCE, RING, Stage, THERE, alone, open, receive, send, start};

/// What the other process opens.
const DEVICE: &str = "SIDELANE_TEST_DEVICE";
/// To whom it sends.
const PEER: &str = "SIDELANE_TEST_PEER";
/// How many frames it sends.
const FRAMES: &str = "SIDELANE_TEST_FRAMES";
/// How long they may be, if it is said.
const MTU: &str = "SIDELANE_TEST_MTU";

#[test]
#[ignore = "the other side of a test"]
fn other_side() {
    let [device, peer] = [DEVICE, PEER].map(|name| std::env::var(name).unwrap());
    let (mut pair, link) = open(&device, THERE, peer.parse().unwrap());
    println!("\nopen");
    let frames: u32 = std::env::var(FRAMES).unwrap().parse().unwrap();
    for number in 0..frames {
        send(&mut pair, link, number);
    }
    pair.flush();
    println!("\nflushed");
    std::io::stdout().flush().unwrap();
    // Until it is told to close, or is killed.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line == "start\n" {
        let mut outlives = Command::new("sleep");
        outlives.arg("10").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut outlives = outlives.spawn().unwrap();
        println!("\nstarted");
        outlives.wait().unwrap();
    }
    if line == "listen\n" {
        println!("\nheard {:?}", receive(&mut pair));
    }
    drop(pair);
}

/// As a program in C is begun, to which a signal of a pipe is the end.
#[test]
#[ignore = "the other side of a test"]
#[allow(unsafe_code)] // A signal's action.
fn other_side_in_c() {
    // SAFETY: a signal's default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    other_side();
}

/// Each of these with each kind.
fn each<T: Copy>(of: [T; 2]) -> impl Iterator<Item = (Kind, T)> {
    Kind::ALL.into_iter().flat_map(move |kind| of.map(|each| (kind, each)))
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    for (kind, (name, here, there)) in each([("closing-client", ",server", ""), ("closing-server", "", ",server")]) {
        // As many as the ring takes, of which none was received.
        let Some(mut stage) = Stage::new(kind, name, here, there, RING) else { return };
        stage.other.say("close");
        stage.other.ended();
        stage.expect_all(RING);
    }
}

#[test]
fn what_a_full_ring_did_not_take_before_a_close_arrives() {
    for (kind, (name, here, there)) in each([("full-client", ",server", ""), ("full-server", "", ",server")]) {
        let Some(mut stage) = Stage::new(kind, name, here, there, RING + 30) else { return };
        stage.other.say("close");
        stage.expect_all(RING + 30);
        stage.other.ended();
    }
}

#[test]
fn what_was_sent_before_a_kill_arrives() {
    for (kind, (name, here, there)) in each([("killed-client", ",server", ""), ("killed-server", "", ",server")]) {
        let Some(mut stage) = Stage::new(kind, name, here, there, RING) else { return };
        stage.other.kill();
        stage.expect_all(RING);
    }
}

#[test]
fn a_program_that_a_killed_one_had_started_keeps_none_of_its_ends_open() {
    for (kind, (name, here, there)) in each([("parent-client", ",server", ""), ("parent-server", "", ",server")]) {
        let Some(mut stage) = Stage::new(kind, name, here, there, RING) else { return };
        stage.other.say("start");
        stage.other.heard("started");
        stage.other.kill();
        stage.expect_all(RING);
    }
    let _turn = alone();
    for kind in Kind::ALL {
        let server = format!("{},server", kind.device("parent-alone"));
        let mut other = start(&server, 0, HERE.parse().unwrap());
        other.heard("flushed");
        other.say("start");
        other.heard("started");
        other.kill();
        Pair::open(&Config::new(server)).expect("nobody serves there any more");
    }
}

/// Of either end's, those that came from the other one too.
#[test]
#[allow(unsafe_code)] // What is set of descriptors.
fn a_program_that_is_started_has_no_descriptors_of_a_pair_s() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let all = || -> Vec<(i32, String)> {
        let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let numbers: Vec<i32> = numbers.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
        let name = |fd: i32| {
            std::fs::read_link(format!("/proc/self/fd/{fd}")).ok().map(|name| (fd, name.display().to_string()))
        };
        numbers.into_iter().filter_map(name).collect()
    };
    for kind in Kind::ALL {
        let mut before = Vec::new();
        // What DPDK has for good it has after the first.
        for round in 0..2 {
            let device = kind.device(&format!("started-{round}"));
            before = all();
            let (here, _) = open(&format!("{device},server"), HERE, THERE.parse().unwrap());
            let (_there, _) = open(&device, THERE, HERE.parse().unwrap());
            until("both meet", || here.link_is_up());
            if round == 1 {
                // SAFETY: takes numbers.
                let is_kept = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFD) } == 0;
                // DPDK's interrupt thread makes its epoll anew whenever it watches others.
                let others = |fd: &(i32, String)| before.contains(fd) || fd.1.contains("[eventpoll]");
                let kept = || all().into_iter().filter(|fd| !others(fd) && is_kept(fd.0));
                until(&format!("no program keeps {:?}", kept().collect::<Vec<_>>()), || kept().next().is_none());
            }
        }
        assert!(!before.is_empty());
    }
}

/// Both lives have the same address, and this side looks only when the second one is there.
#[test]
fn a_successor_is_not_taken_for_the_one_that_was_killed() {
    for kind in Kind::ALL {
        let Some(mut stage) = Stage::new(kind, "successor", ",server", "", 3) else { return };
        for _ in 0..5 {
            stage.pair.tx_slot(stage.link, 8).unwrap().commit();
        }
        stage.other.kill();
        let mut successor = start(&stage.device, 2, stage.pair.caps().addr);
        successor.heard("flushed");
        // Its frames are the second life's, and those that were committed were for the first.
        stage.pair.flush();
        let all = [receive(&mut stage.pair), receive(&mut stage.pair), receive(&mut stage.pair)];
        assert_eq!(all, [0, 1, 2]);
        let next = [receive(&mut stage.pair), receive(&mut stage.pair)];
        assert_eq!(next, [0, 1]);
        stage.wait_until_gone();
        assert_eq!(stage.pair.counters().tx_failed, 5);
        assert!(stage.pair.link_is_up());
        assert!(stage.pair.tx_slot(stage.link, 8).is_none(), "a link to the dead lends slots");
        let to_successor = stage.pair.link(THERE.parse().unwrap()).unwrap();
        assert!(to_successor != stage.link && !stage.pair.is_gone(to_successor));
        send(&mut stage.pair, to_successor, 77);
        stage.pair.flush();
        stage.pair.unlink(stage.link);
        successor.say("listen");
        successor.heard("heard 77");
        successor.ended();
    }
}

/// As many are kept as two lives leave, and nobody has received any.
#[test]
fn what_a_third_life_leaves_is_counted_as_dropped() {
    for kind in Kind::ALL {
        let Some(mut stage) = Stage::new(kind, "third-life", ",server", "", RING) else { return };
        stage.other.kill();
        for _ in 0..2 {
            let mut successor = start(&stage.device, RING, stage.pair.caps().addr);
            successor.heard("flushed");
            successor.kill();
        }
        // The link is down before all of them are counted.
        until("what the third left is counted", || stage.pair.counters().rx_dropped >= u64::from(RING));
        for _ in 0..2 {
            for number in 0..RING {
                assert_eq!(receive(&mut stage.pair), number);
            }
        }
        assert_eq!(stage.pair.rx_burst(1, |_, _| ()), 0);
        assert_eq!(stage.pair.counters().rx_dropped, u64::from(RING));
    }
}

/// Killed in the middle of a burst, at which it writes into the ring that is being emptied here.
#[test]
fn what_comes_of_one_that_is_killed_while_it_sends_has_no_gap() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for kind in Kind::ALL {
        let device = kind.device("flooding");
        let (mut pair, mut link) = open(&format!("{device},server"), HERE, THERE.parse().unwrap());
        for round in 1..=8 {
            let mut other = start(&device, u32::MAX, pair.caps().addr);
            other.heard("open");
            for number in 0..round * 700 {
                assert_eq!(receive(&mut pair), number, "round {round}");
            }
            other.kill();
            let give_up = pair.now() + PATIENCE;
            let mut next = round * 700;
            while !pair.is_gone(link) {
                assert!(pair.now() < give_up, "its end was not told");
                if pair.rx_burst(7, |frame, _| {
                    let number = frame.first_chunk().map(|number| u32::from_le_bytes(*number));
                    assert!(number == Some(next) && frame[4..].iter().all(|byte| *byte == 0), "{number:?} for {next}");
                    next += 1;
                }) == 0
                {
                    pair.wait(Some(give_up)).unwrap();
                }
            }
            assert_eq!(pair.rx_burst(7, |_, _| ()), 0);
            pair.unlink(link);
            link = pair.link(THERE.parse().unwrap()).unwrap();
        }
    }
}

/// Whoever hears of a peer by its frames, and makes a link only then.
#[test]
fn a_link_that_is_made_for_what_a_killed_one_left_is_gone() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for kind in Kind::ALL {
        let device = kind.device("heard-late");
        let mut pair = Pair::open(&Config::new(format!("{device},server"))).unwrap();
        let mut other = start(&device, 3, pair.caps().addr);
        other.heard("open");
        other.heard("flushed");
        other.kill();
        let give_up = pair.now() + Duration::from_millis(1_000);
        while pair.link_is_up() {
            assert!(pair.now() < give_up, "its end is not noticed");
            std::thread::yield_now();
        }
        let mut links = Vec::new();
        for _ in 0..3 {
            let mut sender = None;
            assert_eq!(pair.rx_burst(1, |_, from| sender = Some(from)), 1);
            links.push(pair.link(sender.unwrap()).unwrap());
        }
        assert!(links.iter().all(|link| *link == links[0]));
        while !pair.is_gone(links[0]) {
            assert!(pair.now() < give_up, "its link is taken for its successor's");
            pair.wait(Some(give_up)).unwrap();
        }
    }
}

#[test]
fn what_would_make_a_pair_lossy_is_refused() {
    if libdpdk::is_missing() {
        return;
    }
    let of_memif = ["owner-uid=1", "bsize=512", "rsize=10", "id=5"].map(|option| (Kind::Memif, option));
    let of_vhost = ["packed_vq=1", "queue_size=64", "client=1", "secret=x"].map(|option| (Kind::Vhost, option));
    for (kind, option) in of_memif.into_iter().chain(of_vhost) {
        let error =
            Pair::open(&Config::new(format!("{},server,{option}", kind.device("options")))).map(drop).unwrap_err();
        assert!(error.to_string().contains(option) && error.to_string().contains("lossy"), "{error}");
    }
}

#[test]
fn ends_that_are_not_opened_alike_do_not_find_each_other() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for kind in Kind::ALL {
        let device = kind.device("alike");
        let server = Config::new(format!("{device},server"));
        let client = Config::new(device.clone());
        let nobody = |opened: Result<(), OpenError>| {
            let error = opened.unwrap_err();
            assert!(matches!(error, OpenError::NobodyThere { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("`lossy` as here") && text.contains("`secret=`"), "{text}");
        };
        // Each by a name of its own, as a device opens once at a time in a process.
        let as_another = |number: u8| Config::new(format!("{device},mac=02:00:00:00:00:{number:02x}"));
        let other_mtu = Config { mtu: Some(9000), ..as_another(3) };
        let shared = Config { shared: true, ..as_another(4) };
        let secret = matches!(kind, Kind::Memif).then(|| kind.device("secret"));
        let of_lossy = kind.device("lossy");
        let mut here = Pair::open(&server).unwrap();
        let _lossy = Dpdk::open(&Config::new(format!("{of_lossy},server"))).unwrap();
        let _secret =
            secret.as_ref().map(|device| Pair::open(&Config::new(format!("{device},server,secret=one"))).unwrap());
        std::thread::scope(|scope| {
            // Each waits for its server for a while.
            scope.spawn(|| nobody(Dpdk::open(&client).map(drop)));
            scope.spawn(|| nobody(Dpdk::open(&shared).map(drop)));
            scope.spawn(|| nobody(Pair::open(&other_mtu).map(drop)));
            scope.spawn(|| nobody(Pair::open(&Config::new(of_lossy.clone())).map(drop)));
            if let Some(device) = &secret {
                scope.spawn(move || nobody(Pair::open(&Config::new(format!("{device},secret=other"))).map(drop)));
            }
        });
        // Nothing of that disturbs whoever comes then.
        let mut there = Pair::open(&client).unwrap();
        let link = there.link(here.caps().addr).unwrap();
        send(&mut there, link, 5);
        there.flush();
        assert_eq!(receive(&mut here), 5);
        assert!(matches!(Pair::open(&shared), Err(OpenError::NoPair(_))));
        assert!(matches!(Pair::open(&Config::new("net_null0")), Err(OpenError::NoPair(_))));
    }
}
