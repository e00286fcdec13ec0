//! Seeds of the simulation, with every assertion of the protocol switched on.

use sidelane_nic::fault::Faults;
use sidelane_nic::time::{Duration, Instant};
use sidelane_proto::Counters;
use sidelane_proto::sim::{Pause, Scenario, run};

#[test]
fn stormy_seeds_pass_the_oracle() {
    let mut failed = 0;
    let mut counts = [0; 5];
    for seed in 0..500 {
        match run(&Scenario::stormy(seed)) {
            Ok(outcome) => {
                for counters in outcome.counters {
                    let Counters { puts, atomics, placed_early, operations_failed, messages_in_place, .. } = counters;
                    let more = [puts, atomics, placed_early, operations_failed, messages_in_place];
                    counts.iter_mut().zip(more).for_each(|(sum, count)| *sum += count);
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
    assert!(counts.iter().all(|count| *count > 50), "puts, atomics, early, failed, in place: {counts:?}");
}

#[test]
fn a_seed_repeats_its_run() {
    let play = || format!("{:?}", run(&Scenario::stormy(42)));
    assert_eq!(play(), play());
}

/// As long as they like: who was stopped does not take the others for dead.
#[test]
fn all_stand_still_at_once_and_nobody_is_gone() {
    for (seed, millis) in [(1, 100), (2, 1_000), (3, 5_000), (4, 100_000)] {
        for from in [20_000, 100_000, 200_000] {
            let mut scenario = Scenario::calm(seed, 2_000);
            scenario.nodes = 3;
            scenario.mtu = vec![1500; 3];
            scenario.link.faults = Faults { loss: 0.05, ..Faults::NONE };
            let from = Instant::from_nanos(from);
            scenario.pause = Some(Pause { node: None, from, until: from + Duration::from_millis(millis) });
            let outcome = run(&scenario).unwrap_or_else(|violation| panic!("{violation}"));
            assert_eq!((outcome.gone, outcome.delivered), (0, 12_000), "{millis} ms from {from:?}: {outcome:?}");
            assert!(outcome.took > Duration::from_millis(millis), "it was over before");
        }
    }
}

/// The others have let it go after so long a time, and it learns that from them.
#[test]
fn one_stands_still_for_long_and_is_gone_for_the_others() {
    let mut scenario = Scenario::calm(1, 2_000);
    let from = Instant::from_nanos(200_000);
    scenario.pause = Some(Pause { node: Some(1), from, until: from + Duration::from_millis(5_000) });
    let outcome = run(&scenario).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(outcome.gone, 2, "{outcome:?}");
    let absences: Vec<u64> = outcome.counters.iter().map(|counters| counters.absences).collect();
    assert_eq!(absences, [0, 1]);
}
