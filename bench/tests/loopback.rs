//! The ladder end to end over loopback, with tiny durations: this program runs itself as the two sides.

#[path = "../../nic/tests/patience/mod.rs"]
mod patience;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use patience::{SUITE_PATIENCE, watch};
use sidelane_bench::contender::Contender;
use sidelane_bench::ladder::{self, End, Host, LadderError, NicKind, Plan, Reach, Regime, Rung};
use sidelane_bench::pattern::{Kind, Outcome, Pattern, Role};
use sidelane_bench::report::{Report, SCHEMA};
use sidelane_bench::side::{self, Answer, Layer, Measurement, Order, Path, Sealing};
use sidelane_bench::study::chang;
use sidelane_nic::affinity;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("side") {
        return side::main();
    }
    macro_rules! each_in_time {
        ($($part:ident)*) => {$(
            watch(stringify!($part), SUITE_PATIENCE);
            $part();
        )*};
    }
    each_in_time! {
        kernel_rungs_have_every_figure
        both_ends_of_the_fabric_run_in_one_side
        our_rungs_run_on_udp_sockets
        our_rungs_run_on_shared_memory
        rungs_that_answer_have_floods_with_a_depth
        no_more_messages_are_unanswered_than_a_path_without_flow_control_holds
        beside_a_contender_mpi_sends_in_windows
        the_study_of_chang_has_every_figure
        a_side_stays_open_until_the_other_has_played
        a_side_refuses_what_it_cannot_play
        a_side_refuses_an_order_without_end
        a_side_that_dies_ends_the_run_with_its_name
        a_side_that_is_silent_ends_the_run_with_its_name
        a_side_that_cannot_open_is_blamed_and_the_other_is_not
        a_run_can_be_called_off
    }
    ExitCode::SUCCESS
}

fn kernel_rungs_have_every_figure() {
    let rungs = vec![Rung::TcpBlock, Rung::TcpPoll, Rung::UdpPoll];
    // The largest exceeds what a path without flow control takes at once.
    let plan = Plan { sizes: vec![8, 3000, 700_000], rounds: 2, ..tiny(NicKind::Uring, rungs) };
    let mut told = Vec::new();
    let report = ladder::run(
        &plan,
        |_| Ok((this_program(0), this_program(1))),
        |progress| {
            told.push((progress.done, progress.total));
            true
        },
    )
    .unwrap();

    assert_eq!(report.schema, SCHEMA);
    assert_eq!(report.rungs.len(), 9);
    for row in &report.rungs {
        let half = row.half_rtt_ns.expect("every rung has a ping-pong");
        let known: Vec<f64> = [Some(half.min), Some(half.p50), half.p99, half.p999].into_iter().flatten().collect();
        assert!(half.n > 0 && known.is_sorted(), "{row:?}");
        assert!(row.msgs_per_s.unwrap() > 0.0, "{row:?}");
        assert_eq!(row.nic, None);
        assert_eq!(row.rounds.len(), plan.rounds);
        assert_eq!(row.gbit_per_s.is_some(), row.size == 8, "{row:?}");
    }
    let tcp = &report.rungs[1];
    assert!(tcp.msgs_per_s_gathered.is_some());
    let best = tcp.gbit_per_s_by_congestion.iter().map(|(_, gbit)| *gbit).fold(0.0, f64::max);
    assert!(tcp.gbit_per_s_by_congestion.is_empty() || tcp.gbit_per_s == Some(best));

    let json = report.to_json();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap().rungs.len(), report.rungs.len());
    assert_eq!(report.to_csv().lines().count(), 1 + 9);
    assert!(report.to_table().contains("tcp-poll"));
    assert!(told.windows(2).all(|two| two[0].0 + 1 == two[1].0), "progress moves by one: {told:?}");
    assert_eq!(told.first().map(|(done, _)| *done), Some(0));
    assert!(told.last().is_some_and(|(done, total)| done + 1 == *total));
}

fn both_ends_of_the_fabric_run_in_one_side() {
    our_rungs_have_every_figure(NicKind::Mem);
}

fn our_rungs_run_on_udp_sockets() {
    our_rungs_have_every_figure(NicKind::Udp);
}

fn our_rungs_run_on_shared_memory() {
    our_rungs_have_every_figure(NicKind::Shm);
}

fn our_rungs_have_every_figure(nic: NicKind) {
    let rungs = [Rung::Raw, Rung::Proto, Rung::Am, Rung::Mpi, Rung::Put, Rung::Get]
        .into_iter()
        .chain((nic != NicKind::Mem).then_some(Rung::SmoltcpTcp));
    let plan = Plan { sizes: vec![8, 700_000], ..tiny(nic, rungs.collect()) };
    let report = ladder::run(&plan, |_| Ok((place(nic, 0), place(nic, 1))), |_| true).unwrap();
    for row in &report.rungs {
        assert!(row.half_rtt_ns.is_some(), "{row:?}");
        assert_eq!(row.msgs_per_s.is_some(), row.name != Rung::Get, "{row:?}");
        assert_eq!(row.gbit_per_s.is_some(), row.size == 8, "{row:?}");
        assert_eq!(row.nic, Some(nic));
    }
    assert!(report.rungs[1].over_below_ns.is_some());
}

fn rungs_that_answer_have_floods_with_a_depth() {
    for nic in [NicKind::Shm, NicKind::Udp, NicKind::Mem] {
        let rungs = vec![Rung::TcpPoll, Rung::UdpPoll, Rung::Raw, Rung::Proto, Rung::Am, Rung::Put];
        let plan = Plan { depth: Some(8), sizes: vec![8, 1_000], ..tiny(nic, rungs) };
        let plan = Plan { regimes: vec![(Regime::DefaultOffloads, vec![Kind::Flood])], ..plan };
        let report = ladder::run(&plan, |_| Ok((place(nic, 0), place(nic, 1))), |_| true).unwrap();
        for row in &report.rungs {
            assert_eq!(row.msgs_per_s.is_some(), row.name != Rung::Put, "{row:?}");
        }
        assert!(report.to_table().contains("8 B, 8 deep"));
    }
}

fn no_more_messages_are_unanswered_than_a_path_without_flow_control_holds() {
    for nic in [NicKind::Mem, NicKind::Shm, NicKind::Udp] {
        // Each is of 44 frames on the fabric, and 64 are more than any socket buffer holds.
        let plan =
            Plan { depth: Some(64), sizes: vec![65_536], ..tiny(nic, vec![Rung::UdpPoll, Rung::Raw, Rung::Proto]) };
        let plan = Plan { regimes: vec![(Regime::DefaultOffloads, vec![Kind::Flood])], ..plan };
        let report = ladder::run(&plan, |_| Ok((place(nic, 0), place(nic, 1))), |_| true).unwrap();
        for row in &report.rungs {
            assert!(row.msgs_per_s.is_some() && row.again.is_empty(), "{row:?}");
            // How much the driver's socket holds is the system's to say.
            if row.nic != Some(NicKind::Udp) || row.name != Rung::Raw {
                let holds_few = row.name == Rung::UdpPoll || row.nic == Some(NicKind::Mem) && row.name == Rung::Raw;
                assert_eq!(row.depth_held.is_some(), holds_few, "{row:?}");
            }
        }
    }
}

/// Says the same each time.
struct Other(usize);

impl Contender for Other {
    fn name(&self) -> &str {
        "other"
    }

    fn version(&self) -> Option<&str> {
        Some("1")
    }

    fn play(&mut self, _: Regime, patterns: &[Pattern]) -> Result<Vec<Outcome>, String> {
        self.0 += 1;
        Ok(vec![Outcome { msgs_per_s: Some(1e3), ..Outcome::default() }; patterns.len()])
    }
}

fn beside_a_contender_mpi_sends_in_windows() {
    for nic in [NicKind::Shm, NicKind::Udp, NicKind::Mem] {
        let plan = Plan { rounds: 2, ..tiny(nic, vec![Rung::Mpi]) };
        let (mut other, mut told) = (Other(0), Vec::new());
        let report = ladder::run_beside(
            &plan,
            |_| Ok((place(nic, 0), place(nic, 1))),
            &mut [&mut other],
            |progress| {
                told.push((progress.done, progress.total, progress.round));
                true
            },
        )
        .unwrap();
        assert_eq!(other.0, plan.rounds, "it warms itself");
        assert!(told.windows(2).all(|two| two[0].0 + 1 == two[1].0 && two[0].2 <= two[1].2), "{told:?}");
        assert!(told.last().is_some_and(|(done, total, round)| done + 1 == *total && *round == plan.rounds));
        let lead = report.rungs[1].leads[0];
        assert!(lead.msgs_per_s.is_some() && lead.gbit_per_s.is_some(), "{nic}: {report:?}");
        assert!(report.to_table().contains("windows of 64 messages"));
    }
}

/// This program as side number `side`, on a driver that needs no lab.
fn place(nic: NicKind, side: usize) -> Host {
    let nics = match nic {
        NicKind::Shm => vec![(nic, format!("shm:loopback-{},endpoint={side}", std::process::id()))],
        _ => vec![(NicKind::Udp, "udp:127.0.0.1:0".to_owned())],
    };
    let host = this_program(side);
    Host { end: End { nics, ..host.end }, ..host }
}

fn the_study_of_chang_has_every_figure() {
    let hosts = |_| Ok((place(NicKind::Udp, 0), place(NicKind::Udp, 1)));
    let study = chang::run(NicKind::Udp, true, hosts, |_| true).unwrap();
    for row in &study.words {
        assert!(row.raw_ns.is_some() && row.proto_ns.is_some() && row.am_ns.is_some(), "{row:?}");
    }
    assert_eq!(study.costs.iter().map(|row| row.words).collect::<Vec<_>>(), [1, 2, 3, 4, 8, 16]);
    for row in &study.costs {
        assert!(row.request_ns > 0.0 && row.poll_empty_ns > 0.0 && row.poll_message_ns > 0.0, "{row:?}");
    }
    let read: chang::Chang = serde_json::from_str(&study.to_json()).unwrap();
    assert_eq!(read.words.len(), study.words.len());
}

/// A side to which this program is the ladder.
fn ordered() -> (Child, impl FnMut(Order), impl Iterator<Item = Answer>) {
    let Reach::Command(mut command) = this_program(0).reach else { unreachable!() };
    let mut side = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut orders, answers) = (side.stdin.take().unwrap(), BufReader::new(side.stdout.take().unwrap()));
    let tell = move |order: Order| writeln!(orders, "{}", serde_json::to_string(&order).unwrap()).unwrap();
    (side, tell, answers.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

fn flood(path: Path, depth: Option<usize>) -> Order {
    let limit_ns = 10_000_000_000;
    let pattern = Pattern { kind: Kind::Flood, size: 8, depth, warm_ns: 0, measure_ns: 1, limit_ns };
    let core = affinity::cores()[0];
    Order::Open(Measurement { role: Role::Initiator, core, crowded: false, path, pattern })
}

fn a_side_refuses_what_it_cannot_play() {
    let (mut side, mut tell, mut answers) = ordered();
    // A ladder's plan has neither.
    tell(flood(Path::Nic { layer: Layer::Proto(Sealing::None), nic: "mem:".into(), real_frames: false }, None));
    let Some(Answer::Failed { reason }) = answers.next() else { panic!("it plays with nobody") };
    assert!(reason.contains("reaches no other process"), "{reason}");
    tell(flood(Path::Fabric { layer: Layer::Put }, Some(8)));
    assert!(matches!(answers.next(), Some(Answer::Opened { .. })));
    tell(Order::Go { peer: String::new() });
    let Some(Answer::Failed { reason }) = answers.next() else { panic!("it plays what is not compiled") };
    assert!(reason.contains("no flood with a depth"), "{reason}");
    drop(tell);
    assert!(side.wait().unwrap().success());
}

/// This program is the other side too.
fn a_side_stays_open_until_the_other_has_played() {
    let (mut side, mut tell, mut answers) = ordered();
    for _ in 0..2 {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        tell(flood(Path::Nic { layer: Layer::Raw, nic: "udp:127.0.0.1:0".into(), real_frames: false }, None));
        let Some(Answer::Opened { at }) = answers.next() else { panic!("it did not open") };
        tell(Order::Go { peer: other.local_addr().unwrap().to_string() });
        assert!(matches!(answers.next(), Some(Answer::Done(_))));
        let at: SocketAddr = at.parse().unwrap();
        assert!(UdpSocket::bind(at).is_err(), "it closed before it was told to");
        tell(Order::Close);
        let give_up = Instant::now() + Duration::from_secs(10);
        while UdpSocket::bind(at).is_err() {
            assert!(Instant::now() < give_up, "it was told to close and did not");
            std::thread::yield_now();
        }
    }
    drop(tell);
    assert!(side.wait().unwrap().success());
}

fn a_side_refuses_an_order_without_end() {
    let Reach::Command(mut command) = this_program(0).reach else { unreachable!() };
    let mut side = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut orders = side.stdin.take().unwrap();
    // It may be gone before it has taken all.
    let _ = orders.write_all(&vec![b'x'; 1 << 20]);
    let answer = BufReader::new(side.stdout.take().unwrap()).lines().next().expect("it says why").unwrap();
    let Ok(Answer::Failed { reason }) = serde_json::from_str(&answer) else { panic!("{answer}") };
    assert!(reason.contains("longer than"), "{reason}");
    assert!(!side.wait().unwrap().success());
}

fn a_side_that_dies_ends_the_run_with_its_name() {
    let plan = tiny(NicKind::Uring, vec![Rung::TcpPoll]);
    let dead = || Host { reach: Reach::Command(Command::new("false")), ..this_program(1) };
    let error = ladder::run(&plan, |_| Ok((this_program(0), dead())), |_| true).unwrap_err().to_string();
    assert!(error.contains("tcp-poll") && error.contains("side B died"), "{error}");
}

fn a_side_that_is_silent_ends_the_run_with_its_name() {
    let plan = tiny(NicKind::Uring, vec![Rung::UdpPoll]);
    let mut sleeper = Command::new("sleep");
    sleeper.arg("60");
    let mut hosts = Some((Host { reach: Reach::Command(sleeper), ..this_program(0) }, this_program(1)));
    let error = ladder::run(&plan, |_| Ok(hosts.take().unwrap()), |_| true).unwrap_err().to_string();
    assert!(error.contains("udp-poll") && error.contains("side A was silent"), "{error}");
}

fn a_side_that_cannot_open_is_blamed_and_the_other_is_not() {
    let no_core = |side| Host { core: 1 << 20, ..this_program(side) };
    for rung in [Rung::TcpBlock, Rung::TcpPoll, Rung::UdpPoll] {
        let plan = tiny(NicKind::Uring, vec![rung]);
        for (at_fault, healthy) in [("side A", "side B"), ("side B", "side A")] {
            let hosts = || match at_fault {
                "side A" => (no_core(0), this_program(1)),
                _ => (this_program(0), no_core(1)),
            };
            let error = ladder::run(&plan, |_| Ok(hosts()), |_| true).unwrap_err().to_string();
            assert!(error.contains(&format!("{at_fault}: sched_setaffinity")) && !error.contains(healthy), "{error}");
        }
    }
    // What it says a terminal does not obey.
    let says = r#"while read order; do printf '{"failed":{"reason":"\\u001b[2J"}}\n'; done"#;
    let mut fails = Command::new("sh");
    fails.args(["-c", says]);
    let stranger = Host { reach: Reach::Command(fails), ..this_program(1) };
    let mut hosts = Some((this_program(0), stranger));
    let plan = tiny(NicKind::Uring, vec![Rung::TcpPoll]);
    let error = ladder::run(&plan, |_| Ok(hosts.take().unwrap()), |_| true).unwrap_err().to_string();
    assert!(error.contains(r"\u{1b}[2J") && !error.contains('\u{1b}'), "{error}");
    // One that cannot be called back is told behind what was first.
    let says = r#"read order; echo '{"opened":{"at":"127.0.0.1:9"}}'; read go; exec sleep 60"#;
    let mut opens = Command::new("sh");
    opens.args(["-c", says]);
    let deaf = Host { reach: Reach::Command(opens), patience: Duration::from_secs(5), ..this_program(1) };
    let mut hosts = Some((no_core(0), deaf));
    let plan = tiny(NicKind::Uring, vec![Rung::TcpPoll]);
    let error = ladder::run(&plan, |_| Ok(hosts.take().unwrap()), |_| true).unwrap_err().to_string();
    let (first, then) = (error.find("side A: sched_setaffinity"), error.find("; then side B was silent for 5s"));
    assert!(first.is_some() && then.is_some(), "{error}");
}

fn a_run_can_be_called_off() {
    let plan = tiny(NicKind::Uring, vec![Rung::UdpPoll]);
    let result = ladder::run(&plan, |_| Ok((this_program(0), this_program(1))), |progress| progress.done < 2);
    assert!(matches!(result, Err(LadderError::Interrupted)));
}

fn tiny(nic: NicKind, rungs: Vec<Rung>) -> Plan {
    Plan {
        rungs,
        nics: vec![nic],
        regimes: vec![(Regime::DefaultOffloads, vec![Kind::PingPong, Kind::Flood, Kind::Bandwidth])],
        sizes: vec![8],
        depth: None,
        bandwidth_size: Some(200_000),
        rounds: 1,
        warm: Duration::from_millis(2),
        // Several of the scheduler's slices, so that a side that has to wait for its core still has something to measure.
        measure: Duration::from_millis(80),
    }
}

fn this_program(side: usize) -> Host {
    let cores = affinity::cores();
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.arg("side");
    Host {
        reach: Reach::Command(command),
        end: End { ip: Ipv4Addr::LOCALHOST.into(), nics: Vec::new() },
        core: cores[side.min(cores.len() - 1)],
        patience: Host::PATIENCE,
    }
}
