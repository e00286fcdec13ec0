//! What running processes count is seen from outside, wherever they run, and goes with them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::party::Party;
use crate::stage::{Stage, program, turn};

fn stat(arguments: &[&str], pids: &[u32]) -> Output {
    let mut command = Command::new(program());
    command.arg("stat").args(arguments).args(pids.iter().map(u32::to_string));
    command.output().expect("the program was built")
}

fn processes(output: &Output) -> Vec<Value> {
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(json["schema"], "sidelane-stat/1");
    json["processes"].as_array().expect("a list").clone()
}

#[test]
fn two_running_processes_are_seen_until_they_are_killed() {
    let _turn = turn();
    for stage in Stage::all("stat") {
        let (survivor, address) = Party::open("survivor", &mut stage.side(0, 0));
        let (mut victim, at) =
            Party::open("victim", stage.side(1, 0).args(["--progress-ms", "250", "--connect", &address]));
        survivor.connected();
        victim.connected();
        victim.progress();
        let pids = [survivor.pid(), victim.pid()];
        let seen = stat(&["--once", "--json"], &pids);
        assert!(seen.status.success(), "{seen:?}");
        let seen = processes(&seen);
        assert_eq!(seen.len(), 2, "{}: {seen:?}", stage.name());
        let theirs = seen.iter().find(|process| process["pid"] == pids[1]).expect("asked for");
        assert!(theirs["command"].as_str().unwrap().contains("soak side"), "{theirs}");
        let endpoint = &theirs["endpoints"][0];
        let driver = if stage.is_pair() { "dpdk" } else { stage.name() };
        assert_eq!((&endpoint["driver"], &endpoint["address"]), (&driver.into(), &at.as_str().into()));
        let value = |name: &str| endpoint["values"][name].as_u64().unwrap_or_else(|| panic!("{name} in {endpoint}"));
        assert_eq!(value("peers"), 1);
        for grown in ["messages_sent", "messages_received", "nic.tx_frames", "nic.rx_bytes", "turns"] {
            assert!(value(grown) > 0, "{}: {grown}", stage.name());
        }
        // All that use Sidelane, without being named.
        let everybody = processes(&stat(&["--once", "--json"], &[]));
        assert!(pids.iter().all(|pid| everybody.iter().any(|process| process["pid"] == *pid)));

        victim.kill();
        let gone = stat(&["--once", "--json"], &[pids[1]]);
        assert_eq!((gone.status.code(), processes(&gone).len()), (Some(1), 0));
        let said = String::from_utf8(gone.stderr).unwrap();
        assert!(said.contains(&format!("process {} shows no counters", pids[1])), "{said}");
    }
}

#[test]
fn rates_are_shown_until_the_process_has_ended() {
    let _turn = turn();
    let stage = Stage::Udp;
    let (mut a, address) = Party::open("a", &mut stage.side(0, 0));
    let (mut b, _) = Party::open("b", stage.side(1, 0).args(["--connect", &address]));
    a.connected();
    b.progress();
    let mut live = Command::new(program());
    live.args(["stat", "--json", "--interval", "0.1", &a.pid().to_string()]);
    let mut live = live.stdout(Stdio::piped()).spawn().expect("the program was built");
    let mut lines = BufReader::new(live.stdout.take().expect("piped just now")).lines();
    let mut rate = || {
        let line: Value = serde_json::from_str(&lines.next().expect("another reading").unwrap()).unwrap();
        line["processes"][0]["endpoints"][0]["per_second"]["messages_received"].as_f64()
    };
    assert!((0..50).any(|_| rate() > Some(0.0)), "traffic flows, and none is seen");
    b.kill();
    a.kill();
    for line in lines {
        line.unwrap();
    }
    assert_eq!(live.wait().unwrap().code(), Some(0), "it ends when its process has");
}
