#![allow(unsafe_code)]
//! Collective calls on slices. Unsafe within, since the raw calls are.

use crate::coll::{Blocks, Call};
use crate::op::Op;

use super::calls::reduction;
use super::elements::Elements;
use super::{Communicator, Equivalence, ErrorClass};

impl Communicator {
    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<(), ErrorClass> {
        // SAFETY: there is no memory.
        unsafe { self.call_raw(Call::Barrier, Some(Elements::none()), Elements::none(), None) }
    }

    /// `data` of the root to all.
    pub fn broadcast<T: Equivalence>(&self, data: &mut [T], root: u32) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(Call::Broadcast { root }, Some(Elements::none()), Elements::of_mut(data), None) }
    }

    /// Everybody's `data` combined, element by element, into the root's `result`. Only the root's has to have room.
    pub fn reduce<T: Equivalence>(&self, data: &[T], result: &mut [T], op: &Op, root: u32) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        let datatype = T::datatype();
        let call = Call::Reduce { root, reduction: reduction(&datatype, op)? };
        let room = if self.is(root) { self.same(data.len(), result)? } else { Elements::none() };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, Some((&datatype, op))) }
    }

    /// Everybody's `data` combined, element by element, into everybody's `result`.
    pub fn allreduce<T: Equivalence>(&self, data: &[T], result: &mut [T], op: &Op) -> Result<(), ErrorClass> {
        let datatype = T::datatype();
        let call = Call::Allreduce { reduction: reduction(&datatype, op)? };
        let room = self.same(data.len(), result)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, Some((&datatype, op))) }
    }

    /// As [`Self::allreduce`], with the result in the place of the data.
    pub fn allreduce_in_place<T: Equivalence>(&self, data: &mut [T], op: &Op) -> Result<(), ErrorClass> {
        let datatype = T::datatype();
        let call = Call::Allreduce { reduction: reduction(&datatype, op)? };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, None, Elements::of_mut(data), Some((&datatype, op))) }
    }

    /// The `data` of all ranks up to this one combined.
    pub fn scan<T: Equivalence>(&self, data: &[T], result: &mut [T], op: &Op) -> Result<(), ErrorClass> {
        let datatype = T::datatype();
        let call = Call::Scan { reduction: reduction(&datatype, op)? };
        let room = self.same(data.len(), result)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, Some((&datatype, op))) }
    }

    /// The `data` of all ranks below this one combined. That of rank 0 stays as it is.
    pub fn exscan<T: Equivalence>(&self, data: &[T], result: &mut [T], op: &Op) -> Result<(), ErrorClass> {
        let datatype = T::datatype();
        let call = Call::Exscan { reduction: reduction(&datatype, op)? };
        let room = self.same(data.len(), result)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, Some((&datatype, op))) }
    }

    /// Everybody's `data` combined, of which each rank gets its block: as many elements as its `result` has, which is the
    /// same everywhere.
    pub fn reduce_scatter_block<T: Equivalence>(
        &self,
        data: &[T],
        result: &mut [T],
        op: &Op,
    ) -> Result<(), ErrorClass> {
        self.of_all(data.len(), result.len())?;
        let counts = vec![result.len(); self.size() as usize];
        self.reduce_scatter(data, result, &counts, op)
    }

    /// Everybody's `data` combined, of which rank `r` gets `counts[r]` elements.
    pub fn reduce_scatter<T: Equivalence>(
        &self,
        data: &[T],
        result: &mut [T],
        counts: &[usize],
        op: &Op,
    ) -> Result<(), ErrorClass> {
        self.blocks(counts, data.len())?;
        let datatype = T::datatype();
        let lens: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let call = Call::ReduceScatter { blocks: Blocks::Lens(&lens), reduction: reduction(&datatype, op)? };
        let room = self.same(counts[self.rank() as usize], result)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, Some((&datatype, op))) }
    }

    /// Everybody's `data`, by rank, to the root's `all`, which has room for as much of each.
    pub fn gather<T: Equivalence>(&self, data: &[T], all: &mut [T], root: u32) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        let call = Call::Gather { root, len: bytes::<T>(data.len()) };
        let room = if self.is(root) { self.all(data.len(), all)? } else { Elements::none() };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, None) }
    }

    /// As [`Self::gather`], `counts[r]` elements of rank `r`. Only the root's `counts` and `all` count.
    pub fn gather_varying<T: Equivalence>(
        &self,
        data: &[T],
        all: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        let lens: Vec<usize> = counts.iter().map(|count| bytes::<T>(*count)).collect();
        let is_root = self.is(root);
        if is_root {
            self.blocks(counts, all.len())?;
        }
        let call = Call::Gatherv { root, blocks: is_root.then_some(Blocks::Lens(&lens)) };
        let room = if is_root { Elements::of_mut(all) } else { Elements::none() };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, None) }
    }

    /// A block of the root's `all` to each rank's `data`, which is as long everywhere.
    pub fn scatter<T: Equivalence>(&self, all: &[T], data: &mut [T], root: u32) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        let call = Call::Scatter { root, len: bytes::<T>(data.len()) };
        let given = if self.is(root) {
            self.of_all(all.len(), data.len())?;
            Elements::of(all)
        } else {
            Elements::none()
        };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(given), Elements::of_mut(data), None) }
    }

    /// As [`Self::scatter`], `counts[r]` elements to rank `r`. Only the root's `counts` and `all` count.
    pub fn scatter_varying<T: Equivalence>(
        &self,
        all: &[T],
        counts: &[usize],
        data: &mut [T],
        root: u32,
    ) -> Result<(), ErrorClass> {
        let root = self.root(root)?;
        let lens: Vec<usize> = counts.iter().map(|count| bytes::<T>(*count)).collect();
        let is_root = self.is(root);
        if is_root {
            self.blocks(counts, all.len())?;
        }
        let call = Call::Scatterv { root, blocks: is_root.then_some(Blocks::Lens(&lens)) };
        let given = if is_root { Elements::of(all) } else { Elements::none() };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(given), Elements::of_mut(data), None) }
    }

    /// Everybody's `data`, by rank, to everybody's `all`.
    pub fn allgather<T: Equivalence>(&self, data: &[T], all: &mut [T]) -> Result<(), ErrorClass> {
        let call = Call::Allgather { len: bytes::<T>(data.len()) };
        let room = self.all(data.len(), all)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, None) }
    }

    /// As [`Self::allgather`], `counts[r]` elements of rank `r`.
    pub fn allgather_varying<T: Equivalence>(
        &self,
        data: &[T],
        all: &mut [T],
        counts: &[usize],
    ) -> Result<(), ErrorClass> {
        self.blocks(counts, all.len())?;
        if counts[self.rank() as usize] != data.len() {
            return Err(self.fail(ErrorClass::Count));
        }
        let lens: Vec<usize> = counts.iter().map(|count| bytes::<T>(*count)).collect();
        let call = Call::Allgatherv { blocks: Blocks::Lens(&lens) };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), Elements::of_mut(all), None) }
    }

    /// Block `r` of `data` to rank `r`, and what rank `r` has for us to block `r` of `all`.
    pub fn alltoall<T: Equivalence>(&self, data: &[T], all: &mut [T]) -> Result<(), ErrorClass> {
        let count = data.len() / self.size() as usize;
        self.of_all(data.len(), count)?;
        let call = Call::Alltoall { len: bytes::<T>(count) };
        let room = self.same(data.len(), all)?;
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), room, None) }
    }

    /// As [`Self::alltoall`], `to[r]` elements to rank `r` and `from[r]` of it, one block after the other.
    pub fn alltoall_varying<T: Equivalence>(
        &self,
        data: &[T],
        to: &[usize],
        all: &mut [T],
        from: &[usize],
    ) -> Result<(), ErrorClass> {
        self.blocks(to, data.len())?;
        self.blocks(from, all.len())?;
        let to: Vec<usize> = to.iter().map(|count| bytes::<T>(*count)).collect();
        let from: Vec<usize> = from.iter().map(|count| bytes::<T>(*count)).collect();
        let call = Call::Alltoallv { to: Blocks::Lens(&to), from: Blocks::Lens(&from) };
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(Elements::of(data)), Elements::of_mut(all), None) }
    }

    pub(super) fn root(&self, root: u32) -> Result<usize, ErrorClass> {
        if root < self.size() { Ok(root as usize) } else { Err(self.fail(ErrorClass::Root)) }
    }

    fn is(&self, root: usize) -> bool {
        self.rank() as usize == root
    }

    /// `room`, if it has `count` elements.
    pub(super) fn same<T: Equivalence>(&self, count: usize, room: &mut [T]) -> Result<Elements, ErrorClass> {
        if room.len() == count { Ok(Elements::of_mut(room)) } else { Err(self.fail(ErrorClass::Count)) }
    }

    /// `room`, if it has `count` elements for each rank.
    fn all<T: Equivalence>(&self, count: usize, room: &mut [T]) -> Result<Elements, ErrorClass> {
        self.of_all(room.len(), count)?;
        Ok(Elements::of_mut(room))
    }

    fn of_all(&self, all: usize, count: usize) -> Result<(), ErrorClass> {
        let fits = count.checked_mul(self.size() as usize) == Some(all);
        if fits { Ok(()) } else { Err(self.fail(ErrorClass::Count)) }
    }

    /// Whether there is a count for each rank, and elements for all.
    fn blocks(&self, counts: &[usize], elements: usize) -> Result<(), ErrorClass> {
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let fit = counts.len() == self.size() as usize && sum == Some(elements);
        if fit { Ok(()) } else { Err(self.fail(ErrorClass::Count)) }
    }
}

fn bytes<T: Equivalence>(count: usize) -> usize {
    count * T::datatype().size()
}
