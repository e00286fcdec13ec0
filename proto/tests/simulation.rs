//! Seeds of the simulation, with every assertion of the protocol switched on.

use sidelane_proto::sim::{Scenario, run};

#[test]
fn stormy_seeds_pass_the_oracle() {
    let mut failed = 0;
    let mut operations = [0; 4];
    for seed in 0..500 {
        match run(&Scenario::stormy(seed)) {
            Ok(outcome) => {
                for counters in outcome.counters {
                    let counts = [counters.puts, counters.atomics, counters.placed_early, counters.operations_failed];
                    operations.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                }
            }
            Err(violation) => {
                failed += 1;
                println!("seed {seed}: {violation}");
                println!("repeat it: cargo run --release -p sidelane-proto --example simulate -- --seed {seed}");
            }
        }
    }
    assert_eq!(failed, 0, "seeds failed; see above");
    assert!(operations.iter().all(|count| *count > 50), "puts, atomics, early, failed: {operations:?}");
}

#[test]
fn a_seed_repeats_its_run() {
    let play = || format!("{:?}", run(&Scenario::stormy(42)));
    assert_eq!(play(), play());
}
