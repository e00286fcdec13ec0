//! Calls while a process is gone that nobody in them waits for.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::two_levels::alone;
use super::*;
use crate::comm::collective::execution::GRACE;

/// Calls a barrier.
fn meet(ranks: &mut Ranks, device: &mut Device) -> Result<(), Error> {
    ranks.call(device, Call::Barrier, None, &mut [], &mut compose)
}

/// Two by memory, and two by messages; the fifth is gone.
#[test]
fn who_is_gone_elsewhere_ends_no_call_that_takes_long() {
    let (met, begun) = (AtomicU32::new(0), [const { AtomicBool::new(false) }; 2]);
    in_job(5, |device| {
        let own = device.own();
        let (table, pair) = (Arc::new(Table::default()), own / 2);
        let all = Ranks::new(device, 5, own as usize, (0..5).collect(), Arc::clone(&table));
        meet(&mut all.without_shared_memory(), device).unwrap();
        met.fetch_add(1, Ordering::Relaxed);
        if own == 4 {
            // A busy machine keeps one in there for so long that it would take the others for lost with this one.
            device.wait_until(|_| (met.load(Ordering::Relaxed) == 5).then_some(()));
            return std::mem::replace(device, alone()).close(Duration::from_millis(2_000));
        }
        let mut ranks = Ranks::new(device, 6 + pair, own as usize % 2, vec![2 * pair, 2 * pair + 1], table);
        if pair == 1 {
            ranks = ranks.without_shared_memory();
        }
        meet(&mut ranks, device).unwrap();
        device.wait_until(|device| device.gone().contains(&4).then_some(()));
        if own % 2 == 0 {
            begun[pair as usize].store(true, Ordering::Release);
        } else {
            // The other one is in the call for longer than it would wait for who was left by one of their own.
            while !begun[pair as usize].load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_nanos(GRACE.as_nanos() * 5 / 4));
        }
        assert_eq!(meet(&mut ranks, device), Ok(()), "process {own}");
    });
}

#[test]
fn one_that_has_done_its_part_may_go() {
    for few in [false, true] {
        in_job(3, |device| {
            let own = device.own() as usize;
            let mut ranks = Ranks::new(device, 5, own, vec![0, 1, 2], Arc::new(Table::default()));
            meet(&mut ranks, device).unwrap();
            if own == 2 {
                device.wait_until(|device| device.gone().contains(&1).then_some(()));
            }
            let (call, given, mut all) = (Call::Gather { root: 0, len: 1 }, [own as u8], vec![9; 3]);
            let begun = device.now();
            let room = &mut all[..if own == 0 { 3 } else { 0 }];
            let gathered = match few {
                true => ranks.call_few(device, &call, Some(&given), room, Some(compose)).unwrap(),
                false => ranks.call(device, call, Some(&given), room, &mut compose),
            };
            // A rank that the machine kept waiting for so long takes the others for lost.
            let is_late = device.now().since(begun) > GRACE;
            assert!(gathered == Ok(()) || is_late && gathered == Err(Error::ProcFailed), "rank {own}: {gathered:?}");
            assert!(own > 0 || gathered.is_err() || all == [0, 1, 2]);
            if own == 1 {
                std::mem::replace(device, alone()).close(Duration::from_millis(2_000));
            }
        });
    }
}

/// By messages, of one that has given up, perhaps in a call before.
#[test]
fn who_waits_while_a_member_is_gone_is_patient_and_not_for_ever_however_often_it_begins() {
    static GIVEN: [u8; 8] = [7; 8];
    let waits = AtomicBool::new(false);
    in_job(3, |device| {
        let own = device.own() as usize;
        let mut ranks = Ranks::new(device, 5, own, vec![0, 1, 2], Arc::default()).without_shared_memory();
        meet(&mut ranks, device).unwrap();
        match own {
            0 => {}
            1 => {
                device.wait_until(|_| waits.load(Ordering::Acquire).then_some(()));
                // Its part of the first call; it has none in those that follow.
                let envelope = adi::Envelope::new(5, 1, ranks.next_tag());
                // SAFETY: nobody writes it.
                let sent = device.send(0, envelope, unsafe { adi::Outgoing::lend(&GIVEN) }, adi::Mode::Standard);
                return device.free(sent);
            }
            _ => return std::mem::replace(device, alone()).close(Duration::from_millis(2_000)),
        }
        device.wait_until(|device| device.gone().contains(&2).then_some(()));
        let (mut execution, mut room) = (Execution::default(), GIVEN);
        for call in 0..3 {
            // SAFETY: the room stays until the call is over.
            let lent = unsafe { Lent::new(&[], &raw mut room[..]) };
            start(&mut ranks, device, &mut execution, Call::Broadcast { root: 1 }, true, lent);
            let (course, begun, mut turns) = (ranks.course(), device.now(), 0);
            let ended = device.wait_until(|device| {
                turns += 1;
                waits.fetch_or(turns > 10, Ordering::Release);
                match course.advance(device, &mut execution, &mut compose) {
                    Ok(false) => None,
                    ended => Some(ended),
                }
            });
            // A rank that the machine kept waiting for so long takes the others for lost.
            let is_late = device.now().since(begun) > GRACE;
            assert!(ended == Err(Error::ProcFailed) && is_late || ended == Ok(true) && call == 0, "{call}: {ended:?}");
        }
    });
}
