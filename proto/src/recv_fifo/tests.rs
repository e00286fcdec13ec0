use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;
use crate::wire::{put_close, put_first, put_message, put_more};
use proptest::prelude::*;

const CAPACITY: usize = 1000;
const LONGEST: usize = 300;

/// A message of `len` bytes as the bodies that carry it, each at most [`LONGEST`].
fn bodies(stamp: u8, len: usize) -> Vec<Vec<u8>> {
    let message = vec![stamp; len];
    if RECORD_LEN + len <= LONGEST {
        let mut body = vec![0; RECORD_LEN + len];
        put_message(&mut body, &message);
        return vec![body];
    }
    let (first, rest) = message.split_at(LONGEST - FIRST_LEN);
    let mut body = vec![0; FIRST_LEN];
    put_first(&mut body, first.len() as u16, len as u32);
    body.extend_from_slice(first);
    let more = rest.chunks(LONGEST - RECORD_LEN).map(|part| {
        let mut body = vec![0; RECORD_LEN];
        put_more(&mut body, part.len() as u16);
        body.extend_from_slice(part);
        body
    });
    std::iter::once(body).chain(more).collect()
}

proptest! {
    /// A sender that keeps to its credit is never refused, gets credit again, and its messages come out in order.
    #[test]
    fn who_keeps_to_the_credit_is_never_refused(
        messages in proptest::collection::vec(0usize..2500, 1..40),
        takes in proptest::collection::vec(0usize..4, 1..80),
        damaged in any::<u64>(),
        in_runs in any::<bool>(),
    ) {
        let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
        let mut sending: VecDeque<Vec<u8>> =
            messages.iter().enumerate().flat_map(|(i, &len)| bodies(i as u8, len)).collect();
        let mut due = messages.iter().enumerate().map(|(i, &len)| vec![i as u8; len]);
        let (mut sent, mut placed) = (0, 0);
        // However seldom the user looks, in the end it takes everything.
        for take in takes.into_iter().chain(std::iter::repeat_n(4, 10 * messages.len() + 40)) {
            while let Some(body) = sending.pop_front_if(|body| sent + body.len() as u64 <= fifo.grant()) {
                sent += body.len() as u64;
                // Where its bytes may go on ahead, what looked like the body until its check failed goes before it.
                if let Some(place) = fifo.place(&body, body.len()) {
                    let part = &body[RECORD_LEN..];
                    prop_assert_eq!(place.len(), part.len());
                    if damaged >> (placed % 64) & 1 == 1 {
                        place.fill(0xee);
                    } else {
                        place.copy_from_slice(part);
                        prop_assert!(fifo.accept_placed(body.len()).is_ok());
                        placed += 1;
                        continue;
                    }
                    placed += 1;
                }
                prop_assert!(fifo.accept(&body, 1 << 20, &mut spares).is_ok());
            }
            if in_runs {
                let mut run = Vec::new();
                let most = take as u32 + 1;
                let shown = fifo.take_run(most, &mut spares, |message, _| {
                    run.push(message.to_vec());
                    // Enough is enough even where more may be shown.
                    run.len() < take.max(1)
                });
                prop_assert_eq!(shown, if run.is_empty() { Taken::Nothing } else { Taken::Message(run.len() as u32) });
                prop_assert!(run.len() <= take.max(1));
                for message in run {
                    prop_assert_eq!(Some(message), due.next());
                }
                continue;
            }
            for _ in 0..take {
                if let Taken::Message(message) = fifo.take(&mut spares, |message, _| message.to_vec()) {
                    prop_assert_eq!(Some(message), due.next());
                }
            }
        }
        prop_assert!(sending.is_empty() && due.next().is_none());
    }

    #[test]
    fn no_body_panics_or_is_half_taken(body in proptest::collection::vec(any::<u8>(), 0..LONGEST)) {
        let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
        let before = fifo.grant();
        if fifo.accept(&body, 1 << 20, &mut spares).is_err() {
            prop_assert!(!fifo.is_ready() && fifo.assembly.is_none() && fifo.grant() == before);
        }
    }
}

#[test]
fn only_what_continues_a_message_has_a_place_and_never_beyond_its_end() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    // A buffer longer than the message that follows: its end is not the message's.
    spares.give(vec![0xaa; 2_000]);
    let parts = bodies(1, 700);
    let [first, more, end] = parts.as_slice() else { panic!("700 bytes are three bodies") };
    assert_eq!(fifo.place(more, more.len()), None, "there is no message");
    fifo.accept(first, 1 << 20, &mut spares).unwrap();
    fifo.accept(more, 1 << 20, &mut spares).unwrap();
    assert_eq!(fifo.place(more, more.len()), None, "it would end beyond the message");
    for other in [first, &bodies(2, 8)[0], &end[..end.len() - 1], &[end.as_slice(), &[0]].concat(), &[][..]] {
        assert_eq!(fifo.place(other, other.len()), None, "{other:?}");
    }
    fifo.place(end, end.len()).expect("the message's last bytes").fill(0xee);
    assert!(!fifo.is_ready(), "nobody sees them before they count");
    fifo.place(end, end.len()).unwrap().copy_from_slice(&end[RECORD_LEN..]);
    fifo.accept_placed(end.len()).unwrap();
    assert_eq!(fifo.place(end, end.len()), None, "the message is whole");
    assert_eq!(fifo.accept_placed(end.len()), Err(Reject::Malformed));
    assert_eq!(fifo.take(&mut spares, |message, _| message.to_vec()), Taken::Message(vec![1; 700]));
}

#[test]
fn who_panics_on_a_message_has_had_it() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    for body in (1..).zip([8, 700, 8]).flat_map(|(stamp, len)| bodies(stamp, len)) {
        fifo.accept(&body, 1 << 20, &mut spares).unwrap();
    }
    for len in [8, 700] {
        let taken = catch_unwind(AssertUnwindSafe(|| {
            fifo.take(&mut spares, |message, _| -> () {
                assert_eq!(message.len(), len);
                resume_unwind(Box::new(()))
            })
        }));
        assert!(taken.is_err());
    }
    assert_eq!(fifo.take(&mut spares, |message, _| message.to_vec()), Taken::Message(vec![3; 8]));
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Nothing);
}

#[test]
fn a_run_ends_before_what_is_no_short_message_and_a_panic_ends_it_behind_its_message() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let run = |fifo: &mut RecvFifo, spares: &mut Spares, most| {
        let mut stamps = Vec::new();
        let taken = fifo.take_run(most, spares, |message, _| {
            stamps.push(message[0]);
            true
        });
        (taken, stamps)
    };
    for body in (1..).zip([8, 8, 8, 8, 8, 700, 8]).flat_map(|(stamp, len)| bodies(stamp, len)) {
        fifo.accept(&body, 1 << 20, &mut spares).unwrap();
    }
    let mut close = [0; RECORD_LEN];
    put_close(&mut close);
    fifo.accept(&close, 1 << 20, &mut spares).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        fifo.take_run(9, &mut spares, |message, _| message[0] < 2 || resume_unwind(Box::new(())))
    }));
    assert!(panicked.is_err());
    assert_eq!(run(&mut fifo, &mut spares, 1), (Taken::Message(1), vec![3]));
    assert_eq!(run(&mut fifo, &mut spares, 9), (Taken::Message(2), vec![4, 5]));
    assert_eq!(run(&mut fifo, &mut spares, 9), (Taken::Message(1), vec![6]));
    assert_eq!(run(&mut fifo, &mut spares, 9), (Taken::Message(1), vec![7]));
    assert_eq!(run(&mut fifo, &mut spares, 9), (Taken::Close, vec![]));
    assert_eq!(run(&mut fifo, &mut spares, 9), (Taken::Nothing, vec![]));
}

#[test]
fn beyond_the_credit_there_is_no_room() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let body = &bodies(1, LONGEST - RECORD_LEN)[0];
    for _ in 0..CAPACITY / LONGEST {
        assert_eq!(fifo.accept(body, 1 << 20, &mut spares), Ok(false));
    }
    assert_eq!(fifo.accept(body, 1 << 20, &mut spares), Err(Reject::Overrun));
}

#[test]
fn pieces_that_do_not_belong_together_are_refused() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let parts = bodies(1, 700);
    assert_eq!(fifo.accept(&parts[1], 1 << 20, &mut spares), Err(Reject::Malformed), "More without First");
    assert_eq!(fifo.accept(&parts[0], 600, &mut spares), Err(Reject::TooLong));
    assert_eq!(fifo.accept(&parts[0], 1 << 20, &mut spares), Ok(true));
    assert_eq!(fifo.accept(&parts[0], 1 << 20, &mut spares), Err(Reject::Malformed), "First within a message");
    assert_eq!(fifo.accept(&bodies(2, 8)[0], 1 << 20, &mut spares), Err(Reject::Malformed), "Message within a message");
    assert!(fifo.accept(&parts[1], 1 << 20, &mut spares).is_ok());
    assert_eq!(fifo.accept(&parts[1], 1 << 20, &mut spares), Err(Reject::Malformed), "beyond the message's end");
    let with_another = [parts[2].as_slice(), &bodies(2, 8)[0]].concat();
    assert_eq!(fifo.accept(&with_another, 1 << 20, &mut spares), Err(Reject::Malformed), "another record behind More");
    assert!(fifo.accept(&parts[2], 1 << 20, &mut spares).is_ok());
    assert_eq!(fifo.take(&mut spares, |message, _| message.to_vec()), Taken::Message(vec![1; 700]));
}

#[test]
fn the_close_is_known_at_once_and_reached_in_its_turn() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let mut body = bodies(1, 8).remove(0);
    let mut close = [0; RECORD_LEN];
    put_close(&mut close);
    body.extend_from_slice(&close);
    assert_eq!(fifo.accept(&body, 1 << 20, &mut spares), Ok(true));
    assert!(fifo.is_closed());
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Message(8));
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Close);
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Nothing);
}

#[test]
fn large_messages_beyond_the_credit_are_refused() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let mut bodies = (0..).flat_map(|stamp| bodies(stamp, 400));
    let mut taken = 0;
    let refused = loop {
        let body = bodies.next().expect("without end");
        if fifo.place(&body, body.len()).is_some() {
            panic!("no buffer was there before");
        }
        match fifo.accept(&body, 1 << 20, &mut spares) {
            Ok(_) => taken += body.len(),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refused, Reject::Overrun);
    assert!(taken <= CAPACITY && taken + LONGEST > CAPACITY, "{taken} bytes in a FIFO of {CAPACITY}");
}

#[test]
fn bytes_that_have_a_place_count_against_the_credit_too() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    spares.give(vec![0xaa; 5_000]);
    let parts = bodies(1, 5_000);
    fifo.accept(&parts[0], 1 << 20, &mut spares).unwrap();
    let mut taken = parts[0].len();
    for part in &parts[1..] {
        if fifo.place(part, part.len()).is_none() {
            break;
        }
        fifo.accept_placed(part.len()).unwrap();
        taken += part.len();
    }
    assert!(taken <= CAPACITY && taken + LONGEST > CAPACITY, "{taken} bytes of {CAPACITY}");
}

/// A driver may show frames that are longer than those that it sends.
#[test]
fn a_body_longer_than_any_frame_is_refused() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    // The next entry begins where only the longest one has room.
    for _ in 0..3 {
        fifo.accept(&bodies(1, LONGEST - RECORD_LEN)[0], 1 << 20, &mut spares).unwrap();
    }
    while fifo.take(&mut spares, |_, _| ()) == Taken::Message(()) && fifo.ring.used() > LONGEST {}
    let mut body = vec![0; RECORD_LEN + 2 * LONGEST];
    put_message(&mut body, &[2; 2 * LONGEST]);
    assert_eq!(fifo.accept(&body, 1 << 20, &mut spares), Err(Reject::Malformed));
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Message(LONGEST - RECORD_LEN));
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Nothing);
}

#[test]
fn what_was_taken_in_elsewhere_counts_as_taken() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let before = fifo.grant();
    assert!(fifo.is_idle());
    fifo.pass(12);
    assert_eq!(fifo.grant(), before + 12);
    for body in bodies(1, 3 * LONGEST) {
        assert!(fifo.accept(&body, usize::MAX, &mut spares).is_ok());
        assert!(!fifo.is_idle(), "in pieces, and then whole");
    }
}

#[test]
fn a_part_that_is_longer_than_its_message_is_refused() {
    let mut fifo = RecvFifo::new(CAPACITY, LONGEST);
    let mut body = [0; FIRST_LEN + 3];
    put_first(&mut body, 3, 2);
    assert_eq!(fifo.accept(&body, 100, &mut Spares::default()), Err(Reject::Malformed));
    assert!(fifo.is_idle());
}

/// Under way it counts as its marker, complete as all of its bytes too: what the peer was told before still holds.
#[test]
fn a_message_in_pieces_gives_credit_while_it_comes_and_when_it_is_taken() {
    let (mut fifo, mut spares) = (RecvFifo::new(CAPACITY, LONGEST), Spares::default());
    let grants: Vec<u64> = bodies(1, 700)
        .iter()
        .map(|body| {
            fifo.accept(body, 1 << 20, &mut spares).expect("there is credit");
            fifo.grant()
        })
        .collect();
    assert_eq!(grants, [1292, 1592, 1592]);
    assert_eq!(fifo.take(&mut spares, |message, _| message.len()), Taken::Message(700));
    assert_eq!(fifo.grant(), 1000 + 716);
}
