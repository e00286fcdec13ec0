//! The send FIFO against a simple model: the messages in order, and the frames under way.

use std::collections::VecDeque;

use super::{MARKER_LEN, Released, SendFifo, Span};
use crate::wire::{FIRST_LEN, RECORD_LEN, Record, Records, put_message};
use proptest::prelude::*;

const CAPACITY: usize = 300;
const LONGEST: usize = 100;

#[derive(Debug, Clone)]
enum Step {
    Push {
        len: usize,
    },
    /// A reply for which `len` bytes are looked at, and at most as many then written.
    Reply {
        len: usize,
        at_most: usize,
    },
    PushLarge {
        len: usize,
        lent: bool,
    },
    /// A frame with so much room is sent for the first time.
    Send {
        room: usize,
    },
    /// A frame under way is written again.
    Again {
        which: usize,
    },
    /// The oldest frame under way is acknowledged.
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..=LONGEST - RECORD_LEN).prop_map(|len| Step::Push { len }),
        2 => (0..=LONGEST - RECORD_LEN, 0..=LONGEST).prop_map(|(len, at_most)| Step::Reply { len, at_most }),
        1 => (0usize..700, any::<bool>()).prop_map(|(len, lent)| Step::PushLarge { len, lent }),
        4 => (0usize..250).prop_map(|room| Step::Send { room }),
        1 => (0usize..8).prop_map(|which| Step::Again { which }),
        3 => Just(Step::Release),
    ]
}

/// A message that no other one is alike.
fn message(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number ^ at as u8).collect()
}

/// A message that was taken and not yet acknowledged.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    /// Has a buffer of its own: whether that is the user's.
    large: Option<bool>,
    sent: usize,
    /// All of it was sent, an empty one too.
    done: bool,
    released: usize,
}

#[derive(Default)]
struct Model {
    held: VecDeque<Held>,
    frames: VecDeque<(Span, Vec<u8>)>,
}

impl Model {
    /// Bytes of the ring in use: acknowledged frames give theirs back as a whole, so this counts messages whose frame or
    /// last part was not released.
    fn used(&self) -> usize {
        self.held.iter().map(|held| if held.large.is_some() { MARKER_LEN } else { RECORD_LEN + held.bytes.len() }).sum()
    }

    fn next_unsent(&mut self) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| !held.done)
    }

    /// The records of a frame that was sent for the first time are the next ones in order.
    fn on_frame(&mut self, body: &[u8]) {
        let whole = Records::new(body).count();
        for record in Records::new(body) {
            let held = self.next_unsent().expect("nothing is invented");
            match record.expect("frames can be read") {
                Record::Message(bytes) => {
                    assert!(held.large.is_none());
                    assert_eq!(bytes, held.bytes);
                    held.done = true;
                }
                Record::First { total, part } => {
                    assert_eq!((total as usize, held.sent, whole), (held.bytes.len(), 0, 1));
                    held.on_part(part);
                }
                Record::More(part) => {
                    assert!(held.sent > 0 && whole == 1);
                    held.on_part(part);
                }
                Record::Close => unreachable!("nobody closes"),
            }
        }
        assert!(whole > 0, "a frame carries something");
    }

    /// The oldest frame is acknowledged: what that sets free.
    fn release(&mut self, body: &[u8]) -> Released {
        let mut free = Released::Room;
        for record in Records::new(body) {
            let front = self.held.front_mut().expect("it was held");
            if let Record::First { part, .. } | Record::More(part) = record.expect("frames can be read") {
                front.released += part.len();
                if front.released < front.bytes.len() {
                    continue;
                }
            }
            let held = self.held.pop_front().expect("just seen");
            free = match held.large {
                None => Released::Room,
                Some(true) => Released::Buffer(held.bytes),
                Some(false) => Released::Spare(held.bytes),
            };
        }
        free
    }
}

impl Held {
    fn on_part(&mut self, part: &[u8]) {
        assert!(self.large.is_some());
        assert_eq!(part, &self.bytes[self.sent..self.sent + part.len()]);
        self.sent += part.len();
        self.done = self.sent == self.bytes.len();
    }
}

proptest! {
    #[test]
    fn messages_leave_in_order_and_are_held_until_they_are_acknowledged(steps in proptest::collection::vec(step(), 1..300), reserves: bool) {
        let mut fifo = SendFifo::new(CAPACITY, LONGEST);
        let reserve = if reserves { fifo.reserve_half() } else { 0 };
        let mut model = Model::default();
        let (mut number, mut appended) = (0u8, 0);
        for step in steps {
            match step {
                Step::Push { len } => {
                    number = number.wrapping_add(1);
                    let fits = model.used() + RECORD_LEN + len + reserve <= CAPACITY;
                    prop_assert_eq!(fifo.spot(RECORD_LEN + len, false).is_some(), fits);
                    prop_assert_eq!(fifo.push(RECORD_LEN + len, |record| put_message(record, &message(number, len))), fits);
                    if fits {
                        model.held.push_back(Held { bytes: message(number, len), large: None, sent: 0, done: false, released: 0 });
                    }
                }
                Step::Reply { len, at_most } => {
                    number = number.wrapping_add(1);
                    let fits = model.used() + RECORD_LEN + len <= CAPACITY;
                    let spot = fifo.spot(RECORD_LEN + len, true);
                    prop_assert_eq!(spot.is_some(), fits);
                    if let Some(spot) = spot {
                        let bytes = message(number, len.min(at_most));
                        put_message(&mut spot[..RECORD_LEN + bytes.len()], &bytes);
                        fifo.commit(RECORD_LEN + bytes.len());
                        model.held.push_back(Held { bytes, large: None, sent: 0, done: false, released: 0 });
                    }
                }
                Step::PushLarge { len, lent } => {
                    number = number.wrapping_add(1);
                    let bytes = message(number, len);
                    let copied: usize = model.held.iter().filter(|held| held.large == Some(false)).map(|held| held.bytes.len()).sum();
                    let too_much = !lent && copied > 0 && copied + len > CAPACITY;
                    let fits = model.used() + MARKER_LEN + reserve <= CAPACITY && !too_much;
                    prop_assert_eq!(fifo.push_large(bytes.clone(), lent), if fits { Ok(()) } else { Err(bytes.clone()) });
                    if fits {
                        model.held.push_back(Held { bytes, large: Some(lent), sent: 0, done: false, released: 0 });
                    }
                }
                Step::Send { room } => {
                    let Some(span) = fifo.next_span(room) else {
                        // Nothing waits, or not even the first record has room.
                        if let Some(held) = model.next_unsent() {
                            let least = match held.large {
                                None => RECORD_LEN + held.bytes.len(),
                                Some(_) if held.sent == 0 => FIRST_LEN + usize::from(!held.bytes.is_empty()),
                                Some(_) => RECORD_LEN + 1,
                            };
                            prop_assert!(room < least, "{} bytes have room in {}", least, room);
                        }
                        continue;
                    };
                    let same = fifo.next_run(room).is_none_or(|(at, len)| span == Span::Run { at, len });
                    prop_assert!(same, "the short way plans the same frame");
                    let len = SendFifo::body_len(span);
                    prop_assert!(len <= room);
                    let mut body = vec![0xee; len];
                    fifo.write(span, &mut body);
                    fifo.advance(span);
                    model.on_frame(&body);
                    model.frames.push_back((span, body));
                }
                Step::Again { which } => {
                    if let Some((span, body)) = model.frames.get(which) {
                        let mut again = vec![0xee; body.len()];
                        fifo.write(*span, &mut again);
                        prop_assert_eq!(&again, body);
                    }
                }
                Step::Release => {
                    if let Some((span, body)) = model.frames.pop_front() {
                        let free = model.release(&body);
                        prop_assert_eq!(fifo.release(span), free);
                    }
                }
            }
            appended = appended.max(fifo.progress().appended);
            prop_assert_eq!(fifo.progress().appended, appended, "what was appended stays appended");
            prop_assert_eq!(fifo.has_unsent(), model.next_unsent().is_some());
            prop_assert_eq!(fifo.is_empty(), model.held.is_empty());
        }
        let lent: Vec<_> = model.held.iter().filter(|held| held.large == Some(true)).map(|held| held.bytes.clone()).collect();
        prop_assert_eq!(fifo.drain_lent().collect::<Vec<_>>(), lent);
    }
}

/// A reliable driver's runs are forgotten as they leave: they count as appended and sent all the same.
#[test]
fn a_run_that_is_handed_over_has_been_sent() {
    let mut fifo = SendFifo::new(CAPACITY, LONGEST);
    for sent in 1..=100u64 {
        assert!(fifo.push(RECORD_LEN + 8, |record| put_message(record, &message(1, 8))));
        let (at, len) = fifo.next_run(LONGEST).expect("a record waits");
        fifo.hand_over_run(at, len);
        let progress = fifo.progress();
        assert_eq!((progress.appended, progress.sent), (sent * 12, sent * 12));
    }
}
