//! The portable format "external32": big-endian IEEE numbers of fixed sizes (MPI-4.1 14.5.2, its table of sizes).

use rustc_apfloat::ieee::{Quad, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert};

use super::{Datatype, Number, OutOfBounds, Overflow, Predefined, Repr};

/// Why data was not converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExternalError {
    /// The memory does not hold the elements.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The packed side is shorter than the elements are in this format.
    #[error("the packed data is shorter than its elements")]
    Short,
    /// A `long` or a `wchar_t` exceeds the 4 or 2 bytes that it has in this format.
    #[error("a number of {} does not fit the format", .0.name())]
    Conversion(Predefined),
}

impl Datatype {
    /// Bytes that `count` elements take in this format.
    pub fn external_size(&self, count: usize) -> Result<usize, Overflow> {
        self.0.map.elements.sum(external_size).checked_mul(count).ok_or(Overflow)
    }

    /// Writes `count` elements, whose address is `memory[origin]`, to the front of `out`. Returns the bytes written.
    pub fn pack_external(
        &self,
        memory: &[u8],
        origin: usize,
        count: usize,
        out: &mut [u8],
    ) -> Result<usize, ExternalError> {
        self.check(memory.len(), origin, count)?;
        let mut rest = &mut out[..];
        self.each_number(origin, count, |number, form, at, kind| {
            let bytes = memory.get(at..at + number.size()).ok_or(OutOfBounds)?;
            let out = rest.split_off_mut(..form.size()).ok_or(ExternalError::Short)?;
            let value = load(bytes, cfg!(target_endian = "big"));
            store(out, form.of(value).ok_or(ExternalError::Conversion(kind))?, true);
            Ok(())
        })?;
        let left = rest.len();
        Ok(out.len() - left)
    }

    /// Reads `count` elements, whose address is `memory[origin]`, from the front of `packed`. Returns the bytes read.
    pub fn unpack_external(
        &self,
        memory: &mut [u8],
        origin: usize,
        count: usize,
        packed: &[u8],
    ) -> Result<usize, ExternalError> {
        self.check(memory.len(), origin, count)?;
        let mut rest = packed;
        self.each_number(origin, count, |number, form, at, _| {
            let bytes = memory.get_mut(at..at + number.size()).ok_or(OutOfBounds)?;
            let value = load(rest.split_off(..form.size()).ok_or(ExternalError::Short)?, true);
            store(bytes, form.back(value), cfg!(target_endian = "big"));
            Ok(())
        })?;
        Ok(packed.len() - rest.len())
    }

    /// Calls `each` with every number, its form, and where in the memory it is.
    fn each_number(
        &self,
        origin: usize,
        count: usize,
        mut each: impl FnMut(Number, Form, usize, Predefined) -> Result<(), ExternalError>,
    ) -> Result<(), ExternalError> {
        let mut result = Ok(());
        // Elements without data may be of any number.
        let count = if self.size() == 0 { 0 } else { count as isize };
        for index in 0..count {
            self.0.map.elements.visit(index * self.extent(), &mut |kind, at| {
                let numbers = match kind.repr() {
                    Repr::One(number) => [(number, 0), (number, kind.size())],
                    Repr::Complex(part) => [(part, 0), (part, kind.second_at())],
                    Repr::Pair(value, second) => [(value, 0), (second, kind.second_at())],
                };
                let many = if matches!(kind.repr(), Repr::One(_)) { 1 } else { 2 };
                result = numbers[..many].iter().enumerate().try_for_each(|(index, (number, place))| {
                    let at = origin.checked_add_signed(at).ok_or(OutOfBounds)? + place;
                    each(*number, Form::new(kind, index, *number), at, kind)
                });
                result.is_ok()
            });
            result?;
        }
        Ok(())
    }
}

/// What a number becomes.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The same bytes, big-endian.
    Same(usize),
    /// Signed, in 4 bytes.
    Signed32,
    /// Unsigned, in so many bytes.
    Unsigned(usize),
    /// IEEE binary128, from x87's extended format, of which it holds every number.
    Quad,
}

impl Form {
    /// Of the number at `index` in an element of this type.
    fn new(kind: Predefined, index: usize, number: Number) -> Self {
        match (kind, index) {
            (Predefined::Long | Predefined::LongInt, 0) => Self::Signed32,
            (Predefined::UnsignedLong, _) => Self::Unsigned(4),
            (Predefined::Wchar, _) => Self::Unsigned(2),
            _ if number == Number::F80 => Self::Quad,
            _ => Self::Same(number.size()),
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Same(size) | Self::Unsigned(size) => size,
            Self::Signed32 => 4,
            Self::Quad => 16,
        }
    }

    /// The value in this form; `None` when it does not fit. Only low bytes count, on both sides.
    fn of(self, value: u128) -> Option<u128> {
        match self {
            Self::Same(_) => Some(value),
            Self::Signed32 => i32::try_from(value as i64).ok().map(|value| u128::from(value.cast_unsigned())),
            Self::Unsigned(size) => (value >> (8 * size) == 0).then_some(value),
            Self::Quad => {
                let bits: Quad = X87DoubleExtended::from_bits(value & ((1 << 80) - 1)).convert(&mut false).value;
                Some(bits.to_bits())
            }
        }
    }

    fn back(self, value: u128) -> u128 {
        match self {
            Self::Same(_) | Self::Unsigned(_) => value,
            Self::Signed32 => (value as u32).cast_signed() as i64 as u128,
            Self::Quad => {
                let bits: X87DoubleExtended = Quad::from_bits(value).convert(&mut false).value;
                bits.to_bits()
            }
        }
    }
}

fn external_size(kind: Predefined) -> usize {
    match kind.repr() {
        Repr::One(number) => Form::new(kind, 0, number).size(),
        Repr::Complex(part) => 2 * Form::new(kind, 0, part).size(),
        Repr::Pair(value, index) => Form::new(kind, 0, value).size() + Form::new(kind, 1, index).size(),
    }
}

/// The number in at most 16 bytes.
fn load(bytes: &[u8], big_endian: bool) -> u128 {
    let push = |value: u128, byte: &u8| value << 8 | u128::from(*byte);
    if big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) }
}

/// The low bytes of a number.
fn store(bytes: &mut [u8], value: u128, big_endian: bool) {
    let low = value.to_le_bytes();
    let len = bytes.len();
    bytes.copy_from_slice(&low[..len]);
    if big_endian {
        bytes.reverse();
    }
}
