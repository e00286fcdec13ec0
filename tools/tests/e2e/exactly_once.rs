//! Messages arrive exactly once, in order and unaltered, over drivers that lose, double and reorder frames.

use sidelane::soak::{Counts, Ending};

use crate::party::Party;
use crate::stage::{Stage, turn};

/// Sends `messages` in each direction with `faults` befalling every frame, and checks what both sides say.
fn exchange(stage: &Stage, messages: u64, faults: f64) -> [Counts; 2] {
    let settings = |at: usize| {
        let mut command = stage.side(at, 0);
        command.args(["--messages", &messages.to_string(), "--faults", &faults.to_string(), "--limit-s", "120"]);
        command.args(["--seed", &(at + 1).to_string()]);
        command
    };
    let (b, address) = Party::open("B", &mut settings(1));
    let (a, _) = Party::open("A", settings(0).args(["--connect", &address]));
    let (ended_a, ended_b) = (a.ended(), b.ended());
    for (ended, other) in [(&ended_a, &ended_b), (&ended_b, &ended_a)] {
        assert_eq!(ended.how, Ending::Closed, "{}", stage.name());
        assert!(ended.complete);
        assert_eq!((ended.sent, ended.received), (messages, messages));
        assert_eq!(ended.received_digest, other.sent_digest);
    }
    let counts = [a.done(), b.done()];
    for (side, counts) in ["A", "B"].iter().zip(&counts) {
        println!("{} {side}: {counts:?}", stage.name());
    }
    counts
}

#[test]
fn a_million_messages_survive_faulty_frames() {
    let _turn = turn();
    let Some(stage) = Stage::uring(true) else { return };
    for counts in exchange(&stage, 500_000, 0.05) {
        assert!(counts.faults.iter().all(|&fault| fault > 1000), "{:?}", counts.faults);
        assert!(counts.retransmitted > 0 && counts.duplicates > 0 && counts.reordered > 0);
    }
}

#[test]
fn super_packets_survive_faults_too() {
    let _turn = turn();
    let Some(stage) = Stage::uring(false) else { return };
    for counts in exchange(&stage, 50_000, 0.05) {
        assert!(counts.retransmitted > 0 && counts.duplicates > 0 && counts.reordered > 0);
    }
}

#[test]
fn faults_on_the_other_drivers_are_survived() {
    let _turn = turn();
    for stage in Stage::all("faults").iter().skip_while(|stage| stage.name() == "uring") {
        for counts in exchange(stage, 50_000, 0.05) {
            assert!(counts.faults.iter().sum::<u64>() > 0 && counts.retransmitted > 0, "{}: {counts:?}", stage.name());
        }
    }
}

#[test]
fn without_faults_every_driver_delivers() {
    let _turn = turn();
    for stage in Stage::all("plain") {
        exchange(&stage, 50_000, 0.0);
    }
}
