//! The memory of a call: elements where they are, or copied into one piece.
#![allow(unsafe_code)] // The caller's memory, by address.

use std::ptr::slice_from_raw_parts_mut;

use crate::coll::Buffers;

use super::ErrorClass;
use super::collective::Lent;
use super::elements::Elements;
use super::operand::Operator;

/// The bytes of one side of a call.
pub(super) struct Side {
    elements: Elements,
    pub bytes: *mut [u8],
    copied: bool,
}

// SAFETY: who began the call has lent its memory until it is over; a copy is this value's own.
unsafe impl Send for Side {}

impl Side {
    /// What is given and what is got.
    ///
    /// # Safety
    ///
    /// As for [`Self::of`].
    pub unsafe fn both(
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<(Option<Self>, Self), ErrorClass> {
        // SAFETY: passed on.
        let send = given.map(|given| unsafe { Self::of(given, operator) }).transpose()?;
        // SAFETY: passed on.
        match unsafe { Self::of(room, operator) } {
            Ok(receive) => Ok((send, receive)),
            Err(class) => {
                // SAFETY: no call has been begun.
                send.into_iter().for_each(|send| unsafe { send.forget() });
                Err(class)
            }
        }
    }

    /// Ends both. What was received is brought to its place if the call is `done` well.
    ///
    /// # Safety
    ///
    /// The call is over, and all data of the elements that were received can be written.
    pub unsafe fn end(send: Option<Self>, receive: Self, done: Result<(), ErrorClass>) -> Result<(), ErrorClass> {
        // SAFETY: passed on.
        unsafe {
            send.into_iter().for_each(|send| send.forget());
            match done {
                Ok(()) => receive.deliver(),
                Err(class) => {
                    receive.forget();
                    Err(class)
                }
            }
        }
    }

    /// The elements' bytes in one piece, where they are or copied.
    ///
    /// # Safety
    ///
    /// All data of the elements can be read.
    unsafe fn of(elements: Elements, operator: Operator) -> Result<Self, ErrorClass> {
        let elements = if operator.is_some() { elements.native() } else { elements };
        if let Some(bytes) = elements.in_place() {
            return Ok(Self { elements, bytes, copied: false });
        }
        // SAFETY: passed on.
        let bytes = Box::into_raw(unsafe { elements.gather() }?.into_boxed_slice());
        Ok(Self { elements, bytes, copied: true })
    }

    /// Gives back what was only read.
    ///
    /// # Safety
    ///
    /// The call is over.
    unsafe fn forget(self) {
        if self.copied {
            // SAFETY: made of a box by `of`, and nobody else has it any more.
            drop(unsafe { Box::from_raw(self.bytes) });
        }
    }

    /// Brings what was received to its place.
    ///
    /// # Safety
    ///
    /// The call is over, and all data of the elements can be written.
    unsafe fn deliver(self) -> Result<(), ErrorClass> {
        if !self.copied {
            return Ok(());
        }
        // SAFETY: made of a box by `of`, and nobody else has it any more; the place is the caller's.
        unsafe {
            let mut bytes = Box::from_raw(self.bytes);
            self.elements.scatter(&mut bytes)
        }
    }
}

/// The bytes of both sides.
///
/// # Safety
///
/// As for [`Lent::new`].
pub(super) unsafe fn lend(send: Option<&Side>, receive: &Side) -> Lent {
    let none = slice_from_raw_parts_mut(std::ptr::NonNull::dangling().as_ptr(), 0);
    // SAFETY: passed on.
    unsafe { Lent::new(send.map_or(none, |side| side.bytes), receive.bytes) }
}

/// How long they are.
pub(super) fn buffers(send: Option<&Side>, receive: &Side) -> Buffers {
    Buffers { send: send.map_or(0, |side| side.bytes.len()), receive: receive.bytes.len(), in_place: send.is_none() }
}
