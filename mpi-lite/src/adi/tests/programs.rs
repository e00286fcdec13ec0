//! Random programs against a sequential model: sends, receives, wildcards, probes and cancellations in random order, with
//! lengths around the limits, on a fabric that loses, repeats and reorders.

use std::collections::{HashMap, VecDeque};

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, LinkModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;

use super::job::{Job, Receive, bytes, pattern, small_limits};
use crate::adi::{Mode, Request};

/// Every message of a program has a number, which its first bytes tell, as far as it is that long; its length says it too.
struct Program {
    rng: Rng,
    job: Job,
    size: u32,
    /// Messages by number: from, to, tag, bytes.
    sent: Vec<(u32, u32, i32, Vec<u8>)>,
    sends: Vec<(u32, Request)>,
    receives: Vec<(u32, Option<u32>, Option<i32>, Receive)>,
    /// Messages that were sent and not yet received, by sender, receiver and tag, in order.
    open: HashMap<(u32, u32, i32), VecDeque<usize>>,
    cancelled: usize,
}

const TAGS: u64 = 3;
const ROOM: usize = 6_000;

impl Program {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let size = 2 + rng.below(3) as u32;
        let mut link = LinkModel { delay: Duration::from_nanos(rng.below(5_000)), ..LinkModel::default() };
        if rng.chance(0.6) {
            link.faults = Faults { loss: 0.02, duplicate: 0.05, reorder: 0.1, delay: 0.05, ..Faults::NONE };
        }
        let mut config = small_limits();
        config.credit = 64 << rng.below(8);
        let mut node = NodeConfig::default();
        if rng.chance(0.4) {
            // Frames for parts of a page.
            (node.mtu, node.mtu_safe) = (4_300, 4_300);
            config.off_host.eager_max = ROOM;
            config.credit = 2_000 << rng.below(6);
        }
        let job = Job::on(node, size as usize, &config, seed, link);
        Self {
            rng,
            job,
            size,
            sent: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            open: HashMap::new(),
            cancelled: 0,
        }
    }

    fn length(&mut self) -> usize {
        match self.rng.below(4) {
            0 => self.rng.below(20) as usize,
            1 => 290 + self.rng.below(20) as usize,
            2 => 690 + self.rng.below(20) as usize,
            _ => self.rng.below(ROOM as u64) as usize,
        }
    }

    fn send(&mut self) {
        let (from, to) = (self.rng.below(u64::from(self.size)) as u32, self.rng.below(u64::from(self.size)) as u32);
        let (tag, len) = (self.rng.below(TAGS) as i32, self.length());
        let message = bytes(self.sent.len() as u32, len);
        let mode = if self.rng.chance(0.2) { Mode::Synchronous } else { Mode::Standard };
        let request = self.job.send_as(from, to, tag, &message, mode);
        self.open.entry((from, to, tag)).or_default().push_back(self.sent.len());
        self.sends.push((from, request));
        self.sent.push((from, to, tag, message));
    }

    fn recv(&mut self) {
        let at = self.rng.below(u64::from(self.size)) as u32;
        let from = self.rng.chance(0.6).then(|| self.rng.below(u64::from(self.size)) as u32);
        let tag = self.rng.chance(0.6).then(|| self.rng.below(TAGS) as i32);
        let receive = self.job.recv(at, from, tag, ROOM);
        self.receives.push((at, from, tag, receive));
    }

    /// Of a receive that ended: its message is the oldest open one from that sender with that tag.
    fn check(&mut self, at: u32, from: Option<u32>, tag: Option<i32>, receive: Receive, status: crate::adi::Status) {
        assert_eq!(status.error, None);
        assert!(from.is_none_or(|from| from == status.source) && tag.is_none_or(|tag| tag == status.tag));
        let open = self.open.get_mut(&(status.source, at, status.tag)).and_then(VecDeque::pop_front);
        let number = open.expect("nothing is received that was not sent");
        assert_eq!(&self.job.received(receive)[..status.bytes], &self.sent[number].3, "message {number}");
    }

    /// Receives that ended are looked at in the order in which they were posted, so that what overtakes shows.
    fn collect(&mut self) {
        let mut waiting = Vec::new();
        let mut held: Vec<(u32, Option<u32>, Option<i32>)> = Vec::new();
        for (at, from, tag, receive) in std::mem::take(&mut self.receives) {
            // An earlier receive that could take the same message was matched first, though it may end later.
            let behind = held.iter().any(|(a, f, t)| {
                *a == at && (f.is_none() || from.is_none() || *f == from) && (t.is_none() || tag.is_none() || *t == tag)
            });
            match (!behind).then(|| self.job.devices[at as usize].poll(receive.request)).flatten() {
                Some(status) if status.cancelled => self.cancelled += 1,
                Some(status) => self.check(at, from, tag, receive, status),
                None => {
                    held.push((at, from, tag));
                    waiting.push((at, from, tag, receive));
                }
            }
        }
        self.receives = waiting;
    }

    fn matched_probe(&mut self) {
        let at = self.rng.below(u64::from(self.size)) as u32;
        let tag = self.rng.chance(0.5).then(|| self.rng.below(TAGS) as i32);
        let device = &mut self.job.devices[at as usize];
        let seen = device.probe(pattern(None, tag));
        let taken = device.matched_probe(pattern(None, tag));
        assert_eq!(seen, taken.as_ref().map(|(_, status)| *status));
        let Some((message, expected)) = taken else { return };
        let (room, lent) = self.job.room(ROOM);
        let request = self.job.devices[at as usize].recv_matched(message, lent);
        let receive = Receive { request, room };
        // What came before it and is still being received comes first in the model.
        for earlier in std::mem::take(&mut self.receives) {
            let status = self.cancel_or_finish(earlier);
            if let Some(status) = status {
                self.check(earlier.0, earlier.1, earlier.2, earlier.3, status);
            }
        }
        let status = self.job.finish(at, request);
        assert_eq!((status.source, status.tag, status.bytes), (expected.source, expected.tag, expected.bytes));
        self.check(at, None, tag, receive, status);
    }

    fn cancel_or_finish(
        &mut self,
        (at, _, _, receive): (u32, Option<u32>, Option<i32>, Receive),
    ) -> Option<crate::adi::Status> {
        self.job.devices[at as usize].cancel(receive.request);
        let status = self.job.finish(at, receive.request);
        (!status.cancelled).then_some(status)
    }

    fn run(&mut self) {
        for _ in 0..self.rng.below(150) {
            match self.rng.below(20) {
                0..8 => self.send(),
                8..15 => self.recv(),
                15..18 => {
                    let steps = self.rng.below(30) as usize;
                    self.job.steps(steps);
                    self.collect();
                }
                18 => self.matched_probe(),
                _ => {
                    if let Some(&(at, _, _, receive)) = self.receives.last() {
                        self.job.devices[at as usize].cancel(receive.request);
                    }
                }
            }
        }
        self.drain();
    }

    /// What is left is received in some order that fits, and everything ends.
    fn drain(&mut self) {
        for receive in std::mem::take(&mut self.receives) {
            if let Some(status) = self.cancel_or_finish(receive) {
                self.check(receive.0, receive.1, receive.2, receive.3, status);
            }
        }
        let mut left: Vec<_> = self.open.iter().filter(|(_, open)| !open.is_empty()).map(|(key, _)| *key).collect();
        left.sort_unstable();
        for (from, to, tag) in left {
            while !self.open[&(from, to, tag)].is_empty() {
                let (from, tag) = (Some(from), self.rng.chance(0.9).then_some(tag));
                let receive = self.job.recv(to, from, tag, ROOM);
                let status = self.job.finish(to, receive.request);
                self.check(to, from, tag, receive, status);
            }
        }
        for (from, request) in std::mem::take(&mut self.sends) {
            assert_eq!(self.job.finish(from, request).error, None);
        }
        self.job.steps(100);
        for device in &self.job.devices {
            let counters = device.counters();
            assert_eq!((counters.malformed, counters.stale, counters.beyond_credit), (0, 0, 0));
        }
    }
}

#[test]
fn random_programs_do_what_the_model_does() {
    let only = std::env::var("ADI_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    for seed in seeds {
        let run = std::panic::catch_unwind(|| Program::new(seed).run());
        assert!(run.is_ok(), "failed: repeat with ADI_SEED={seed}");
    }
}

const SEEDS: u64 = 300;
