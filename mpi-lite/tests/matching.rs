//! What matching costs does not grow with what waits. The figures are those of `mpi-lite/examples/matching.rs`; here only what a list that
//! is gone through would make of them is told from what a table does: thousands of times as much.

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../examples/matching.rs"]
mod matching;

/// The least of some rounds: what others do on this machine only adds.
fn least(case: usize, waiting: i32) -> f64 {
    (0..ROUNDS).map(|_| matching::nanoseconds(case, waiting, MESSAGES)).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_message_costs_the_same_with_ten_thousand_others() {
    for (case, (name, _)) in matching::CASES.iter().enumerate() {
        let [few, many] = [1, 10_000].map(|waiting| least(case, waiting));
        println!("{name}: {few:.0} ns with one that waits, {many:.0} with 10,000");
        assert!(many < 5.0 * few, "{name}: {few:.0} ns with one that waits, {many:.0} with 10,000");
    }
}

const ROUNDS: usize = 5;
const MESSAGES: u32 = 2_000;
