//! `MPI_MINLOC` and `MPI_MAXLOC`: the extreme value and the smallest index that has it (MPI-4.1 6.9.4).

use std::cmp::Ordering;

use super::element::{F80, F128};
use super::{Element, Number, Predefined, Repr};

/// `into[i]` becomes `from[i]` where that compares to it as `wanted`, or is equal and has the smaller index.
pub(super) fn fold(kind: Predefined, into: &mut [u8], from: &[u8], wanted: Ordering) {
    match kind.repr() {
        Repr::Pair(Number::F32, Number::I32) => fold_pairs::<f32, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::F64, Number::I32) => fold_pairs::<f64, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::I64, Number::I32) => fold_pairs::<i64, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::I32, Number::I32) => fold_pairs::<i32, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::I16, Number::I32) => fold_pairs::<i16, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::F80, Number::I32) => fold_pairs::<F80, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::F128, Number::I32) => fold_pairs::<F128, i32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::F32, Number::F32) => fold_pairs::<f32, f32, _, _>(kind, into, from, wanted),
        Repr::Pair(Number::F64, Number::F64) => fold_pairs::<f64, f64, _, _>(kind, into, from, wanted),
        repr => unreachable!("no pair of the table: {repr:?}"),
    }
}

fn fold_pairs<V: Element<VN>, I: Element<IN>, const VN: usize, const IN: usize>(
    kind: Predefined,
    into: &mut [u8],
    from: &[u8],
    wanted: Ordering,
) {
    let index_at = kind.second_at();
    let extent = kind.extent();
    for (old, new) in into.chunks_exact_mut(extent).zip(from.chunks_exact(extent)) {
        let ordering = value::<V, VN>(new, 0).partial_cmp(&value::<V, VN>(old, 0));
        let first = || value::<I, IN>(new, index_at) < value::<I, IN>(old, index_at);
        if ordering == Some(wanted) || (ordering == Some(Ordering::Equal) && first()) {
            old[..VN].copy_from_slice(&new[..VN]);
            old[index_at..index_at + IN].copy_from_slice(&new[index_at..index_at + IN]);
        }
    }
}

fn value<T: Element<N>, const N: usize>(bytes: &[u8], at: usize) -> T {
    T::load(bytes[at..].first_chunk().copied().expect("a chunk is a whole element"))
}
