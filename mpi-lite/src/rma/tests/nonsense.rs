//! Requests that no window sends: they are refused, whoever sent them is told, and nothing is touched.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use super::job::job;
use super::operations::window;
use crate::adi::{Config, Device, Incoming, Outgoing};
use crate::datatype::Predefined;
use crate::rma::lent::Bytes;
use crate::rma::members::tag;
use crate::rma::request::{Head, Kind};
use crate::rma::runs::{GRAIN_MAX, PART, Run};
use crate::rma::{Flavor, Lock, Members, RmaError};

#[test]
fn nonsense_is_reported_to_who_sent_it() {
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![5; 8]);
        let w = window(device, members.clone(), Flavor::Create, &mut kept);
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
                w.state().queues[1].dirty = true;
                assert_eq!(w.flush(device, 1), Err(RmaError::Malformed), "{} bytes", bytes.len());
            }
            w.unlock(device, 1).unwrap();
        }
        w.free(device).unwrap();
        assert_eq!(kept, [5; 8]);
    });
}

#[test]
fn what_no_window_asks_is_refused_and_touches_nothing() {
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![5; 6_000]);
        let w = window(device, members.clone(), Flavor::Create, &mut kept);
        if own == 0 {
            w.lock(device, 1, Lock::Shared).unwrap();
            for (number, case) in (100..).step_by(2).zip(REFUSED) {
                let (kind, detail, element, bytes, lens, len, wrong) = case;
                let head = Head { kind, detail, element, number, displacement: 0, bytes: bytes as u64 };
                // What is compared is there.
                let data: Vec<u8> = 5u64.to_le_bytes().into_iter().chain(std::iter::repeat(9)).take(len).collect();
                let fetches = matches!(kind, Kind::Get | Kind::GetAccumulate | Kind::CompareSwap);
                let answer = fetches.then(|| members.hear(device, 1, number, Incoming::EMPTY));
                ask(device, &members, head, lens, if kind == Kind::PutLong { &[] } else { &data });
                if kind == Kind::PutLong {
                    let data = Bytes::from(data);
                    let sent = members.say(device, 1, tag::data(number), data.outgoing());
                    device.wait(sent);
                }
                assert!(answer.is_none_or(|answer| device.wait(answer).error.is_none()), "something of {case:?}");
                let mut room = Bytes::zeros(1);
                let verdict = members.hear(device, 1, number + 1, room.incoming());
                let flush = Head { kind: Kind::Flush, detail: 0, element: None, number: number + 1, bytes: 0, ..head };
                ask(device, &members, flush, &[], &[]);
                device.wait(verdict);
                // Who fetches is told by the answer.
                assert_eq!(RmaError::from_wire(room.as_slice()[0]), (!fetches).then_some(wrong), "{case:?}");
            }
            w.unlock(device, 1).unwrap();
        }
        w.free(device).unwrap();
        assert!(kept.iter().all(|word| *word == 5));
    });
}

/// Asks rank 1 for runs of these lengths, a word apart.
fn ask(device: &mut Device, members: &Members, head: Head, lens: &[usize], data: &[u8]) {
    let (mut runs, mut next, mut bytes) = (Vec::new(), 0, Vec::new());
    for len in lens {
        runs.push(Run { at: next, len: *len as u64 });
        next += *len as i64 + 8;
    }
    head.write(&runs, &[data], &mut bytes);
    let bytes = Bytes::from(bytes);
    let asked = members.ask(device, 1, bytes.outgoing());
    device.wait(asked);
}

type Case = (Kind, u8, Option<Predefined>, usize, &'static [usize], usize, RmaError);

/// Kind, detail, element and bytes; lengths of the runs; how much data; and what is said of it.
const REFUSED: [Case; 17] = {
    use Kind::*;
    use Predefined::{Double, Uint64};
    use RmaError::{Malformed, Op};
    const MORE: usize = PART + 8;
    [
        (Put, 0, None, 16, &[16], 8, Malformed),
        (Put, 0, None, 16, &[16], 24, Malformed),
        (Put, 0, None, 24, &[16], 24, Malformed),
        (PutLong, 0, None, 24, &[16], 24, Malformed),
        (PutLong, 0, None, 16, &[8, 8], 16, Malformed),
        (Accumulate, SUM, None, 16, &[16], 16, Malformed),
        (Accumulate, 99, Some(Uint64), 16, &[16], 16, Malformed),
        (Accumulate, SUM, Some(Uint64), 16, &[16], 8, Malformed),
        (Accumulate, SUM, Some(Uint64), 12, &[12], 12, Malformed),
        (Accumulate, BAND, Some(Double), 16, &[16], 16, Op),
        // No request is worth more than its share of memory.
        (Accumulate, SUM, Some(Uint64), MORE, &[MORE], MORE, Malformed),
        (GetAccumulate, NO_OP, Some(Uint64), MORE, &[MORE], 0, Malformed),
        (Get, 0, None, MORE, &[PART, 8], 0, Malformed),
        (CompareSwap, 0, None, 16, &[8, 8], 32, Malformed),
        (CompareSwap, 0, None, 8, &[8], 17, Malformed),
        (CompareSwap, 0, None, 8, &[8], 8, Malformed),
        (CompareSwap, 0, None, GRAIN_MAX + 8, &[GRAIN_MAX + 8], 2 * (GRAIN_MAX + 8), Malformed),
    ]
};

// Operators, by their places in a request.
const SUM: u8 = 0;
const BAND: u8 = 4;
const NO_OP: u8 = 13;
