//! DPDK's environment as its process sees it. It starts once a process, so each test has one of its own. Where there is no libdpdk,
//! each test says so and passes.

mod libdpdk;
mod patience;

use std::process::{Command, Output};

use sidelane_nic::dpdk::{Config, Dpdk, OpenError};

#[test]
#[ignore = "runs in a process of its own: the test below starts it"]
fn started_with_a_wrong_argument() {
    let open = || Dpdk::open(&Config { eal: Some("--no-such-argument".to_owned()), ..Config::new("net_null0") });
    for _ in 0..2 {
        match open() {
            Err(OpenError::Environment { log, .. }) => println!("said: {log}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

#[test]
fn a_wrong_argument_is_told_and_nothing_is_printed() {
    if libdpdk::is_missing() {
        return;
    }
    let output = in_its_own_process("started_with_a_wrong_argument");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let said: Vec<&str> = printed.lines().filter_map(|line| line.split_once("said: ")).map(|(_, log)| log).collect();
    assert!(said.len() == 2 && said[0].contains("Invalid 'command line' arguments") && said[0] == said[1], "{printed}");
    assert!(!printed.contains("--lcores"), "{printed}");
}

/// What a test that is ignored here prints and comes to there.
fn in_its_own_process(test: &str) -> Output {
    let own = std::env::current_exe().unwrap();
    Command::new(own).args(["--exact", "--ignored", "--nocapture", test]).output().unwrap()
}
