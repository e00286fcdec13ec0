//! What a window does, one behaviour a test.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use super::job::job;
use crate::adi::{self, Config, Device, Outgoing, Process};
use crate::comm::Communicator;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::lent::Bytes;
use crate::rma::members::tag;
use crate::rma::request::{Head, Kind};
use crate::rma::runs::Run;
use crate::rma::{Flavor, Lent, Lock, Members, RmaError, Room, Target, Window};

/// A window of `kept` or of memory of its own.
fn window(device: &mut Device, members: Members, flavor: Flavor, kept: &mut [u64]) -> Window {
    let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), kept.len() * 8);
    match flavor {
        // SAFETY: callers keep it until the window is freed, and do not look at it before.
        Flavor::Create => unsafe { Window::create(device, members, memory, 8) },
        _ => Window::allocate(device, members, memory.len(), 8),
    }
    .unwrap()
}

fn word() -> Datatype {
    Predefined::Uint64.into()
}

fn put(w: &mut Window, device: &mut Device, words: &[u64], rank: usize, displacement: i64) -> Result<(), RmaError> {
    let datatype = &word();
    let from = Lent { address: words.as_ptr().cast(), count: words.len(), datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.put(device, from, Target { rank, displacement, count: words.len(), datatype })? };
    w.wait(device, operation)
}

fn get(w: &mut Window, device: &mut Device, words: &mut [u64], rank: usize, displacement: i64) -> Result<(), RmaError> {
    let (datatype, count) = (&word(), words.len());
    let into = Room { address: words.as_mut_ptr().cast(), count, datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.get(device, into, Target { rank, displacement, count, datatype })? };
    w.wait(device, operation)
}

fn fetch_and_add(w: &mut Window, device: &mut Device, value: u64, rank: usize, displacement: i64) -> u64 {
    let mut before = 0u64;
    let (value, result) = ((&raw const value).cast(), (&raw mut before).cast());
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.fetch_and_op(device, value, result, Predefined::Uint64, rank, displacement, &Op::Sum) };
    w.wait(device, operation.unwrap()).unwrap();
    before
}

#[test]
fn everybody_who_counts_gets_a_number_of_his_own() {
    for flavor in [Flavor::Create, Flavor::Allocate] {
        job(4, &Config::default(), |device, members| {
            let (own, mut kept) = (members.rank, vec![0; 2]);
            let mut w = window(device, members, flavor, &mut kept);
            w.lock_all(device).unwrap();
            let mut last = None;
            for _ in 0..200 {
                let number = fetch_and_add(&mut w, device, 1, 2, 1);
                assert!(last < Some(number), "nobody gets one twice");
                last = Some(number);
            }
            w.unlock_all(device).unwrap();
            w.barrier(device).unwrap();
            w.lock(device, 2, Lock::Shared).unwrap();
            assert_eq!(fetch_and_add(&mut w, device, 0, 2, 1), 800, "seen by {own}");
            w.unlock(device, 2).unwrap();
            w.free(device).unwrap();
        });
    }
}

#[test]
fn what_is_compared_is_swapped_by_one_only() {
    job(3, &Config::default(), |device, members| {
        let mut kept = vec![0; 1];
        let mut w = window(device, members, Flavor::Create, &mut kept);
        w.lock_all(device).unwrap();
        let mut seen = 0u64;
        for _ in 0..100 {
            loop {
                let (new, compare, mut found) = (seen + 1, seen, 0u64);
                let at = ((&raw const new).cast(), (&raw const compare).cast(), (&raw mut found).cast());
                // SAFETY: we wait until it is over.
                let operation =
                    unsafe { w.compare_and_swap(device, at.0, at.1, at.2, Predefined::Uint64, 0, 0).unwrap() };
                w.wait(device, operation).unwrap();
                if std::mem::replace(&mut seen, found) == found {
                    break;
                }
            }
        }
        w.unlock_all(device).unwrap();
        w.barrier(device).unwrap();
        w.lock_all(device).unwrap();
        assert_eq!(fetch_and_add(&mut w, device, 0, 0, 0), 300);
        w.unlock_all(device).unwrap();
        w.free(device).unwrap();
    });
}

#[test]
fn who_has_the_lock_is_alone() {
    for flavor in [Flavor::Create, Flavor::Allocate] {
        job(4, &Config::default(), |device, members| {
            let mut kept = vec![0; 1];
            let mut w = window(device, members, flavor, &mut kept);
            let mut word = [0];
            for _ in 0..50 {
                w.lock(device, 1, Lock::Exclusive).unwrap();
                get(&mut w, device, &mut word, 1, 0).unwrap();
                put(&mut w, device, &[word[0] + 1], 1, 0).unwrap();
                w.unlock(device, 1).unwrap();
            }
            w.barrier(device).unwrap();
            w.lock(device, 1, Lock::Shared).unwrap();
            get(&mut w, device, &mut word, 1, 0).unwrap();
            w.unlock(device, 1).unwrap();
            assert_eq!(word, [200]);
            w.free(device).unwrap();
        });
    }
}

#[test]
fn what_is_not_in_the_window_is_refused_and_the_next_operation_is_done() {
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![7; 3_000]);
        let mut w = window(device, members, Flavor::Create, &mut kept[1_000..2_000]);
        if own == 0 {
            w.lock(device, 1, Lock::Shared).unwrap();
            for (len, displacement) in [(1, 1_000), (1, -1), (900, 101), (1_001, 0), (1, i64::MAX), (1, i64::MIN)] {
                put(&mut w, device, &vec![1; len], 1, displacement).unwrap();
                assert_eq!(w.flush(device, 1), Err(RmaError::Range), "{len} from {displacement} on");
                assert_eq!(get(&mut w, device, &mut vec![0; len], 1, displacement), Err(RmaError::Range));
                assert_eq!(w.flush(device, 1), Err(RmaError::Range));
                assert_eq!(w.flush(device, 1), Ok(()));
            }
            put(&mut w, device, &[9; 900], 1, 100).unwrap();
            w.unlock(device, 1).unwrap();
        }
        w.free(device).unwrap();
        let written = if own == 0 { 0 } else { 900 };
        assert_eq!(kept.iter().filter(|word| **word == 9).count(), written);
        assert_eq!(kept.iter().filter(|word| **word == 7).count(), 3_000 - written);
    });
}

#[test]
fn what_is_not_in_mapped_memory_is_refused() {
    job(2, &Config::default(), |device, members| {
        let mut w = Window::allocate_shared(device, members, 800, 8).unwrap();
        w.fence(device, false).unwrap();
        // The next rank's part follows, and is not this one's.
        assert_eq!(put(&mut w, device, &[1], 0, 100), Err(RmaError::Range));
        assert_eq!(get(&mut w, device, &mut [0; 2], 0, 99), Err(RmaError::Range));
        assert!(w.share(1).is_some() && w.share(2).is_none());
        w.fence(device, true).unwrap();
        w.free(device).unwrap();
    });
}

#[test]
fn accumulates_of_one_origin_are_done_in_its_order() {
    let limits = adi::Limits { eager_max: 300, prefix: 100, put_min: 1_000, pull_min: 1_000 };
    for config in [Config::default(), Config { on_host: limits, single_copy: false, ..Config::default() }] {
        job(2, &config, |device, members| {
            let (own, mut kept) = (members.rank, vec![0; 3_000]);
            let mut w = window(device, members, Flavor::Create, &mut kept);
            w.fence(device, false).unwrap();
            let values: Vec<[u64; 100]> = (1..=40).map(|value| [value; 100]).collect();
            let (datatype, data) = (&word(), vec![7u64; 2_000]);
            if own == 0 {
                let lend = |words: &[u64]| Lent { address: words.as_ptr().cast(), count: words.len(), datatype };
                // SAFETY: the fence ends them.
                unsafe {
                    // What follows waits for its data.
                    let to = Target { rank: 1, displacement: 1_000, count: 2_000, datatype };
                    w.put(device, lend(&data), to).unwrap();
                    for (value, len) in values.iter().zip((1..=100).rev().step_by(7).cycle()) {
                        let to = Target { rank: 1, displacement: 0, count: len, datatype };
                        w.accumulate(device, lend(&value[..len]), to, &Op::Replace).unwrap();
                    }
                }
            }
            w.fence(device, true).unwrap();
            w.free(device).unwrap();
            if own == 1 {
                assert_eq!((kept[0], kept[1_000], kept[2_999]), (40, 7, 7));
            }
        });
    }
}

#[test]
fn nonsense_is_reported_to_who_sent_it() {
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![5; 8]);
        let mut w = window(device, members.clone(), Flavor::Create, &mut kept);
        if own == 0 {
            w.lock(device, 1, Lock::Shared).unwrap();
            // No kind; runs that are not there; an element that is none; more than a request ever is.
            let mut runs = vec![0; 40];
            (runs[0], runs[27]) = (1, 0xff);
            let mut element = vec![0; 32];
            (element[0], element[3]) = (4, 0xff);
            for bytes in [vec![], vec![0; 32], runs, element, vec![1; 200_000]] {
                // SAFETY: we wait until it is over.
                let sent = members.ask(device, 1, unsafe { Outgoing::lend(&raw const bytes[..]) });
                device.wait(sent);
                w.queues[1].dirty = true;
                assert_eq!(w.flush(device, 1), Err(RmaError::Malformed), "{} bytes", bytes.len());
            }
            w.unlock(device, 1).unwrap();
        }
        w.free(device).unwrap();
        assert_eq!(kept, [5; 8]);
    });
}

#[test]
fn nothing_is_done_outside_of_its_epoch() {
    job(2, &Config::default(), |device, members| {
        let mut w = Window::allocate(device, members, 8, 8).unwrap();
        assert_eq!(put(&mut w, device, &[1], 0, 0), Err(RmaError::Sync));
        assert_eq!(w.unlock(device, 0), Err(RmaError::Sync));
        assert_eq!(w.complete(device), Err(RmaError::Sync));
        assert_eq!(w.wait_exposed(device), Err(RmaError::Sync));
        assert_eq!(w.flush(device, 0), Err(RmaError::Sync));
        w.lock(device, 0, Lock::Shared).unwrap();
        assert_eq!(put(&mut w, device, &[1], 1, 0), Err(RmaError::Sync));
        assert_eq!(put(&mut w, device, &[1], 2, 0), Err(RmaError::Rank));
        assert_eq!(w.fence(device, false), Err(RmaError::Sync));
        assert_eq!(w.lock(device, 0, Lock::Shared), Err(RmaError::Sync));
        w.unlock(device, 0).unwrap();
        w.free(device).unwrap();
    });
}

#[test]
fn pairs_with_gaps_are_combined_as_pairs() {
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![u64::MAX; 2 * 5_000]);
        if own == 0 {
            kept.iter_mut().step_by(2).for_each(|value| *value = (-1f64).to_bits());
        }
        let mut w = window(device, members, Flavor::Create, &mut kept);
        let datatype = &Datatype::from(Predefined::DoubleInt);
        let mine: Vec<u64> = (0..5_000).flat_map(|i| [(((i + own) % 3) as f64).to_bits(), own as u64]).collect();
        let from = Lent { address: mine.as_ptr().cast(), count: 5_000, datatype };
        let to = Target { rank: 0, displacement: 0, count: 5_000, datatype };
        w.fence(device, false).unwrap();
        // SAFETY: the fence ends it.
        unsafe {
            w.accumulate(device, from, to, &Op::Maxloc).unwrap();
            // One element's bytes are one run.
            w.accumulate(device, Lent { count: 1, ..from }, Target { count: 1, ..to }, &Op::Maxloc).unwrap();
            assert_eq!(w.accumulate(device, from, to, &Op::Sum), Err(RmaError::Op));
        }
        w.fence(device, true).unwrap();
        w.free(device).unwrap();
        if own == 0 {
            for (i, pair) in kept.chunks(2).enumerate() {
                let best = (5 - i % 3) % 3;
                assert_eq!(f64::from_bits(pair[0]), 2.0);
                // The gap's bytes stay.
                assert_eq!(pair[1], 0xffff_ffff_0000_0000 | best as u64, "pair {i}");
            }
        }
    });
}

#[test]
fn who_is_gone_fails_what_needs_him_and_lets_go_of_his_locks() {
    let gone = Err(RmaError::Device(adi::Error::ProcFailed));
    let all_have_met = std::sync::Barrier::new(3);
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![0; 1_000]);
        let mut w = window(device, members.clone(), Flavor::Create, &mut kept);
        if own == 2 {
            w.lock(device, 1, Lock::Exclusive).unwrap();
            w.barrier(device).unwrap();
            all_have_met.wait();
            device.close(sidelane_nic::time::Duration::from_millis(2_000));
            return;
        }
        w.barrier(device).unwrap();
        all_have_met.wait();
        // Until then it answers.
        while !device.gone().contains(&2) {
            device.progress();
        }
        if own == 0 {
            w.lock(device, 1, Lock::Exclusive).unwrap();
            put(&mut w, device, &[3], 1, 0).unwrap();
            w.unlock(device, 1).unwrap();
            let word = members.say(device, 1, 5, Outgoing::EMPTY);
            device.wait(word);
        } else {
            // Served until then.
            let word = members.hear(device, 0, 5, adi::Incoming::EMPTY);
            device.wait(word);
        }
        assert_eq!(w.lock(device, 2, Lock::Shared), gone);
        let _ = put(&mut w, device, &[1; 1_000], 2, 0);
        assert_eq!(get(&mut w, device, &mut [0], 2, 0), gone);
        assert_eq!(w.unlock(device, 2), gone);
        assert_eq!(w.free(device), gone);
    });
}

#[test]
fn a_duplicate_of_a_communicator_has_windows() {
    job(3, &Config::default(), |device, members| {
        let own = members.rank;
        let alone = Device::open(0, vec![Process::here("", &[])], vec![], &Config::default()).unwrap();
        let world = Communicator::world(std::mem::replace(device, alone), false);
        let dup = world.dup().unwrap();
        // SAFETY: nobody takes the device away.
        let found = unsafe {
            dup.with_device(|device| {
                let mut w = Window::allocate(device, dup.members(), 24, 8).unwrap();
                w.fence(device, false).unwrap();
                for rank in 0..3 {
                    put(&mut w, device, &[10 + own as u64], rank, own as i64).unwrap();
                }
                w.fence(device, false).unwrap();
                let mut found = [0; 3];
                get(&mut w, device, &mut found, own, 0).unwrap();
                w.fence(device, true).unwrap();
                w.free(device).unwrap();
                found
            })
        };
        assert_eq!(found, [10, 11, 12]);
        drop(dup);
        *device = world.into_device();
    });
}

/// A request that a window would send.
fn ask(device: &mut Device, members: &Members, to: usize, head: Head, data: &[u8]) {
    let (run, mut bytes) = (Run { at: 0, len: head.bytes }, Vec::new());
    let data: &[&[u8]] = if data.is_empty() { &[] } else { &[data] };
    head.write(if head.bytes == 0 { &[] } else { std::slice::from_ref(&run) }, data, &mut bytes);
    let bytes = Bytes::from(bytes);
    let asked = members.ask(device, to, bytes.outgoing());
    device.wait(asked);
}

fn head(kind: Kind, number: i32, bytes: u64) -> Head {
    Head { kind, detail: 0, element: None, number, displacement: 0, bytes }
}

fn say(device: &mut Device, members: &Members, to: usize, tag: i32) {
    let said = members.say(device, to, tag, Outgoing::EMPTY);
    device.wait(said);
}

fn hear(device: &mut Device, members: &Members, from: usize, tag: i32) {
    let heard = members.hear(device, from, tag, adi::Incoming::EMPTY);
    device.wait(heard);
}

/// Leaves, when the others have spoken to it.
fn leave(device: &mut Device, members: &Members) {
    (0..members.rank).for_each(|from| hear(device, members, from, 9));
    device.close(sidelane_nic::time::Duration::from_millis(2_000));
}

fn await_end_of_the_last(device: &mut Device, members: &Members) {
    let last = members.processes.len() - 1;
    say(device, members, last, 9);
    while !device.gone().contains(&(last as u32)) {
        device.progress();
    }
}

#[test]
fn a_target_that_has_ended_alone_refuses_and_answers() {
    let gone = RmaError::Device(adi::Error::ProcFailed);
    for made in [false, true] {
        job(3, &Config::default(), |device, members| {
            let mut kept = vec![0u64; 4];
            let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), 32);
            // SAFETY: it stays until the window is freed, or was not made.
            let create = |device: &mut Device| unsafe { Window::create(device, members.clone(), memory, 8) };
            let mut w = made.then(|| create(device).unwrap());
            if members.rank == 2 {
                return leave(device, &members);
            }
            await_end_of_the_last(device, &members);
            if members.rank == 1 {
                let ended = if let Some(w) = w.take() { w.free(device) } else { create(device).map(drop) };
                assert_eq!(ended, Err(gone));
                say(device, &members, 0, 5);
                // What was asked before has been answered when this has come.
                hear(device, &members, 0, 6);
                say(device, &members, 0, 7);
                assert_eq!(kept, [0; 4]);
            } else {
                hear(device, &members, 1, 5);
                let mut room = Bytes::zeros(1);
                let verdict = members.hear(device, 1, 2, room.incoming());
                ask(device, &members, 1, head(Kind::Put, 1, 8), &[1; 8]);
                ask(device, &members, 1, head(Kind::Flush, 2, 0), &[]);
                say(device, &members, 1, 6);
                hear(device, &members, 1, 7);
                assert!(device.poll(verdict).is_some_and(|status| status.error.is_none()), "it has answered");
                assert_eq!(RmaError::from_wire(room.as_slice()[0]), Some(RmaError::Range));
            }
        });
    }
}

/// Its barrier fails in the second round, when it serves already.
#[test]
fn memory_of_a_window_that_could_not_be_made_is_not_written_any_more() {
    job(4, &Config::default(), |device, members| {
        let mut kept = vec![0u64; 1_000];
        let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), 8_000);
        if members.rank == 3 {
            return leave(device, &members);
        }
        await_end_of_the_last(device, &members);
        if members.rank == 0 {
            // It serves once this is granted.
            let granted = members.hear(device, 1, 1, adi::Incoming::EMPTY);
            ask(device, &members, 1, head(Kind::Lock, 1, 0), &[]);
            device.wait(granted);
            ask(device, &members, 1, head(Kind::PutLong, 2, 8_000), &[]);
        }
        // SAFETY: it stays, and the window is not made.
        let made = unsafe { Window::create(device, members.clone(), memory, 8) };
        assert_eq!(made.map(drop), Err(RmaError::Device(adi::Error::ProcFailed)));
        let answers = members.contexts.answers;
        assert!(!device.uses(answers..answers + 1), "rank {}", members.rank);
        if members.rank == 0 {
            let data = Bytes::from(vec![7; 8_000]);
            let sent = members.say(device, 1, tag::data(2), data.outgoing());
            device.wait(sent);
        }
    });
}

#[test]
fn nobody_waits_for_a_rank_that_has_no_memory_for_its_part() {
    job(3, &Config::default(), |device, members| {
        let len = if members.rank == 1 { 1 << 60 } else { 8 };
        let made = Window::allocate(device, members, len, 1);
        assert_eq!(made.map(drop), Err(RmaError::NoMemory));
    });
}

/// Long ones too, which the target asks for late.
#[test]
fn after_a_local_flush_of_all_what_was_lent_is_the_callers_again() {
    const ROUNDS: u64 = 20;
    for words in [1, 100, 20_000] {
        job(3, &Config::default(), |device, members| {
            let (own, mut kept) = (members.rank, vec![0; words]);
            let mut w = window(device, members, Flavor::Create, &mut kept);
            assert_eq!(w.flush_local_all(device), Err(RmaError::Sync), "outside of an epoch");
            w.lock_all(device).unwrap();
            if own == 0 {
                let (mut lent, datatype) = (vec![0; words], &word());
                for round in 1..=ROUNDS {
                    lent.fill(round);
                    for rank in [1, 2] {
                        let from = Lent { address: lent.as_ptr().cast(), count: words, datatype };
                        // SAFETY: it is written again after `flush_local_all` only.
                        unsafe {
                            w.put(device, from, Target { rank, displacement: 0, count: words, datatype }).unwrap()
                        };
                    }
                    w.flush_local_all(device).unwrap();
                }
                lent.fill(u64::MAX);
            }
            w.unlock_all(device).unwrap();
            w.barrier(device).unwrap();
            w.free(device).unwrap();
            assert!(kept.iter().all(|word| *word == if own == 0 { 0 } else { ROUNDS }), "{words} words at {own}");
        });
    }
}

#[test]
fn who_fetches_and_gives_nothing_changes_nothing() {
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![10; 4]);
        let mut w = window(device, members, Flavor::Create, &mut kept);
        let datatype = &word();
        w.lock_all(device).unwrap();
        let mut last = [0; 4];
        for _ in 0..100 {
            if own == 0 {
                fetch_and_add(&mut w, device, 1, 2, 3);
                continue;
            }
            let (nothing, mut seen) = (Lent { address: std::ptr::null(), count: 0, datatype }, [0u64; 4]);
            let into = Room { address: seen.as_mut_ptr().cast(), count: 4, datatype };
            let to = Target { rank: 2, displacement: 0, count: 4, datatype };
            // SAFETY: we wait until it is over.
            let operation = unsafe { w.get_accumulate(device, nothing, into, to, &Op::NoOp).unwrap() };
            w.wait(device, operation).unwrap();
            assert!(seen[..3] == [10; 3] && (last[3]..=110).contains(&seen[3]), "{seen:?} after {last:?}");
            last = seen;
        }
        w.unlock_all(device).unwrap();
        w.barrier(device).unwrap();
        w.lock_all(device).unwrap();
        assert_eq!(fetch_and_add(&mut w, device, 0, 2, 3), 110);
        w.unlock_all(device).unwrap();
        w.free(device).unwrap();
    });
}
