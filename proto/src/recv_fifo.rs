//! The receive FIFO of one peer: messages that arrived in order and wait to be taken, and the credit that follows from it.
//!
//! Bodies of frames with whole messages are copied in as they are, in one piece; the records are walked when they are
//! taken. A message of several frames is put together in a buffer of its own, and a marker stands in its place.

use std::collections::VecDeque;

use crate::copy::copy_ends;
use crate::counters::Reject;
use crate::ring::ByteRing;
use crate::spares::Spares;
use crate::wire::{FIRST_LEN, RECORD_LEN, Record, Records, more_part, u16_at};

/// Messages from one peer, in order.
#[derive(Debug)]
pub(crate) struct RecvFifo {
    ring: ByteRing,
    assembly: Option<Assembly>,
    /// Large messages that are complete; the front one belongs to the oldest marker.
    large: VecDeque<Vec<u8>>,
    /// Bytes in `large`.
    large_held: u64,
    /// Stream position: bytes of records taken in.
    position: u64,
    /// Stream position up to which the peer may send. Never goes back.
    granted: u64,
    /// The peer's Close has arrived, though the user may not have come so far.
    closed: bool,
}

/// True when `body` is whole messages from end to end: the common case, told without looking at anything but lengths.
#[inline]
fn is_run_of_messages(body: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&[MESSAGE, _, low, high]) = body.get(at..at + RECORD_LEN) {
        at += RECORD_LEN + u16::from_le_bytes([low, high]) as usize;
    }
    at == body.len() && at > 0
}

/// The oldest record while it is shown. It leaves the ring in any case: who panics on a message has had it.
struct Shown<'a> {
    ring: &'a mut ByteRing,
    len: usize,
}

impl Drop for Shown<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.pop(self.len);
    }
}

#[derive(Debug)]
struct Assembly {
    /// The message so far, and perhaps bytes behind it that mean nothing: places to write to. Never longer than `total`.
    buffer: Vec<u8>,
    /// Bytes of the message so far.
    filled: usize,
    total: usize,
}

/// What stands at the front of the FIFO.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<R> {
    /// A message, and what its taker made of it.
    Message(R),
    /// The peer closed; nothing follows.
    Close,
    /// Nothing is here.
    Nothing,
}

const MESSAGE: u8 = 1;
/// Marks a large message's place in the ring. No record's kind.
const MARKER: u8 = 0xff;
const MARKER_LEN: usize = FIRST_LEN;

impl Assembly {
    fn push(&mut self, part: &[u8]) {
        match self.place(part.len()) {
            Some(place) => place.copy_from_slice(part),
            None => {
                self.buffer.truncate(self.filled);
                self.buffer.extend_from_slice(part);
            }
        }
        self.filled += part.len();
    }

    /// Where the next `len` bytes will stand, if the buffer has had bytes there before.
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.get_mut(self.filled..self.filled + len)
    }
}

impl RecvFifo {
    /// An empty FIFO of `capacity` bytes for frames with bodies of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self {
            ring: ByteRing::new(capacity, longest),
            assembly: None,
            large: VecDeque::new(),
            large_held: 0,
            position: 0,
            granted: capacity as u64,
            closed: false,
        }
    }

    /// Takes in the body of the frame whose turn it is: true when that may have raised the grant. On an error nothing of
    /// it is kept.
    #[inline]
    pub fn accept(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<bool, Reject> {
        let is_run = is_run_of_messages(body);
        if is_run {
            self.append(body)?;
        } else {
            self.accept_other(body, message_max, spares)?;
        }
        self.position += body.len() as u64;
        Ok(!is_run)
    }

    /// Where the bytes will stand that `body` continues a message with: behind what has arrived of it, wherever the frame came
    /// from and whatever else it says. Nobody sees them, and the next body's stand there too, until [`Self::accept_placed`] is
    /// called. `None` where the message does not go on so far, or has no bytes there yet: [`Self::accept`] makes some.
    pub fn place(&mut self, body: &[u8]) -> Option<&mut [u8]> {
        self.assembly.as_mut()?.place(more_part(body)?.len())
    }

    /// As [`Self::accept`], of a body whose bytes were written to the place that [`Self::place`] gave for it, last of all.
    pub fn accept_placed(&mut self, body: &[u8]) -> Result<(), Reject> {
        let Some(assembly) = &mut self.assembly else { return Err(Reject::Malformed) };
        assembly.filled += body.len() - RECORD_LEN;
        debug_assert!(assembly.filled <= assembly.buffer.len(), "the place ended with the buffer");
        self.finish_if_whole()?;
        self.position += body.len() as u64;
        Ok(())
    }

    #[inline(never)]
    fn accept_other(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        let mut records = Records::new(body);
        let Some(first) = records.next() else { return Err(Reject::Malformed) };
        match first? {
            Record::Message(_) | Record::Close => {
                for record in records {
                    if !matches!(record?, Record::Message(_) | Record::Close) {
                        return Err(Reject::Malformed);
                    }
                }
                self.append(body)?;
                // Only a Close keeps a body of whole records from being a run of messages.
                self.closed = true;
                Ok(())
            }
            // A part of a large message is alone in its frame.
            Record::First { total, part } if FIRST_LEN + part.len() == body.len() => {
                self.begin(total as usize, part, message_max, spares)
            }
            Record::More(part) if RECORD_LEN + part.len() == body.len() => self.continue_with(part),
            Record::First { .. } | Record::More(_) => Err(Reject::Malformed),
        }
    }

    /// Shows the oldest message to `take` and removes it.
    #[inline]
    pub fn take<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8], &mut Spares) -> R) -> Taken<R> {
        if self.ring.used() == 0 {
            return Taken::Nothing;
        }
        let head = self.ring.head();
        let header = self.ring.slice(head, RECORD_LEN);
        if header[0] == MESSAGE {
            let len = u16_at(header, 2) as usize;
            let shown = Shown { ring: &mut self.ring, len: RECORD_LEN + len };
            return Taken::Message(take(shown.ring.slice(head + RECORD_LEN, len), spares));
        }
        if header[0] == MARKER { self.take_large(spares, take) } else { self.take_close() }
    }

    /// True when a message, or the peer's close, waits.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.used() > 0
    }

    /// Stream position up to which the peer may send. A message under way in pieces counts as taken, since it has its
    /// buffer; one that is complete counts as held until the user takes it.
    #[inline]
    pub fn grant(&mut self) -> u64 {
        let marker = if self.assembly.is_some() { MARKER_LEN as u64 } else { 0 };
        let held = self.ring.used() as u64 + self.large_held + marker;
        let window = self.position + self.ring.capacity() as u64;
        self.granted = self.granted.max(window.saturating_sub(held));
        self.granted
    }

    /// True once the peer's Close has arrived.
    #[inline]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Gives memory back if nothing is held.
    pub fn shrink(&mut self) {
        self.ring.shrink();
        self.large.shrink_to_fit();
    }

    /// Bytes of memory held by the FIFO itself.
    pub fn memory(&self) -> usize {
        self.ring.memory()
    }

    #[inline]
    fn append(&mut self, body: &[u8]) -> Result<(), Reject> {
        if self.assembly.is_some() {
            return Err(Reject::Malformed);
        }
        let at = self.ring.push(body.len()).ok_or(Reject::Overrun)?;
        copy_ends(self.ring.slice_mut(at, body.len()), body);
        Ok(())
    }

    fn begin(&mut self, total: usize, part: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        if self.assembly.is_some() || part.len() > total {
            return Err(Reject::Malformed);
        }
        if total > message_max {
            return Err(Reject::TooLong);
        }
        let buffer = spares.take_used(total).ok_or(Reject::TooLong)?;
        let assembly = self.assembly.insert(Assembly { buffer, filled: 0, total });
        assembly.push(part);
        self.finish_if_whole()
    }

    fn continue_with(&mut self, part: &[u8]) -> Result<(), Reject> {
        let Some(assembly) = &mut self.assembly else { return Err(Reject::Malformed) };
        if assembly.filled + part.len() > assembly.total {
            return Err(Reject::Malformed);
        }
        assembly.push(part);
        self.finish_if_whole()
    }

    fn finish_if_whole(&mut self) -> Result<(), Reject> {
        let Some(Assembly { buffer, .. }) = self.assembly.take_if(|a| a.filled == a.total) else { return Ok(()) };
        // The First record's 8 bytes were kept out of the grant for this marker.
        let at = self.ring.push(MARKER_LEN).ok_or(Reject::Overrun)?;
        self.ring.slice_mut(at, MARKER_LEN).fill(MARKER);
        self.large_held += buffer.len() as u64;
        self.large.push_back(buffer);
        Ok(())
    }

    #[cold]
    fn take_large<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8], &mut Spares) -> R) -> Taken<R> {
        self.ring.pop(MARKER_LEN);
        let buffer = self.large.pop_front().expect("a marker stands for a complete message");
        self.large_held -= buffer.len() as u64;
        let result = take(&buffer, spares);
        spares.give(buffer);
        Taken::Message(result)
    }

    #[cold]
    fn take_close<R>(&mut self) -> Taken<R> {
        self.ring.pop(RECORD_LEN);
        Taken::Close
    }
}

#[cfg(test)]
mod tests {
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
                    if let Some(place) = fifo.place(&body) {
                        let part = &body[RECORD_LEN..];
                        prop_assert_eq!(place.len(), part.len());
                        if damaged >> (placed % 64) & 1 == 1 {
                            place.fill(0xee);
                        } else {
                            place.copy_from_slice(part);
                            prop_assert!(fifo.accept_placed(&body).is_ok());
                            placed += 1;
                            continue;
                        }
                        placed += 1;
                    }
                    prop_assert!(fifo.accept(&body, 1 << 20, &mut spares).is_ok());
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
        assert_eq!(fifo.place(more), None, "there is no message");
        fifo.accept(first, 1 << 20, &mut spares).unwrap();
        fifo.accept(more, 1 << 20, &mut spares).unwrap();
        assert_eq!(fifo.place(more), None, "it would end beyond the message");
        for other in [first, &bodies(2, 8)[0], &end[..end.len() - 1], &[end.as_slice(), &[0]].concat(), &[][..]] {
            assert_eq!(fifo.place(other), None, "{other:?}");
        }
        fifo.place(end).expect("the message's last bytes").fill(0xee);
        assert!(!fifo.is_ready(), "nobody sees them before they count");
        fifo.place(end).unwrap().copy_from_slice(&end[RECORD_LEN..]);
        fifo.accept_placed(end).unwrap();
        assert_eq!(fifo.place(end), None, "the message is whole");
        assert_eq!(fifo.accept_placed(end), Err(Reject::Malformed));
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
        assert_eq!(
            fifo.accept(&bodies(2, 8)[0], 1 << 20, &mut spares),
            Err(Reject::Malformed),
            "Message within a message"
        );
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
}
