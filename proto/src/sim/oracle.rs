//! Judges what is delivered (exactly once, in order, unaltered, nothing invented), what comes back to its sender, and
//! that a lost peer is noticed in time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use sidelane_nic::rng::Rng;
use sidelane_nic::time::Instant;

use crate::PeerId;

/// What went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stream of messages: everything that one connection carries one way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stream {
    pub from: u32,
    pub to: u32,
    /// Tells lives and connections of the same pair apart.
    pub number: u32,
}

/// What each receiver has got so far.
#[derive(Default)]
pub(super) struct Oracle {
    /// By receiver and its name for the connection: which stream that is, and which message is due.
    receiving: HashMap<(u32, u32, PeerId), (Stream, u32)>,
    seen: HashSet<Stream>,
    /// Messages of each stream that were delivered.
    delivered_of: HashMap<Stream, u32>,
    /// Messages lent to an endpoint by `send_owned`, by sender and its name for the connection; oldest first.
    lent: HashMap<(u32, u32, PeerId), VecDeque<(Stream, u32)>>,
    /// Connections whose peer cannot be heard any more, and when their end must be known.
    silenced: Vec<(Instant, u32, PeerId)>,
    pub delivered: u64,
}

const HEAD: usize = 16;

/// Message `number` of `stream`, of `len` bytes where that is enough to hold who it is.
pub(super) fn message(stream: Stream, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(HEAD)];
    bytes[..4].copy_from_slice(&stream.from.to_le_bytes());
    bytes[4..8].copy_from_slice(&stream.to.to_le_bytes());
    bytes[8..12].copy_from_slice(&stream.number.to_le_bytes());
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    content(stream, number).fill(&mut bytes[HEAD..]);
    bytes
}

fn content(stream: Stream, number: u32) -> Rng {
    Rng::new(
        u64::from(stream.from) << 48 ^ u64::from(stream.to) << 32 ^ u64::from(stream.number) << 40 ^ u64::from(number),
    )
}

impl Oracle {
    /// A message came out at `node` (in its `life`) on the connection `peer`.
    pub fn deliver(&mut self, node: u32, life: u32, peer: PeerId, bytes: &[u8]) -> Result<(), Violation> {
        let fail = |what: String| Err(Violation(format!("node {node}, {peer:?}: {what}")));
        if bytes.len() < HEAD {
            return fail(format!("a message of {} bytes was never sent", bytes.len()));
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let stream = Stream { from: word(0), to: word(4), number: word(8) };
        let number = word(12);
        if stream.to != node {
            return fail(format!("message {number} of {stream:?} is somebody else's"));
        }
        if bytes != message(stream, number, bytes.len()) {
            return fail(format!("message {number} of {stream:?} is altered"));
        }
        let key = (node, life, peer);
        if !self.receiving.contains_key(&key) {
            if !self.seen.insert(stream) {
                return fail(format!("{stream:?} came on two connections"));
            }
            self.receiving.insert(key, (stream, 0));
        }
        let (expected, due) = self.receiving.get_mut(&key).expect("just put in");
        if *expected != stream {
            return fail(format!("{stream:?} on the connection of {expected:?}"));
        }
        if *due != number {
            return fail(format!("message {number} of {stream:?} where {due} was due"));
        }
        *due += 1;
        self.delivered_of.insert(stream, *due);
        self.delivered += 1;
        Ok(())
    }

    /// Messages of `stream` that came out at its receiver.
    pub fn delivered_of(&self, stream: Stream) -> u32 {
        self.delivered_of.get(&stream).copied().unwrap_or(0)
    }

    /// An endpoint took message `number` of `stream` by `send_owned`.
    pub fn lend(&mut self, node: u32, life: u32, peer: PeerId, stream: Stream, number: u32) {
        self.lent.entry((node, life, peer)).or_default().push_back((stream, number));
    }

    /// An endpoint gave a buffer back: each once, in order, as it was.
    pub fn give_back(&mut self, node: u32, life: u32, peer: PeerId, buffer: &[u8]) -> Result<(), Violation> {
        let lent = self.lent.get_mut(&(node, life, peer)).and_then(VecDeque::pop_front);
        match lent {
            Some((stream, number)) if buffer == message(stream, number, buffer.len()) => Ok(()),
            Some((stream, number)) => Err(Violation(format!(
                "node {node}, {peer:?}: another buffer came back than that of message {number} of {stream:?}"
            ))),
            None => Err(Violation(format!("node {node}, {peer:?}: a buffer came back that was not lent"))),
        }
    }

    /// `node` cannot hear `peer` any more, and must know by `deadline`.
    pub fn silence(&mut self, deadline: Instant, node: u32, peer: PeerId) {
        self.silenced.push((deadline, node, peer));
    }

    /// A node died: what it had lent is lost with it, and it owes no answer.
    pub fn forget_node(&mut self, node: u32) {
        self.silenced.retain(|&(_, silenced, _)| silenced != node);
    }

    /// A connection ended with an error: by then every lent buffer is back.
    pub fn end(&mut self, node: u32, life: u32, peer: PeerId) -> Result<(), Violation> {
        self.silenced.retain(|&(_, silenced, of)| (silenced, of) != (node, peer));
        match self.lent.remove(&(node, life, peer)) {
            Some(lent) if !lent.is_empty() => {
                Err(Violation(format!("node {node}, {peer:?}: gone, and {} buffers did not come back", lent.len())))
            }
            _ => Ok(()),
        }
    }

    /// At the end, or at any time when all is acknowledged: nothing is lent that is not back.
    pub fn still_lent(&self, node: u32, life: u32, peer: PeerId) -> usize {
        self.lent.get(&(node, life, peer)).map_or(0, VecDeque::len)
    }

    /// The time is `now`: is there an end that should be known?
    pub fn check_silences(&self, now: Instant) -> Result<(), Violation> {
        match self.silenced.iter().find(|&&(deadline, ..)| deadline < now) {
            Some((deadline, node, peer)) => {
                Err(Violation(format!("node {node} should have lost {peer:?} by {deadline:?}, and it is {now:?}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_nic::time::Duration;

    use super::*;

    const STREAM: Stream = Stream { from: 0, to: 1, number: 7 };
    const OTHER: Stream = Stream { from: 2, to: 1, number: 8 };
    const FIRST: PeerId = PeerId { index: 0, generation: 0 };
    const SECOND: PeerId = PeerId { index: 1, generation: 0 };

    /// What is wrong when these messages come out at node 1, each on its connection.
    fn wrong(delivered: &[(PeerId, Vec<u8>)]) -> Option<String> {
        let mut oracle = Oracle::default();
        delivered.iter().find_map(|(peer, bytes)| oracle.deliver(1, 1, *peer, bytes).err()).map(|Violation(text)| text)
    }

    #[test]
    fn each_message_once_in_order_and_unaltered_is_right() {
        let each =
            (0..3).flat_map(|number| [(FIRST, message(STREAM, number, 40)), (SECOND, message(OTHER, number, 0))]);
        assert_eq!(wrong(&each.collect::<Vec<_>>()), None);
    }

    #[test]
    fn whatever_else_comes_out_is_told() {
        let at = |number| (FIRST, message(STREAM, number, 40));
        let changed = |change: fn(&mut Vec<u8>)| {
            let (peer, mut bytes) = at(0);
            change(&mut bytes);
            (peer, bytes)
        };
        for (what, delivered) in [
            ("where 1 was due", vec![at(0), at(0)]),
            ("where 1 was due", vec![at(0), at(2)]),
            ("where 0 was due", vec![at(1), at(0)]),
            ("is altered", vec![changed(|bytes| bytes[39] ^= 1)]),
            ("is altered", vec![changed(|bytes| bytes[12] ^= 1)]),
            ("is altered", vec![changed(|bytes| bytes.push(0))]),
            ("was never sent", vec![changed(|bytes| bytes.truncate(HEAD - 1))]),
            ("is somebody else's", vec![(FIRST, message(Stream { to: 2, ..STREAM }, 0, 40))]),
            ("came on two connections", vec![at(0), (SECOND, message(STREAM, 0, 40))]),
            ("on the connection of", vec![at(0), (FIRST, message(OTHER, 0, 40))]),
        ] {
            let told = wrong(&delivered).unwrap_or_else(|| panic!("nothing, instead of: {what}"));
            assert!(told.contains(what), "{told}, instead of: {what}");
        }
    }

    #[test]
    fn buffers_come_back_once_in_order_and_before_their_connection_ends() {
        let lent = || {
            let mut oracle = Oracle::default();
            (0..2).for_each(|number| oracle.lend(0, 1, FIRST, STREAM, number));
            oracle
        };
        let buffer = |number| message(STREAM, number, 40);
        let mut right = lent();
        (0..2).for_each(|number| right.give_back(0, 1, FIRST, &buffer(number)).unwrap());
        assert_eq!((right.still_lent(0, 1, FIRST), right.end(0, 1, FIRST)), (0, Ok(())));
        assert!(lent().give_back(0, 1, FIRST, &buffer(1)).is_err(), "another one's turn");
        assert!(lent().give_back(0, 1, SECOND, &buffer(0)).is_err(), "of another connection");
        let mut early = lent();
        early.give_back(0, 1, FIRST, &buffer(0)).unwrap();
        assert!(early.still_lent(0, 1, FIRST) == 1 && early.end(0, 1, FIRST).is_err());
    }

    #[test]
    fn a_silence_has_to_be_noticed_by_its_deadline() {
        let deadline = Instant::ZERO + Duration::from_millis(1);
        let late = deadline + Duration::from_nanos(1);
        let silent = || {
            let mut oracle = Oracle::default();
            oracle.silence(deadline, 0, FIRST);
            oracle
        };
        assert!(silent().check_silences(deadline).is_ok() && silent().check_silences(late).is_err());
        let mut noticed = silent();
        noticed.end(0, 1, FIRST).unwrap();
        assert!(noticed.check_silences(late).is_ok());
        let mut another = silent();
        another.end(0, 1, SECOND).unwrap();
        assert!(another.check_silences(late).is_err());
    }
}
