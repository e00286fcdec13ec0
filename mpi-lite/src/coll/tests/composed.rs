//! What each rank gives, and an operator that makes something else of it in any other order: of tests here and of those that run calls.

use crate::coll::Reduction;

pub(crate) fn input(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + rank * 31 + at / 251) as u8).collect()
}

/// Composes maps a x + b of bytes: associative, and another result in any other order.
pub(crate) fn compose(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.chunks_exact_mut(2).zip(from.chunks_exact(2)) {
        into[1] = from[0].wrapping_mul(into[1]).wrapping_add(from[1]);
        into[0] = from[0].wrapping_mul(into[0]);
    }
}

pub(crate) const COMPOSE: Reduction = Reduction { element: 2, commutative: false };

/// What the inputs of ranks `0..members` come to.
pub(crate) fn combined(members: usize, len: usize) -> Vec<u8> {
    let mut result = input(members - 1, len);
    (0..members - 1).rev().for_each(|member| compose(&mut result, &input(member, len)));
    result
}
