//! Prints the table of the simulated network under load, as `tests/load.table` keeps it.
//!
//! `cargo run --release -p sidelane-proto --example load`; with a part of a load's name as argument, only those.

use sidelane_proto::sim::load::table;

fn main() {
    print!("{}", table(&std::env::args().nth(1).unwrap_or_default()));
}
