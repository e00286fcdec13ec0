//! Everybody's arrays combined, element by element, at everybody's.

mod rabenseifner;
mod recursive_doubling;
mod ring;

pub use rabenseifner::rabenseifner;
pub use recursive_doubling::recursive_doubling;
pub use ring::ring;
