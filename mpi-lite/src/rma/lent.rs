//! Memory that is lent to the device: bytes of our own, and buffers of the user's with their types.
#![allow(unsafe_code)] // Lent memory outlives the calls.

use crate::adi::{Incoming, Outgoing};
use crate::datatype::Datatype;

use super::RmaError;

/// Bytes on the heap that a request lends to the device. Not to be dropped before that is over: they are in queues, which a
/// [`super::Window`] drops empty or not at all, and in exposures, which end with the device or idle.
#[derive(Debug, Default)]
pub(super) struct Bytes(Vec<u8>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Bytes {
    pub fn zeros(len: usize) -> Self {
        Self(vec![0; len])
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn outgoing(&self) -> Outgoing {
        // SAFETY: the heap keeps them where they are, wherever this value is moved; it is not dropped before the send is over (see
        // the type), and nothing writes them after they were made.
        unsafe { Outgoing::lend(&raw const self.0[..]) }
    }

    pub fn incoming(&mut self) -> Incoming {
        // SAFETY: the heap keeps them where they are until the receive is over, as above; `as_slice` is called only then.
        unsafe { Incoming::lend(&raw mut self.0[..]) }
    }
}

/// What an operation takes from its origin.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// Where a buffer is.
    pub address: *const u8,
    /// How many elements it has.
    pub count: usize,
    /// Of which type.
    pub datatype: &'a Datatype,
}

/// Where an operation puts what it fetches.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// Where a buffer is.
    pub address: *mut u8,
    /// How many elements it has room for.
    pub count: usize,
    /// Of which type.
    pub datatype: &'a Datatype,
}

/// The target at which nothing is done (`MPI_PROC_NULL`, MPI-4.1 12.3): the operation is over at once, and what it was lent is as before.
pub const NOWHERE: usize = usize::MAX;

/// What an operation accesses at its target. What is put or combined there has to fit, and may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The target's rank, or [`NOWHERE`].
    pub rank: usize,
    /// From where on, in the target's units; of a dynamic window its address there.
    pub displacement: i64,
    /// How many elements.
    pub count: usize,
    /// Of which type.
    pub datatype: &'a Datatype,
}

/// Where fetched bytes go when they have come.
#[derive(Debug)]
pub(super) struct Unpacking {
    pub address: *mut u8,
    pub count: usize,
    pub datatype: Datatype,
    pub position: usize,
}

// SAFETY: whoever lent the buffer has promised that it stays, on whatever thread the device is used.
unsafe impl Send for Unpacking {}

impl Lent<'_> {
    /// Nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 || self.datatype.size() == 0
    }

    /// Where its bytes are, if they are one run.
    pub(super) fn slice(&self) -> Option<*const [u8]> {
        let (at, len) = self.datatype.contiguous_run(self.count)?;
        Some(std::ptr::slice_from_raw_parts(self.address.wrapping_offset(at), len))
    }

    /// Its bytes, if they are one run.
    pub(super) fn whole(&self) -> Option<Outgoing> {
        // SAFETY: who called the operation has promised that the buffer stays, and is not written, until that is over.
        self.slice().map(|bytes| unsafe { Outgoing::lend(bytes) })
    }

    /// Appends the packed bytes from `position` on, `len` of them.
    pub(super) fn pack(&self, position: usize, len: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + len, 0);
        // SAFETY: who called the operation has promised that all of the buffer can be read; `out` is no part of it.
        let packed = unsafe { self.datatype.pack_raw(self.address, self.count, position, &mut out[begin..]) };
        debug_assert_eq!(packed, len);
    }

    pub(super) fn size(&self) -> Result<usize, RmaError> {
        size(self.datatype, self.count)
    }
}

impl Room<'_> {
    /// The room itself, if it is one run.
    pub(super) fn whole(&self) -> Option<*mut [u8]> {
        let (at, len) = self.datatype.contiguous_run(self.count)?;
        Some(std::ptr::slice_from_raw_parts_mut(self.address.wrapping_offset(at), len))
    }

    /// For bytes from `position` on.
    pub(super) fn unpacking(&self, position: usize) -> Unpacking {
        Unpacking { address: self.address, count: self.count, datatype: self.datatype.clone(), position }
    }

    pub(super) fn size(&self) -> Result<usize, RmaError> {
        size(self.datatype, self.count)
    }
}

/// Bytes `at..at + len` of a room that is one run.
pub(super) fn part(whole: *mut [u8], at: usize, len: usize) -> Incoming {
    assert!(at + len <= whole.len());
    let start = whole.cast::<u8>().wrapping_add(at);
    // SAFETY: within a room of which who called the operation has promised that it stays, and nobody else uses it, until
    // the operation is over; parts of it do not overlap.
    unsafe { Incoming::lend(std::ptr::slice_from_raw_parts_mut(start, len)) }
}

impl Target<'_> {
    pub(super) fn size(&self) -> Result<usize, RmaError> {
        let span = self.datatype.span(self.count).map_err(|_| RmaError::Overflow)?;
        debug_assert!(span.0 <= span.1);
        size(self.datatype, self.count)
    }
}

impl Unpacking {
    pub fn unpack(&self, bytes: &[u8]) {
        // SAFETY: who called the operation has promised that all of the buffer can be written and that nobody else uses it
        // until that is over; `bytes` are our own.
        unsafe { self.datatype.unpack_raw(self.address, self.count, self.position, bytes) };
    }
}

fn size(datatype: &Datatype, count: usize) -> Result<usize, RmaError> {
    datatype.pack_size(count).map_err(|_| RmaError::Overflow)
}
