//! A driver that wraps a driver and sends badly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::{Deref, DerefMut};

use super::{Faults, Lateness};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::{Counters, Link, LinkAddr, Nic, TxSlot, forward};

/// Lets [`Faults`] befall every frame that is sent through the driver within; what is received is left alone.
///
/// Frames wait here, in copies of the wrapper's own, until they are due and the driver within has room. They move on
/// with `flush`, and once they are due with `rx_burst` and `wait`.
pub struct Fault<N: Nic> {
    inner: N,
    faults: Faults,
    rng: Rng,
    /// Not yet handed on; the next one due comes first.
    held: BinaryHeap<Reverse<Held>>,
    /// Frames ever held: settles which of two frames due at one time goes first.
    holds: u64,
    /// When the latest frame that was delayed is due: none goes before it that is sent behind it.
    last_due: Instant,
    /// Due, and without room at their peer. Only while frames are handed on.
    stuck: Vec<Held>,
    spare: Vec<Vec<u8>>,
    faults_done: FaultCounters,
    /// Frames that were held for a link that was forgotten, or a peer that is gone.
    tx_failed: u64,
    /// Times that whoever sends got no buffer; the tries to hand held frames on are not among them.
    tx_full: u64,
    /// Those that the driver within has counted so far, whoever asked it.
    inner_tx_full: u64,
}

/// What was done to the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Lost.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Held back while others passed.
    pub held_back: u64,
    /// Made late, together with those behind.
    pub delayed: u64,
    /// Changed or cut.
    pub damaged: u64,
}

// Fields in the order in which they are compared.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    hold: u64,
    link: u32,
    bytes: Vec<u8>,
}

struct Slot<'a, N: Nic> {
    nic: &'a mut Fault<N>,
    link: Link,
    bytes: Vec<u8>,
}

impl<N: Nic> Fault<N> {
    /// Wraps `inner`. The same seed draws the same faults for the same sequence of frames.
    pub fn new(inner: N, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            faults,
            rng: Rng::new(seed),
            held: BinaryHeap::new(),
            holds: 0,
            last_due: Instant::ZERO,
            stuck: Vec::new(),
            spare: Vec::new(),
            faults_done: FaultCounters::default(),
            tx_failed: 0,
            tx_full: 0,
            inner_tx_full: 0,
        }
    }

    /// What was done so far. The driver's own counts are [`Nic::counters`].
    pub fn fault_counters(&self) -> FaultCounters {
        self.faults_done
    }

    /// The driver within.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    /// Draws the fate of a committed frame.
    fn befall(&mut self, link: Link, bytes: &[u8]) {
        let copies = self.faults.copies(&mut self.rng);
        self.faults_done.lost += u64::from(copies == 0);
        self.faults_done.duplicated += copies.saturating_sub(1) as u64;
        let now = self.inner.now();
        for _ in 0..copies {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            if let Some(left) = self.faults.damage(&mut copy, &mut self.rng) {
                self.faults_done.damaged += 1;
                copy.truncate(left);
            }
            let in_time = self.last_due.max(now);
            let due = match self.faults.lateness(&mut self.rng) {
                Lateness::HeldBack(by) => {
                    self.faults_done.held_back += 1;
                    in_time + by
                }
                Lateness::Delayed(by) => {
                    self.faults_done.delayed += 1;
                    self.last_due = in_time.max(now + by);
                    self.last_due
                }
                Lateness::OnTime => in_time,
            };
            self.holds += 1;
            self.held.push(Reverse(Held { due, hold: self.holds, link: link.0, bytes: copy }));
        }
    }

    /// Hands on what is due, as far as the driver within has room. A peer that has none stops nobody else's frames.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = self.inner.now();
        while self.held.peek().is_some_and(|Reverse(next)| next.due <= now)
            && let Some(Reverse(next)) = self.held.pop()
        {
            // Frames of one link stay in order.
            let waits = self.stuck.iter().any(|stuck| stuck.link == next.link);
            if waits || !self.pass(&next) { self.stuck.push(next) } else { self.spare.push(next.bytes) }
        }
        self.held.extend(self.stuck.drain(..).map(Reverse));
        self.inner.flush();
    }

    /// Hands a frame on. False: there is no room for it yet.
    fn pass(&mut self, frame: &Held) -> bool {
        let link = Link(frame.link);
        if hand_on(&mut self.inner, link, &frame.bytes) {
            return true;
        }
        self.inner.flush();
        if hand_on(&mut self.inner, link, &frame.bytes) {
            self.fulls_within();
            return true;
        }
        self.fulls_within();
        // A peer that is gone never has room again.
        let gone = self.inner.is_gone(link);
        self.tx_failed += u64::from(gone);
        gone
    }

    /// Times that the driver within had no buffer since this was asked last.
    #[cold]
    fn fulls_within(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.inner_tx_full, self.inner.counters().tx_full);
        self.inner_tx_full - before
    }
}

impl<N: Nic> Nic for Fault<N> {
    const RELIABLE: bool = false;
    const NAME: &'static str = N::NAME;

    forward!(inner: caps, link, link_back, confirm, has_unread, waker, is_gone, diagnosis, now);

    fn unlink(&mut self, link: Link) {
        let held = self.held.len();
        self.held.retain(|Reverse(held)| held.link != link.0);
        self.tx_failed += (held - self.held.len()) as u64;
        self.inner.unlink(link);
    }

    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        self.release();
        self.inner.rx_burst(budget, each)
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        // A slot of the driver within is asked for and forgotten, so that a full ring shows here at once.
        if self.held.len() >= HELD_MAX {
            self.tx_full += 1;
            return None;
        }
        if self.inner.tx_slot(link, len).is_none() {
            self.tx_full += self.fulls_within();
            return None;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        Some(Slot { nic: self, link, bytes })
    }

    fn flush(&mut self) {
        self.release();
        self.inner.flush();
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.release();
        // What is due and still here waits for room, of which nothing tells.
        let now = self.inner.now();
        let due = self.held.peek().map(|Reverse(next)| if next.due <= now { now + AGAIN } else { next.due });
        let sooner = match (due, deadline) {
            (Some(due), Some(deadline)) => Some(due.min(deadline)),
            (due, deadline) => due.or(deadline),
        };
        self.inner.wait(sooner)?;
        self.release();
        Ok(())
    }

    fn counters(&self) -> Counters {
        let inner = self.inner.counters();
        Counters { tx_full: self.tx_full, tx_failed: inner.tx_failed + self.tx_failed, ..inner }
    }
}

impl<N: Nic> TxSlot for Slot<'_, N> {
    fn commit(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.nic.befall(self.link, &bytes);
        self.nic.spare.push(bytes);
    }
}

impl<N: Nic> Deref for Slot<'_, N> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<N: Nic> DerefMut for Slot<'_, N> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Sends a frame through `nic`; false when it has no room.
fn hand_on<N: Nic>(nic: &mut N, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

/// Frames that wait here at most; more than any driver's ring, so that a long delay does not stop a sender at once.
const HELD_MAX: usize = 4096;

/// Until a frame without room is tried again: seldom enough for a sleep to be one.
const AGAIN: Duration = Duration::from_micros(100);

// Loom has no `shm` driver, only the models of its rings.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem::{Config, Fabric, LineModel, MemNic};
    use crate::shm::ShmNic;

    fn pair(faults: Faults) -> (Fault<MemNic>, MemNic) {
        let fabric = Fabric::new(0);
        (Fault::new(fabric.nic(Config::default()), faults, 1), fabric.nic(Config::default()))
    }

    /// Sends `count` numbered frames, a microsecond apart, and lets a second pass.
    fn run(a: &mut Fault<MemNic>, b: &mut MemNic, count: u16) -> Vec<Vec<u8>> {
        let link = a.link(b.caps().addr).unwrap();
        let mut arrived = Vec::new();
        for n in 0..count {
            let mut slot = a.tx_slot(link, 2).expect("room");
            slot.copy_from_slice(&n.to_be_bytes());
            slot.commit();
            a.flush();
            b.rx_burst(64, |frame, _| arrived.push(frame.to_vec()));
            b.fabric().advance_to(b.now() + Duration::from_micros(1));
        }
        for _ in 0..1_000 {
            b.fabric().advance_to(b.now() + Duration::from_millis(1));
            a.rx_burst(1, |_, _| {});
            b.rx_burst(64, |frame, _| arrived.push(frame.to_vec()));
        }
        arrived
    }

    #[test]
    fn without_faults_every_frame_passes_in_order() {
        let (mut a, mut b) = pair(Faults::NONE);
        let arrived = run(&mut a, &mut b, 500);
        assert!(arrived.len() == 500 && arrived.is_sorted());
        assert_eq!(a.fault_counters(), FaultCounters::default());
    }

    #[test]
    fn what_arrives_is_what_the_counters_say() {
        let (mut a, mut b) = pair(Faults { loss: 0.2, duplicate: 0.1, ..Faults::NONE });
        let arrived = run(&mut a, &mut b, 500);
        let done = a.fault_counters();
        assert!(done.lost > 50 && done.duplicated > 20);
        assert_eq!(arrived.len() as u64, 500 - done.lost + done.duplicated);
    }

    #[test]
    fn held_back_frames_are_passed_and_still_arrive() {
        let (mut a, mut b) = pair(Faults { reorder: 0.2, ..Faults::NONE });
        let mut arrived = run(&mut a, &mut b, 500);
        assert!(!arrived.is_sorted());
        arrived.sort();
        arrived.dedup();
        assert_eq!(arrived.len(), 500);
    }

    #[test]
    fn delayed_frames_arrive_later_and_none_passes_another() {
        let (mut a, mut b) = pair(Faults { delay: 0.3, ..Faults::NONE });
        let arrived = run(&mut a, &mut b, 500);
        assert!(a.fault_counters().delayed > 100);
        assert!(arrived.len() == 500 && arrived.is_sorted());
    }

    #[test]
    fn truncated_frames_are_shorter_and_no_others() {
        let (mut a, mut b) = pair(Faults { truncate: 0.2, ..Faults::NONE });
        let arrived = run(&mut a, &mut b, 500);
        let cut = arrived.iter().filter(|frame| frame.len() < 2).count() as u64;
        assert!(cut > 50 && cut == a.fault_counters().damaged);
    }

    #[test]
    fn a_peer_without_room_holds_up_no_other() {
        let domain = format!("fault-{}", std::process::id());
        let [mut b, mut c] = [1, 2].map(|endpoint| ShmNic::open(&domain, Some(endpoint)).unwrap());
        let late = Faults { delay: 1.0, delay_span: Duration::from_millis(50), ..Faults::NONE };
        let mut a = Fault::new(ShmNic::open(&domain, Some(0)).unwrap(), late, 1);
        let (to_b, to_c) = (a.link(b.caps().addr).unwrap(), a.link(c.caps().addr).unwrap());
        let commit = |a: &mut Fault<ShmNic>, link, bytes: &[u8]| {
            let Some(mut slot) = a.tx_slot(link, bytes.len()) else { return false };
            slot.copy_from_slice(bytes);
            slot.commit();
            true
        };
        let give_up = a.now() + Duration::from_millis(20_000);
        let large = |number: u32| [&number.to_be_bytes()[..], &[0; 20_000]].concat();
        for (link, first) in [(to_c, b"beside".to_vec()), (to_b, large(0))] {
            while !commit(&mut a, link, &first) {
                assert!(a.now() < give_up, "no connection");
                a.wait(Some(a.now() + AGAIN)).unwrap();
            }
        }
        // More than its ring takes, committed before the first is due.
        let mut sent = 1;
        while sent < 600 && commit(&mut a, to_b, &large(sent)) {
            sent += 1;
        }
        assert!(commit(&mut a, to_c, b"beside"));
        let mut beside = 0;
        while beside < 2 {
            beside += c.rx_burst(1, |frame, _| assert_eq!(frame, b"beside"));
            assert!(a.now() < give_up, "held up by another's frames");
            a.wait(Some(a.now() + AGAIN)).unwrap();
        }
        // And the others come in their order once there is room.
        let mut next = 0;
        while next < sent {
            assert!(a.now() < give_up, "{next} of {sent} frames");
            a.flush();
            b.rx_burst(8, |frame, _| {
                assert_eq!(frame[..4], u32::to_be_bytes(next));
                next += 1;
            });
        }
    }

    #[test]
    fn held_frames_of_a_forgotten_link_count_as_failed() {
        let (mut a, b) = pair(Faults { delay: 1.0, ..Faults::NONE });
        let link = a.link(b.caps().addr).unwrap();
        (0..3).for_each(|_| a.tx_slot(link, 1).unwrap().commit());
        a.unlink(link);
        assert_eq!((a.counters().tx_failed, a.counters().tx_frames), (3, 0));
    }

    /// Whose peers go.
    struct Leaving {
        nic: MemNic,
        gone: bool,
    }

    impl Nic for Leaving {
        const RELIABLE: bool = false;

        forward!(nic: caps, link, unlink, rx_burst, flush, wait, waker, counters, now);

        fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
            if self.gone { None } else { self.nic.tx_slot(link, len) }
        }

        fn is_gone(&self, _link: Link) -> bool {
            self.gone
        }
    }

    #[test]
    fn frames_for_a_peer_that_went_count_as_failed() {
        let fabric = Fabric::new(0);
        let [nic, b] = [(); 2].map(|()| fabric.nic(Config::default()));
        let late = Faults { delay: 1.0, ..Faults::NONE };
        let mut a = Fault::new(Leaving { nic, gone: false }, late, 1);
        let to_b = a.link(b.caps().addr).unwrap();
        (0..3).for_each(|_| a.tx_slot(to_b, 1).unwrap().commit());
        a.inner.gone = true;
        fabric.advance_to(Instant::ZERO + Faults::NONE.delay_span.saturating_mul(4));
        a.flush();
        assert_eq!((a.counters().tx_failed, a.counters().tx_frames), (3, 0));
    }

    const BLOCKED: LineModel = LineModel { rate_bits_per_s: Some(1), queue_limit_bytes: Some(0) };

    #[test]
    fn a_frame_without_room_is_tried_again_after_a_while() {
        let (mut a, mut b) = pair(Faults::NONE);
        let link = a.link(b.caps().addr).unwrap();
        a.tx_slot(link, 1).unwrap().commit();
        b.fabric().set_uplink(0, BLOCKED);
        let before = a.now();
        a.wait(None).unwrap();
        assert_eq!(a.now(), before + AGAIN);
        b.fabric().set_uplink(0, LineModel::default());
        a.flush();
        assert_eq!(b.rx_burst(1, |_, _| {}), 1);
    }

    #[test]
    fn no_more_frames_are_held_than_there_is_room_for() {
        let (mut a, b) = pair(Faults { delay: 1.0, ..Faults::NONE });
        let link = a.link(b.caps().addr).unwrap();
        (0..HELD_MAX).for_each(|_| a.tx_slot(link, 1).unwrap().commit());
        assert!(a.tx_slot(link, 1).is_none());
        assert_eq!(a.counters().tx_full, 1);
    }

    #[test]
    fn tries_to_hand_frames_on_are_no_full_rings() {
        let fabric = Fabric::new(0);
        let narrow = Config { tx_frames: 4, ..Config::default() };
        let mut a = Fault::new(fabric.nic(narrow), Faults::NONE, 1);
        let mut b = fabric.nic(Config::default());
        let link = a.link(b.caps().addr).unwrap();
        // Held, so that the ring within is empty while they are committed, and full twice when they are due.
        (0..10).for_each(|_| a.tx_slot(link, 1).unwrap().commit());
        a.flush();
        let mut came = 0;
        while b.rx_burst(64, |_, _| came += 1) > 0 {}
        assert_eq!((came, a.counters().tx_full), (10, 0));
        assert!(a.inner().counters().tx_full > 0, "there were tries");
        fabric.set_uplink(0, BLOCKED);
        assert!(a.tx_slot(link, 1).is_none());
        assert_eq!(a.counters().tx_full, 1, "one of the sender's own");
    }

    #[test]
    fn damaged_frames_differ_and_no_others() {
        let (mut a, mut b) = pair(Faults { corrupt: 0.2, ..Faults::NONE });
        let arrived = run(&mut a, &mut b, 500);
        let changed = (0..500u16).zip(&arrived).filter(|(n, frame)| n.to_be_bytes() != frame[..]).count() as u64;
        // A bit turned twice is as it was.
        assert!(changed > 50 && changed <= a.fault_counters().damaged);
    }

    #[test]
    fn waiting_ends_when_a_held_frame_is_due() {
        let (mut a, mut b) = pair(Faults { delay: 1.0, ..Faults::NONE });
        let link = a.link(b.caps().addr).unwrap();
        a.tx_slot(link, 1).unwrap().commit();
        a.wait(Some(Instant::from_nanos(1_000_000_000))).unwrap();
        assert!(a.now() <= Instant::ZERO + Faults::NONE.delay_span);
        assert_eq!(b.rx_burst(1, |_, _| {}), 1);
    }
}
