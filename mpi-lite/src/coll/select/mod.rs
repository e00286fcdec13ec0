//! Which algorithm, for how many ranks and bytes: a table, compiled in or read from a file that a measurement wrote.

mod algorithm;
mod table;
mod text;

pub use algorithm::{Algorithm, Collective};
pub use table::{Case, Rule, Table};
pub use text::TableError;
