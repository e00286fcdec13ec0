//! Messages that nothing of their peer stands before, and that go through no FIFO: a place for a short one, from which it is taken,
//! and who takes a longer one from where the driver has it.

use sidelane_nic::prefetch;

use crate::copy::copy_ends;
use crate::event::PeerId;
use crate::wire::{RECORD_LEN, is_lone_message};

/// Who is offered messages where the driver received them: true when it has taken one.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(PeerId, &[u8]) -> bool;

/// Takes none.
pub(crate) fn nobody(_: PeerId, _: &[u8]) -> bool {
    false
}

/// Offers `taker` the message of `body`, if that is a single one too long for the place.
#[inline]
pub(crate) fn offer(from: PeerId, body: &[u8], taker: Taker<'_>) -> bool {
    if body.len() <= LONE_MAX {
        return false;
    }
    prefetch::few(body);
    is_lone_message(body) && taker(from, &body[RECORD_LEN..])
}

/// A short message that came alone in its frame, of any peer, in a turn that began with none waiting: the next one to be received.
pub(crate) struct Lone {
    bytes: [u8; LONE_MAX],
    /// Of the record.
    len: usize,
    /// Its connection is kept until it is taken ([`crate::conn::Conn::is_over`]).
    from: Option<PeerId>,
    is_open: bool,
}

impl Lone {
    /// Nothing is here, and nothing taken in before [`Self::begin_turn`].
    pub const fn new() -> Self {
        Self { bytes: [0; LONE_MAX], len: 0, from: None, is_open: false }
    }

    /// Opens the place, unless a message is here or waits elsewhere: who comes alone again and again would always be first.
    #[inline]
    pub const fn begin_turn(&mut self, has_waiting: bool) {
        self.is_open = !has_waiting && self.is_empty();
    }

    /// True when no message is here.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.from.is_none()
    }

    /// Takes in a copy of `body` if the place is open and it is one short message. It is looked at where the copy stands: what it
    /// came from may be memory of another process, which nothing keeps from changing it meanwhile.
    #[inline]
    pub fn put(&mut self, from: PeerId, body: &[u8]) -> bool {
        if !self.is_open || body.len() > LONE_MAX {
            return false;
        }
        let copy = &mut self.bytes[..body.len()];
        copy_ends(copy, body);
        let is_taken = is_lone_message(copy);
        if is_taken {
            (self.len, self.from, self.is_open) = (body.len(), Some(from), false);
        }
        is_taken
    }

    /// Takes the message out: whose it is, and the message.
    #[inline]
    pub fn take(&mut self) -> Option<(PeerId, &[u8])> {
        let from = self.from.take()?;
        Some((from, &self.bytes[RECORD_LEN..self.len]))
    }
}

/// Longest record that is kept here: of what is longer the copy costs more than the FIFO.
const LONE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_message;

    const PEER: PeerId = PeerId { index: 3, generation: 5 };

    fn record(message: &[u8]) -> Vec<u8> {
        let mut record = vec![0; RECORD_LEN + message.len()];
        put_message(&mut record, message);
        record
    }

    fn open() -> Lone {
        let mut lone = Lone::new();
        lone.begin_turn(false);
        lone
    }

    #[test]
    fn one_short_message_is_taken_in_until_it_is_taken_out() {
        for len in 0..=LONE_MAX - RECORD_LEN {
            let (mut lone, message) = (open(), vec![7; len]);
            assert!(lone.put(PEER, &record(&message)));
            lone.begin_turn(false);
            assert!(!lone.is_empty() && !lone.put(PEER, &record(b"another")));
            assert_eq!(lone.take(), Some((PEER, &message[..])));
            assert!(lone.is_empty() && lone.take().is_none());
            assert!(!lone.put(PEER, &record(b"another")), "not before the next turn");
        }
    }

    #[test]
    fn nothing_overtakes_what_waits_elsewhere() {
        let mut lone = open();
        lone.begin_turn(true);
        assert!(!lone.put(PEER, &record(b"a")) && lone.is_empty());
    }

    #[test]
    fn what_is_not_one_short_message_goes_its_way() {
        let two = [record(b"a"), record(b"b")].concat();
        let cut = &record(b"a message")[..8];
        let mut close = [0; RECORD_LEN];
        crate::wire::put_close(&mut close);
        for body in [&two[..], cut, &close, &[], &[1], &record(&[0; LONE_MAX - RECORD_LEN + 1])] {
            let mut lone = open();
            assert!(!lone.put(PEER, body) && lone.take().is_none(), "{body:?}");
            assert!(lone.put(PEER, &record(b"the next")));
        }
    }
}
