//! Judges what is delivered: exactly once, in order, unaltered, nothing invented.

use std::collections::{HashMap, HashSet};
use std::fmt;

use sidelane_nic::rng::Rng;

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
        self.delivered += 1;
        Ok(())
    }
}
