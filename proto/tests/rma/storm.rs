//! Seeded faults of every kind while both sides put, get, add, swap, signal and send; an oracle knows every byte.

use std::collections::VecDeque;

use sidelane_nic::Nic;
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{LineModel, LinkModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, Op, OpError, PutHow, Region, RemoteKey, Rights, RmaError};

use crate::pair::{Pair, Side, VirtualTime, good_link};
use crate::reliable_nic::Reliable;

/// Places of a region, each with a guard behind it that nobody may touch.
const SLOTS: usize = 6;
const GUARD: usize = 16;
/// Words at the end of a region that only atomics touch.
const WORDS: usize = 2;

/// What one side does to the other's region, and what must come of it.
struct User {
    /// The other side's region: its bytes as they must be, but for slots with something under way.
    expected: Vec<u8>,
    key: RemoteKey,
    slot_len: usize,
    busy: [bool; SLOTS],
    puts: Vec<(Op, usize)>,
    /// Own memory for gets, and what must land there.
    landing: Region,
    gets: VecDeque<(Op, usize, usize)>,
    words: [u64; WORDS],
    /// What atomics under way must tell.
    atomics: VecDeque<(Op, u64)>,
    /// Operations with a forged key.
    forged: Vec<Op>,
    /// For each signal sent: slots and bytes that must be in place by then.
    signals: VecDeque<Vec<(usize, Vec<u8>)>>,
    signalled: u64,
    /// As `signals`, for messages.
    messages: VecDeque<Vec<(usize, Vec<u8>)>>,
    /// Puts since the last signal or message, which the next one vouches for.
    unvouched: Vec<(usize, Vec<u8>)>,
    left: u32,
    done: u32,
}

impl User {
    fn slot(&self, slot: usize) -> usize {
        slot * (self.slot_len + GUARD)
    }

    fn word(&self, word: usize) -> usize {
        self.expected.len() - 8 * (WORDS - word)
    }

    fn is_idle(&self) -> bool {
        self.left == 0
            && self.puts.is_empty()
            && self.gets.is_empty()
            && self.atomics.is_empty()
            && self.forged.is_empty()
            && self.signals.is_empty()
            && self.messages.is_empty()
    }

    fn outstanding(&self) -> String {
        let Self { left, puts, gets, atomics, forged, signals, messages, .. } = self;
        let [signals, messages] = [signals.len(), messages.len()];
        format!("{left} left, {puts:?}, {gets:?}, {atomics:?}, {forged:?}, {signals} signals, {messages} messages")
    }

    fn act<N: Nic>(&mut self, side: &mut Side<N>, rng: &mut Rng) -> Result<(), RmaError> {
        let (endpoint, peer, key) = (&mut side.endpoint, side.peer, self.key);
        let slot = rng.below(SLOTS as u64) as usize;
        let len =
            if rng.chance(0.5) { rng.below(64).min(self.slot_len as u64) } else { rng.below(self.slot_len as u64 + 1) }
                as usize;
        match rng.below(10) {
            0..4 if !self.busy[slot] => {
                let mut bytes = vec![0; len];
                rng.fill(&mut bytes);
                let at = self.slot(slot);
                let how = PutHow { signal: rng.chance(0.3), silent: false, backwards: rng.chance(0.5) };
                let op = if rng.chance(0.5) {
                    endpoint.put(peer, &key, at as u64, &bytes, how)?
                } else {
                    let source = endpoint.register(bytes.clone());
                    let op = endpoint.put_from(peer, &key, at as u64, source, 0..len, how);
                    endpoint.unregister(source).unwrap();
                    op?
                };
                self.busy[slot] = true;
                self.expected[at..at + len].copy_from_slice(&bytes);
                self.puts.push((op, slot));
                self.unvouched.push((at, bytes));
                if how.signal {
                    self.signals.push_back(std::mem::take(&mut self.unvouched));
                }
            }
            4 | 5 if !self.busy[slot] => {
                let at = self.slot(slot);
                let op = endpoint.get(peer, &key, at as u64, self.landing, at..at + len)?;
                self.busy[slot] = true;
                // Left alone until then, so that it is known what has to land.
                self.gets.push_back((op, slot, len));
            }
            6 => {
                let (word, value) = (rng.below(WORDS as u64) as usize, rng.next_u64());
                let op = endpoint.fetch_add(peer, &key, self.word(word) as u64, value)?;
                self.atomics.push_back((op, self.words[word]));
                self.words[word] = self.words[word].wrapping_add(value);
            }
            7 => {
                let (word, new) = (rng.below(WORDS as u64) as usize, rng.next_u64());
                let expected = if rng.chance(0.5) { self.words[word] } else { new };
                let op = endpoint.compare_swap(peer, &key, self.word(word) as u64, expected, new)?;
                self.atomics.push_back((op, self.words[word]));
                if expected == self.words[word] {
                    self.words[word] = new;
                }
            }
            8 => {
                let mut forged = key.to_bytes();
                // Index or key; the length is only for its owner.
                forged[rng.below(12) as usize] ^= 1 << rng.below(8);
                let forged = RemoteKey::from_bytes(forged);
                let mut bytes = vec![0xee; len];
                rng.fill(&mut bytes);
                self.forged.push(endpoint.put(
                    peer,
                    &forged,
                    rng.below(64),
                    &bytes[..len.min(self.slot_len - 64)],
                    PutHow::SIGNAL,
                )?);
            }
            9 => {
                if endpoint.send(peer, &(self.messages.len() as u32).to_le_bytes()).is_ok() {
                    self.messages.push_back(std::mem::take(&mut self.unvouched));
                }
            }
            _ => return Ok(()),
        }
        self.left -= 1;
        Ok(())
    }

    /// Looks at everything that can be known: `own` side has events, `other` the memory.
    fn judge<N: Nic>(&mut self, own: &mut Side<N>, other: &mut Side<N>, region: Region) {
        let memory = other.endpoint.region(region).unwrap().to_vec();
        let in_place =
            |vouched: &[(usize, Vec<u8>)]| vouched.iter().all(|(at, bytes)| memory[*at..*at + bytes.len()] == **bytes);
        // Signals and messages vouch for what was put before them, unless it was overwritten since by a later put.
        let fresh = |vouched: &mut Vec<(usize, Vec<u8>)>, expected: &[u8]| {
            vouched.retain(|(at, bytes)| expected[*at..*at + bytes.len()] == **bytes);
        };
        let signals = other.endpoint.signals(region).unwrap();
        while self.signalled < signals {
            self.signalled += 1;
            let mut vouched = self.signals.pop_front().expect("no signal that was not sent");
            fresh(&mut vouched, &self.expected);
            assert!(in_place(&vouched), "a signal came before the bytes");
        }
        while other.endpoint.recv(|_, _| ()).is_some() {
            let mut vouched = self.messages.pop_front().expect("no message that was not sent");
            fresh(&mut vouched, &self.expected);
            assert!(in_place(&vouched), "a message came before the bytes");
        }
        let mut done = Vec::new();
        self.puts.retain(|&(op, slot)| {
            let is_done = own.endpoint.is_done(op);
            if is_done {
                done.push(slot);
            }
            !is_done
        });
        for slot in done {
            self.busy[slot] = false;
            self.done += 1;
            let at = self.slot(slot);
            assert!(memory[at..at + self.slot_len] == self.expected[at..at + self.slot_len], "done, and not in place");
        }
        for event in own.take_events() {
            match event {
                Event::Got { op } => {
                    let place = self.gets.iter().position(|&(get, ..)| get == op).expect("a get that was begun");
                    let (_, slot, len) = self.gets.remove(place).unwrap();
                    self.busy[slot] = false;
                    let at = self.slot(slot);
                    let landed = &own.endpoint.region(self.landing).unwrap()[at..at + len];
                    assert!(*landed == self.expected[at..at + len], "got something else");
                    self.done += 1;
                }
                Event::Fetched { op, value } => {
                    assert_eq!(self.atomics.pop_front(), Some((op, value)), "atomics: once, and in order");
                    self.done += 1;
                }
                Event::OpFailed { op, why: OpError::NoRegion } => {
                    let place = self.forged.iter().position(|&forged| forged == op).expect("only forged ones fail");
                    self.forged.swap_remove(place);
                }
                Event::Unregistered { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        for slot in (0..SLOTS).filter(|&slot| !self.busy[slot]) {
            let at = self.slot(slot);
            let end = at + self.slot_len + GUARD;
            assert!(memory[at..end] == self.expected[at..end], "slot {slot} was touched");
        }
        for slot in 0..SLOTS {
            let guard = self.slot(slot) + self.slot_len;
            assert!(
                memory[guard..guard + GUARD].iter().all(|byte| *byte == 0xaa),
                "the guard behind slot {slot} was touched"
            );
        }
    }

    /// At the end.
    fn judge_end<N: Nic>(&self, other: &mut Side<N>, region: Region) {
        let memory = other.endpoint.region(region).unwrap();
        for word in 0..WORDS {
            let at = self.word(word);
            assert_eq!(memory[at..at + 8], self.words[word].to_le_bytes(), "word {word}");
        }
    }
}

fn play<N: Nic>(seed: u64, link: LinkModel, wrap: impl Fn(sidelane_nic::mem::MemNic) -> N) -> [u64; 3] {
    let mut rng = Rng::new(seed);
    let mtu = [256, 512, 1500, 9000, 61_000][rng.below(5) as usize];
    let slot_len = [100, 3_000, 40_000][rng.below(3) as usize].min(60 * mtu);
    let fifo = 1 << (10 + rng.below(8));
    let config = Config { send_fifo: fifo, recv_fifo: fifo, ..Config::default() };
    let mut pair = Pair::new(seed, link, mtu, config, wrap);
    let len = SLOTS * (slot_len + GUARD) + 8;
    let len = len.next_multiple_of(8) + 8 * WORDS;
    let mut fresh = vec![0xaa; len];
    fresh[len - 8 * WORDS..].fill(0);
    let regions = [0, 1].map(|side| pair.sides[side].endpoint.register(fresh.clone()));
    let mut users = [0, 1].map(|side| {
        let other = &mut pair.sides[1 - side];
        let only_for = rng.chance(0.5).then_some(other.peer);
        let key = other.endpoint.publish(regions[1 - side], Rights::ALL, only_for).unwrap();
        User {
            expected: fresh.clone(),
            key,
            slot_len,
            busy: [false; SLOTS],
            puts: Vec::new(),
            landing: pair.sides[side].endpoint.register(vec![0; len]),
            gets: VecDeque::new(),
            words: [0; WORDS],
            atomics: VecDeque::new(),
            forged: Vec::new(),
            signals: VecDeque::new(),
            signalled: 0,
            messages: VecDeque::new(),
            unvouched: Vec::new(),
            left: 60,
            done: 0,
        }
    });
    let ended = pair.run(Duration::from_millis(120_000), |pair| {
        for (user, number) in users.iter_mut().zip([0, 1]) {
            let [a, b] = &mut pair.sides;
            let (own, other) = if number == 0 { (a, b) } else { (b, a) };
            user.judge(own, other, regions[1 - number]);
            for _ in 0..rng.below(8) {
                if user.left > 0 && rng.chance(0.7) {
                    match user.act(own, &mut rng) {
                        Ok(()) | Err(RmaError::Full) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            own.endpoint.flush();
        }
        users.iter().all(User::is_idle)
    });
    if !ended {
        let counters = pair.sides.map(|side| *side.endpoint.counters());
        panic!("something never ends: {:?}\n{counters:#?}", users.map(|user| user.outstanding()));
    }
    for (number, user) in users.iter().enumerate() {
        user.judge_end(&mut pair.sides[1 - number], regions[1 - number]);
    }
    let counters = pair.sides.map(|side| *side.endpoint.counters());
    let sum = |of: fn(&sidelane_proto::Counters) -> u64| counters.iter().map(of).sum();
    [sum(|c| c.placed_early), sum(|c| c.duplicates), sum(|c| c.retransmitted)]
}

fn stormy(rng: &mut Rng) -> LinkModel {
    let mut probability = |often: f64| if rng.chance(often) { rng.below(2001) as f64 / 10_000.0 } else { 0.0 };
    let faults = Faults {
        loss: probability(0.7),
        duplicate: probability(0.6),
        reorder: probability(0.6),
        corrupt: probability(0.4),
        truncate: probability(0.2),
        delay: probability(0.5),
        reorder_span: Duration::from_micros(40),
        delay_span: Duration::from_micros(300),
    };
    let line =
        LineModel { rate_bits_per_s: rng.chance(0.5).then(|| 100_000_000 << rng.below(10)), queue_limit_bytes: None };
    LinkModel { line, faults, ..good_link() }
}

#[test]
fn every_byte_is_where_it_belongs_whatever_the_link_does() {
    let mut seen = [0; 3];
    for seed in 0..400 {
        let link = stormy(&mut Rng::new(seed ^ 0x5eed));
        println!("seed {seed}");
        let counted = play(seed, link, |nic| nic);
        for (sum, count) in seen.iter_mut().zip(counted) {
            *sum += count;
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "early, again, repeated: {seen:?}");
}

#[test]
fn every_byte_is_where_it_belongs_on_a_reliable_driver() {
    for seed in 0..200 {
        println!("seed {seed}");
        play(seed, good_link(), Reliable::new);
    }
}
