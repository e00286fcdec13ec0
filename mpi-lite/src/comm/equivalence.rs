#![allow(unsafe_code)]
//! Which Rust types are which datatypes. Unsafe, since whoever says so promises what their bytes are.

use crate::datatype::{Datatype, Predefined};

/// A type whose values are what `datatype` says.
///
/// # Safety
///
/// Values have the size and layout of [`Self::datatype`], whose extent is their size, and any bytes in place of its data are
/// a valid value: they come from another process.
pub unsafe trait Equivalence: Copy {
    /// The predefined type that a value is, if it is one: calls are quicker then.
    const KIND: Option<Predefined> = None;

    /// What a value is.
    fn datatype() -> Datatype;
}

macro_rules! equivalent {
    ($($type:ty => $kind:ident,)*) => {$(
        // SAFETY: a number of the same size and form, of which every bit pattern is a value.
        unsafe impl Equivalence for $type {
            const KIND: Option<Predefined> = Some(Predefined::$kind);

            #[inline]
            fn datatype() -> Datatype {
                Predefined::$kind.into()
            }
        }
        const _: () = assert!(size_of::<$type>() == Predefined::$kind.extent());
    )*};
}

equivalent! {
    i8 => Int8,
    i16 => Int16,
    i32 => Int32,
    i64 => Int64,
    u8 => Uint8,
    u16 => Uint16,
    u32 => Uint32,
    u64 => Uint64,
    isize => Aint,
    usize => Uint64,
    f32 => Float,
    f64 => Double,
    i128 => Integer16,
}

// SAFETY: elements follow each other at their size, which is the type's extent.
unsafe impl<T: Equivalence, const N: usize> Equivalence for [T; N] {
    fn datatype() -> Datatype {
        Datatype::contiguous(N, &T::datatype()).expect("the array is in memory")
    }
}
