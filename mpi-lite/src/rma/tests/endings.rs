//! Windows of which a member is gone, has ended alone or was never made.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sidelane_nic::share::Shared;

use super::job::job;
use super::operations::{get, put, window};
use crate::adi::{self, Config, Device, Outgoing, Pattern};
use crate::rma::lent::Bytes;
use crate::rma::members::tag;
use crate::rma::request::{Head, Kind};
use crate::rma::runs::Run;
use crate::rma::{Flavor, Lock, Members, RmaError, Window};

#[test]
fn who_is_gone_fails_what_needs_him_and_lets_go_of_his_locks() {
    let gone = Err(RmaError::Device(adi::Error::ProcFailed));
    let all_have_met = std::sync::Barrier::new(3);
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![0; 1_000]);
        let w = window(device, members.clone(), Flavor::Create, &mut kept);
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
            put(&w, device, &[3], 1, 0).unwrap();
            w.unlock(device, 1).unwrap();
            let word = members.say(device, 1, 5, Outgoing::EMPTY);
            device.wait(word);
        } else {
            // Served until then.
            let word = members.hear(device, 0, 5, adi::Incoming::EMPTY);
            device.wait(word);
        }
        assert_eq!(w.lock(device, 2, Lock::Shared), gone);
        let _ = put(&w, device, &[1; 1_000], 2, 0);
        assert_eq!(get(&w, device, &mut [0], 2, 0), gone);
        assert_eq!(w.unlock(device, 2), gone);
        assert_eq!(w.free(device), gone);
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

/// The target is told of his end by others, before it has taken in all that he sent.
#[test]
fn what_somebody_asked_who_is_gone_is_not_done_under_the_lock_of_the_next() {
    let granted = std::sync::Barrier::new(2);
    // The window is not freed: whoever ends serves it until then.
    let parts = [(); 3].map(|()| [const { AtomicU64::new(0) }; 4]);
    job(3, &Config::default(), |device, members| {
        let part = std::ptr::slice_from_raw_parts_mut(parts[members.rank].as_ptr().cast_mut().cast::<u8>(), 32);
        // SAFETY: they outlive the devices, and are not borrowed in calls.
        let w = unsafe { Window::create(device, members.clone(), part, 8) }.unwrap();
        match members.rank {
            0 => {
                hear(device, &members, 2, 5);
                let lock = members.hear(device, 1, 1, adi::Incoming::EMPTY);
                ask(device, &members, 1, Head { detail: 1, ..head(Kind::Lock, 1, 0) }, &[]);
                say(device, &members, 1, 6);
                device.wait(lock);
                granted.wait();
            }
            1 => {
                hear(device, &members, 0, 6);
                let mut gone = Some(2);
                device.on_idle_ask(Box::new(move || gone.take()));
                while device.gone().is_empty() {
                    device.progress();
                    device.pass_by();
                }
                let behind = Pattern { context: members.contexts.answers, source: None, tag: Some(7) };
                while device.probe(behind).is_none() {
                    device.progress();
                }
                assert!(parts[1].iter().all(|word| word.load(Ordering::Relaxed) == 0));
            }
            _ => {
                w.lock(device, 1, Lock::Exclusive).unwrap();
                say(device, &members, 0, 5);
                granted.wait();
                put(&w, device, &[1; 4], 1, 0).unwrap();
                say(device, &members, 1, 7);
            }
        }
    });
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
    // The first is no more than addresses reach.
    for much in [1 << 46, 1 << 60, usize::MAX] {
        job(3, &Config::default(), |device, members| {
            let len = if members.rank == 1 { much } else { 8 };
            let made = Window::allocate(device, members, len, 1);
            assert_eq!(made.map(drop), Err(RmaError::NoMemory));
        });
    }
}

#[test]
fn ranks_of_one_host_that_want_more_together_than_the_machine_has_get_none() {
    let most = (0..usize::BITS)
        .rev()
        .map(|bit| 1 << bit)
        .fold(0, |most: usize, more| if Shared::could_be(most | more) { most | more } else { most });
    job(2, &Config::default(), |device, members| {
        let made = Window::allocate(device, members, most / 10 * 7, 1);
        assert_eq!(made.map(drop), Err(RmaError::NoMemory));
    });
}

#[test]
fn an_exposure_is_over_when_all_origins_are_and_asking_waits_for_none() {
    job(3, &Config::default(), |device, members| {
        let w = Window::allocate(device, members.clone(), 8, 1).unwrap();
        if members.rank == 0 {
            w.post(device, &[1, 2]).unwrap();
            hear(device, &members, 1, 5);
            for _ in 0..100 {
                assert_eq!(w.test_exposed(device), Ok(false), "one of two is over");
            }
            say(device, &members, 2, 5);
            while !w.test_exposed(device).unwrap() {
                std::thread::yield_now();
            }
        } else {
            w.start(device, &[0]).unwrap();
            if members.rank == 2 {
                hear(device, &members, 0, 5);
            }
            w.complete(device).unwrap();
            if members.rank == 1 {
                say(device, &members, 0, 5);
            }
        }
        w.free(device).unwrap();
    });
}

/// What is got of it leaves when its origin takes it, and what is put comes when its origin sends it.
#[test]
fn memory_is_detached_when_nothing_of_it_leaves_and_nothing_comes_any_more() {
    [Kind::Get, Kind::PutLong].into_iter().for_each(detaches_after);
}

fn detaches_after(kind: Kind) {
    const LEN: usize = 1 << 20;
    let (over, detaches) = (AtomicU64::new(0), AtomicBool::new(false));
    job(2, &Config::default(), |device, members| {
        let w = Window::dynamic(device, members.clone()).unwrap();
        let mut memory = vec![7u8; LEN];
        let start = memory.as_mut_ptr();
        if members.rank == 1 {
            // SAFETY: it outlives the window, and is not used in calls before it is detached.
            unsafe { w.attach(std::ptr::slice_from_raw_parts_mut(start, LEN)) }.unwrap();
            let said = Bytes::from(&(start.expose_provenance() as u64).to_le_bytes()[..]);
            let told = members.say(device, 0, 6, said.outgoing());
            device.wait(told);
            hear(device, &members, 0, 5);
            detaches.store(true, Ordering::Relaxed);
            w.detach(device, start).unwrap();
            assert_eq!(over.load(Ordering::Relaxed), 1, "it was on its way");
            assert_eq!(w.detach(device, start), Err(RmaError::Attach));
            let expected = if kind == Kind::Get { 7 } else { 9 };
            assert!(memory.iter().all(|byte| *byte == expected));
        } else {
            let mut told = Bytes::zeros(8);
            let address = members.hear(device, 1, 6, told.incoming());
            device.wait(address);
            let displacement = i64::from_le_bytes(told.as_slice().try_into().unwrap());
            ask(device, &members, 1, Head { displacement, ..head(kind, 3, LEN as u64) }, &[]);
            say(device, &members, 1, 5);
            while !detaches.load(Ordering::Relaxed) {
                device.progress();
                device.pass_by();
            }
            // Long enough for who does not wait.
            for _ in 0..1_000 {
                device.progress();
                device.pass_by();
            }
            over.store(1, Ordering::Relaxed);
            if kind == Kind::Get {
                let mut room = Bytes::zeros(LEN);
                let got = members.hear(device, 1, 3, room.incoming());
                device.wait(got);
                assert!(room.as_slice().iter().all(|byte| *byte == 7));
            } else {
                let data = Bytes::from(vec![9; LEN]);
                let sent = members.say(device, 1, tag::data(3), data.outgoing());
                device.wait(sent);
            }
        }
        w.free(device).unwrap();
    });
}
