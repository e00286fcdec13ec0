//! Two endpoints with a live connection, and a third node that sends them what the fuzzer makes: bytes of its own, or
//! edits of frames that it overheard. Built with `--cfg fuzzing` every check holds, so edited frames get as far as
//! they can. Nothing may panic, no turn may go on for ever, every frame counts once, and memory that was not published is never
//! touched. As long as frames are only lost, delayed and repeated, not edited, all messages arrive once and in order, and puts, gets and
//! additions do what they should.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, MemNic};
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot, forward};
use sidelane_proto::{Config, Endpoint, Event, Op, OpError, PeerId, PutHow, Region, RemoteKey, Rights};

/// A NIC that shows the last frame that it received.
struct Overheard {
    nic: MemNic,
    last: Rc<RefCell<Vec<u8>>>,
}

impl Nic for Overheard {
    const RELIABLE: bool = false;

    forward!(nic: caps, link, unlink, tx_slot, flush, wait, waker, is_gone, counters, now);

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let last = &self.last;
        self.nic.rx_burst(budget, |frame, from| {
            frame.clone_into(&mut last.borrow_mut());
            each(frame, from);
        })
    }
}

/// What one end does to the other's memory, and what must come of it.
struct OneSided {
    theirs: Region,
    key: RemoteKey,
    /// Never published: nobody but its owner may touch it.
    hidden: Region,
    /// Where puts come from: nothing changes it while they are under way.
    own: Region,
    /// Where gets go.
    fetched: Region,
    expected: Vec<u8>,
    puts: Vec<Op>,
    gets: Vec<Op>,
    adds: VecDeque<(Op, u64)>,
}

const MEMORY: usize = 4096;
/// A word that only additions touch.
const WORD: usize = MEMORY - 8;

impl OneSided {
    fn new([a, b]: &mut [Endpoint<Overheard>; 2]) -> Self {
        let theirs = b.register(vec![0; MEMORY]);
        Self {
            theirs,
            key: b.publish(theirs, Rights::ALL, None).unwrap(),
            hidden: b.register(vec![0x5e; 64]),
            own: a.register((0..MEMORY).map(|at| at as u8).collect()),
            fetched: a.register(vec![0; MEMORY]),
            expected: vec![0; MEMORY],
            puts: Vec::new(),
            gets: Vec::new(),
            adds: VecDeque::new(),
        }
    }

    fn act(&mut self, end: &mut Endpoint<Overheard>, peer: PeerId, what: u8, len: usize) {
        let at = usize::from(what) * 8;
        let bytes = at..at + len.min(WORD - at);
        match what / 10 % 4 {
            0 | 1 => {
                // One after the other, so that it is known what is there in the end.
                end.fence(peer);
                let how = PutHow { signal: what & 8 != 0, silent: false, backwards: what & 16 != 0 };
                let put = end.put_from(peer, &self.key, at as u64, self.own, bytes.clone(), how);
                if let Ok(op) = put {
                    let source = end.region(self.own).unwrap();
                    self.expected[bytes.clone()].copy_from_slice(&source[bytes]);
                    self.puts.push(op);
                }
            }
            2 => self.gets.extend(end.get(peer, &self.key, at as u64, self.fetched, bytes)),
            _ => {
                let word: &mut [u8; 8] = (&mut self.expected[WORD..]).try_into().unwrap();
                let before = u64::from_le_bytes(*word);
                if let Ok(op) = end.fetch_add(peer, &self.key, WORD as u64, u64::from(what)) {
                    self.adds.push_back((op, before));
                    *word = before.wrapping_add(u64::from(what)).to_le_bytes();
                }
            }
        }
    }

    fn on_event(&mut self, event: &Event, judged: bool) {
        match event {
            Event::Got { op } => {
                let before = self.gets.len();
                self.gets.retain(|get| get != op);
                assert!(!judged || self.gets.len() + 1 == before, "a get came twice, or was none");
            }
            Event::Fetched { op, value } => {
                let due = self.adds.pop_front();
                assert!(!judged || due == Some((*op, *value)), "lost, repeated, or out of order");
            }
            Event::OpFailed { .. } => assert!(!judged, "nothing should fail"),
            _ => {}
        }
    }

    fn judge(&mut self, [a, b]: &mut [Endpoint<Overheard>; 2], judged: bool) {
        self.puts.retain(|put| !a.is_done(*put));
        assert!(b.region(self.hidden).unwrap() == [0x5e; 64], "memory was touched that was not published");
        if judged && self.is_idle() {
            assert!(b.region(self.theirs).unwrap() == self.expected, "it is not there, or something else");
        }
    }

    fn is_idle(&self) -> bool {
        self.puts.is_empty() && self.gets.is_empty() && self.adds.is_empty()
    }
}

fuzz_target!(|input: &[u8]| {
    let fabric = Fabric::new(1);
    let node = || fabric.nic(NodeConfig { mtu: 512, mtu_safe: 512, ..Default::default() });
    let config = |seed| Config { seed: Some(seed), send_fifo: 4096, recv_fifo: 4096, message_max: 1 << 16, ..Config::default() };
    let last = Rc::new(RefCell::new(Vec::new()));
    let (a, b, mut stranger) = (node(), node(), node());
    let (at_a, at_b) = (a.caps().addr, b.caps().addr);
    let to = [stranger.link(at_a).unwrap(), stranger.link(at_b).unwrap()];
    let mut ends = [
        Endpoint::new(Overheard { nic: a, last: Rc::clone(&last) }, config(1)),
        Endpoint::new(Overheard { nic: b, last: Rc::clone(&last) }, config(2)),
    ];
    let peer = ends[0].connect(at_b).unwrap();
    let mut shown = [0; 2];
    let mut sent = VecDeque::new();
    let mut judged = true;
    for _ in 0..4 {
        poll(&mut ends, &mut shown, &mut sent, judged);
    }

    let mut one_sided = OneSided::new(&mut ends);
    let mut bytes = input.iter().copied();
    let mut next = || bytes.next();
    while let Some(what) = next() {
        match what % 10 {
            // A frame of the fuzzer's own.
            0 => {
                let len = usize::from(next().unwrap_or(0));
                let frame: Vec<u8> = (0..len).map_while(|_| next()).collect();
                judged = false;
                throw(&mut stranger, to[usize::from(what >> 7)], &frame);
            }
            // What was overheard, edited; and the same, cut or lengthened.
            1..=4 => {
                let mut frame = last.borrow().clone();
                for _ in 0..what % 10 {
                    let (place, value) = (usize::from(next().unwrap_or(0)), next().unwrap_or(0));
                    if let Some(byte) = frame.get_mut(place) {
                        *byte = value;
                    }
                }
                if what & 0x10 != 0 {
                    frame.resize(usize::from(next().unwrap_or(0)) * 2, what);
                }
                judged = false;
                throw(&mut stranger, to[usize::from(what >> 7)], &frame);
            }
            5 if what >= 0x80 => {
                let len = usize::from(next().unwrap_or(0)) * 8;
                one_sided.act(&mut ends[0], peer, what, len);
            }
            5 => {
                let message = vec![sent.len() as u8 ^ what; usize::from(next().unwrap_or(0)) * 8];
                if ends[0].send(peer, &message).is_ok() {
                    sent.push_back(message);
                }
            }
            6 => fabric.advance_to(fabric.now() + Duration::from_micros(1 << (what >> 3).min(20))),
            7 => judged &= take(&mut ends, &mut sent, &mut one_sided, judged),
            // What was overheard, as it was: anybody can do that.
            8 => throw(&mut stranger, to[usize::from(what >> 7)], &last.borrow().clone()),
            // Everything on the way is lost for a while.
            _ => fabric.partition(0, 1, fabric.now() + Duration::from_micros(1 << (what >> 4))),
        }
        poll(&mut ends, &mut shown, &mut sent, judged);
    }
    // Whatever was lost or repeated, all comes in the end.
    for _ in 0..10_000 {
        judged &= take(&mut ends, &mut sent, &mut one_sided, judged);
        if !judged || sent.is_empty() && one_sided.is_idle() {
            return;
        }
        poll(&mut ends, &mut shown, &mut sent, judged);
        let timers = ends.iter().filter_map(Endpoint::poll_timeout);
        if let Some(then) = timers.chain(fabric.next_arrival()).min() {
            fabric.advance_to(then.max(fabric.now()));
        }
    }
    let OneSided { puts, gets, adds, .. } = one_sided;
    panic!("{} messages never came; {puts:?} {gets:?} {adds:?} never end", sent.len());
});

/// Takes everything that came, and judges it if `judged`; whether that makes sense from now on.
fn take(
    ends: &mut [Endpoint<Overheard>; 2],
    sent: &mut VecDeque<Vec<u8>>,
    one_sided: &mut OneSided,
    mut judged: bool,
) -> bool {
    let [a, b] = &mut *ends;
    while b.recv(|_, message| judge(sent, message, judged)).is_some() {}
    let invented = a.recv(|_, _| ()).is_some();
    assert!(!(judged && invented), "nobody sent this");
    for end in &mut *ends {
        while let Some(event) = end.poll_event() {
            // A pause without a turn is a peer that is gone, and what was under way to it has failed.
            judged &= !matches!(event, Event::Gone { .. } | Event::OpFailed { why: OpError::PeerGone, .. });
            one_sided.on_event(&event, judged);
        }
    }
    one_sided.judge(ends, judged);
    judged
}

/// Turns of both. Every second length of what is offered to the second one is taken: all are multiples of 8.
fn poll(ends: &mut [Endpoint<Overheard>; 2], shown: &mut [u64; 2], sent: &mut VecDeque<Vec<u8>>, judged: bool) {
    let [a, b] = &mut *ends;
    shown[0] += a.poll() as u64;
    shown[1] += b.poll_offering(&mut |_, message| {
        let takes = message.len() % 16 == 0;
        if takes {
            judge(sent, message, judged);
        }
        takes
    }) as u64;
    for (end, shown) in ends.iter().zip(shown) {
        let counters = end.counters();
        assert_eq!(counters.frames_received + counters.rejected_total(), *shown, "{counters:?}");
    }
}

/// Looks whether a message is the next one.
fn judge(sent: &mut VecDeque<Vec<u8>>, message: &[u8], judged: bool) {
    assert!(!judged || sent.pop_front().as_deref() == Some(message), "lost, repeated, out of order, or invented");
}

fn throw(nic: &mut MemNic, link: Link, frame: &[u8]) {
    if let Some(mut slot) = nic.tx_slot(link, frame.len()) {
        slot.copy_from_slice(frame);
        slot.commit();
    }
    nic.flush();
}
