//! Pieces of a buffer, of a datatype each, for messages and for the collective calls that have one for each rank or neighbour: what is
//! checked of their arguments (MPI-4.1 6.8 and 8.6.3).
//!
//! Raw calls use memory by what is checked here.

use std::slice::from_ref;

use crate::coll::{Blocks, Call};
use crate::datatype::{Datatype, Predefined};

use super::elements::Elements;
use super::prepare::{Prepared, Run};
use super::{Communicator, Equivalence, ErrorClass};

/// Elements of a type somewhere in a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the buffer's address to that of the first element.
    pub at: isize,
    /// Elements.
    pub count: usize,
    /// What they are.
    pub datatype: Datatype,
}

impl Piece {
    /// `count` elements, the first at `at` bytes.
    pub fn new(at: isize, count: usize, datatype: &Datatype) -> Self {
        Self { at, count, datatype: datatype.clone() }
    }

    /// Nothing.
    pub fn none() -> Self {
        Self { at: 0, count: 0, datatype: Predefined::Byte.into() }
    }

    /// Packed bytes of each: the lengths of a call's blocks. `Count` if those are more than memory can have.
    pub fn lens(pieces: &[Self]) -> Result<Vec<usize>, ErrorClass> {
        let mut sum = 0usize;
        let mut len = |piece: &Self| {
            let len = piece.datatype.pack_size(piece.count).ok()?;
            sum = sum.checked_add(len).filter(|sum| isize::try_from(*sum).is_ok())?;
            Some(len)
        };
        pieces.iter().map(|piece| len(piece).ok_or(ErrorClass::Count)).collect()
    }

    /// Whether all its data is within the first `len` bytes of its buffer.
    fn is_within(&self, len: usize) -> bool {
        let Ok((low, high)) = self.datatype.span(self.count) else { return false };
        let bound = |end: isize| self.at.checked_add(end).and_then(|end| usize::try_from(end).ok());
        low == high || bound(low).is_some() && bound(high).is_some_and(|end| end <= len)
    }
}

impl Communicator {
    pub(super) fn prepare_alltoall_pieces<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        to: &[Piece],
        from: &[Piece],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let (given, to) = self.pieces_of(data, to, self.others())?;
        let (room, from) = self.pieces_of_mut(all, from, self.others())?;
        self.check_own(&to, &from)?;
        let call = Call::Alltoallv { to: Blocks::Lens(&to), from: Blocks::Lens(&from) };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_neighbor_alltoall_pieces<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        to: &[Piece],
        from: &[Piece],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let around = self.around()?;
        let (given, to) = self.pieces_of(data, to, around.destinations().len())?;
        let (room, from) = self.pieces_of_mut(all, from, around.sources.len())?;
        let neighbors = around.neighbors();
        let call = Call::NeighborAlltoall { neighbors, to: Blocks::Lens(&to), from: Blocks::Lens(&from) };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    /// Where a piece of `data` is, all of it.
    pub(super) fn piece_of<T: Equivalence>(&self, data: &[T], piece: &Piece) -> Result<*const u8, ErrorClass> {
        self.pieces_of(data, from_ref(piece), 1)?;
        Ok(data.as_ptr().cast::<u8>().wrapping_offset(piece.at))
    }

    /// The same, to be written.
    pub(super) fn piece_of_mut<T: Equivalence>(&self, data: &mut [T], piece: &Piece) -> Result<*mut u8, ErrorClass> {
        self.pieces_of_mut(data, from_ref(piece), 1)?;
        Ok(data.as_mut_ptr().cast::<u8>().wrapping_offset(piece.at))
    }

    fn pieces_of<T: Equivalence>(
        &self,
        data: &[T],
        pieces: &[Piece],
        ranks: usize,
    ) -> Result<(Elements, Vec<usize>), ErrorClass> {
        let lens = check::<T>(size_of_val(data), pieces, ranks).map_err(|class| self.fail(class))?;
        Ok((Elements::each(data.as_ptr().cast::<u8>().cast_mut(), pieces), lens))
    }

    pub(super) fn pieces_of_mut<T: Equivalence>(
        &self,
        data: &mut [T],
        pieces: &[Piece],
        ranks: usize,
    ) -> Result<(Elements, Vec<usize>), ErrorClass> {
        let lens = check::<T>(size_of_val(data), pieces, ranks).map_err(|class| self.fail(class))?;
        Ok((Elements::each(data.as_mut_ptr().cast(), pieces), lens))
    }
}

/// Packed bytes of each of `pieces`, if there is one for each of `ranks`, and they are of `len` bytes of which all are data.
fn check<T: Equivalence>(len: usize, pieces: &[Piece], ranks: usize) -> Result<Vec<usize>, ErrorClass> {
    if pieces.len() != ranks {
        return Err(ErrorClass::Count);
    }
    // Bytes between data may have no value, and not any value may be written there.
    let gapless = match T::KIND {
        Some(kind) => kind.size() == kind.extent(),
        None => T::datatype().contiguous_run(1) == Some((0, size_of::<T>())),
    };
    if len > 0 && !gapless {
        return Err(ErrorClass::Type);
    }
    let lens = Piece::lens(pieces)?;
    if pieces.iter().all(|piece| piece.is_within(len)) { Ok(lens) } else { Err(ErrorClass::Buffer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_within_its_buffer_or_not() {
        let byte: Datatype = Predefined::Byte.into();
        let pair = Datatype::vector(2, 1, 3, &byte).unwrap();
        let backwards = byte.resized(0, -2).unwrap();
        let shifted = Datatype::hindexed_block(1, &[-3], &byte).unwrap();
        // Bytes 0 and 3 of each, which are 4 apart; 6, 4, 2 from the one at 6.
        for (of, count, at, len) in [(&pair, 2, 1, 9), (&backwards, 3, 6, 7), (&shifted, 1, 3, 1), (&shifted, 2, 3, 2)]
        {
            let piece = Piece::new(at, count, of);
            assert!(piece.is_within(len) && !piece.is_within(len - 1), "{piece:?} in {len} bytes");
        }
        assert!(!Piece::new(-1, 1, &byte).is_within(9));
        assert!(!Piece::new(3, 3, &backwards).is_within(9));
        assert!(!Piece::new(isize::MAX, 1, &byte).is_within(usize::MAX));
        assert!(!Piece::new(0, usize::MAX, &pair).is_within(usize::MAX));
        // Where nothing is read or written may be anywhere.
        assert!(Piece::new(-5, 0, &pair).is_within(0) && Piece::none().is_within(0));
    }

    #[test]
    fn lengths_are_packed_bytes_and_do_not_overflow() {
        let int: Datatype = Predefined::Int32.into();
        let pair = Datatype::vector(2, 1, 3, &int).unwrap();
        let pieces = [Piece::new(0, 3, &int), Piece::none(), Piece::new(8, 2, &pair)];
        assert_eq!(Piece::lens(&pieces), Ok(vec![12, 0, 16]));
        let half = Piece::new(0, isize::MAX as usize / 4, &int);
        assert_eq!(Piece::lens(std::slice::from_ref(&half)).map(drop), Ok(()));
        assert_eq!(Piece::lens(&[half.clone(), half]), Err(ErrorClass::Count));
        assert_eq!(Piece::lens(&[Piece::new(0, usize::MAX / 2, &int)]), Err(ErrorClass::Count));
    }
}
