//! The `dpdk` driver on DPDK's virtual devices: both ends in this process. Where there is no libdpdk, each test says so
//! and passes.

mod libdpdk;
mod patience;

use std::path::Path;
use std::time::{Duration, Instant};

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::dpdk::{Config, Dpdk, OpenError, Pair};
use sidelane_nic::{LinkAddr, Nic, TxSlot, time};

use patience::until;

/// A name that no other process uses.
fn unique(name: &str) -> String {
    format!("sidelane-{name}-{}", std::process::id())
}

/// One endpoint on the first of two ends, the others on the second.
struct Ends {
    ends: [String; 2],
    mtu: Option<u16>,
}

impl Setup for Ends {
    type Nic = Dpdk;

    fn open(&mut self, count: usize) -> Result<Vec<Dpdk>, String> {
        let [first, second] = &self.ends;
        let devices = std::iter::once(first).chain(std::iter::repeat(second));
        let open = |(device, endpoint)| {
            Dpdk::open(&Config { endpoint, mtu: self.mtu, shared: count > 2, ..Config::new(device) })
        };
        let opened: Result<Vec<Dpdk>, OpenError> = devices.zip(1..).take(count).map(open).collect();
        let opened = opened.map_err(|error| error.to_string())?;
        wait_until(|| count == 1 || opened.iter().all(Dpdk::link_is_up));
        Ok(opened)
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }
}

/// As [`Ends`], of a pair: it has two endpoints.
struct PairEnds(Ends);

impl Setup for PairEnds {
    type Nic = Pair;

    fn open(&mut self, count: usize) -> Result<Vec<Pair>, String> {
        if count > 2 {
            return Err("a pair has two ends".to_owned());
        }
        let open = |(device, endpoint): (&String, u16)| {
            Pair::open(&Config { endpoint, mtu: self.0.mtu, ..Config::new(device) })
        };
        let opened: Result<Vec<Pair>, OpenError> = self.0.ends.iter().zip(1..).take(count).map(open).collect();
        let opened = opened.map_err(|error| error.to_string())?;
        wait_until(|| count == 1 || opened.iter().all(|pair| pair.link_is_up()));
        Ok(opened)
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        self.0.absent()
    }
}

fn wait_until(up: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(5);
    while !up() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn keeps_the_contract<N: Nic + Send>(mut setup: impl Setup<Nic = N>, endpoints: usize) {
    if libdpdk::is_missing() {
        return;
    }
    // A skipped suite would be a suite that proves nothing: here it has to open.
    let nics = setup.open(endpoints).unwrap();
    // What a lost tail costs, as it does in the protocol's tests of that (`proto/tests/stories/loss.rs`).
    assert!(nics.iter().all(|nic| nic.caps().rto_floor == time::Duration::from_micros(100)));
    drop(nics);
    conformance::run(&mut setup).assert_passed();
    conformance::run_threads(&mut setup).assert_passed();
}

fn memif(name: &str) -> [String; 2] {
    let name = unique(name);
    [format!("memif:{name},server"), format!("memif:{name}")]
}

fn vhost(folder: &Path) -> [String; 2] {
    let path = folder.join("vhost").display().to_string();
    [format!("vhost:{path},server"), format!("vhost:{path}")]
}

#[test]
fn memif_keeps_the_contract() {
    keeps_the_contract(Ends { ends: memif("plain"), mtu: None }, 3);
}

#[test]
fn memif_with_jumbo_frames_keeps_the_contract() {
    keeps_the_contract(Ends { ends: memif("jumbo"), mtu: Some(9000) }, 3);
}

#[test]
fn a_pair_keeps_the_contract_of_a_reliable_driver() {
    keeps_the_contract(PairEnds(Ends { ends: memif("pair"), mtu: None }), 2);
}

#[test]
fn a_pair_with_jumbo_frames_keeps_the_contract_of_a_reliable_driver() {
    keeps_the_contract(PairEnds(Ends { ends: memif("jumbo-pair"), mtu: Some(9000) }), 2);
}

#[test]
fn vhost_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    keeps_the_contract(Ends { ends: vhost(folder.path()), mtu: None }, 3);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its socket is still there");
}

#[test]
fn a_vhost_pair_keeps_the_contract_of_a_reliable_driver() {
    for mtu in [None, Some(9000)] {
        let folder = tempfile::tempdir().unwrap();
        keeps_the_contract(PairEnds(Ends { ends: vhost(folder.path()), mtu }), 2);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its socket is still there");
    }
}

#[test]
fn an_answer_is_written_where_its_question_was_read() {
    if libdpdk::is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (ends, mtu) in [(memif("answers"), None), (vhost(folder.path()), Some(1000))] {
        let mut ends = PairEnds(Ends { ends, mtu }).open(2).unwrap();
        let addresses: Vec<LinkAddr> = ends.iter().map(|end| end.caps().addr).collect();
        let mut read_at = None;
        // As many as go around both rings.
        for (from, to) in [(1, 0), (0, 1)].into_iter().cycle().take(2000) {
            let sender = &mut ends[from];
            let link = sender.link(addresses[to]).unwrap();
            let mut slot = sender.tx_slot(link, 8).expect("the ring is empty");
            assert!(read_at.is_none_or(|at| at == slot.as_ptr().addr()));
            slot.copy_from_slice(b"question");
            slot.commit();
            sender.flush();
            until("it has come", || {
                ends[to].rx_burst(1, |frame, _| {
                    assert_eq!(frame, b"question");
                    read_at = Some(frame.as_ptr().addr());
                }) > 0
            });
        }
    }
}

#[test]
fn a_server_leaves_a_file_that_is_no_socket() {
    if libdpdk::is_missing() {
        return;
    }
    for kind in ["memif", "vhost"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "years of work").unwrap();
        let refusal = Dpdk::open(&Config::new(format!("{kind}:{},server", file.path().display()))).err();
        assert!(matches!(refusal, Some(OpenError::NotASocket(_))), "{kind}: {refusal:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "years of work", "{kind}");
    }
}

#[test]
fn a_client_that_asks_for_what_dpdk_does_not_know_is_told_so() {
    if libdpdk::is_missing() {
        return;
    }
    let error = Dpdk::open(&Config::new("vhost:/nobody,nonsense=1")).map(drop).unwrap_err().to_string();
    let (_, words) = error.split_once("(DPDK: ").unwrap_or_else(|| panic!("{error}"));
    assert!(words.contains("parsing param"), "{error}");
}

#[test]
fn a_second_server_is_refused_and_the_first_keeps_its_name() {
    if libdpdk::is_missing() {
        return;
    }
    for kind in ["memif", "vhost"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().display();
        let first = Dpdk::open(&Config::new(format!("{kind}:{folder}/socket,server"))).unwrap();
        // By another path, as no other device of this process: another process would name it as the first does.
        let second = Dpdk::open(&Config::new(format!("{kind}:{folder}/./socket,server"))).err();
        assert!(matches!(second, Some(OpenError::Served(_))), "{kind}: {second:?}");
        Dpdk::open(&Config::new(format!("{kind}:{folder}/socket"))).unwrap();
        drop(first);
    }
}

#[test]
fn a_server_that_ends_leaves_another_ones_file_of_the_same_name() {
    if libdpdk::is_missing() {
        return;
    }
    for kind in ["memif", "vhost"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let first = Dpdk::open(&Config::new(format!("{kind}:{path}/socket,server"))).unwrap();
        let client = Dpdk::open(&Config::new(format!("{kind}:{path}/socket,once"))).unwrap();
        // By another path, as no other device of this process: another process would name it as the first does.
        let second = Dpdk::open(&Config::new(format!("{kind}:{path}/./socket,server"))).unwrap();
        drop((client, first));
        let client = Dpdk::open(&Config::new(format!("{kind}:{path}/./socket")));
        until("the second one is met", || client.as_ref().is_ok_and(|_| second.link_is_up()));
        drop((client, second));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{kind}: its socket is still there");
    }
}

#[test]
fn a_socket_s_name_may_be_as_long_as_the_system_has_them() {
    if libdpdk::is_missing() {
        return;
    }
    // unix(7): 108 bytes, of which an abstract name has one zero before it and DPDK puts one behind it.
    let name = format!("memif:{:x<106}", unique("long"));
    let (server, client) = (Pair::open(&Config::new(format!("{name},server"))), Pair::open(&Config::new(name)));
    let (server, client) = (server.unwrap(), client.unwrap());
    until("the two meet", || server.link_is_up() && client.link_is_up());
}

#[test]
fn the_largest_mtu_carries_whole_frames_and_a_larger_one_is_refused() {
    if libdpdk::is_missing() {
        return;
    }
    let [server, client] = memif("largest");
    let open = |device: &str, mtu| Pair::open(&Config { mtu: Some(mtu), ..Config::new(device) });
    for mtu in [65_323, 65_535] {
        assert!(matches!(open(&server, mtu), Err(OpenError::MtuTooLarge { max: 65_322, .. })), "{mtu}");
    }
    let (mut a, mut b) = (open(&server, 65_322).unwrap(), open(&client, 65_322).unwrap());
    until("the two meet", || a.link_is_up() && b.link_is_up());
    let to_b = a.link(b.caps().addr).unwrap();
    let frame: Vec<u8> = (0..a.caps().mtu).map(|at| (at % 251) as u8).collect();
    let mut slot = a.tx_slot(to_b, frame.len()).unwrap();
    slot.copy_from_slice(&frame);
    slot.commit();
    a.flush();
    until("it arrives", || b.rx_burst(1, |bytes, _| assert!(bytes == frame)) == 1);
}

/// As when threads of a program take turns at waiting for messages: DPDK keeps frames back for each thread that lives.
#[test]
fn an_endpoint_that_went_through_many_threads_has_frames_left() {
    if libdpdk::is_missing() {
        return;
    }
    let mut ends = memif("many-threads").map(|device| Pair::open(&Config::new(device)).unwrap());
    until("the two meet", || ends.iter().all(|end| end.link_is_up()));
    use_and_pass_on(&mut ends, 24);
}

/// On a thread each, and all of them live until the last one is done.
fn use_and_pass_on(ends: &mut [Pair; 2], threads: usize) {
    const FRAMES: usize = 1_000;
    for _ in 0..2 {
        let [from, to] = ends;
        let link = from.link(to.caps().addr).unwrap();
        let (mut sent, mut received) = (0, 0);
        until("all frames arrive", || {
            while sent < FRAMES && from.tx_slot(link, 100).map(TxSlot::commit).is_some() {
                sent += 1;
            }
            from.flush();
            received += to.rx_burst(FRAMES, |_, _| {});
            received == FRAMES
        });
        ends.swap(0, 1);
    }
    if threads > 1 {
        std::thread::scope(|scope| scope.spawn(|| use_and_pass_on(ends, threads - 1)).join().unwrap());
    }
}

#[test]
fn a_server_whose_client_has_gone_is_told_once_and_sleeps_until_the_next_one() {
    if libdpdk::is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in [format!("memif:{}", unique("next")), format!("vhost:{}/next", folder.path().display())] {
        let mut server = Dpdk::open(&Config::new(format!("{name},server"))).unwrap();
        let to_server = server.caps().addr;
        for _ in 0..2 {
            let mut client = Dpdk::open(&Config { endpoint: 1, ..Config::new(&name) }).unwrap();
            until("the two meet", || server.link_is_up() && client.link_is_up());
            let link = client.link(to_server).unwrap();
            client.tx_slot(link, 5).unwrap().commit();
            client.flush();
            let far = server.now() + time::Duration::from_millis(60_000);
            server.wait(Some(far)).unwrap();
            assert_eq!(server.rx_burst(8, |_, _| {}), 1, "{name}: woken by the frame");
            drop(client);
            server.wait(Some(far)).unwrap();
            assert!(server.now() < far, "{name}: nobody told that the client has gone");
            assert!(!server.link_is_up(), "{name}");
            let end = server.now() + time::Duration::from_millis(5);
            server.wait(Some(end)).unwrap();
            assert!(server.now() >= end, "{name}: told again");
        }
    }
}
