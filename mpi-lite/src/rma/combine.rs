//! Accumulates, done at the target: one after another, so that each is atomic for every other one.

use crate::datatype::{Class, Datatype, Predefined};
use crate::op::Op;

use super::RmaError;
use super::memory::Places;

/// `places = operand OP places`, element by element; both packed.
pub(super) fn combine(places: &mut Places, element: Predefined, op: &Op, operand: &[u8]) -> Result<(), RmaError> {
    // Its operand need not be there.
    if *op == Op::NoOp {
        return Ok(());
    }
    if operand.len() != places.len() || !operand.len().is_multiple_of(element.size()) {
        return Err(RmaError::Malformed);
    }
    if !op.is_defined_on(element) {
        return Err(RmaError::Op);
    }
    if element.size() == element.extent() {
        let mut done = Ok(());
        let one_run = places.change(element.size(), |at, piece| {
            done = done.and(op.combine(element, piece, &operand[at..][..piece.len()]).map_err(|_| RmaError::Op));
        });
        if one_run {
            return done;
        }
    }
    let mut old = Vec::with_capacity(places.len());
    places.gather(&mut old);
    let (datatype, count) = (Datatype::from(element), operand.len() / element.size());
    // Operators want elements as they stand in an array, gaps and all.
    let spread = |packed: &[u8]| {
        let mut array = vec![0; count * element.extent()];
        let done = datatype.unpack(&mut array, 0, count, 0, packed);
        debug_assert_eq!(done, Ok(packed.len()));
        array
    };
    let (mut into, from) = (spread(&old), spread(operand));
    op.combine(element, &mut into, &from).map_err(|_| RmaError::Op)?;
    let packed = datatype.pack(&into, 0, count, 0, &mut old);
    debug_assert_eq!(packed, Ok(operand.len()));
    places.scatter(&old);
    Ok(())
}

/// Puts the second half of `data` where the first half is.
pub(super) fn compare_and_swap(places: &mut Places, data: &[u8]) -> Result<(), RmaError> {
    let (compare, new) = data.split_at(data.len() / 2);
    if compare.len() != places.len() || new.len() != places.len() {
        return Err(RmaError::Malformed);
    }
    let one_run = places.change(places.len().max(1), |_, bytes| {
        if bytes == compare {
            bytes.copy_from_slice(new);
        }
    });
    if one_run { Ok(()) } else { Err(RmaError::Malformed) }
}

/// What `MPI_Compare_and_swap` takes (MPI-4.1 12.3.4).
pub(super) fn is_swappable(element: Predefined) -> bool {
    use Class::*;
    matches!(element.class(), CInteger | FortranInteger | Logical | MultiLanguage | Byte)
}
