//! The protocol over a pair of DPDK's, which leaves reliability to it: between two processes, of which one closes or is killed.
//! Where there is no libdpdk, each test says so and passes.

#[allow(dead_code, reason = "some of it is for tests of the driver")]
#[path = "../../nic/tests/other/mod.rs"]
mod other;
#[path = "../../nic/tests/patience/mod.rs"]
mod patience;

use std::io::{Read, Write};

use other::Other;
use patience::{SUITE_PATIENCE, until, watch};
use sidelane_nic::Nic;
use sidelane_nic::dpdk::{Config as Device, OpenError, Pair};
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Endpoint, Event, GoneReason, PeerId, SendError};

/// The name that both processes open.
const NAME: &str = "SIDELANE_TEST_NAME";
/// How the other one ends.
const END: &str = "SIDELANE_TEST_END";

#[test]
#[ignore = "the other side of a test"]
fn other_side() {
    let name = std::env::var(NAME).unwrap();
    let mut endpoint = endpoint(&name, THERE).unwrap();
    let peer = endpoint.connect(HERE.parse().unwrap()).unwrap();
    let mut end = end_of_input();
    for number in 0..MESSAGES {
        let message = message(number);
        until("a message has room", || {
            endpoint.poll();
            let sent = endpoint.send(peer, &message);
            assert!(matches!(sent, Ok(()) | Err(SendError::Full)), "{sent:?}");
            sent.is_ok()
        });
    }
    println!("\nsent");
    std::io::stdout().flush().unwrap();
    if std::env::var(END).unwrap() == "close" {
        endpoint.close(peer);
        until("the connection is closed", || {
            endpoint.poll();
            matches!(endpoint.poll_event(), Some(Event::Closed { .. }))
        });
        // At once: nobody answers for what was sent any more.
        drop(endpoint);
        return;
    }
    while end() {
        endpoint.poll();
    }
}

#[test]
fn all_that_was_sent_before_a_close_arrives() {
    let Some((mut endpoint, name)) = server("close") else { return };
    let mut other = start(&name, "close");
    let peer = connected(&mut endpoint);
    (0..MESSAGES - LAST).for_each(|number| receive(&mut endpoint, peer, number));
    // The rest is in the ring when its sender has closed and gone.
    other.ended();
    (MESSAGES - LAST..MESSAGES).for_each(|number| receive(&mut endpoint, peer, number));
    assert_eq!(next_event(&mut endpoint, PATIENCE), Event::Closed { peer });
    assert_eq!(endpoint.counters().rejected_total(), 0, "{:?}", endpoint.counters());
}

/// The second life has the same address, and comes before this side has looked.
#[test]
fn a_killed_peer_is_gone_within_a_second_and_its_successor_is_met() {
    let Some((mut endpoint, name)) = server("kill") else { return };
    let mut other = start(&name, "never");
    let mut peer = connected(&mut endpoint);
    for round in 0..2 {
        (0..MESSAGES).for_each(|number| receive(&mut endpoint, peer, number));
        other.kill();
        if round == 0 {
            let early = start(&name, "never");
            until("the successor comes", || endpoint.nic().link_is_up());
            other = early;
        }
        let gone = next_event(&mut endpoint, Duration::from_millis(1_000));
        assert!(
            matches!(gone, Event::Gone { peer: who, reason: GoneReason::LinkGone | GoneReason::Restarted } if who == peer),
            "{gone:?}"
        );
        if round == 0 {
            peer = connected(&mut endpoint);
        }
    }
}

fn server(name: &str) -> Option<(Endpoint<Pair>, String)> {
    // DPDK's own waits have no limit.
    watch("it", SUITE_PATIENCE);
    let name = format!("sidelane-proto-{name}-{}", std::process::id());
    match endpoint(&format!("{name},server"), HERE) {
        Err(OpenError::NoDpdk(error)) => {
            println!("skipped: {error}");
            None
        }
        opened => Some((opened.unwrap(), name)),
    }
}

fn endpoint(name: &str, own: &str) -> Result<Endpoint<Pair>, OpenError> {
    let mac = own.split('/').next().unwrap();
    let pair = Pair::open(&Device::new(format!("memif:{name},mac={mac}")))?;
    Ok(Endpoint::new(pair, Config::default()))
}

fn connected(endpoint: &mut Endpoint<Pair>) -> PeerId {
    match next_event(endpoint, PATIENCE) {
        Event::Connected { peer, .. } => peer,
        other => panic!("{other:?}"),
    }
}

fn next_event(endpoint: &mut Endpoint<Pair>, patience: Duration) -> Event {
    let give_up = endpoint.nic().now() + patience;
    loop {
        endpoint.poll();
        if let Some(event) = endpoint.poll_event() {
            return event;
        }
        // The other side's Close is taken as messages are.
        endpoint.recv(|_, _| panic!("a message that was not due"));
        assert!(endpoint.nic().now() < give_up, "nothing happened for {patience:?}");
    }
}

fn receive(endpoint: &mut Endpoint<Pair>, from: PeerId, number: u32) {
    let give_up = endpoint.nic().now() + PATIENCE;
    loop {
        let fine = endpoint.recv(|peer, got| (peer, got == message(number)));
        if let Some(fine) = fine {
            return assert_eq!(fine, (from, true), "message {number}");
        }
        endpoint.poll();
        assert!(endpoint.nic().now() < give_up, "message {number} did not come: {:?}", endpoint.poll_event());
    }
}

/// Many that fit a frame, and some that do not.
fn message(number: u32) -> Vec<u8> {
    let len = if number % 200 == 199 { 300_000 } else { 4 + number as usize * 37 % 3_000 };
    let mut message = vec![number as u8; len];
    message[..4].copy_from_slice(&number.to_le_bytes());
    message
}

/// False once whoever started us is gone.
fn end_of_input() -> impl FnMut() -> bool {
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    move || !ended.load(std::sync::atomic::Ordering::Relaxed)
}

fn start(name: &str, end: &str) -> Other {
    Other::start("other_side", &[(NAME, name), (END, end)])
}

const HERE: &str = "02:00:00:00:00:01/0";
const THERE: &str = "02:00:00:00:00:02/0";
const MESSAGES: u32 = 2_030;
/// Of them, so many last ones fit the ring together.
const LAST: u32 = 20;
const PATIENCE: Duration = Duration::from_millis(20_000);
