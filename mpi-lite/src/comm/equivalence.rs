#![allow(unsafe_code)]
//! Which Rust types are which datatypes. Unsafe, since whoever says so promises what their bytes are.

use crate::datatype::{Datatype, Predefined};

/// A type whose values are what `datatype` says. Numbers and arrays are; [`equivalence!`](crate::equivalence) makes a struct one.
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
///     let mut hottest = [Located { value: degrees, at: comm.rank() as i32 }];
///     comm.allreduce_in_place(&mut hottest, &Op::Maxloc)?;
///     Ok(hottest[0])
/// }
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Located<V> {
    /// What is compared.
    pub value: V,
    /// Where it is: an index, or a rank.
    pub at: i32,
}

macro_rules! located {
    ($($value:ty => $kind:ident,)*) => {$(
        // SAFETY: the C struct that MPI-4.1 6.9.4 defines the pair by, of two numbers.
        unsafe impl Equivalence for Located<$value> {
            const KIND: Option<Predefined> = Some(Predefined::$kind);

            fn datatype() -> Datatype {
                Predefined::$kind.into()
            }
        }
        const _: () = assert!(size_of::<Located<$value>>() == Predefined::$kind.extent());
    )*};
}

located! {
    f32 => FloatInt,
    f64 => DoubleInt,
    i64 => LongInt,
    i32 => TwoInt,
    i16 => ShortInt,
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
