//! Who takes part in a communication: groups, topologies, and what a program hangs on them.

pub mod attribute;
pub mod cartesian;
pub mod collective;
mod error_class;
pub mod graph;
mod group;
pub mod info;

pub use error_class::ErrorClass;
pub use group::{Comparison, Group, GroupError, Range};
