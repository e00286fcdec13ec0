//! Types of Fortran's numbers by what they can hold, or by their size (MPI-4.1 19.1.9).

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::adi::lock;
use crate::error::ErrorClass;

use super::map::Map;
use super::{Class, Datatype, Made, Predefined};

/// What kind of numbers is meant. Values are those of the standard ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum TypeClass {
    Integer = 192,
    Real = 193,
    Complex = 194,
}

/// Decimal digits, and of reals decimal exponents, as gfortran's `selected_int_kind` and `selected_real_kind` know them.
const INTEGERS: [(u32, Predefined); 5] = [
    (2, Predefined::Integer1),
    (4, Predefined::Integer2),
    (9, Predefined::Integer4),
    (18, Predefined::Integer8),
    (38, Predefined::Integer16),
];
const REALS: [(u32, u32, [Predefined; 2]); 3] = [
    (6, 37, [Predefined::Real4, Predefined::Complex8]),
    (15, 307, [Predefined::Real8, Predefined::Complex16]),
    (33, 4931, [Predefined::Real16, Predefined::Complex32]),
];

impl Datatype {
    /// Integers of so many decimal digits (`MPI_Type_create_f90_integer`); `Arg` where there are none. The same type for the same digits, which
    /// counts as a predefined one.
    pub fn f90_integer(range: u32) -> Result<Self, ErrorClass> {
        let of = INTEGERS.iter().find(|(digits, _)| range <= *digits).ok_or(ErrorClass::Arg)?.1;
        Ok(Self::made_once(of, Made::F90Integer { range, of }))
    }

    /// Reals of so many decimal digits and a decimal exponent of so much, of which one says something (`MPI_Type_create_f90_real`).
    pub fn f90_real(precision: Option<u32>, range: Option<u32>) -> Result<Self, ErrorClass> {
        let [of, _] = reals(precision, range)?;
        Ok(Self::made_once(of, Made::F90Real { precision, range, of }))
    }

    /// Complex numbers of two of those (`MPI_Type_create_f90_complex`).
    pub fn f90_complex(precision: Option<u32>, range: Option<u32>) -> Result<Self, ErrorClass> {
        let [_, of] = reals(precision, range)?;
        Ok(Self::made_once(of, Made::F90Complex { precision, range, of }))
    }

    fn made_once(of: Predefined, made: Made) -> Self {
        /// The combiner and what was asked for.
        type Asked = (i32, Option<u32>, Option<u32>);
        static ALL: Mutex<BTreeMap<Asked, Datatype>> = Mutex::new(BTreeMap::new());
        let asked = match made {
            Made::F90Integer { range, .. } => (Some(range), None),
            Made::F90Real { precision, range, .. } | Made::F90Complex { precision, range, .. } => (precision, range),
            _ => unreachable!("others may be made twice"),
        };
        let new = || Self::new(Map::predefined(of), made.clone()).expect("a predefined type is small");
        lock(&ALL).entry((made.combiner(), asked.0, asked.1)).or_insert_with(new).clone()
    }
}

impl Predefined {
    /// Numbers of so many bytes (`MPI_Type_match_size`); `None` where there are none.
    pub fn of_size(class: TypeClass, bytes: usize) -> Option<Self> {
        let (class, sized) = match class {
            TypeClass::Integer => (Class::FortranInteger, Self::Integer1),
            TypeClass::Real => (Class::Floating, Self::Real2),
            TypeClass::Complex => (Class::Complex, Self::Complex4),
        };
        // Those that say their size come behind all others.
        let mut all = Self::ALL.iter().copied().filter(|kind| *kind >= sized);
        all.find(|kind| kind.class() == class && kind.size() == bytes)
    }

    /// The pair of such a value and such an index, for `MPI_MINLOC` and `MPI_MAXLOC` (`MPI_Type_get_value_index`); `None` where there
    /// is none of a name: there are no others.
    pub const fn pair(value: Self, index: Self) -> Option<Self> {
        Some(match (value, index) {
            (Self::Float, Self::Int) => Self::FloatInt,
            (Self::Double, Self::Int) => Self::DoubleInt,
            (Self::Long, Self::Int) => Self::LongInt,
            (Self::Int, Self::Int) => Self::TwoInt,
            (Self::Short, Self::Int) => Self::ShortInt,
            (Self::LongDouble, Self::Int) => Self::LongDoubleInt,
            (Self::Real, Self::Real) => Self::TwoReal,
            (Self::DoublePrecision, Self::DoublePrecision) => Self::TwoDoublePrecision,
            (Self::Integer, Self::Integer) => Self::TwoInteger,
            _ => return None,
        })
    }
}

fn reals(precision: Option<u32>, range: Option<u32>) -> Result<[Predefined; 2], ErrorClass> {
    if precision.is_none() && range.is_none() {
        return Err(ErrorClass::Arg);
    }
    let holds =
        |(digits, exponent, _): &&(u32, u32, _)| precision.unwrap_or(0) <= *digits && range.unwrap_or(0) <= *exponent;
    REALS.iter().find(holds).map(|(.., both)| *both).ok_or(ErrorClass::Arg)
}
