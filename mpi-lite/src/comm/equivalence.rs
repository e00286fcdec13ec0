#![allow(unsafe_code)]
//! Which Rust types are which datatypes. Unsafe, since whoever says so promises what their bytes are.

use std::fmt::{self, Debug};

use crate::datatype::{Datatype, Predefined};

/// A type whose values are what `datatype` says. Numbers, [`Located`] ones and arrays are; [`equivalence!`](crate::equivalence) makes a struct one.
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

/// A value and where it is, for `MPI_MINLOC` and `MPI_MAXLOC` (MPI-4.1 6.9.4): [`Op::Minloc`](crate::op::Op::Minloc) finds the least value
/// and, of those that are equal, the least place.
///
/// ```
/// # use sidelane_mpi::comm::{Communicator, ErrorClass, Located};
/// # use sidelane_mpi::op::Op;
/// /// The hottest of all ranks, and how hot it is.
/// fn hottest(comm: &Communicator, degrees: f64) -> Result<Located<f64>, ErrorClass> {
///     let mut hottest = [Located::new(degrees, comm.rank() as i32)];
///     comm.allreduce_in_place(&mut hottest, &Op::Maxloc)?;
///     Ok(hottest[0])
/// }
/// ```
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Located<V: Locatable> {
    /// What is compared.
    pub value: V,
    before: V::GapBefore,
    /// Where it is: an index, or a rank.
    pub at: i32,
    behind: V::GapBehind,
}

/// What can be in a [`Located`]: the types with which C has such a pair.
pub trait Locatable: Copy + Default + PartialEq + Debug + gaps::Sealed {
    /// Bytes between the value and its place, which are zeros: operators are given pairs as they are in memory.
    #[doc(hidden)]
    type GapBefore: Copy + Default;
    /// Bytes behind the place.
    #[doc(hidden)]
    type GapBehind: Copy + Default;
}

mod gaps {
    pub trait Sealed {}
}

impl<V: Locatable> Located<V> {
    /// A value, and where it is.
    pub fn new(value: V, at: i32) -> Self {
        Self { value, at, ..Self::default() }
    }
}

impl<V: Locatable> PartialEq for Located<V> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.at == other.at
    }
}

impl<V: Locatable> Debug for Located<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Located").field("value", &self.value).field("at", &self.at).finish()
    }
}

macro_rules! located {
    ($($value:ty => $kind:ident, $before:literal, $behind:literal;)*) => {$(
        impl gaps::Sealed for $value {}

        impl Locatable for $value {
            type GapBefore = [u8; $before];
            type GapBehind = [u8; $behind];
        }

        // SAFETY: the C struct that MPI-4.1 6.9.4 defines the pair by, of two numbers.
        unsafe impl Equivalence for Located<$value> {
            const KIND: Option<Predefined> = Some(Predefined::$kind);

            fn datatype() -> Datatype {
                Predefined::$kind.into()
            }
        }
        const _: () = assert!(size_of::<Located<$value>>() == Predefined::$kind.extent());
        // No byte is without a value.
        const _: () = assert!(size_of::<Located<$value>>() == Predefined::$kind.size() + $before + $behind);
    )*};
}

located! {
    f32 => FloatInt, 0, 0;
    f64 => DoubleInt, 0, 4;
    i64 => LongInt, 0, 4;
    i32 => TwoInt, 0, 0;
    i16 => ShortInt, 2, 0;
}

/// Makes an [`Equivalence`](crate::comm::Equivalence) of a struct whose fields are each one, all of them. What is between the fields is
/// not sent.
///
/// ```
/// use sidelane_mpi::comm::Equivalence;
///
/// #[derive(Clone, Copy)]
/// struct Particle {
///     position: [f64; 3],
///     kind: u8,
/// }
///
/// sidelane_mpi::equivalence!(Particle { position, kind });
/// assert_eq!((Particle::datatype().size(), Particle::datatype().extent()), (25, 32));
/// ```
///
/// A field left out would be what another process's memory is:
///
/// ```compile_fail,E0027
/// # #[derive(Clone, Copy)]
/// # struct Particle { position: [f64; 3], kind: u8 }
/// sidelane_mpi::equivalence!(Particle { position });
/// ```
///
/// So would one of which not all bytes are values:
///
/// ```compile_fail,E0277
/// # #[derive(Clone, Copy)]
/// # struct Particle { is_heavy: bool }
/// sidelane_mpi::equivalence!(Particle { is_heavy });
/// ```
#[macro_export]
macro_rules! equivalence {
    ($type:ident { $($field:tt),+ $(,)? }) => {
        // SAFETY: all fields are named, where they are and as what they are.
        #[allow(unsafe_code)]
        unsafe impl $crate::comm::Equivalence for $type {
            fn datatype() -> $crate::datatype::Datatype {
                static MADE: ::std::sync::OnceLock<$crate::datatype::Datatype> = ::std::sync::OnceLock::new();
                let _all_are_named = |$type { $($field: _),+ }: $type| ();
                let made = MADE.get_or_init(|| {
                    $crate::comm::datatype_of_fields::<Self>(&[$((
                        ::std::mem::offset_of!(Self, $field),
                        $crate::comm::datatype_of_field(|whole: &Self| &whole.$field),
                    )),+])
                });
                made.clone()
            }
        }
    };
}

/// For [`equivalence!`](crate::equivalence): the type of a field of `S`.
#[doc(hidden)]
pub fn datatype_of_field<S, F: Equivalence>(_: fn(&S) -> &F) -> Datatype {
    F::datatype()
}

/// For [`equivalence!`](crate::equivalence): `S`, of fields at these offsets.
#[doc(hidden)]
pub fn datatype_of_fields<S>(fields: &[(usize, Datatype)]) -> Datatype {
    let offsets: Vec<_> = fields.iter().map(|(offset, _)| *offset as isize).collect();
    let types: Vec<_> = fields.iter().map(|(_, datatype)| datatype.clone()).collect();
    let fields = Datatype::structure(&vec![1; types.len()], &offsets, &types);
    fields.and_then(|fields| fields.resized(0, size_of::<S>() as isize)).expect("a value is in memory")
}
