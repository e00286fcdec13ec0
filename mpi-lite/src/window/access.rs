//! Operations on others' parts, which wait until what they were lent is free again.
#![allow(unsafe_code)] // The raw calls take memory by address.

use std::slice::{from_mut, from_ref};

use crate::comm::{Destination, Equivalence, ErrorClass};
use crate::op::Op;

use super::{Epoch, Kind, begin};

/// At [`Destination::Null`] nothing is done (MPI-4.1 12.3), and what would be fetched stays as it is.
impl<T: Equivalence, K: Kind> Epoch<'_, T, K> {
    /// Copies elements to a rank's part, from `at` on (`MPI_Put`). Returns when `data` may change; they are there when the epoch has
    /// ended, or was flushed.
    pub fn put(&self, data: &[T], rank: impl Into<Destination>, at: usize) -> Result<(), ErrorClass> {
        let rank = rank.into();
        // SAFETY: `data` is borrowed until the operation is over.
        self.window.done(|raw, turns| unsafe { begin::put(raw, turns, data, rank, at) })
    }

    /// Copies elements from a rank's part, from `at` on (`MPI_Get`). Returns when they are here. After an error any of them may have
    /// been written.
    pub fn get(&self, into: &mut [T], rank: impl Into<Destination>, at: usize) -> Result<(), ErrorClass> {
        let rank = rank.into();
        // SAFETY: `into` is borrowed until the operation is over.
        self.window.done(|raw, turns| unsafe { begin::get(raw, turns, into, rank, at) })
    }

    /// Combines elements of a rank's part, from `at` on, with ours: each predefined element atomically for all accumulates
    /// (`MPI_Accumulate`). Returns when `data` may change; it is done there when the epoch has ended, or was flushed.
    pub fn accumulate(&self, data: &[T], rank: impl Into<Destination>, at: usize, op: &Op) -> Result<(), ErrorClass> {
        let rank = rank.into();
        self.window.call(|raw, turns| begin::accumulate(raw, turns, data, rank, at, op)).map(drop)
    }

    /// As [`Self::accumulate`], and fetches what was there before (`MPI_Get_accumulate`). `data` may be shorter than `before`, of which
    /// the rest is only fetched; with [`Op::NoOp`] all of it is. Returns when that is here.
    pub fn get_accumulate(
        &self,
        data: &[T],
        before: &mut [T],
        rank: impl Into<Destination>,
        at: usize,
        op: &Op,
    ) -> Result<(), ErrorClass> {
        let rank = rank.into();
        // SAFETY: `before` is borrowed until the operation is over.
        self.window.done(|raw, turns| unsafe { begin::get_accumulate(raw, turns, (data, before), rank, at, op) })
    }

    /// [`Self::get_accumulate`] of one element, which it returns (`MPI_Fetch_and_op`); from nowhere `value`.
    pub fn fetch_and_op(&self, value: T, rank: impl Into<Destination>, at: usize, op: &Op) -> Result<T, ErrorClass> {
        let mut before = value;
        self.get_accumulate(from_ref(&value), from_mut(&mut before), rank, at, op)?;
        Ok(before)
    }

    /// Fetches one element, and puts `new` there if it is equal to `compare`, atomically for all accumulates
    /// (`MPI_Compare_and_swap`); from nowhere `compare`. `Op` of what is no integer.
    pub fn compare_and_swap(
        &self,
        compare: T,
        new: T,
        rank: impl Into<Destination>,
        at: usize,
    ) -> Result<T, ErrorClass> {
        let mut found = compare;
        let (new, compare, into) = ((&raw const new).cast(), (&raw const compare).cast(), (&raw mut found).cast());
        let (rank, at) = (begin::rank_of(rank.into()), begin::displacement(at));
        self.window.done(|raw, turns| {
            // SAFETY: all three are here until the operation is over, and are such elements.
            unsafe { raw.compare_and_swap(turns, new, compare, into, &T::datatype(), rank, at) }
        })?;
        Ok(found)
    }
}
