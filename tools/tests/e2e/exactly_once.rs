//! Messages arrive exactly once, in order and unaltered, over drivers that lose, double and reorder frames.

use sidelane::soak::{Counts, Ending};

use crate::party::Party;
use crate::stage::{Stage, turn};

/// Sends `messages` in each direction with `faults` befalling every frame, and checks what both sides say.
pub fn exchange(stage: &Stage, messages: u64, faults: f64) -> [Counts; 2] {
    let settings = |at: usize| {
        let mut command = stage.side(at, 0);
        command.args(["--messages", &messages.to_string(), "--faults", &faults.to_string(), "--limit-s", "120"]);
        command.args(["--seed", &(at + 1).to_string()]);
        command
    };
    let (a, address) = Party::open("A", &mut settings(0));
    let (b, _) = Party::open("B", settings(1).args(["--connect", &address]));
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
    // Over pairs it is the very protocol that it is over shared memory.
    let others = |stage: &&Stage| stage.name() != "uring" && !stage.is_pair();
    for stage in Stage::all("faults").iter().filter(others) {
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

/// Whoever has sent them closes at once, and its process ends.
#[test]
fn long_messages_before_a_close_arrive_whole() {
    let _turn = turn();
    for stage in Stage::all("hasty") {
        for hasty in [0, 1] {
            let settings = |at: usize| {
                let mut command = stage.side(at, 0);
                if at == hasty {
                    command.args(["--hasty", "--messages", "3", "--size-min", LONG, "--size-max", LONG]);
                } else {
                    command.arg("--idle");
                }
                command
            };
            let (a, address) = Party::open("A", &mut settings(0));
            let (b, _) = Party::open("B", settings(1).args(["--connect", &address]));
            let (a, b) = (a.ended(), b.ended());
            let (sender, receiver) = if hasty == 0 { (a, b) } else { (b, a) };
            assert!(receiver.complete, "{}, {hasty} closes: {receiver:?}", stage.name());
            assert_eq!((receiver.received, receiver.received_digest), (sender.sent, sender.sent_digest));
            for ended in [sender, receiver] {
                assert_eq!(ended.how, Ending::Closed, "{}, {hasty} closes", stage.name());
            }
        }
    }
}

/// Several rings of a pair: 2 MB.
const LONG: &str = "2000000";
