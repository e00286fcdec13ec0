//! An engine that ends, or panics: what comes of all that it was given.

use std::thread;

use sidelane_nic::clock;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_proto::engine::{ConnectError, Port};
use sidelane_proto::{Endpoint, Event, PutHow, Rights, RmaError, SendError};

use crate::alone::{EVENTS, engine, fill_events};
use crate::face::{Domain, Face, PATIENCE, Until, config, join, send};

#[test]
fn events_that_found_no_room_come_back_with_the_endpoint() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    fill_events(&mut a, to_b, &mut b);
    let mut endpoint: Endpoint<ShmNic> = a.stop().unwrap();
    let left = std::iter::from_fn(|| endpoint.poll_event()).count();
    assert_eq!(left, EVENTS - 1_024, "the port had the first ones");
}

#[test]
fn a_panic_on_the_engine_is_an_error_to_the_application() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, to_a) = join(&mut a, &mut b);
    let sender = a.sender();
    let ended = a.call::<()>(|_| panic!("as ordered")).unwrap_err();
    assert_eq!(ended.to_string(), "the engine has ended with this endpoint: as ordered");
    assert_eq!((a.send(to_b, b"?"), sender.send(to_b, b"?")), (Err(SendError::NoPeer), Err(SendError::NoPeer)));
    assert!(a.run(|_| ()).is_err() && sender.run(|_| ()).is_err());
    let give_up = clock::monotonic() + PATIENCE;
    assert_eq!(Port::wait(&mut a, Some(give_up)).unwrap_err().to_string(), ended.to_string());
    let at_b = b.addr();
    assert!(matches!(Port::connect(&mut a, at_b), Err(ConnectError::Ended(why)) if why == ended));
    a.close(to_b);
    assert_eq!(a.stop().err(), Some(ended));
    // Its endpoint is gone with it.
    let event = b.until("the other side", |b| b.poll_event());
    assert!(matches!(event, Event::Gone { peer, .. } if peer == to_a), "{event:?}");
}

/// It is not full: no room will be made.
#[test]
fn what_was_full_when_the_engine_panicked_has_no_peer() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), Endpoint::new(domain.open(), config()));
    let (to_b, _) = join(&mut a, &mut b);
    let page = b.register(vec![0; 8]);
    let key = b.publish(page, Rights::ALL, None).unwrap();
    // Nobody polls the peer: until many turns make no more room.
    let mut refused = 0;
    let give_up = clock::monotonic() + PATIENCE;
    while refused < 100 {
        assert!(clock::monotonic() < give_up, "there is always room");
        let sent = a.send(to_b, &[0; 100]);
        let put = a.put(to_b, &key, 0, &[0; 8], PutHow::default());
        refused = if (sent, put) == (Err(SendError::Full), Err(RmaError::Full)) { refused + 1 } else { 0 };
        a.call(|_| ()).unwrap();
    }
    a.call::<()>(|_| panic!("as ordered")).unwrap_err();
    assert_eq!(a.send(to_b, &[0; 100]), Err(SendError::NoPeer));
    assert_eq!(a.put(to_b, &key, 0, &[0; 8], PutHow::default()), Err(RmaError::NoPeer));
}

#[test]
fn an_engine_that_ends_sends_what_was_ordered_and_gives_its_endpoint_back() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    for number in 0..100u32 {
        a.send(to_b, &number.to_le_bytes()).unwrap();
    }
    let mut endpoint: Endpoint<ShmNic> = a.stop().unwrap();
    for number in 0..100u32 {
        let (_, got) = b.until("what was ordered", Face::recv);
        assert_eq!(got, number.to_le_bytes());
    }
    send(&mut endpoint, to_b, b"by hand", || {});
    assert_eq!(b.until("one more", Face::recv).1, b"by hand");
}

#[test]
fn an_engine_that_ends_waits_for_room_for_what_it_has_accepted() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    let mut sent = 0u64;
    // All that the way to it holds.
    let until = clock::monotonic() + Duration::from_millis(100);
    while clock::monotonic() < until {
        sent += u64::from(a.send(to_b, &sent.to_le_bytes()).is_ok());
        a.flush();
    }
    let receiver = thread::spawn(move || {
        for number in 0..sent {
            assert_eq!(b.until("what was accepted", Face::recv).1, number.to_le_bytes());
        }
        b
    });
    let mut endpoint: Endpoint<ShmNic> = a.stop().unwrap();
    while !receiver.is_finished() {
        endpoint.poll();
    }
    receiver.join().unwrap();
}

#[test]
fn what_is_lent_to_an_engine_that_ends_comes_back() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    let is_back = |event: Event| matches!(event, Event::Sent { .. } | Event::Unsent { .. });
    // All that the way to it holds: until many turns of both engines make no more room.
    let (mut lent, mut back, mut refused) = (0u64, 0, 0);
    while refused < 100 {
        match a.send_owned(to_b, lent.to_le_bytes().to_vec()) {
            Ok(()) => (lent, refused) = (lent + 1, 0),
            Err(error) => {
                assert_eq!(error.reason, SendError::Full);
                refused += 1;
                a.call(|_| ()).unwrap();
                b.call(|_| ()).unwrap();
            }
        }
        back += std::iter::from_fn(|| Face::poll_event(&mut a)).map(is_back).map(u64::from).sum::<u64>();
    }
    let mut endpoint: Endpoint<ShmNic> = a.stop().unwrap();
    drop(b);
    endpoint.until("the end of the other side", |endpoint| {
        let event = Face::poll_event(endpoint)?;
        let is_end = matches!(event, Event::Gone { .. });
        back += u64::from(is_back(event));
        is_end.then_some(())
    });
    assert_eq!(back, lent);
}
