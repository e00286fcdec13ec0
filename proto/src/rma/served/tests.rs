//! Where bytes may go before their frame was checked.

use super::*;
use crate::Config;
use crate::rma::OneSided;
use crate::rma::memory::Memory;
use crate::wire::PUT_LEN;
use sidelane_nic::time::Instant;

const PEER: PeerId = PeerId { index: 0, generation: 0 };
const LEN: usize = 100;
const KEY: u64 = 7;

struct Stage {
    turn: TurnContext,
    served: Served,
    region: u32,
}

impl Stage {
    /// A region that one put of the peer's fills.
    fn new() -> Self {
        let mut turn = TurnContext::new(Config::default(), Instant::ZERO, false);
        let region = turn.rma.regions.register(Memory::Owned(vec![0; LEN]));
        turn.rma.regions.publish_to_fill(region, KEY, PEER).expect("just registered");
        Self { turn, served: Served::new(), region: region.index }
    }

    fn to(&self, at: usize) -> Target {
        Target { region: self.region, key: KEY, offset: at as u64 }
    }

    /// True when `len` bytes for `at` have a place before their frame was checked.
    fn has_place(&mut self, at: usize, len: usize, flags: u8) -> bool {
        let front = self.front(at, len, flags);
        let place = self.served.place(&mut self.turn.rma.regions, PEER, &front, PUT_LEN + len);
        place.is_some_and(|place| place.len() == len)
    }

    fn front(&self, at: usize, len: usize, flags: u8) -> [u8; PUT_LEN] {
        let mut front = [0; PUT_LEN];
        crate::wire::put_put(&mut front, &self.to(at), flags, len as u16);
        front
    }

    /// They come, and were not placed.
    fn put(&mut self, at: usize, len: usize, flags: u8) {
        let to = self.to(at);
        self.served.on_put(&mut self.turn, PEER, &to, flags, &vec![1; len]).expect("within the region");
    }

    fn put_placed(&mut self, at: usize, len: usize, flags: u8) {
        assert!(self.has_place(at, len, flags));
        self.served.on_placed_put(&mut self.turn, PEER);
    }
}

#[test]
fn what_has_come_has_no_place_and_what_comes_next_has() {
    let mut stage = Stage::new();
    for (at, len) in [(0, 40), (40, 25), (65, 30)] {
        for other in (0..LEN - 5).filter(|other| *other != at) {
            assert!(!stage.has_place(other, 5, 0), "{other} when {at} was next");
        }
        assert!(stage.has_place(at, len, 0) && stage.has_place(at, len + 1, put_flags::LAST));
        if len == 25 { stage.put(at, len, 0) } else { stage.put_placed(at, len, 0) }
    }
    assert!(stage.has_place(95, 5, put_flags::LAST) && !stage.has_place(95, 6, put_flags::LAST));
}

#[test]
fn what_comes_from_the_end_has_a_place_before_what_has_come() {
    let mut stage = Stage::new();
    for (at, len) in [(60, 40), (35, 25), (5, 30)] {
        let end = at + len;
        for other in (1..LEN - 4).filter(|other| *other != end - 5) {
            assert!(!stage.has_place(other, 5, 0), "{other} when {end} was the end");
        }
        assert!(stage.has_place(at, len, 0) && stage.has_place(at - 1, len + 1, put_flags::LAST));
        if len == 25 { stage.put(at, len, 0) } else { stage.put_placed(at, len, 0) }
    }
    assert!(!stage.has_place(0, 6, put_flags::LAST));
    stage.put_placed(0, 5, put_flags::LAST);
    assert!((0..LEN - 4).all(|at| !stage.has_place(at, 5, 0)), "it has ended");
}

/// As when a peer shares the memory of the frame, which says something else by then.
#[test]
fn nothing_is_done_of_what_has_got_no_place() {
    let mut stage = Stage::new();
    stage.put_placed(0, 40, 0);
    stage.served.on_placed_put(&mut stage.turn, PEER);
    assert_eq!((stage.served.taken, stage.has_place(40, 10, 0)), (0, true));
}

#[test]
fn where_a_put_has_ended_there_is_no_place() {
    for is_placed in [false, true] {
        let mut stage = Stage::new();
        let put = if is_placed { Stage::put_placed } else { Stage::put };
        put(&mut stage, 0, 40, put_flags::LAST);
        assert_eq!(stage.served.taken, 1);
        assert!((0..LEN).all(|at| !stage.has_place(at, 5.min(LEN - at), 0)));
    }
}

#[test]
fn what_comes_elsewhere_ends_the_filling() {
    let mut stage = Stage::new();
    stage.put(10, 40, 0);
    for at in (0..LEN).filter(|at| *at != 50) {
        assert!(!stage.has_place(at, 5.min(LEN - at), 0), "{at}");
    }
    assert!(stage.has_place(50, 40, 0), "of the put that came, as of any");
    assert!(!stage.has_place(50, 30, 0) && !stage.has_place(50, 40, put_flags::LAST));
}

#[test]
fn what_comes_before_its_turn_ends_the_filling() {
    let mut stage = Stage::new();
    let mut one_sided = OneSided::new(1 << 10, 1 << 10);
    let first = stage.front(0, 40, 0);
    assert!(one_sided.place(&mut stage.turn.rma.regions, PEER, &first, PUT_LEN + 40).is_some());
    let mut early = [0; PUT_LEN + 40];
    Operation::Put { to: stage.to(60), flags: put_flags::LAST, bytes: &[1; 40] }.emit(&mut early);
    assert!(one_sided.place_early(&mut stage.turn, PEER, &early).is_some());
    assert_eq!(one_sided.place(&mut stage.turn.rma.regions, PEER, &first, PUT_LEN + 40), None);
}

#[test]
fn a_put_that_was_refused_has_no_place() {
    let mut stage = Stage::new();
    let other = Target { key: KEY + 1, ..stage.to(0) };
    assert!(stage.served.on_put(&mut stage.turn, PEER, &other, 0, &[1; 10]).is_err());
    assert!(!stage.has_place(0, 10, 0));
    stage.put(0, 10, put_flags::LAST);
    assert!(stage.served.has_replies());
}
