//! The memory of a call: elements where they are, or copied into one piece.
#![allow(unsafe_code)] // The caller's memory, by address.

use std::ptr::slice_from_raw_parts_mut;

use crate::coll::{Access, Buffers};

use super::ErrorClass;
use super::collective::Lent;
use super::elements::Elements;
use super::operand::Operator;

/// The bytes of one side of a call.
pub(super) struct Side {
    elements: Elements,
    pub bytes: *mut [u8],
    /// What the call does with a copy. `None`: they are where the elements are.
    copied: Option<Access>,
}

// SAFETY: who began the call has lent its memory until it is over; a copy is this value's own.
unsafe impl Send for Side {}

impl Side {
    /// What is given and what is got, which the call accesses so.
    ///
    /// # Safety
    ///
    /// As for [`Self::of`].
    pub unsafe fn both(
        given: Option<Elements>,
        (room, access): (Elements, Access),
        operator: Operator,
    ) -> Result<(Option<Self>, Self), ErrorClass> {
        // SAFETY: passed on.
        let send = given.map(|given| unsafe { Self::of(given, Access::Read, operator) }).transpose()?;
        // SAFETY: passed on.
        match unsafe { Self::of(room, access, operator) } {
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
    unsafe fn of(elements: Elements, access: Access, operator: Operator) -> Result<Self, ErrorClass> {
        let elements = if operator.is_some() { elements.native() } else { elements };
        if let Some(bytes) = elements.in_place() {
            return Ok(Self { elements, bytes, copied: None });
        }
        let bytes = match access {
            Access::Written => vec![0; elements.len()?],
            // SAFETY: passed on.
            Access::Read | Access::Both => unsafe { elements.gather() }?,
        };
        Ok(Self { elements, bytes: Box::into_raw(bytes.into_boxed_slice()), copied: Some(access) })
    }

    /// Gives back what was only read.
    ///
    /// # Safety
    ///
    /// The call is over.
    unsafe fn forget(self) {
        if self.copied.is_some() {
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
        if matches!(self.copied, None | Some(Access::Read)) {
            // SAFETY: passed on.
            unsafe { self.forget() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Datatype, Predefined};

    #[test]
    fn a_copy_is_made_and_brought_back_only_where_the_call_needs_it() {
        let every_second = Datatype::vector(2, 1, 2, &Predefined::Uint8.into()).unwrap();
        for (access, given, left) in
            [(Access::Read, [1, 3], [1, 2, 3]), (Access::Written, [0, 0], [7, 2, 8]), (Access::Both, [1, 3], [7, 2, 8])]
        {
            let mut memory = [1u8, 2, 3];
            let room = Elements::at(memory.as_mut_ptr(), 1, &every_second);
            // SAFETY: all of it is there until the end, and there is no call that has it.
            unsafe {
                let (_, side) = Side::both(None, (room, access), None).unwrap();
                assert_eq!(*side.bytes, given, "{access:?}");
                (*side.bytes).copy_from_slice(&[7, 8]);
                Side::end(None, side, Ok(())).unwrap();
            }
            assert_eq!(memory, left, "{access:?}");
        }
    }
}
