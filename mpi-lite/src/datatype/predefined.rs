//! The predefined datatypes, and what stands in memory for each.

use super::number::Number;

/// What an element is made of, as it stands in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repr {
    /// One number.
    One(Number),
    /// Real part, then imaginary part.
    Complex(Number),
    /// A value and its index, as the C struct of both: the second aligned to its own size, the whole to the larger.
    Pair(Number, Number),
}

/// The groups by which MPI says what operators apply to (MPI-4.1 6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// C integers, sized ones too.
    CInteger,
    /// Fortran integers.
    FortranInteger,
    /// Floating point of both languages.
    Floating,
    /// Truth values of C, C++ and Fortran.
    Logical,
    /// Complex numbers of all languages.
    Complex,
    /// `MPI_BYTE`.
    Byte,
    /// `MPI_AINT`, `MPI_OFFSET` and `MPI_COUNT`.
    MultiLanguage,
    /// A value and its index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Location,
    /// Characters and packed bytes, which no operator takes.
    Opaque,
}

macro_rules! predefined {
    ($($variant:ident = $abi:literal, $name:literal, $class:ident, $repr:expr;)*) => {
        /// A predefined datatype. Discriminants are the handles of MPI's standard ABI (`mpi.h` of the MPI Forum's
        /// `mpi-abi-stubs`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "named by `name`, as the standard does")]
        pub enum Predefined {
            $($variant = $abi,)*
        }

        impl Predefined {
            /// All of them, in the order of their handles.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The standard's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The group that says which operators take it.
            #[inline]
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// What stands in memory.
            #[inline]
            pub const fn repr(self) -> Repr {
                use Number::*;
                use Repr::*;
                match self { $(Self::$variant => $repr,)* }
            }
        }
    };
}

// Fortran's default kinds are gfortran's: 4 bytes for INTEGER, REAL and LOGICAL, 8 for DOUBLE PRECISION. C's are those of
// 64-bit Linux (LP64), where plain `char` and `wchar_t` differ in sign by machine, which nothing here depends on.
predefined! {
    Aint = 0x201, "MPI_AINT", MultiLanguage, One(I64);
    Count = 0x202, "MPI_COUNT", MultiLanguage, One(I64);
    Offset = 0x203, "MPI_OFFSET", MultiLanguage, One(I64);
    Packed = 0x207, "MPI_PACKED", Opaque, One(U8);
    Short = 0x208, "MPI_SHORT", CInteger, One(I16);
    Int = 0x209, "MPI_INT", CInteger, One(I32);
    Long = 0x20a, "MPI_LONG", CInteger, One(I64);
    LongLong = 0x20b, "MPI_LONG_LONG", CInteger, One(I64);
    UnsignedShort = 0x20c, "MPI_UNSIGNED_SHORT", CInteger, One(U16);
    Unsigned = 0x20d, "MPI_UNSIGNED", CInteger, One(U32);
    UnsignedLong = 0x20e, "MPI_UNSIGNED_LONG", CInteger, One(U64);
    UnsignedLongLong = 0x20f, "MPI_UNSIGNED_LONG_LONG", CInteger, One(U64);
    Float = 0x210, "MPI_FLOAT", Floating, One(F32);
    CFloatComplex = 0x212, "MPI_C_FLOAT_COMPLEX", Complex, Complex(F32);
    CxxFloatComplex = 0x213, "MPI_CXX_FLOAT_COMPLEX", Complex, Complex(F32);
    Double = 0x214, "MPI_DOUBLE", Floating, One(F64);
    CDoubleComplex = 0x216, "MPI_C_DOUBLE_COMPLEX", Complex, Complex(F64);
    CxxDoubleComplex = 0x217, "MPI_CXX_DOUBLE_COMPLEX", Complex, Complex(F64);
    Logical = 0x218, "MPI_LOGICAL", Logical, One(I32);
    Integer = 0x219, "MPI_INTEGER", FortranInteger, One(I32);
    Real = 0x21a, "MPI_REAL", Floating, One(F32);
    Complex = 0x21b, "MPI_COMPLEX", Complex, Complex(F32);
    DoublePrecision = 0x21c, "MPI_DOUBLE_PRECISION", Floating, One(F64);
    DoubleComplex = 0x21d, "MPI_DOUBLE_COMPLEX", Complex, Complex(F64);
    LongDouble = 0x220, "MPI_LONG_DOUBLE", Floating, One(Number::LONG_DOUBLE);
    CLongDoubleComplex = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", Complex, Complex(Number::LONG_DOUBLE);
    CxxLongDoubleComplex = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", Complex, Complex(Number::LONG_DOUBLE);
    FloatInt = 0x228, "MPI_FLOAT_INT", Location, Pair(F32, I32);
    DoubleInt = 0x229, "MPI_DOUBLE_INT", Location, Pair(F64, I32);
    LongInt = 0x22a, "MPI_LONG_INT", Location, Pair(I64, I32);
    TwoInt = 0x22b, "MPI_2INT", Location, Pair(I32, I32);
    ShortInt = 0x22c, "MPI_SHORT_INT", Location, Pair(I16, I32);
    LongDoubleInt = 0x22d, "MPI_LONG_DOUBLE_INT", Location, Pair(Number::LONG_DOUBLE, I32);
    TwoReal = 0x230, "MPI_2REAL", Location, Pair(F32, F32);
    TwoDoublePrecision = 0x231, "MPI_2DOUBLE_PRECISION", Location, Pair(F64, F64);
    TwoInteger = 0x232, "MPI_2INTEGER", Location, Pair(I32, I32);
    CBool = 0x238, "MPI_C_BOOL", Logical, One(U8);
    CxxBool = 0x239, "MPI_CXX_BOOL", Logical, One(U8);
    Wchar = 0x23c, "MPI_WCHAR", Opaque, One(I32);
    Int8 = 0x240, "MPI_INT8_T", CInteger, One(I8);
    Uint8 = 0x241, "MPI_UINT8_T", CInteger, One(U8);
    Char = 0x243, "MPI_CHAR", Opaque, One(U8);
    SignedChar = 0x244, "MPI_SIGNED_CHAR", CInteger, One(I8);
    UnsignedChar = 0x245, "MPI_UNSIGNED_CHAR", CInteger, One(U8);
    Byte = 0x247, "MPI_BYTE", Byte, One(U8);
    Int16 = 0x248, "MPI_INT16_T", CInteger, One(I16);
    Uint16 = 0x249, "MPI_UINT16_T", CInteger, One(U16);
    Int32 = 0x250, "MPI_INT32_T", CInteger, One(I32);
    Uint32 = 0x251, "MPI_UINT32_T", CInteger, One(U32);
    Int64 = 0x258, "MPI_INT64_T", CInteger, One(I64);
    Uint64 = 0x259, "MPI_UINT64_T", CInteger, One(U64);
    Logical1 = 0x2c0, "MPI_LOGICAL1", Logical, One(I8);
    Integer1 = 0x2c1, "MPI_INTEGER1", FortranInteger, One(I8);
    Character = 0x2c3, "MPI_CHARACTER", Opaque, One(U8);
    Logical2 = 0x2c8, "MPI_LOGICAL2", Logical, One(I16);
    Integer2 = 0x2c9, "MPI_INTEGER2", FortranInteger, One(I16);
    Real2 = 0x2ca, "MPI_REAL2", Floating, One(F16);
    Logical4 = 0x2d0, "MPI_LOGICAL4", Logical, One(I32);
    Integer4 = 0x2d1, "MPI_INTEGER4", FortranInteger, One(I32);
    Real4 = 0x2d2, "MPI_REAL4", Floating, One(F32);
    Complex4 = 0x2d3, "MPI_COMPLEX4", Complex, Complex(F16);
    Logical8 = 0x2d8, "MPI_LOGICAL8", Logical, One(I64);
    Integer8 = 0x2d9, "MPI_INTEGER8", FortranInteger, One(I64);
    Real8 = 0x2da, "MPI_REAL8", Floating, One(F64);
    Complex8 = 0x2db, "MPI_COMPLEX8", Complex, Complex(F32);
    Logical16 = 0x2e0, "MPI_LOGICAL16", Logical, One(I128);
    Integer16 = 0x2e1, "MPI_INTEGER16", FortranInteger, One(I128);
    Real16 = 0x2e2, "MPI_REAL16", Floating, One(F128);
    Complex16 = 0x2e3, "MPI_COMPLEX16", Complex, Complex(F64);
    Complex32 = 0x2eb, "MPI_COMPLEX32", Complex, Complex(F128);
}

impl Predefined {
    /// Bytes of data in an element. Less than [`Self::extent`] where a pair has a gap.
    #[inline]
    pub const fn size(self) -> usize {
        match self.repr() {
            Repr::One(number) => number.size(),
            Repr::Complex(part) => 2 * part.size(),
            Repr::Pair(value, index) => value.size() + index.size(),
        }
    }

    /// Bytes from one element of an array to the next.
    #[inline]
    pub const fn extent(self) -> usize {
        match self.repr() {
            Repr::Pair(..) => (self.second_at() + self.second_size()).next_multiple_of(self.alignment()),
            _ => self.size(),
        }
    }

    /// What its address is a multiple of in C.
    #[inline]
    pub const fn alignment(self) -> usize {
        match self.repr() {
            Repr::One(number) | Repr::Complex(number) => number.size(),
            Repr::Pair(value, index) if value.size() > index.size() => value.size(),
            Repr::Pair(_, index) => index.size(),
        }
    }

    /// Where the second number of an element stands; the element's size when it has but one.
    #[inline]
    pub const fn second_at(self) -> usize {
        match self.repr() {
            Repr::One(number) | Repr::Complex(number) => number.size(),
            Repr::Pair(value, index) => value.size().next_multiple_of(index.size()),
        }
    }

    const fn second_size(self) -> usize {
        match self.repr() {
            Repr::One(_) => 0,
            Repr::Complex(part) => part.size(),
            Repr::Pair(_, index) => index.size(),
        }
    }

    /// The type with this handle in the standard ABI.
    pub fn from_abi(handle: usize) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.abi() == handle)
    }

    /// Its handle in the standard ABI.
    pub const fn abi(self) -> usize {
        self as usize
    }
}

const _: () = assert!(Predefined::ShortInt.size() == 6 && Predefined::ShortInt.extent() == 8);
const _: () = assert!(Predefined::LongDoubleInt.size() == 20 && Predefined::LongDoubleInt.extent() == 32);
