//! Two endpoints with a live connection, and a third node that sends them what the fuzzer makes: bytes of its own, or
//! edits of frames that it overheard. Built with `--cfg fuzzing` every check holds, so edited frames get as far as
//! they can. Nothing may panic, no turn may go on for ever, and every frame counts once. As long as frames are only lost,
//! delayed and repeated, not edited, all messages arrive once and in order.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use libfuzzer_sys::fuzz_target;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, MemNic};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};
use sidelane_proto::{Config, Endpoint, Event};

/// A NIC that shows the last frame that it received.
struct Overheard {
    nic: MemNic,
    last: Rc<RefCell<Vec<u8>>>,
}

impl Nic for Overheard {
    const RELIABLE: bool = false;

    fn caps(&self) -> &Caps {
        self.nic.caps()
    }
    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        self.nic.link(to)
    }
    fn unlink(&mut self, link: Link) {
        self.nic.unlink(link);
    }
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let last = &self.last;
        self.nic.rx_burst(budget, |frame, from| {
            frame.clone_into(&mut last.borrow_mut());
            each(frame, from);
        })
    }
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        self.nic.tx_slot(link, len)
    }
    fn flush(&mut self) {
        self.nic.flush();
    }
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.nic.wait(deadline)
    }
    fn waker(&mut self) -> io::Result<Waker> {
        self.nic.waker()
    }
    fn is_gone(&self, link: Link) -> bool {
        self.nic.is_gone(link)
    }
    fn counters(&self) -> Counters {
        self.nic.counters()
    }
    fn now(&self) -> Instant {
        self.nic.now()
    }
}

fuzz_target!(|input: &[u8]| {
    let fabric = Fabric::new(1);
    let node = || fabric.nic(NodeConfig { mtu: 512, mtu_safe: 512, ..Default::default() });
    let config = |seed| Config { seed, send_fifo: 4096, recv_fifo: 4096, message_max: 1 << 16, ..Config::default() };
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
    for _ in 0..4 {
        poll(&mut ends, &mut shown);
    }

    let mut sent = VecDeque::new();
    let mut judged = true;
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
            5 => {
                let message = vec![sent.len() as u8 ^ what; usize::from(next().unwrap_or(0)) * 8];
                if ends[0].send(peer, &message).is_ok() {
                    sent.push_back(message);
                }
            }
            6 => fabric.advance_to(fabric.now() + Duration::from_micros(1 << (what >> 3).min(20))),
            7 => judged &= take(&mut ends, &mut sent, judged),
            // What was overheard, as it was: anybody can do that.
            8 => throw(&mut stranger, to[usize::from(what >> 7)], &last.borrow().clone()),
            // Everything on the way is lost for a while.
            _ => fabric.partition(0, 1, fabric.now() + Duration::from_micros(1 << (what >> 4))),
        }
        poll(&mut ends, &mut shown);
    }
    // Whatever was lost or repeated, all comes in the end.
    for _ in 0..10_000 {
        judged &= take(&mut ends, &mut sent, judged);
        if !judged || sent.is_empty() {
            return;
        }
        poll(&mut ends, &mut shown);
        let timers = ends.iter().filter_map(Endpoint::poll_timeout);
        if let Some(then) = timers.chain(fabric.next_arrival()).min() {
            fabric.advance_to(then.max(fabric.now()));
        }
    }
    panic!("{} messages never came", sent.len());
});

/// Takes everything that came, and judges it if `judged`; whether that makes sense from now on.
fn take(ends: &mut [Endpoint<Overheard>; 2], sent: &mut VecDeque<Vec<u8>>, mut judged: bool) -> bool {
    let [a, b] = ends;
    while let Some(message) = b.recv(|_, message| message.to_vec()) {
        assert!(!judged || sent.pop_front() == Some(message), "lost, repeated, out of order, or invented");
    }
    let invented = a.recv(|_, _| ()).is_some();
    assert!(!(judged && invented), "nobody sent this");
    for end in ends {
        while let Some(event) = end.poll_event() {
            // A pause without a turn is a peer that is gone.
            judged &= !matches!(event, Event::Gone { .. });
        }
    }
    judged
}

fn poll(ends: &mut [Endpoint<Overheard>; 2], shown: &mut [u64; 2]) {
    for (end, shown) in ends.iter_mut().zip(shown) {
        *shown += end.poll() as u64;
        let counters = end.counters();
        assert_eq!(counters.frames_received + counters.rejected_total(), *shown, "{counters:?}");
    }
}

fn throw(nic: &mut MemNic, link: Link, frame: &[u8]) {
    if let Some(mut slot) = nic.tx_slot(link, frame.len()) {
        slot.copy_from_slice(frame);
        slot.commit();
    }
    nic.flush();
}
