//! Stories of two endpoints, for every driver of theirs and of the stack's.

use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, SendError};

use crate::KEPT_MAX;
use crate::face::{Face, Stage, Until, config, driven, join, pair, send};

stories! {
    messages_of_every_size_arrive_in_order
    what_finds_no_room_is_refused_and_nothing_is_lost
    lent_buffers_come_back
    what_was_sent_before_a_close_arrives
    a_peer_that_ends_is_gone
    nobody_answers
    a_message_that_the_peer_does_not_take_is_refused
}

/// What message `number` is.
fn message(number: usize) -> Vec<u8> {
    // Across the borders of a record in the ring, of a frame, and of the FIFOs.
    let len = [0, 1, 8, 111, 112, 113, 1_400, 16_376, KEPT_MAX, KEPT_MAX + 1, 100_000][number % 11];
    (0..len).map(|at| (at * 7 + number) as u8).collect()
}

fn messages_of_every_size_arrive_in_order(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, to_a) = join(&mut *a, &mut *b);
    let mut received = 0;
    let take = |b: &mut dyn Face, received: &mut usize| {
        b.turn();
        while let Some((from, got)) = b.recv() {
            assert_eq!((from, &got), (to_a, &message(*received)), "message {received}");
            *received += 1;
        }
    };
    for number in 0..220 {
        send(&mut *a, to_b, &message(number), || take(&mut *b, &mut received));
    }
    a.until("receiving", |_| {
        take(&mut *b, &mut received);
        (received == 220).then_some(())
    });
    a.until("the last ack", |a| {
        b.turn();
        a.is_settled(to_b).then_some(())
    });
    // And back.
    send(&mut *b, to_a, b"well", || {});
    let back = a.until("an answer", |a| {
        b.turn();
        a.recv()
    });
    assert_eq!(back, (to_b, b"well".to_vec()));
}

fn what_finds_no_room_is_refused_and_nothing_is_lost(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let mut sent = 0u64;
    // Nobody takes them: the receiver's FIFO fills, then the sender's, then what lies before it.
    a.until("being refused", |a| {
        b.turn();
        let refused = loop {
            match a.send(to_b, &[&sent.to_le_bytes()[..], &[0; 100]].concat()) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SendError::Full);
        // What it takes while the other FIFOs fill is little.
        (sent * 128 > 80 << 10).then_some(())
    });
    let mut next = 0u64;
    b.until("receiving the rest", |b| {
        a.turn();
        while let Some((_, got)) = b.recv() {
            assert_eq!(got[..8], next.to_le_bytes());
            next += 1;
        }
        (next == sent).then_some(())
    });
    send(&mut *a, to_b, b"room again", || {});
}

fn lent_buffers_come_back(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    a.send_owned(to_b, vec![7; 50_000]).unwrap();
    let (_, got) = b.until("the message", |b| {
        a.turn();
        b.recv()
    });
    assert_eq!(got, vec![7; 50_000]);
    let event = a.until("the buffer", |a| {
        b.turn();
        a.poll_event()
    });
    assert_eq!(event, Event::Sent { peer: to_b, buffer: vec![7; 50_000] });
}

fn what_was_sent_before_a_close_arrives(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, to_a) = join(&mut *a, &mut *b);
    for number in 0..11 {
        send(&mut *a, to_b, &message(number), || {
            b.turn();
        });
    }
    a.close(to_b);
    assert_eq!(a.send(to_b, b"late"), Err(SendError::NoPeer));
    let mut next = 0;
    b.until("the last message", |b| {
        a.turn();
        while let Some((_, got)) = b.recv() {
            assert_eq!(got, message(next));
            next += 1;
        }
        (next == 11).then_some(())
    });
    let closed = a.until("the close", |a| {
        b.turn();
        a.poll_event()
    });
    assert_eq!(closed, Event::Closed { peer: to_b });
    let closed = b.until("the other close", |b| {
        // It may have come behind the last message, and is taken like one.
        assert_eq!(b.recv(), None);
        b.poll_event()
    });
    assert!(matches!(closed, Event::Closed { peer } if peer == to_a), "{closed:?}");
    assert_eq!(b.send(to_a, b"late"), Err(SendError::NoPeer));
}

fn a_peer_that_ends_is_gone(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    drop(b);
    // An engine may have heard of the end by now.
    let refused = a.send_owned(to_b, vec![1; 20_000]).is_err();
    let mut events = Vec::new();
    a.until("hearing of it", |a| {
        events.extend(std::iter::from_fn(|| a.poll_event()));
        let gone = events.iter().any(|event| matches!(event, Event::Gone { peer, .. } if *peer == to_b));
        // On a reliable driver it may have left before the end was known.
        let back = events.iter().any(|event| match event {
            Event::Unsent { buffer, .. } | Event::Sent { buffer, .. } => *buffer == [1; 20_000],
            _ => false,
        });
        (gone && (back || refused)).then_some(())
    });
    assert_eq!(events.len(), if refused { 1 } else { 2 }, "{events:?}");
    assert_eq!(a.send(to_b, b"?"), Err(SendError::NoPeer));
}

fn nobody_answers(stage: &dyn Stage) {
    let brief = Config { connect_timeout: Duration::from_millis(50), ..config() };
    let [mut a] = driven(stage, [brief]);
    let (_absent, to) = stage.absent();
    // Of which on `shm` the other end is there, and never looks.
    let peer = a.connect(to);
    a.send(peer, b"hello?").unwrap();
    let event = a.until("giving up", |a| a.poll_event());
    assert_eq!(event, Event::Gone { peer, reason: GoneReason::NoAnswer });
    assert_eq!(a.send(peer, b"?"), Err(SendError::NoPeer));
}

fn a_message_that_the_peer_does_not_take_is_refused(stage: &dyn Stage) {
    let choosy = Config { message_max: 70_000, ..config() };
    let [mut a, mut b, mut c] = driven(stage, [config(), choosy, config()]);
    let (to_b, to_a) = join(&mut *a, &mut *b);
    assert_eq!(a.send(to_b, &[0; 70_001]), Err(SendError::TooLong));
    assert_eq!(b.send(to_a, &[0; 70_001]), Err(SendError::TooLong));
    let refused = a.send_owned(to_b, vec![3; 70_001]).unwrap_err();
    assert_eq!((refused.reason, refused.buffer.len()), (SendError::TooLong, 70_001));
    // Sent before the other side could say so.
    let at_b = b.addr();
    let from_c = c.connect(at_b);
    match c.send(from_c, &[0; 80_000]) {
        // By an engine of its own it may have said so already.
        Err(SendError::TooLong) => return,
        sent => sent.unwrap(),
    }
    let gone = c.until("being told", |c| {
        b.turn();
        c.poll_event().filter(|event| !matches!(event, Event::Connected { .. }))
    });
    assert_eq!(gone, Event::Gone { peer: from_c, reason: GoneReason::MessageTooLong });
}
