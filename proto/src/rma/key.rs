//! What the two sides of an operation call each other's memory and the operation itself.

use std::ops::BitOr;

use crate::PeerId;

/// Memory that an endpoint holds for one-sided operations. Never reused for other memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// Index into the endpoint's table.
    pub(crate) index: u32,
    /// Which use of that entry.
    pub(crate) generation: u32,
}

/// What a peer may do with a region. Whoever has its key may signal it (`Endpoint::signal`), whatever the key allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rights(u8);

impl Rights {
    /// Gets.
    pub const READ: Self = Self(1);
    /// Puts.
    pub const WRITE: Self = Self(2);
    /// Atomics.
    pub const ATOMIC: Self = Self(4);
    /// Everything.
    pub const ALL: Self = Self(7);
    /// Signals without bytes, which every key allows.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[cfg(test)]
    pub(crate) const fn of_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a peer has to know to reach a region: [`crate::Endpoint::publish`] gives it, and a message of the user's own
/// brings it to the peer. Who has it can do with the region what it allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteKey {
    pub(crate) region: u32,
    pub(crate) key: u64,
    pub(crate) len: u64,
}

impl RemoteKey {
    /// Bytes of [`Self::to_bytes`].
    pub const LEN: usize = 20;

    /// For a message.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.region.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.key.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// From a message. Any bytes make a key; one that was not published is refused where it is used.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let word = |at: usize| std::array::from_fn(|i| bytes[at + i]);
        Self {
            region: u32::from_le_bytes(std::array::from_fn(|i| bytes[i])),
            key: u64::from_le_bytes(word(4)),
            len: u64::from_le_bytes(word(12)),
        }
    }

    /// Bytes of the region.
    pub fn region_len(&self) -> u64 {
        self.len
    }
}

/// One operation under way to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Op {
    pub(crate) peer: PeerId,
    /// Counted for each peer from 0; its lower half is on the wire.
    pub(crate) number: u64,
}

impl Op {
    /// To whom.
    pub fn peer(&self) -> PeerId {
        self.peer
    }
}

/// How a put is to be carried out. The default: the region is not signalled, and the peer says when the bytes are in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutHow {
    /// Signal the region once this put, and every operation before it, is in place.
    pub signal: bool,
    /// Nobody will ask whether it is done: saves the peer a record.
    pub silent: bool,
    /// Its frames go from its end to its beginning, if it has several. For what is longer than a core's own cache, where both ends touch its
    /// end last, or its beginning next.
    pub backwards: bool,
}

impl PutHow {
    /// With a signal, and nobody asks.
    pub const SILENT_SIGNAL: Self = Self { signal: true, silent: true, backwards: false };
    /// With a signal.
    pub const SIGNAL: Self = Self { signal: true, silent: false, backwards: false };
}

/// Why an operation was not taken. Nothing of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// The queue to this peer is full. Poll, and try again.
    #[error("the queue of operations to this peer is full")]
    Full,
    /// There is no such peer any more: it was closed, or is gone.
    #[error("the peer is closed or gone")]
    NoPeer,
    /// There is no such region here any more.
    #[error("the region is not registered here")]
    NoRegion,
    /// Beyond the end of the region, here or there.
    #[error("beyond the end of the region")]
    Bounds,
    /// An atomic's word is not at a multiple of 8.
    #[error("the word is not at a multiple of 8 bytes")]
    Misaligned,
}

/// Why an operation that was under way has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpError {
    /// The peer has no such region, or not any more, or not for us. Nothing was touched, unless it was a put of several
    /// frames and the region was taken back half-way.
    NoRegion,
    /// The key does not allow this.
    Rights,
    /// Beyond the end of the peer's region.
    Bounds,
    /// The word of an atomic is not at a multiple of 8.
    Misaligned,
    /// The connection ended first. Whether it was carried out is not known.
    PeerGone,
}

impl OpError {
    /// On the wire.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::NoRegion => 1,
            Self::Rights => 2,
            Self::Bounds => 3,
            Self::Misaligned => 4,
            Self::PeerGone => unreachable!(),
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::NoRegion,
            2 => Self::Rights,
            3 => Self::Bounds,
            4 => Self::Misaligned,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_a_message() {
        let key = RemoteKey { region: 1 << 30, key: 2 << 60, len: 3 << 50 };
        assert_eq!(RemoteKey::from_bytes(key.to_bytes()), key);
    }

    #[test]
    fn rights_are_a_set() {
        let both = Rights::READ | Rights::WRITE;
        assert!(
            both.has(Rights::WRITE) && both.has(Rights::NONE) && !both.has(Rights::ATOMIC) && Rights::ALL.has(both)
        );
    }
}
