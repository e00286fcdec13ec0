//! Messages and puts to the same peer at once: neither keeps the other waiting for long.

use sidelane_nic::time::{Duration, Instant};
use sidelane_proto::{Op, PutHow, Rights};

use crate::pair::{Pair, VirtualTime};

const PUT: usize = 1 << 20;
const PUTS: usize = 4;
/// What one put takes on the link of 10 Gbit/s, headers of frames included.
const PUT_TIME: Duration = Duration::from_nanos(PUT as u64 * 8 / 10 * 1_560 / 1_448);

/// One end always has four puts of 1 MiB under way, and sends `at_once` messages, the next when one has arrived. Returns how long
/// each message took, and how many puts were done, in half a second.
fn play(at_once: usize, len: usize) -> (Vec<Duration>, usize) {
    let mut pair = Pair::calm();
    let theirs = pair.b().endpoint.register(vec![0; PUT]);
    let key = pair.b().endpoint.publish(theirs, Rights::WRITE, None).unwrap();
    let source = pair.a().endpoint.register(vec![7; PUT]);
    let (mut puts, mut done): (Vec<Op>, usize) = (Vec::new(), 0);
    let (mut sent, mut took): (Vec<Instant>, Vec<Duration>) = (Vec::new(), Vec::new());
    pair.run(Duration::from_millis(500), |pair| {
        let now = pair.now();
        while pair.b().endpoint.recv(|_, message| assert_eq!(message.len(), len)).is_some() {
            took.push(now.since(sent[took.len()]));
        }
        let a = pair.a();
        puts.retain(|put| {
            let is_done = a.endpoint.is_done(*put);
            done += usize::from(is_done);
            !is_done
        });
        while puts.len() < PUTS {
            puts.push(a.endpoint.put_from(a.peer, &key, 0, source, 0..PUT, PutHow::default()).unwrap());
        }
        while sent.len() < took.len() + at_once && a.endpoint.send(a.peer, &vec![1; len]).is_ok() {
            sent.push(now);
        }
        a.endpoint.flush();
        false
    });
    (took, done)
}

#[test]
fn a_message_waits_for_the_puts_before_it_and_for_no_others() {
    let (took, done) = play(1, 8);
    // What is in flight, and its ack, beside what was handed over before.
    let bound = PUT_TIME.saturating_mul(PUTS as u64) + Duration::from_millis(1);
    let longest = took.iter().max().copied();
    assert!(took.len() > 100 && longest < Some(bound), "{} messages, one took {longest:?}", took.len());
    let line = Duration::from_millis(500).as_nanos() / PUT_TIME.as_nanos();
    assert!(done as u64 > line * 9 / 10, "{done} puts where the line takes {line}");
}

#[test]
fn floods_of_both_share_the_line() {
    let (took, done) = play(100, 1_000);
    // A message may come just after the puts that those before it wait for.
    let bound = PUT_TIME.saturating_mul(3 * PUTS as u64);
    let longest = took.iter().max().copied();
    assert!(took.len() > 2_000 && longest < Some(bound), "{} messages, one took {longest:?}", took.len());
    assert!(done > 200, "{done} puts");
}
