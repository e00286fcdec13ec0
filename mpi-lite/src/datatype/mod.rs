//! What a message's bytes mean.

mod number;
mod predefined;

pub use number::Number;
pub use predefined::{Class, Predefined, Repr};
