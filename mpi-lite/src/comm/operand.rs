//! What a call's operator is called with, and what it does to bytes.

use crate::coll::Reduction;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;

use super::collective::KeptCombine;
use super::operator;
use super::{Equivalence, ErrorClass};

/// The operator of a call: what it is called with, and the operator.
pub type Operator<'a> = Option<(&'a Operand, &'a Op)>;

/// The type that an operator is called with. For numbers nothing has to be found out.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "as the type says")]
pub enum Operand {
    Predefined(Predefined),
    Datatype(Datatype),
}

impl Operand {
    #[inline]
    pub(super) fn of<T: Equivalence>() -> Self {
        T::KIND.map_or_else(|| Self::Datatype(T::datatype()), Self::Predefined)
    }

    fn datatype(&self) -> Datatype {
        match self {
            Self::Predefined(kind) => (*kind).into(),
            Self::Datatype(datatype) => datatype.clone(),
        }
    }

    /// The predefined type that arrays of this type are arrays of.
    #[inline]
    pub(super) fn kind(&self) -> Option<Predefined> {
        match self {
            Self::Predefined(kind) => Some(*kind),
            Self::Datatype(datatype) => kind(datatype),
        }
    }

    /// What is reduced, for a raw call of these and an operator.
    #[inline]
    pub fn reduction(&self, op: &Op) -> Result<Reduction, ErrorClass> {
        let element = match self {
            Self::Predefined(kind) => kind.extent(),
            Self::Datatype(datatype) => match kind(datatype) {
                // The program's own operators get whole elements of what they were called with.
                Some(kind) if !matches!(op, Op::User(_)) => kind.extent(),
                _ => usize::try_from(datatype.extent()).map_err(|_| ErrorClass::Type)?,
            },
        };
        // Elements of no bytes are reduced as bytes that there are none of.
        Ok(Reduction { element: element.max(1), commutative: op.is_commutative() })
    }
}

impl From<Datatype> for Operand {
    fn from(datatype: Datatype) -> Self {
        Self::Datatype(datatype)
    }
}

/// The predefined type that arrays of this type are arrays of.
fn kind(datatype: &Datatype) -> Option<Predefined> {
    match datatype.predefined() {
        Some(kind) => Some(kind),
        None if datatype.extent() == datatype.size() as isize && datatype.contiguous_run(1).is_some() => {
            datatype.element_kind().filter(|kind| kind.size() == kind.extent())
        }
        None => None,
    }
}

/// A predefined operator, with the type whose elements it gets.
pub(super) fn predefined(operator: Operator<'_>) -> Option<(Predefined, &Op)> {
    let (operand, op) = operator.filter(|(_, op)| !matches!(op, Op::User(_)))?;
    Some((operand.kind()?, op))
}

/// What combines bytes as a call's operator does. Without one nothing is combined.
pub(super) fn combine(operator: Operator) -> Result<KeptCombine, ErrorClass> {
    let Some((operand, op)) = operator else { return Ok(KeptCombine::none()) };
    // A user's operator gets the type that it was called with; a predefined one on a dense type its elements.
    let user = matches!(op, Op::User(_));
    match operand.kind() {
        Some(kind) if !user => {
            if !op.reduces(kind) {
                return Err(ErrorClass::Op);
            }
            if let Some(function) = op.function(kind) {
                return Ok(KeptCombine::Function(function));
            }
            let op = op.clone();
            Ok(KeptCombine::Any(Box::new(move |into, from| {
                op.combine(kind, into, from).expect("it is defined, as checked");
            })))
        }
        _ if !user => Err(ErrorClass::Op),
        _ => {
            let (op, datatype) = (op.clone(), operand.datatype());
            let extent = usize::try_from(datatype.extent()).map_err(|_| ErrorClass::Type)?.max(1);
            Ok(KeptCombine::Any(Box::new(move |into, from| {
                let count = into.len() / extent;
                operator::run(|| op.combine_any(&datatype, count, into, from))
                    .expect("users' operators take all types");
            })))
        }
    }
}
