//! Many words that are read as they were at one moment, by readers that the writer does not know of.
//!
//! Boehm, "Can seqlocks get along with programming language memory models?" (MSPC 2012), section 4: all words are atomics,
//! and two fences order them.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Writes `values` into the first of `words`. One thread writes.
pub(super) fn write(turn: &AtomicU64, words: &[AtomicU64], values: &[u64]) {
    let before = turn.load(Ordering::Relaxed);
    turn.store(before.wrapping_add(1), Ordering::Relaxed);
    // Whoever reads a word from below also sees the odd turn: pairs with the fence in `read`.
    fence(Ordering::Release);
    for (word, value) in words.iter().zip(values) {
        word.store(*value, Ordering::Relaxed);
    }
    // Pairs with the Acquire in `read`.
    turn.store(before.wrapping_add(2), Ordering::Release);
}

/// The words as they were at one moment. `None`: they are being written.
pub(super) fn read(turn: &AtomicU64, words: &[AtomicU64]) -> Option<Vec<u64>> {
    let before = turn.load(Ordering::Acquire);
    if before % 2 == 1 {
        return None;
    }
    let values = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    fence(Ordering::Acquire);
    (turn.load(Ordering::Relaxed) == before).then_some(values)
}
