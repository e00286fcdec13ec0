//! What an engine still has to do when it lies down, on a driver that makes room only then.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

use sidelane_nic::clock;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot, forward};
use sidelane_proto::engine::{Options, Port, start};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::face::{Domain, Face, PATIENCE, Until, config, join};

/// Has no room in a turn, but when the engine has looked at the clock after one and lies down.
struct RoomBeforeSleep {
    nic: ShmNic,
    begun: bool,
    in_turn: Cell<bool>,
    /// In a turn.
    refused: bool,
}

impl Nic for RoomBeforeSleep {
    const RELIABLE: bool = true;

    forward!(nic: caps, link, link_back, unlink, flush, wait, waker, is_gone, counters);

    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.in_turn.set(true);
        self.nic.rx_burst(budget, each)
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        let in_turn = self.in_turn.get();
        self.refused |= self.begun && in_turn;
        if self.begun && (in_turn || !self.refused) { None } else { self.nic.tx_slot(link, len) }
    }

    fn now(&self) -> Instant {
        self.in_turn.set(false);
        self.nic.now()
    }
}

/// An engine on such a driver whose timers are far, and its peer, which takes 1 MiB without a word.
fn before_sleep(domain: &Domain) -> (Port<Endpoint<RoomBeforeSleep>>, Port<Endpoint<ShmNic>>, PeerId) {
    let nic = RoomBeforeSleep { nic: domain.open(), begun: false, in_turn: Cell::new(false), refused: false };
    let patient = Config { keep_alive: Duration::from_millis(3_600_000), ..config() };
    let mut a = start(Endpoint::new(nic, patient), Options::default()).unwrap();
    let silent = Config { recv_fifo: 1 << 20, ..config() };
    let mut b = start(Endpoint::new(domain.open(), silent), Options::default()).unwrap();
    let (to_b, _) = join(&mut a, &mut b);
    // The one of the handshake has fired.
    a.until("quiet", |a| {
        let next = a.call(|endpoint| endpoint.poll_timeout()).unwrap();
        next.is_none_or(|next| next > clock::monotonic() + PATIENCE + PATIENCE).then_some(())
    });
    (a, b, to_b)
}

#[test]
fn what_the_flush_before_a_sleep_tells_is_told_before_it() {
    let domain = Domain::new();
    let (mut a, _b, to_b) = before_sleep(&domain);
    a.call(|endpoint| endpoint.nic_mut().begun = true).unwrap();
    let buffer = vec![7; 1000];
    a.send_owned(to_b, buffer.clone()).unwrap();
    a.flush();
    let give_up = clock::monotonic() + PATIENCE;
    let event = loop {
        if let Some(event) = a.poll_event() {
            break event;
        }
        assert!(clock::monotonic() < give_up, "the engine sleeps on its event");
        // A port that begins to wait may wake the engine.
        thread::yield_now();
    };
    assert_eq!(event, Event::Sent { peer: to_b, buffer });
}

#[test]
fn what_the_flush_before_a_sleep_makes_room_for_goes_on() {
    let domain = Domain::new();
    let (mut a, mut b, to_b) = before_sleep(&domain);
    let (release, held) = mpsc::channel::<()>();
    let hold = move |endpoint: &mut Endpoint<RoomBeforeSleep>| {
        endpoint.nic_mut().begun = true;
        let _ = held.recv();
    };
    assert!(a.run(hold).is_ok());
    a.flush();
    // The endpoint's FIFO holds two of them.
    for _ in 0..5 {
        a.send(to_b, &[7; 32 << 10]).unwrap();
    }
    drop(release);
    let give_up = clock::monotonic() + PATIENCE;
    let mut came = 0;
    while came < 5 {
        came += usize::from(Face::recv(&mut b).is_some());
        assert!(clock::monotonic() < give_up, "the engine sleeps on the rest: {came} of five came");
        thread::yield_now();
    }
}
