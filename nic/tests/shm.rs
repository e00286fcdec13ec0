//! The `shm` driver between processes: what threads cannot show.

use std::process::{Child, Command, Stdio};

use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

const PARENT: u16 = 1;
const CHILD: u16 = 2;

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
    while !try_send(nic, link, bytes) {
        assert!(!nic.is_gone(link), "the peer is gone");
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
    assert!(other.wait().unwrap().success());
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
