//! Everybody's block to all.

mod bruck;
mod recursive_doubling;
mod ring;

pub use bruck::bruck;
pub use recursive_doubling::recursive_doubling;
pub use ring::ring;
