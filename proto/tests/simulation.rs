//! Seeds of the simulation, with every assertion of the protocol switched on.

use sidelane_proto::sim::{Scenario, run};

#[test]
fn stormy_seeds_pass_the_oracle() {
    let mut failed = 0;
    for seed in 0..500 {
        if let Err(violation) = run(&Scenario::stormy(seed)) {
            failed += 1;
            println!("seed {seed}: {violation}");
            println!("repeat it: cargo run --release -p sidelane-proto --example simulate -- --seed {seed}");
        }
    }
    assert_eq!(failed, 0, "seeds failed; see above");
}

#[test]
fn a_seed_repeats_its_run() {
    let play = || format!("{:?}", run(&Scenario::stormy(42)));
    assert_eq!(play(), play());
}
