//! Collective calls whose result takes the place of what is given (`MPI_IN_PLACE`, MPI-4.1 6.2.1): what is checked of their
//! arguments. None is defined between two groups.

use crate::coll::{Blocks, Call, Reduction};
use crate::op::Op;

use super::elements::Elements;
use super::operand::Operand;
use super::pieces::Piece;
use super::prepare::{Part, Prepared, Root, Run, bytes};
use super::{Communicator, Counts, Equivalence, ErrorClass};

impl Communicator {
    pub(super) fn prepare_reduce_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let part = self.part(root)?;
        let operand = Operand::of::<T>();
        let call = Call::Reduce { root: part.root, reduction: operand.reduction(op)? };
        run(Prepared { operator: Some((&operand, op)), ..to_root(call, &part, data) })
    }

    pub(super) fn prepare_allreduce_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.prepare_reduction_in_place(data, op, |reduction| Call::Allreduce { reduction }, run)
    }

    pub(super) fn prepare_scan_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.prepare_reduction_in_place(data, op, |reduction| Call::Scan { reduction }, run)
    }

    pub(super) fn prepare_exscan_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.prepare_reduction_in_place(data, op, |reduction| Call::Exscan { reduction }, run)
    }

    pub(super) fn prepare_reduce_scatter_block_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let blocks = Blocks::Equal(self.of_each(data)? * size_of::<T>());
        self.prepare_reduction_in_place(data, op, |reduction| Call::ReduceScatter { blocks, reduction }, run)
    }

    pub(super) fn prepare_reduce_scatter_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        counts: &[usize],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        self.check_counts(counts, self.others(), data.len())?;
        let blocks = Blocks::Counts { counts, element: size_of::<T>() };
        self.prepare_reduction_in_place(data, op, |reduction| Call::ReduceScatter { blocks, reduction }, run)
    }

    pub(super) fn prepare_gather_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let part = self.part(root)?;
        let count = if part.is_root { self.of_each(data)? } else { data.len() };
        let call = Call::Gather { root: part.root, len: bytes::<T>(count) };
        run(to_root(call, &part, data))
    }

    pub(super) fn prepare_gather_varying_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        counts: &(impl Counts + ?Sized),
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let part = self.part(root)?;
        if !part.is_root {
            return run(to_root(Call::Gatherv { root: part.root, blocks: None }, &part, data));
        }
        let (room, blocks) = self.check_counts(counts, self.others(), data.len())?.written(data);
        run(in_place(Call::Gatherv { root: part.root, blocks: Some(blocks) }, room))
    }

    pub(super) fn prepare_scatter_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let part = self.part(root)?;
        let count = if part.is_root { self.of_each(data)? } else { data.len() };
        let call = Call::Scatter { root: part.root, len: bytes::<T>(count) };
        // The root's own block stays where it is: there is nowhere else.
        let (given, room) = if part.is_root {
            (Elements::of(data), Elements::none())
        } else {
            (Elements::none(), Elements::of_mut(data))
        };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_scatter_varying_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        counts: &(impl Counts + ?Sized),
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let part = self.part(root)?;
        let counted = if part.is_root { Some(self.check_counts(counts, self.others(), data.len())?) } else { None };
        let (given, blocks) = counted.map(|counted| counted.read(data)).unzip();
        let room = if part.is_root { Elements::none() } else { Elements::of_mut(data) };
        let (call, given) = (Call::Scatterv { root: part.root, blocks }, given.unwrap_or_else(Elements::none));
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_allgather_in_place<T: Equivalence, R>(
        &self,
        all: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let call = Call::Allgather { len: bytes::<T>(self.of_each(all)?) };
        run(in_place(call, Elements::of_mut(all)))
    }

    pub(super) fn prepare_allgather_varying_in_place<T: Equivalence, R>(
        &self,
        all: &mut [T],
        counts: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let checked = self.check_counts(counts, self.others(), all.len())?;
        let (room, blocks) = checked.written(all);
        run(in_place(Call::Allgatherv { blocks }, room))
    }

    pub(super) fn prepare_alltoall_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let call = Call::Alltoall { len: bytes::<T>(self.of_each(data)?) };
        run(in_place(call, Elements::of_mut(data)))
    }

    pub(super) fn prepare_alltoall_varying_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        counts: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let checked = self.check_counts(counts, self.others(), data.len())?;
        let (room, each) = checked.copied(data);
        run(in_place(Call::Alltoallv { to: each, from: each }, room))
    }

    pub(super) fn prepare_alltoall_pieces_in_place<T: Equivalence, R>(
        &self,
        data: &mut [T],
        pieces: &[Piece],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let (room, lens) = self.pieces_of_mut(data, pieces, self.others())?;
        let each = Blocks::Lens(&lens);
        run(in_place(Call::Alltoallv { to: each, from: each }, room))
    }

    fn prepare_reduction_in_place<'a, T: Equivalence, R>(
        &self,
        data: &mut [T],
        op: &Op,
        call: impl Fn(Reduction) -> Call<'a>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        let operand = Operand::of::<T>();
        let call = call(operand.reduction(op)?);
        run(Prepared { operator: Some((&operand, op)), ..in_place(call, Elements::of_mut(data)) })
    }

    /// How many elements are each rank's.
    fn of_each<T>(&self, all: &[T]) -> Result<usize, ErrorClass> {
        let count = all.len() / self.others();
        self.check_of_all(all.len(), count)?;
        Ok(count)
    }
}

/// What the root has comes to where it is; the others only give.
fn to_root<'a, T: Equivalence>(call: Call<'a>, part: &Part, data: &mut [T]) -> Prepared<'a> {
    if part.is_root {
        return in_place(call, Elements::of_mut(data));
    }
    Prepared { call, given: Some(Elements::of(data)), room: Elements::none(), operator: None }
}

const fn in_place(call: Call<'_>, room: Elements) -> Prepared<'_> {
    Prepared { call, given: None, room, operator: None }
}
