//! Numbers as operators see them: loaded from bytes, combined, stored.
//!
//! What the machine has no instructions for in stable Rust (binary16, binary128, x87's extended) is computed by
//! `rustc_apfloat`, correctly rounded and two orders of magnitude slower.

use std::ops::{BitAnd, BitOr, BitXor};

use rustc_apfloat::Float;
use rustc_apfloat::ieee::{Half, Quad, X87DoubleExtended};

/// A number that stands in `N` bytes.
pub(super) trait Element<const N: usize>: Copy + PartialOrd {
    fn load(bytes: [u8; N]) -> Self;
    fn store(self) -> [u8; N];
}

/// A number with arithmetic. Integers wrap, as C's do on every machine that MPI runs on.
pub(super) trait Real<const N: usize>: Element<N> {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// A number with bits, and the truth values of C and Fortran: zero is false, and true is stored as one.
pub(super) trait Integral<const N: usize>:
    Real<N> + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    const ZERO: Self;
    fn truth(value: bool) -> Self;
}

macro_rules! native {
    ($type:ty, $plus:expr, $minus:expr, $times:expr) => {
        impl Element<{ size_of::<$type>() }> for $type {
            #[inline]
            fn load(bytes: [u8; size_of::<$type>()]) -> Self {
                Self::from_ne_bytes(bytes)
            }
            #[inline]
            fn store(self) -> [u8; size_of::<$type>()] {
                self.to_ne_bytes()
            }
        }

        impl Real<{ size_of::<$type>() }> for $type {
            #[inline]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
            #[inline]
            fn minus(self, other: Self) -> Self {
                $minus(self, other)
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                $times(self, other)
            }
        }
    };
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        native!($type, Self::wrapping_add, Self::wrapping_sub, Self::wrapping_mul);

        impl Integral<{ size_of::<$type>() }> for $type {
            const ZERO: Self = 0;
            #[inline]
            fn truth(value: bool) -> Self {
                Self::from(value)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 i128 u8 u16 u32 u64 }
native!(f32, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul);
native!(f64, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul);

macro_rules! soft {
    ($(#[$doc:meta])* $type:ident, $inner:ty, $size:literal, $used:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, PartialOrd)]
        pub(super) struct $type($inner);

        impl Element<$size> for $type {
            fn load(bytes: [u8; $size]) -> Self {
                let mut wide = [0; 16];
                // Only the low bytes of a value are stored, whichever end of the memory has them.
                if cfg!(target_endian = "little") {
                    wide[..$used].copy_from_slice(&bytes[..$used]);
                } else {
                    wide[16 - $used..].copy_from_slice(&bytes[..$used]);
                }
                Self(<$inner>::from_bits(u128::from_ne_bytes(wide)))
            }

            fn store(self) -> [u8; $size] {
                let wide = self.0.to_bits().to_ne_bytes();
                let mut bytes = [0; $size];
                if cfg!(target_endian = "little") {
                    bytes[..$used].copy_from_slice(&wide[..$used]);
                } else {
                    bytes[..$used].copy_from_slice(&wide[16 - $used..]);
                }
                bytes
            }
        }

        impl Real<$size> for $type {
            fn plus(self, other: Self) -> Self {
                Self((self.0 + other.0).value)
            }
            fn minus(self, other: Self) -> Self {
                Self((self.0 - other.0).value)
            }
            fn times(self, other: Self) -> Self {
                Self((self.0 * other.0).value)
            }
        }
    };
}

soft! {
    /// IEEE 754 binary16.
    F16, Half, 2, 2
}
soft! {
    /// x87's extended format. Its padding is stored as zeros.
    F80, X87DoubleExtended, 16, 10
}
soft! {
    /// IEEE 754 binary128.
    F128, Quad, 16, 16
}
