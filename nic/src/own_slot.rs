//! A transmit buffer of drivers that have no memory to lend, such as those of tests.

use std::ops::{Deref, DerefMut};

use crate::TxSlot;

/// A frame in memory of its own, which `commit` hands to whom it was made with.
pub struct OwnSlot<F> {
    frame: Vec<u8>,
    commit: F,
}

impl<F: FnOnce(Vec<u8>)> OwnSlot<F> {
    /// `frame` as the user is to find it.
    pub const fn new(frame: Vec<u8>, commit: F) -> Self {
        Self { frame, commit }
    }
}

impl<F> Deref for OwnSlot<F> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame
    }
}

impl<F> DerefMut for OwnSlot<F> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.frame
    }
}

impl<F: FnOnce(Vec<u8>)> TxSlot for OwnSlot<F> {
    fn commit(self) {
        (self.commit)(self.frame);
    }
}
