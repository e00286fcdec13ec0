//! The `shm` driver between processes: what threads cannot show.
#![allow(unsafe_code)] // A process's own limits and its use of the processor.

mod patience;

use std::fs::File;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};

use patience::{PATIENCE, ended};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

const PARENT: u16 = 1;
const CHILD: u16 = 2;
const CALLER: u16 = 3;

/// Where a child finds its domain.
const DOMAIN: &str = "SIDELANE_TEST_DOMAIN";

/// Runs one of the ignored tests below in a process of its own.
fn spawn(role: &str, domain: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--ignored"])
        .env(DOMAIN, domain)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn domain(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn child() -> (ShmNic, Link) {
    let mut nic = ShmNic::open(&std::env::var(DOMAIN).unwrap(), Some(CHILD)).unwrap();
    let link = nic.link(LinkAddr::Shm { endpoint: PARENT }).unwrap();
    (nic, link)
}

fn parent(domain: &str) -> (ShmNic, Link) {
    let mut nic = ShmNic::open(domain, Some(PARENT)).unwrap();
    let link = nic.link(LinkAddr::Shm { endpoint: CHILD }).unwrap();
    (nic, link)
}

fn try_send(nic: &mut ShmNic, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

fn send(nic: &mut ShmNic, link: Link, bytes: &[u8]) {
    let give_up = nic.now() + Duration::from_millis(20_000);
    while !try_send(nic, link, bytes) {
        assert!(!nic.is_gone(link), "the peer is gone");
        assert!(nic.now() < give_up, "a peer that is there makes no room");
        nic.wait(Some(nic.now() + Duration::from_millis(100))).unwrap();
    }
    nic.flush();
}

/// The next frame, slept for. `None`: the peer is gone.
fn receive(nic: &mut ShmNic, link: Link) -> Option<Vec<u8>> {
    let give_up = nic.now() + Duration::from_millis(20_000);
    let mut frame = None;
    while nic.rx_burst(1, |bytes, _| frame = Some(bytes.to_vec())) == 0 {
        if nic.is_gone(link) {
            return None;
        }
        assert!(nic.now() < give_up, "nothing came from a peer that is there");
        nic.wait(Some(give_up)).unwrap();
    }
    frame
}

/// Frame `number` of a stream whose sizes go through all there are.
fn numbered(number: u32) -> Vec<u8> {
    let len = 4 + number as usize * 37 % 3_000;
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
#[ignore = "the other side of a test"]
fn echo() {
    let (mut nic, link) = child();
    while let Some(frame) = receive(&mut nic, link) {
        send(&mut nic, link, &frame);
    }
}

#[test]
#[ignore = "the other side of a test"]
fn talk() {
    let (mut nic, link) = child();
    for number in 0.. {
        send(&mut nic, link, &numbered(number));
    }
}

/// Uses all its descriptors up, and frees them when a caller has waited for a while.
#[test]
#[ignore = "the other side of a test"]
fn crowded() {
    let (mut nic, link) = child();
    send(&mut nic, link, b"here");
    limit_descriptors(256);
    let mut crowd = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        crowd.push(file);
    }
    assert!(crowd.len() > 100, "{} descriptors were free", crowd.len());
    send(&mut nic, link, b"crowded");
    let give_up = nic.now() + Duration::from_millis(20_000);
    while nic.counters().peers_put_off == 0 {
        assert!(nic.now() < give_up, "nobody was put off");
        nic.wait(Some(nic.now() + Duration::from_millis(1))).unwrap();
    }
    let (worked, until) = (processor_ms(), nic.now() + Duration::from_millis(500));
    while nic.now() < until {
        nic.wait(Some(until)).unwrap();
    }
    let worked = processor_ms() - worked;
    assert!(worked < 100, "{worked} ms of work in half a second of waiting");
    assert_eq!(nic.counters().peers_put_off, 1, "one caller, who waits on");
    send(&mut nic, link, b"still here");
    drop(crowd);
    let mut from = None;
    let give_up = nic.now() + Duration::from_millis(20_000);
    while nic.rx_burst(1, |bytes, sender| from = (bytes == b"me too").then_some(sender)) == 0 {
        assert!(nic.now() < give_up, "who was put off was forgotten");
        nic.wait(Some(give_up)).unwrap();
    }
    assert_eq!(from, Some(LinkAddr::Shm { endpoint: CALLER }));
}

#[test]
fn who_finds_no_descriptor_free_is_let_in_when_one_is() {
    let domain = domain("crowd");
    let (mut nic, link) = parent(&domain);
    let mut other = spawn("crowded", &domain);
    assert_eq!(receive(&mut nic, link).unwrap(), b"here");
    assert_eq!(receive(&mut nic, link).unwrap(), b"crowded");
    let mut caller = ShmNic::open(&domain, Some(CALLER)).unwrap();
    let to_other = caller.link(LinkAddr::Shm { endpoint: CHILD }).unwrap();
    assert_eq!(receive(&mut nic, link).unwrap(), b"still here");
    send(&mut caller, to_other, b"me too");
    assert!(ended("the other process", &mut other, PATIENCE).success());
}

/// Ends its endpoint, of whose descriptors a process that it has forked has copies.
#[test]
#[ignore = "the other side of a test"]
fn forked() {
    let (mut nic, link) = child();
    send(&mut nic, link, b"here");
    // SAFETY: plain calls; the new process only waits.
    let wait_for_the_end_of = |parent| unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() == parent {
            libc::pause();
        }
        libc::_exit(0)
    };
    // SAFETY: a plain call.
    let parent = unsafe { libc::getppid() };
    let own = std::process::id() as libc::pid_t;
    // SAFETY: as above.
    if unsafe { libc::fork() } == 0 {
        wait_for_the_end_of(own);
    }
    drop(nic);
    wait_for_the_end_of(parent);
}

#[test]
fn an_endpoint_ends_although_a_process_forked_from_its_own_lives_on() {
    let domain = domain("forked");
    let (mut nic, link) = parent(&domain);
    let mut other = spawn("forked", &domain);
    assert_eq!(receive(&mut nic, link).unwrap(), b"here");
    assert_eq!(receive(&mut nic, link), None);
    assert!(other.try_wait().unwrap().is_none(), "it has not waited");
    // Who dials it again hears that nobody is there, again and again.
    nic.unlink(link);
    let again = nic.link(LinkAddr::Shm { endpoint: CHILD }).unwrap();
    assert!(!try_send(&mut nic, again, b"anybody?"));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn of_callers_who_say_nothing_the_oldest_are_hung_up_on() {
    // More than may be silent at once.
    const CALLERS: usize = 300;
    let domain = domain("silent");
    let _nic = ShmNic::open(&domain, Some(PARENT)).unwrap();
    // SAFETY: a plain call.
    let user = unsafe { libc::geteuid() };
    let name = SocketAddr::from_abstract_name(format!("sidelane-shm-{user}-{domain}-{PARENT}")).unwrap();
    let mut callers: Vec<_> = (0..CALLERS).map(|_| UnixStream::connect_addr(&name).unwrap()).collect();
    callers[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(callers[0].read(&mut [0]).unwrap(), 0);
}

/// As `ulimit -n` does.
fn limit_descriptors(count: u64) {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: `limit` lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Milliseconds that this process has had the processor for.
fn processor_ms() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

#[test]
fn frames_and_wake_ups_cross_processes() {
    let domain = domain("echo");
    let (mut nic, link) = parent(&domain);
    let mut other = spawn("echo", &domain);
    // One at a time, each slept for on both sides.
    for number in 0..2_000 {
        send(&mut nic, link, &numbered(number));
        assert_eq!(receive(&mut nic, link).unwrap(), numbered(number));
    }
    // Many at once, both ways.
    let (mut sent, mut received) = (0, 0);
    while received < 50_000 {
        while sent < 50_000 && sent < received + 60 && try_send(&mut nic, link, &numbered(sent)) {
            sent += 1;
        }
        nic.flush();
        assert_eq!(receive(&mut nic, link).unwrap(), numbered(received));
        received += 1;
    }
    drop(nic);
    assert!(ended("the other process", &mut other, PATIENCE).success());
}

#[test]
fn a_killed_peer_is_gone_within_a_second_and_leaves_nothing_behind() {
    let domain = domain("kill");
    let (mut nic, mut link) = parent(&domain);
    for _ in 0..3 {
        let mut other = spawn("talk", &domain);
        for number in 0..10_000 {
            assert_eq!(receive(&mut nic, link).unwrap(), numbered(number));
        }
        // SIGKILL, in the middle of a flood.
        other.kill().unwrap();
        other.wait().unwrap();
        let killed = nic.now();
        let mut number = 10_000;
        while let Some(frame) = receive(&mut nic, link) {
            assert_eq!(frame, numbered(number));
            number += 1;
        }
        let noticed = nic.now().since(killed);
        assert!(noticed < Duration::from_millis(1_000), "noticed after {noticed:?}");
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&format!("{domain}-{CHILD}")), "its socket is still there");
        let old = link;
        link = nic.link(LinkAddr::Shm { endpoint: CHILD }).unwrap();
        nic.unlink(old);
    }
}
