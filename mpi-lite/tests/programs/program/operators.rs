//! Operators of the standard and of a program's own, and what they make of two elements.
#![allow(unsafe_code)] // Bytes are read as numbers.

use sidelane_mpi::comm::Equivalence;
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::{Op, UserOp};

use super::bytes;

/// What elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    I8,
    U16,
    I32,
    U64,
    /// Small whole numbers, of which sums and products are exact in any order.
    F64,
    /// A value and its place.
    Located,
    /// Two numbers that only the program's own operators know.
    Two,
}

/// What two elements become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    /// `(a, b)` and `(c, d)` are `(ac, ad + bc)`: the order is free, and halves can't be combined by themselves.
    Dual,
    /// `(a, b)` and `(c, d)` are `(ac, bc + d)`: first the one map, then the other. The order is not free.
    Affine,
}

impl Kind {
    pub const ALL: [Self; 7] = [Self::I8, Self::U16, Self::I32, Self::U64, Self::F64, Self::Located, Self::Two];

    /// Those that know elements of this kind.
    pub const fn operators(self) -> &'static [Operator] {
        use Operator::*;
        match self {
            Self::F64 => &[Sum, Prod, Min, Max],
            Self::Located => &[Minloc, Maxloc],
            Self::Two => &[Dual, Affine],
            _ => &[Sum, Prod, Min, Max, Band, Bor, Bxor, Land, Lor, Lxor],
        }
    }

    /// So many elements, which this stamp decides.
    pub fn elements(self, stamp: u64, count: usize) -> Vec<u8> {
        let mut elements = bytes(stamp, count * self.size());
        match self {
            Self::F64 => {
                for (at, element) in elements.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let small = [1.0, 2.0, -1.0, 0.0, -2.0][element[0] as usize % 5];
                    // A product of many stays far from where numbers get rough.
                    *element = f64::to_le_bytes(if at % 3 == 0 { small } else { small + 1.0 });
                }
            }
            // Few values, so that places decide often.
            Self::Located => {
                for [value, rest @ ..] in elements.as_chunks_mut::<4>().0.iter_mut().step_by(2) {
                    (*value, *rest) = (*value % 3, [0; 3]);
                }
            }
            _ => {}
        }
        elements
    }

    pub const fn size(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::U16 => 2,
            Self::I32 => 4,
            Self::U64 | Self::F64 | Self::Located | Self::Two => 8,
        }
    }

    pub fn datatype(self) -> Datatype {
        match self {
            Self::I8 => Predefined::Int8.into(),
            Self::U16 => Predefined::Uint16.into(),
            Self::I32 => Predefined::Int32.into(),
            Self::U64 => Predefined::Uint64.into(),
            Self::F64 => Predefined::Double.into(),
            Self::Located => Predefined::TwoInt.into(),
            Self::Two => <[u32; 2]>::datatype(),
        }
    }
}

impl Operator {
    pub fn op(self) -> Op {
        match self {
            Self::Sum => Op::Sum,
            Self::Prod => Op::Prod,
            Self::Min => Op::Min,
            Self::Max => Op::Max,
            Self::Band => Op::Band,
            Self::Bor => Op::Bor,
            Self::Bxor => Op::Bxor,
            Self::Land => Op::Land,
            Self::Lor => Op::Lor,
            Self::Lxor => Op::Lxor,
            Self::Minloc => Op::Minloc,
            Self::Maxloc => Op::Maxloc,
            Self::Dual | Self::Affine => {
                let combine = move |_: &Datatype, count: usize, into: &mut [u8], from: &[u8]| {
                    assert_eq!((into.len(), from.len()), (count * 8, count * 8), "whole elements are combined");
                    for (into, from) in into.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
                        let result = self.two(values(from)[0], values(into)[0]);
                        into[..4].copy_from_slice(&result[0].to_le_bytes());
                        into[4..].copy_from_slice(&result[1].to_le_bytes());
                    }
                };
                Op::User(UserOp::new(self == Self::Dual, combine))
            }
        }
    }

    /// What a lower rank has, and with it what the next one has, element by element.
    pub fn combined(self, kind: Kind, before: &[u8], next: &[u8]) -> Vec<u8> {
        let both = before.chunks(kind.size()).zip(next.chunks(kind.size()));
        both.flat_map(|(before, next)| self.one(kind, before, next)).collect()
    }

    /// Of one element each.
    fn one(self, kind: Kind, a: &[u8], b: &[u8]) -> Vec<u8> {
        match kind {
            Kind::F64 => {
                let [a, b] = [a, b].map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
                let result = match self {
                    Self::Sum => a + b,
                    Self::Prod => a * b,
                    Self::Min => a.min(b),
                    _ => a.max(b),
                };
                result.to_le_bytes().to_vec()
            }
            Kind::Located => {
                let of = |bytes: &[u8]| values::<[i32; 2]>(bytes)[0];
                let (a, b) = (of(a), of(b));
                // Of equal values the lower place counts either way.
                let best = if self == Self::Minloc || a[0] == b[0] { a.min(b) } else { a.max(b) };
                best.iter().flat_map(|part| part.to_le_bytes()).collect()
            }
            Kind::Two => {
                let of = |bytes: &[u8]| values::<[u32; 2]>(bytes)[0];
                let ([a, b], [c, d]) = (of(a), of(b));
                self.two([a, b], [c, d]).iter().flat_map(|part| part.to_le_bytes()).collect()
            }
            Kind::I8 | Kind::I32 => {
                let of = |bytes: &[u8]| match bytes {
                    [byte] => i64::from(byte.cast_signed()),
                    _ => i64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes"))),
                };
                self.whole(of(a), of(b)).to_le_bytes()[..a.len()].to_vec()
            }
            Kind::U16 | Kind::U64 => {
                let of = |bytes: &[u8]| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                };
                let (a, b, len) = (of(a), of(b), a.len());
                let result = match self {
                    Self::Min => a.min(b),
                    Self::Max => a.max(b),
                    _ => self.whole(a.cast_signed(), b.cast_signed()).cast_unsigned(),
                };
                result.to_le_bytes()[..len].to_vec()
            }
        }
    }

    /// Of integers: the front of the result is that of shorter ones.
    fn whole(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Sum => a.wrapping_add(b),
            Self::Prod => a.wrapping_mul(b),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Band => a & b,
            Self::Bor => a | b,
            Self::Bxor => a ^ b,
            Self::Land => i64::from(a != 0 && b != 0),
            Self::Lor => i64::from(a != 0 || b != 0),
            Self::Lxor => i64::from((a != 0) != (b != 0)),
            other => unreachable!("{other:?} is for pairs"),
        }
    }

    /// Of `Kind::Two`.
    const fn two(self, [a, b]: [u32; 2], [c, d]: [u32; 2]) -> [u32; 2] {
        let second = match self {
            Self::Dual => a.wrapping_mul(d).wrapping_add(b.wrapping_mul(c)),
            _ => b.wrapping_mul(c).wrapping_add(d),
        };
        [a.wrapping_mul(c), second]
    }
}

/// Any bytes, as values of this type.
pub fn values<T: Equivalence>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len() / size_of::<T>();
    // SAFETY: The bytes are there, and any bytes are a value.
    (0..count).map(|at| unsafe { bytes.as_ptr().cast::<T>().add(at).read_unaligned() }).collect()
}
