//! What the network under load makes of the protocol, against the table that is kept.

use sidelane_proto::sim::load::table;

/// Goodput, queues, fairness and losses are the same each time: a change of the protocol shows as a difference here. When
/// it is meant: `cargo run --release -p sidelane-proto --example load >proto/tests/load.table`.
#[test]
fn loads_end_as_the_table_says() {
    let part = std::env::var("LOAD").unwrap_or_default();
    let table = table(&part);
    println!("{table}");
    assert!(!part.is_empty() || table == include_str!("load.table"), "the table is another one");
}
