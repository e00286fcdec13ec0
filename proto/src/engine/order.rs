//! What the application wants of the engine.

use super::operation::Operation;
use crate::PeerId;

/// An order that is more than a short message of the port's: those lie in its ring.
pub(super) enum Order<D> {
    /// A short message.
    Short { peer: PeerId, len: u8, bytes: [u8; SHORT_MAX] },
    /// A message that is sent from where it is. `lent`: its buffer comes back.
    Large { peer: PeerId, buffer: Vec<u8>, lent: bool },
    /// A one-sided operation; the bytes of a short put stand behind its record in the port's ring.
    Operation(Operation),
    /// The end of a connection.
    Close { peer: PeerId },
    /// Anything else, at once.
    Run(Box<dyn FnOnce(&mut D) + Send>),
}

/// Begins each record of the rings, both ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub peer: PeerId,
    /// What follows stands in the queue beside the ring instead.
    pub beside: bool,
}

impl Head {
    #[inline]
    pub fn emit(self, record: &mut [u8]) {
        record[..2].copy_from_slice(&self.peer.index.to_le_bytes());
        record[2] = u8::from(self.beside);
        record[4..8].copy_from_slice(&self.peer.generation.to_le_bytes());
    }

    /// The head, and the message behind it.
    #[inline]
    pub fn parse(record: &[u8]) -> (Self, &[u8]) {
        let (head, message) = record.split_at(HEAD_LEN);
        let index = u16::from_le_bytes([head[0], head[1]]);
        let generation = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        (Self { peer: PeerId { index, generation }, beside: head[2] != 0 }, message)
    }
}

/// Keeps the message at a multiple of eight.
pub(super) const HEAD_LEN: usize = 8;

/// Makes an order two cache lines.
pub(super) const SHORT_MAX: usize = 111;

const _: () = assert!(size_of::<Order<()>>() <= 128, "a short order must not outgrow its two cache lines");
