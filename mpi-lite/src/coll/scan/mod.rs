//! Each rank gets the combination of those up to it, or before it.

mod doubling;

pub use doubling::{exclusive, inclusive};
