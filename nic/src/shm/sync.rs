//! The atomics that the ring and the doorbell are written against: the real ones, or loom's model of them.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
