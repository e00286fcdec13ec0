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
    if element.size() == element.extent()
        && let Some(bytes) = places.bytes_mut()
    {
        return op.combine(element, bytes, operand).map_err(|_| RmaError::Op);
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
    let bytes = places.bytes_mut().ok_or(RmaError::Malformed)?;
    if compare.len() != bytes.len() || new.len() != bytes.len() {
        return Err(RmaError::Malformed);
    }
    if bytes == compare {
        bytes.copy_from_slice(new);
    }
    Ok(())
}

/// What `MPI_Compare_and_swap` takes (MPI-4.1 12.3.4).
pub(super) fn is_swappable(element: Predefined) -> bool {
    use Class::*;
    matches!(element.class(), CInteger | FortranInteger | Logical | MultiLanguage | Byte)
}
