//! A hostile process on the same veth: nothing panics, nothing is delivered wrongly, every frame is accounted for.

use std::process::Stdio;

use sidelane::soak::{Counts, Flooded, Line};

use crate::party::Party;
use crate::stage::{Stage, turn};

/// The attacker on the host beside `victim`'s: a watcher with the victim, and a thrower that it feeds.
struct Attacker {
    _watcher: Party,
    thrower: Party,
}

impl Attacker {
    fn start(stage: &Stage, victim: usize, frames: u64, rate: Option<u64>) -> Self {
        let Stage::Uring(lab) = stage else { panic!("frames are forged on a veth") };
        let other = 1 - victim;
        let interface = lab.host(victim).interface();
        let address = |at: usize| format!("{}/1", lab.host(at).address().mac_text());
        let mut sniff = stage.soak(victim);
        let mut watcher = Party::raw("watcher", sniff.args(["sniff", "--interface", interface]));
        let live = watcher.child().stdout.take().expect("piped");
        let mut flood = stage.soak(other);
        flood.args(["flood", "--interface", interface, "--to", &address(victim), "--from", &address(other)]);
        flood.args(["--count", &frames.to_string(), "--seed", &victim.to_string()]);
        if let Some(rate) = rate {
            flood.args(["--rate", &rate.to_string()]);
        }
        let (thrower, _) = Party::open_with("thrower", &mut flood, Stdio::from(live));
        Self { _watcher: watcher, thrower }
    }

    fn done(&self) -> Flooded {
        self.thrower.expect(|line| match line {
            Line::Flooded(flooded) => Some(flooded.clone()),
            _ => None,
        })
    }
}

/// Both sides, with the options of `side`, exchange checked traffic while each is attacked with `frames` forgeries.
/// Returns what each counted.
fn endure(real_frames: bool, frames: u64, rate: Option<u64>, side: &[&str]) -> Option<[Counts; 2]> {
    let stage = Stage::uring(real_frames)?;
    let attackers = [0, 1].map(|victim| Attacker::start(&stage, victim, frames, rate));
    let settings = |at: usize| {
        let mut command = stage.side(at, 0);
        command.args(["--limit-s", "120", "--seed", &(at + 1).to_string()]).args(side);
        command
    };
    let (mut b, address) = Party::open("B", &mut settings(1));
    let (mut a, _) = Party::open("A", settings(0).args(["--connect", &address]));
    let floods = [&attackers[0], &attackers[1]].map(Attacker::done);
    a.stop();
    b.stop();
    let (ended_a, ended_b) = (a.ended(), b.ended());
    for (ended, other) in [(&ended_a, &ended_b), (&ended_b, &ended_a)] {
        assert!(ended.complete);
        assert_eq!((ended.received, ended.received_digest), (other.sent, other.sent_digest));
    }
    println!("{} and {} messages passed meanwhile", ended_a.received, ended_b.received);
    let counts = [a.done(), b.done()];
    for victim in [0, 1] {
        println!("{:?}\n{:?}", floods[victim], counts[victim]);
        check_accounts(&counts[victim], &counts[1 - victim], &floods[victim]);
    }
    Some(counts)
}

/// What was sent to the victim is what its driver saw, and what its driver showed is what its protocol took or refused.
fn check_accounts(victim: &Counts, peer: &Counts, flooded: &Flooded) {
    assert!(flooded.captured > 0, "the attack saw live frames");
    let most_left = flooded.sent > flooded.refused && flooded.kinds.values().all(|count| *count > 0);
    assert!(most_left, "every kind of forgery was thrown: {flooded:?}");
    let arrived = victim.rx_frames + victim.rx_foreign + victim.rx_dropped;
    let surely = peer.tx_frames + flooded.addressed;
    // The peer's last words may come when the victim no longer listens.
    assert!(arrived + LAST_WORDS >= surely, "{arrived} arrived of {surely} that were addressed to it");
    assert!(arrived <= surely + flooded.perhaps, "{arrived} arrived, and {surely} were addressed to it");
    let refused = victim.rejected_total();
    assert!(victim.rx_frames >= victim.frames_received);
    assert!(victim.rx_frames <= victim.frames_received + refused, "a frame was neither taken nor refused");
    // A Hello is taken, and may be refused when the burst is over.
    let refused_late = victim.frames_received + refused - victim.rx_frames;
    let may_be_late = ["Challenged", "TableFull"].iter().filter_map(|reason| victim.rejected.get(*reason)).sum();
    assert!(refused_late <= may_be_late, "{refused_late} frames were counted twice");
    assert!(refused > 0);
}

#[test]
fn a_million_forged_frames_do_no_harm() {
    let _turn = turn();
    let Some(counts) = endure(true, 500_000, Some(30_000), &[]) else { return };
    assert!(counts.iter().all(|victim| victim.duplicates > 0), "replays are known for what they are");
}

#[test]
fn forged_super_packets_at_full_speed_do_no_harm() {
    let _turn = turn();
    let Some(counts) = endure(false, 20_000, None, &[]) else { return };
    assert!(counts.iter().all(|victim| victim.duplicates > 0), "replays are known for what they are");
}

/// Whoever sits in the middle alters some frames, and sends others again as they were or with a check that holds.
#[test]
fn who_sits_in_the_middle_of_encrypted_traffic_does_no_harm() {
    let _turn = turn();
    let key = "2b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56a784d9045190cfe";
    let side = ["--key", key, "--altered", "0.02", "--faults", "0.01"];
    let Some(counts) = endure(true, 100_000, Some(30_000), &side) else { return };
    for victim in counts {
        for reason in ["Forged", "Replay", "Tag"] {
            assert!(victim.rejected.get(reason).is_some_and(|&count| count > 0), "{reason} in {:?}", victim.rejected);
        }
    }
}

/// Frames of an end of connection.
const LAST_WORDS: u64 = 64;
