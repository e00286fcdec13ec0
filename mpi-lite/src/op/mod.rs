//! Operators of reductions, on elements as they stand in memory.

mod element;
mod fold;
mod location;
#[cfg(test)]
mod tests;
mod user;

use std::cmp::Ordering;

use crate::datatype::{Class, Datatype, Number, Predefined, Repr};

use element::{Element, Integral, Real};
use fold::{fold, fold_complex};
pub use user::UserOp;

/// An operator of `MPI_Reduce` and its kin (MPI-4.1 6.9).
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum Op {
    Sum,
    Min,
    Max,
    Prod,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    /// `MPI_REPLACE`: what comes in stays. For accumulates only (MPI-4.1 12.3.4).
    Replace,
    /// `MPI_NO_OP`: what is there stays. For accumulates that fetch only (MPI-4.1 12.3.4).
    NoOp,
    /// One of the program's own.
    User(UserOp),
}

impl Op {
    /// The standard's own. Messages name them by their places here.
    pub(crate) const PREDEFINED: [Self; 14] = [
        Self::Sum,
        Self::Min,
        Self::Max,
        Self::Prod,
        Self::Band,
        Self::Bor,
        Self::Bxor,
        Self::Land,
        Self::Lor,
        Self::Lxor,
        Self::Minloc,
        Self::Maxloc,
        Self::Replace,
        Self::NoOp,
    ];

    /// Combines arrays of elements: `into[i] = from[i] OP into[i]`, the order of `invec` and `inoutvec` in a function given
    /// to `MPI_Op_create` (MPI-4.1 6.9.5). For a result in rank order, `from` is therefore what the lower ranks have.
    ///
    /// Elements stand as in memory, [`Predefined::extent`] bytes each: gaps of pair types are there, and are kept in `into`.
    ///
    /// # Panics
    ///
    /// When the lengths differ or are no whole number of elements.
    pub fn combine(&self, kind: Predefined, into: &mut [u8], from: &[u8]) -> Result<(), NotDefined> {
        assert_eq!(into.len(), from.len());
        assert_eq!(into.len() % kind.extent(), 0);
        if !self.is_defined_on(kind) {
            return Err(NotDefined { op: self.name(), kind: Some(kind) });
        }
        match self {
            Self::NoOp => {}
            Self::Replace => into.copy_from_slice(from),
            Self::User(user) => user.call(&kind.into(), into.len() / kind.extent(), into, from),
            Self::Minloc => location::fold(kind, into, from, Ordering::Less),
            Self::Maxloc => location::fold(kind, into, from, Ordering::Greater),
            _ => self.function(kind).expect("all others are arithmetic")(into, from),
        }
        Ok(())
    }

    /// [`Self::combine`] on arrays of one type and equal lengths, found once for many of them. Only of arithmetic that is defined
    /// on the type.
    #[inline(never)] // What calls it is inlined (`bench/NOTES.md` 90).
    pub fn function(&self, kind: Predefined) -> Option<Function> {
        if !self.is_defined_on(kind) {
            return None;
        }
        match kind.repr() {
            Repr::One(number) => self.on_numbers(number),
            Repr::Complex(part) => self.on_complex(part),
            Repr::Pair(..) => None,
        }
    }

    /// As [`Self::combine`], for `count` elements of any type. Only the program's own operators take types that are not
    /// predefined.
    pub fn combine_any(
        &self,
        datatype: &Datatype,
        count: usize,
        into: &mut [u8],
        from: &[u8],
    ) -> Result<(), NotDefined> {
        match (datatype.predefined(), self) {
            (Some(kind), _) => self.combine(kind, into, from),
            (_, Self::User(user)) => {
                user.call(datatype, count, into, from);
                Ok(())
            }
            _ => Err(NotDefined { op: self.name(), kind: None }),
        }
    }

    /// Whether the operands' order is free. Algorithms may then combine as things arrive.
    #[inline]
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::User(user) => user.is_commutative(),
            Self::Replace | Self::NoOp => false,
            _ => true,
        }
    }

    /// Whether the standard defines it for this type (MPI-4.1 6.9.2 to 6.9.4 and 12.3.4); the program's own take every type.
    #[inline]
    pub fn is_defined_on(&self, kind: Predefined) -> bool {
        use Class::*;
        let class = kind.class();
        match self {
            Self::Max | Self::Min => matches!(class, CInteger | FortranInteger | Floating | MultiLanguage),
            Self::Sum | Self::Prod => matches!(class, CInteger | FortranInteger | Floating | Complex | MultiLanguage),
            Self::Land | Self::Lor | Self::Lxor => matches!(class, CInteger | Logical),
            Self::Band | Self::Bor | Self::Bxor => matches!(class, CInteger | FortranInteger | Byte | MultiLanguage),
            Self::Minloc | Self::Maxloc => class == Location,
            Self::Replace | Self::NoOp | Self::User(_) => true,
        }
    }

    /// Whether reductions take it for this type: as [`Self::is_defined_on`], but for what is of accumulates only.
    pub fn reduces(&self, kind: Predefined) -> bool {
        !matches!(self, Self::Replace | Self::NoOp) && self.is_defined_on(kind)
    }

    /// Its name in the standard.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sum => "MPI_SUM",
            Self::Min => "MPI_MIN",
            Self::Max => "MPI_MAX",
            Self::Prod => "MPI_PROD",
            Self::Band => "MPI_BAND",
            Self::Bor => "MPI_BOR",
            Self::Bxor => "MPI_BXOR",
            Self::Land => "MPI_LAND",
            Self::Lor => "MPI_LOR",
            Self::Lxor => "MPI_LXOR",
            Self::Minloc => "MPI_MINLOC",
            Self::Maxloc => "MPI_MAXLOC",
            Self::Replace => "MPI_REPLACE",
            Self::NoOp => "MPI_NO_OP",
            Self::User(_) => "a user-defined operator",
        }
    }

    #[inline]
    fn on_numbers(&self, number: Number) -> Option<Function> {
        match number {
            Number::I8 => self.on_integers::<i8, _>(),
            Number::I16 => self.on_integers::<i16, _>(),
            Number::I32 => self.on_integers::<i32, _>(),
            Number::I64 => self.on_integers::<i64, _>(),
            Number::I128 => self.on_integers::<i128, _>(),
            Number::U8 => self.on_integers::<u8, _>(),
            Number::U16 => self.on_integers::<u16, _>(),
            Number::U32 => self.on_integers::<u32, _>(),
            Number::U64 => self.on_integers::<u64, _>(),
            Number::F16 => self.on_real::<element::F16, _>(),
            Number::F32 => self.on_real::<f32, _>(),
            Number::F64 => self.on_real::<f64, _>(),
            Number::F80 => self.on_real::<element::F80, _>(),
            Number::F128 => self.on_real::<element::F128, _>(),
        }
    }

    #[inline]
    fn on_integers<T: Integral<N>, const N: usize>(&self) -> Option<Function> {
        Some(match self {
            Self::Band => |into, from| fold(into, from, |a: T, b| a & b),
            Self::Bor => |into, from| fold(into, from, |a: T, b| a | b),
            Self::Bxor => |into, from| fold(into, from, |a: T, b| a ^ b),
            Self::Land => |into, from| fold(into, from, |a: T, b| T::truth(a != T::ZERO && b != T::ZERO)),
            Self::Lor => |into, from| fold(into, from, |a: T, b| T::truth(a | b != T::ZERO)),
            Self::Lxor => |into, from| fold(into, from, |a: T, b| T::truth((a != T::ZERO) != (b != T::ZERO))),
            _ => return self.on_real::<T, N>(),
        })
    }

    #[inline]
    fn on_real<T: Real<N>, const N: usize>(&self) -> Option<Function> {
        Some(match self {
            Self::Sum => |into, from| fold(into, from, T::plus),
            Self::Prod => |into, from| fold(into, from, T::times),
            Self::Max => |into, from| fold(into, from, |a: T, b| if a > b { a } else { b }),
            Self::Min => |into, from| fold(into, from, |a: T, b| if a < b { a } else { b }),
            _ => return None,
        })
    }

    #[inline]
    fn on_complex(&self, part: Number) -> Option<Function> {
        Some(match (self, part) {
            // A sum of complex numbers is the sum of their parts.
            (Self::Sum, _) => return self.on_numbers(part),
            (Self::Prod, Number::F16) => |into, from| fold_complex(into, from, product::<element::F16, _>),
            (Self::Prod, Number::F32) => |into, from| fold_complex(into, from, product::<f32, _>),
            (Self::Prod, Number::F64) => |into, from| fold_complex(into, from, product::<f64, _>),
            (Self::Prod, Number::F80) => |into, from| fold_complex(into, from, product::<element::F80, _>),
            (Self::Prod, Number::F128) => |into, from| fold_complex(into, from, product::<element::F128, _>),
            _ => return None,
        })
    }
}

/// What [`Op::function`] finds.
pub type Function = fn(into: &mut [u8], from: &[u8]);

/// An operator was to combine what it is not defined for (`MPI_ERR_OP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not defined for {}", kind.map_or("types that are not predefined", Predefined::name))]
pub struct NotDefined {
    op: &'static str,
    kind: Option<Predefined>,
}

fn product<T: Real<N>, const N: usize>([a, b]: [T; 2], [c, d]: [T; 2]) -> [T; 2] {
    [a.times(c).minus(b.times(d)), a.times(d).plus(b.times(c))]
}
