#![allow(unsafe_code)]
//! What was begun and may not be over. Unsafe, for the memory that its caller has lent.

use std::sync::Arc;

use crate::adi::{self, Device};
use crate::datatype::Datatype;

use super::Status;
use super::failure::Acknowledged;
use super::running::Handle;

/// An operation of this process: a request of MPI's. Begun by the unsafe calls of a communicator, ended by [`super::Local`].
///
/// Not to be dropped before it is over, or given to [`super::Local::free`]: the memory that it copies by would be lost.
#[derive(Debug, Default)]
#[must_use = "an operation is over when it was waited for"]
pub enum Pending {
    /// Nothing (`MPI_REQUEST_NULL`).
    #[default]
    Null,
    /// Over when it was begun.
    Done(Status),
    /// A message.
    Transfer(Transfer),
    /// A message from anybody: while a member of the communicator is gone and nobody has said that this is known, its status is
    /// `ProcFailedPending`, and it goes on.
    FromAnybody(Transfer, Arc<Acknowledged>),
    /// A collective.
    Running(Handle),
}

/// A message that is sent or received.
#[derive(Debug)]
pub struct Transfer {
    pub(super) request: adi::Request,
    pub(super) stage: Stage,
}

/// Whose bytes the device has.
#[derive(Debug)]
pub(super) enum Stage {
    /// The caller's, of a send.
    Sent,
    /// A packed copy.
    SentPacked(Packed),
    /// The caller's, of a receive.
    Received,
    /// Room of ours, to be unpacked.
    ReceivedPacked { packed: Packed, memory: Memory, count: usize, datatype: Datatype },
}

/// Packed bytes that only the device touches until a transfer is over.
#[derive(Debug)]
pub(super) struct Packed(*mut [u8]);

/// Where the caller's elements are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory(pub *mut u8);

// SAFETY: the bytes are this value's alone, wherever it is.
unsafe impl Send for Packed {}
// SAFETY: who lent the memory has promised that it is there until the transfer is over, on whatever thread that is seen.
unsafe impl Send for Memory {}

impl Packed {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Box::into_raw(bytes.into_boxed_slice()))
    }

    pub fn as_ptr(&self) -> *mut [u8] {
        self.0
    }

    /// The bytes, when the device is done with them.
    ///
    /// # Safety
    ///
    /// The transfer is over.
    pub unsafe fn into_box(self) -> Box<[u8]> {
        // SAFETY: made of a box by `new`, and nobody else has it any more.
        unsafe { Box::from_raw(self.0) }
    }
}

impl Transfer {
    /// How it ended; `None` while it is under way. Not to be called again once it has ended.
    #[inline]
    pub(super) fn poll(&mut self, device: &mut Device) -> Option<Status> {
        let status = device.poll(self.request)?;
        Some(match std::mem::replace(&mut self.stage, Stage::Sent) {
            Stage::Sent => Status::of_send(status),
            Stage::SentPacked(packed) => {
                // SAFETY: the device has just said that it is over.
                drop(unsafe { packed.into_box() });
                Status::of_send(status)
            }
            Stage::Received => Status::of_receive(status),
            Stage::ReceivedPacked { packed, memory, count, datatype } => {
                // SAFETY: the device has just said that it is over.
                let packed = unsafe { packed.into_box() };
                // SAFETY: who began the receive has lent memory for so many elements.
                unsafe { datatype.unpack_raw(memory.0, count, 0, &packed[..status.bytes]) };
                Status::of_receive(status)
            }
        })
    }
}
