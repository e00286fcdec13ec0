#![allow(unsafe_code)]
//! Collective calls on slices: what is checked of their arguments, and the call that they are. Between two groups (MPI-4.1
//! 6.2.2) blocks are those of the other one.
//!
//! Each gives the call to `run`, which does or begins it. Unsafe within, since the raw calls are.

use crate::coll::{Blocks, Call};
use crate::op::Op;

use super::collective::NOBODY;
use super::elements::Elements;
use super::operand::{Operand, Operator};
use super::pending::Pending;
use super::{Communicator, Counts, Equivalence, ErrorClass};

/// Who gives or gets what all others get or give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A rank; of an intercommunicator, one of the other group.
    Rank(u32),
    /// Between two groups: this process (`MPI_ROOT`).
    Here,
    /// Between two groups: another one of this process's group, so that this process does nothing (`MPI_PROC_NULL`).
    Elsewhere,
}

impl From<u32> for Root {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

/// A call with arguments that fit.
pub(super) struct Prepared<'a> {
    pub call: Call<'a>,
    pub given: Option<Elements>,
    pub room: Elements,
    pub operator: Operator<'a>,
}

impl<'a> Prepared<'a> {
    /// Everybody gives, and has room.
    pub fn exchange<T: Equivalence>(call: Call<'a>, data: &[T], all: &mut [T]) -> Self {
        Self { call, given: Some(Elements::of(data)), room: Elements::of_mut(all), operator: None }
    }
}

/// What a process does in a call with a root.
pub(super) struct Part {
    /// As calls name it.
    pub root: usize,
    pub is_root: bool,
    /// It is one of those whom the root gives to or gets from: within one group it is so itself.
    pub is_other: bool,
}

impl Communicator {
    /// # Safety
    ///
    /// What was prepared is lent until this returns.
    #[inline(always)]
    pub(super) unsafe fn call(&self, it: Prepared<'_>) -> Result<(), ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.call_raw(it.call, it.given, it.room, it.operator) }
    }

    /// # Safety
    ///
    /// What was prepared is lent until the call is over.
    pub(super) unsafe fn start_call_of(&self, it: Prepared<'_>) -> Result<Pending, ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.start_call_raw(it.call, it.given, it.room, it.operator) }
    }

    pub(super) fn prepare_barrier<R>(&self, run: impl Run<R>) -> Result<R, ErrorClass> {
        run(Prepared { call: Call::Barrier, given: Some(Elements::none()), room: Elements::none(), operator: None })
    }

    pub(super) fn prepare_broadcast<T: Equivalence, R>(
        &self,
        data: &mut [T],
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let room = if part.is_root || part.is_other { Elements::of_mut(data) } else { Elements::none() };
        let call = Call::Broadcast { root: part.root };
        run(Prepared { call, given: Some(Elements::none()), room, operator: None })
    }

    pub(super) fn prepare_reduce<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let operand = Operand::of::<T>();
        let call = Call::Reduce { root: part.root, reduction: operand.reduction(op)? };
        let count = if part.is_other { data.len() } else { result.len() };
        let room = if part.is_root { self.same(count, result)? } else { Elements::none() };
        let given = if part.is_other { Elements::of(data) } else { Elements::none() };
        run(Prepared { call, given: Some(given), room, operator: Some((&operand, op)) })
    }

    pub(super) fn prepare_allreduce<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.prepare_reduction(data, result, op, |reduction| Call::Allreduce { reduction }, run)
    }

    pub(super) fn prepare_scan<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        self.prepare_reduction(data, result, op, |reduction| Call::Scan { reduction }, run)
    }

    pub(super) fn prepare_exscan<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.within_one_group()?;
        self.prepare_reduction(data, result, op, |reduction| Call::Exscan { reduction }, run)
    }

    pub(super) fn prepare_reduce_scatter_block<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        self.check(result.len().checked_mul(self.size() as usize) == Some(data.len()))?;
        let operand = Operand::of::<T>();
        let blocks = Blocks::Equal(size_of_val(result));
        let call = Call::ReduceScatter { blocks, reduction: operand.reduction(op)? };
        let (given, room) = (Some(Elements::of(data)), Elements::of_mut(result));
        run(Prepared { call, given, room, operator: Some((&operand, op)) })
    }

    pub(super) fn prepare_reduce_scatter<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        counts: &[usize],
        op: &Op,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        // Also between two groups these are blocks of our own: each gets what the other group gives.
        self.check_counts(counts, self.size() as usize, data.len())?;
        let operand = Operand::of::<T>();
        let blocks = Blocks::Counts { counts, element: size_of::<T>() };
        let call = Call::ReduceScatter { blocks, reduction: operand.reduction(op)? };
        let room = self.same(counts[self.rank() as usize], result)?;
        run(Prepared { call, given: Some(Elements::of(data)), room, operator: Some((&operand, op)) })
    }

    pub(super) fn prepare_gather<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let count = if part.is_other { data.len() } else { all.len() / self.others() };
        let call = Call::Gather { root: part.root, len: bytes::<T>(count) };
        let room = if part.is_root { self.room_of_all(count, all)? } else { Elements::none() };
        let given = if part.is_other { Elements::of(data) } else { Elements::none() };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_gather_varying<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        counts: &(impl Counts + ?Sized),
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let counted = if part.is_root { Some(self.check_counts(counts, self.others(), all.len())?) } else { None };
        let (room, blocks) = counted.map(|counted| counted.written(all)).unzip();
        let (call, room) = (Call::Gatherv { root: part.root, blocks }, room.unwrap_or_else(Elements::none));
        let given = if part.is_other { Elements::of(data) } else { Elements::none() };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_scatter<T: Equivalence, R>(
        &self,
        all: &[T],
        data: &mut [T],
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let count = if part.is_other { data.len() } else { all.len() / self.others() };
        if part.is_root {
            self.check_of_all(all.len(), count)?;
        }
        let call = Call::Scatter { root: part.root, len: bytes::<T>(count) };
        let given = if part.is_root { Elements::of(all) } else { Elements::none() };
        let room = if part.is_other { Elements::of_mut(data) } else { Elements::none() };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_scatter_varying<T: Equivalence, R>(
        &self,
        all: &[T],
        data: &mut [T],
        counts: &(impl Counts + ?Sized),
        root: impl Into<Root>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let part = self.part(root)?;
        let counted = if part.is_root { Some(self.check_counts(counts, self.others(), all.len())?) } else { None };
        let (given, blocks) = counted.map(|counted| counted.read(all)).unzip();
        let (call, given) = (Call::Scatterv { root: part.root, blocks }, given.unwrap_or_else(Elements::none));
        let room = if part.is_other { Elements::of_mut(data) } else { Elements::none() };
        run(Prepared { call, given: Some(given), room, operator: None })
    }

    pub(super) fn prepare_allgather<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        // Between two groups what comes may have another length.
        let count = if self.remote_group().is_some() { all.len() / self.others() } else { data.len() };
        let call = Call::Allgather { len: bytes::<T>(count) };
        let room = self.room_of_all(count, all)?;
        run(Prepared { call, given: Some(Elements::of(data)), room, operator: None })
    }

    pub(super) fn prepare_allgather_varying<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        counts: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let counted = self.check_counts(counts, self.others(), all.len())?;
        self.check(self.remote_group().is_some() || counted.counts[self.rank() as usize] == data.len())?;
        let (room, blocks) = counted.written(all);
        run(Prepared { call: Call::Allgatherv { blocks }, given: Some(Elements::of(data)), room, operator: None })
    }

    pub(super) fn prepare_alltoall<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let count = data.len() / self.others();
        self.check_of_all(data.len(), count)?;
        let room = match self.remote_group() {
            None => self.same(data.len(), all)?,
            Some(_) => self.room_of_all(all.len() / self.others(), all)?,
        };
        let call = Call::Alltoall { len: bytes::<T>(count) };
        run(Prepared { call, given: Some(Elements::of(data)), room, operator: None })
    }

    pub(super) fn prepare_alltoall_varying<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        to: &(impl Counts + ?Sized),
        from: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let to = self.check_counts(to, self.others(), data.len())?;
        let from = self.check_counts(from, self.others(), all.len())?;
        self.check_own(to.counts, from.counts)?;
        let ((given, to), (room, from)) = (to.read(data), from.written(all));
        run(Prepared { call: Call::Alltoallv { to, from }, given: Some(given), room, operator: None })
    }

    fn prepare_reduction<T: Equivalence, R>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
        call: impl Fn(crate::coll::Reduction) -> Call<'static>,
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let operand = Operand::of::<T>();
        let call = call(operand.reduction(op)?);
        let room = self.same(data.len(), result)?;
        run(Prepared { call, given: Some(Elements::of(data)), room, operator: Some((&operand, op)) })
    }

    /// The root as raw calls name it, also between two groups.
    pub fn root(&self, root: impl Into<Root>) -> Result<usize, ErrorClass> {
        self.part(root).map(|part| part.root)
    }

    #[inline]
    pub(super) fn part(&self, root: impl Into<Root>) -> Result<Part, ErrorClass> {
        let between = self.remote_group().is_some();
        match root.into() {
            Root::Rank(rank) if rank < self.peers().size() => {
                let is_root = !between && rank == self.rank();
                let root = if between { self.number_of(rank) } else { rank as usize };
                Ok(Part { root, is_root, is_other: true })
            }
            Root::Here if between => Ok(Part { root: self.own_number(), is_root: true, is_other: false }),
            Root::Elsewhere if between => Ok(Part { root: NOBODY, is_root: false, is_other: false }),
            _ => Err(self.fail(ErrorClass::Root)),
        }
    }

    /// Calls that are not defined between two groups.
    pub(super) fn within_one_group(&self) -> Result<(), ErrorClass> {
        if self.remote_group().is_none() { Ok(()) } else { Err(self.fail(ErrorClass::Comm)) }
    }

    pub(super) fn others(&self) -> usize {
        self.peers().size() as usize
    }

    /// `room`, if it has `count` elements.
    #[inline]
    fn same<T: Equivalence>(&self, count: usize, room: &mut [T]) -> Result<Elements, ErrorClass> {
        self.check(room.len() == count)?;
        Ok(Elements::of_mut(room))
    }

    /// `room`, if it has `count` elements for each rank.
    #[inline]
    fn room_of_all<T: Equivalence>(&self, count: usize, room: &mut [T]) -> Result<Elements, ErrorClass> {
        self.check_of_all(room.len(), count)?;
        Ok(Elements::of_mut(room))
    }

    pub(super) fn check_of_all(&self, all: usize, count: usize) -> Result<(), ErrorClass> {
        self.check(count.checked_mul(self.others()) == Some(all))
    }

    /// Whether what this rank gives itself is as long as its room for that; `to` and `from` have a number for each rank.
    pub(super) fn check_own(&self, to: &[usize], from: &[usize]) -> Result<(), ErrorClass> {
        let own = self.rank() as usize;
        self.check(self.remote_group().is_some() || to[own] == from[own])
    }

    pub(super) fn check(&self, fits: bool) -> Result<(), ErrorClass> {
        if fits { Ok(()) } else { Err(self.fail(ErrorClass::Count)) }
    }
}

/// What is done with a call that is prepared.
pub(super) trait Run<R>: FnOnce(Prepared<'_>) -> Result<R, ErrorClass> {}
impl<R, F: FnOnce(Prepared<'_>) -> Result<R, ErrorClass>> Run<R> for F {}

pub(super) fn bytes<T: Equivalence>(count: usize) -> usize {
    let known = const {
        match T::KIND {
            Some(kind) => Some(kind.size()),
            None => None,
        }
    };
    count * known.unwrap_or_else(|| T::datatype().size())
}
