//! The numbers that memory holds.

/// One number in memory, in this machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "sign and bits, as in Rust")]
pub enum Number {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    /// IEEE 754 binary16.
    F16,
    F32,
    F64,
    /// x87's extended format: 10 bytes, then 6 of padding (System V ABI for x86-64, 3.1.2).
    F80,
    /// IEEE 754 binary128.
    F128,
}

impl Number {
    /// What C's `long double` is.
    pub const LONG_DOUBLE: Self = if cfg!(target_arch = "x86_64") { Self::F80 } else { Self::F128 };

    /// Bytes it takes, and what its address is a multiple of.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::I128 | Self::F80 | Self::F128 => 16,
        }
    }
}
