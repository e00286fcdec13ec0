//! A killed peer is noticed in bounded time, and whoever comes after it at its address is somebody else.

use std::process::Command;
use std::time::Duration;

use sidelane::soak::Ending;

use crate::exactly_once::exchange;
use crate::party::Party;
use crate::stage::{Stage, turn};

/// The port of an address that may have one: another process shall have the same.
fn port(address: &str) -> u16 {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
}

/// Of A and B those whose end is another thing than the other's.
fn ends(stage: &Stage) -> &'static [usize] {
    if stage.is_pair() { &[0, 1] } else { &[1] }
}

/// The one at `killed` is killed; how long until the survivor says so. `idle`: nothing was under way.
fn noticed_after(stage: &Stage, killed: usize, idle: bool, keep_alive_ms: Option<u64>) -> Duration {
    let with = |mut command: Command| {
        if idle {
            command.arg("--idle");
        }
        command.args(["--progress-ms", if idle { "500" } else { "250" }]);
        if let Some(millis) = keep_alive_ms {
            command.args(["--keep-alive-ms", &millis.to_string()]);
        }
        command
    };
    let (a, address) = Party::open("A", &mut with(stage.side(0, 0)));
    let (b, _) = Party::open("B", with(stage.side(1, 0)).args(["--connect", &address]));
    let (mut victim, survivor) = if killed == 0 { (a, b) } else { (b, a) };
    survivor.connected();
    victim.connected();
    // Well into the traffic, or the silence.
    victim.progress();
    let killed_at = victim.kill();
    let ended = survivor.ended();
    assert!(matches!(ended.how, Ending::Gone(_)), "{}: {:?}", stage.name(), ended.how);
    let after = ended.at.saturating_duration_since(killed_at);
    println!(
        "{}, {killed} is killed, idle: {idle}, keep-alive {keep_alive_ms:?} ms: {:?} after {after:?}",
        stage.name(),
        ended.how
    );
    after
}

#[test]
fn a_killed_peer_is_noticed_within_a_second() {
    let _turn = turn();
    for stage in Stage::all("kill") {
        for idle in [false, true] {
            for &killed in ends(&stage) {
                let after = noticed_after(&stage, killed, idle, None);
                assert!(after <= Duration::from_secs(1), "{}, {killed} is killed: {after:?}", stage.name());
            }
        }
    }
}

#[test]
fn the_time_to_notice_is_settable() {
    let _turn = turn();
    for stage in Stage::all("set") {
        let after = noticed_after(&stage, 1, false, Some(KEEP_ALIVE_SHORT_MS));
        assert!(after <= Duration::from_millis(4 * KEEP_ALIVE_SHORT_MS) + STALL, "{}: {after:?}", stage.name());
    }
}

#[test]
fn a_restarted_peer_is_not_taken_for_the_old_one() {
    let _turn = turn();
    for stage in Stage::all("restart") {
        let (survivor, address) =
            Party::open("survivor", stage.side(0, 0).args(["--messages", "1000", "--lives", "2"]));
        let mut before = stage.side(1, 0);
        let (mut first, at) =
            Party::open("first", before.args(["--seed", "2", "--progress-ms", "250", "--connect", &address]));
        let (_, old_name) = survivor.connected();
        first.progress();
        first.kill();
        let mut again = stage.side(1, port(&at));
        let (second, at_again) =
            Party::open("second", again.args(["--seed", "3", "--messages", "1000", "--connect", &address]));
        assert_eq!(at, at_again);
        let old = survivor.ended();
        assert!(old.life == 0 && matches!(old.how, Ending::Gone(_)), "{}: {old:?}", stage.name());
        let (life, new_name) = survivor.connected();
        assert!(life == 1 && old_name != new_name);
        let (theirs, ours) = (second.ended(), survivor.ended());
        for ended in [&theirs, &ours] {
            assert!(ended.how == Ending::Closed && ended.complete, "{}: {ended:?}", stage.name());
            assert_eq!((ended.sent, ended.received), (1000, 1000));
        }
        assert_eq!(
            (ours.life, ours.received_digest, theirs.received_digest),
            (1, theirs.sent_digest, ours.sent_digest)
        );
        println!("{}: the old one {:?}, then {new_name}", stage.name(), old.how);
    }
}

/// A client's own end is over with its server's; who comes then meets who comes.
#[test]
fn a_pair_s_killed_server_has_a_successor_that_is_not_taken_for_it() {
    let _turn = turn();
    for stage in Stage::reliable("served").iter().filter(|stage| stage.is_pair()) {
        let (mut server, address) = Party::open("server", stage.side(0, 0).args(["--progress-ms", "250"]));
        let (survivor, _) = Party::open("survivor", stage.side(1, 0).args(["--lives", "2", "--connect", &address]));
        survivor.connected();
        server.progress();
        server.kill();
        assert!(matches!(survivor.ended().how, Ending::Gone(_)), "{}", stage.name());
        exchange(stage, 1000, 0.0);
        // It is there all the while, and hears of nobody else.
        survivor.progress();
    }
}

/// Nobody has fetched any of it, but the first message, when it is killed.
#[test]
fn what_a_killed_peer_had_sent_arrives() {
    let _turn = turn();
    for stage in Stage::reliable("sent") {
        for &killed in ends(&stage) {
            let with = |at: usize| {
                let mut command = stage.side(at, 0);
                command.arg("--idle");
                if at == killed {
                    // Fewer than there are slots in a pair's ring, all together.
                    command.args(["--messages", "100", "--size-max", "4096", "--progress-ms", "10"]);
                }
                command
            };
            let (a, address) = Party::open("A", &mut with(0));
            let (b, _) = Party::open("B", with(1).args(["--connect", &address]));
            let (mut victim, survivor) = if killed == 0 { (a, b) } else { (b, a) };
            survivor.connected();
            victim.settled(1);
            survivor.signal(libc::SIGSTOP);
            victim.stop();
            victim.settled(100);
            victim.kill();
            survivor.signal(libc::SIGCONT);
            let ended = survivor.ended();
            assert!(matches!(ended.how, Ending::Gone(_)), "{}, {killed} is killed: {ended:?}", stage.name());
            assert!(ended.received == 100, "{}, {killed} is killed: {ended:?}", stage.name());
        }
    }
}

/// A quarter of the default.
const KEEP_ALIVE_SHORT_MS: u64 = 56;
/// What a loaded machine may add between a timer and a line of output.
const STALL: Duration = Duration::from_millis(100);
