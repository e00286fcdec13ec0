//! Memory of a region: the endpoint's own, or lent by address.
#![allow(unsafe_code)] // Memory lent by address can only be reached so.

use std::ptr::NonNull;

/// The bytes of one region.
#[derive(Debug)]
pub(crate) enum Memory {
    Owned(Vec<u8>),
    Lent(Lent),
}

/// Memory that somebody else owns: see [`crate::Endpoint::register_raw`].
#[derive(Debug)]
pub(crate) struct Lent {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: Whoever lent it has promised that nobody else touches it while the endpoint is used, on whatever thread that is.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    /// `start` is readable and writable for `len` bytes as long as this value lives, and nobody else reads or writes there
    /// while a slice of it is borrowed.
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }
}

impl Memory {
    /// To read.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            // SAFETY: `Lent::new`'s caller promised `len` valid bytes that nobody else writes; the borrow of `self` keeps us
            // from doing so.
            Self::Lent(lent) => unsafe { std::slice::from_raw_parts(lent.start.as_ptr(), lent.len) },
        }
    }

    /// To write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes,
            // SAFETY: As in `bytes`; the mutable borrow of `self`, which is not `Clone`, makes it the only one.
            Self::Lent(lent) => unsafe { std::slice::from_raw_parts_mut(lent.start.as_ptr(), lent.len) },
        }
    }

    /// Back to its owner; lent memory needs no way back.
    pub fn into_owned(self) -> Option<Vec<u8>> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Lent(_) => None,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::Owned(Vec::new())
    }
}
