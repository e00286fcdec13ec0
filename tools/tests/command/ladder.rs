//! The ladder as a user runs it: figures come out, and nothing is left however it ends.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use sidelane::lab::process::Process;
use sidelane_nic::affinity;

use crate::filter::refuse;
use crate::stage::{Stage, as_a_shell_has_it, for_each_user, signal};

/// The shortest ladder that has every rung.
const SHORT: [&str; 5] = ["--quick", "--rounds", "1", "--patterns", "ping-pong"];

/// Starts a ladder that would take minutes, and waits until both sides measure; returns its further errors too.
fn start_long(stage: &Stage) -> (Child, JoinHandle<String>) {
    let long = ["ladder", "--quick", "--rounds", "1000", "--patterns", "ping-pong"];
    let mut tool = stage.sidelane(&long).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines().map(Result::unwrap);
    let seen: Vec<String> = lines.by_ref().take_while(|line| !line.contains("round 1 of")).collect();
    assert!(lines.next().is_some(), "ended before round 2: {seen:?}");
    (tool, std::thread::spawn(move || lines.collect::<Vec<_>>().join("\n")))
}

/// Both sides of a running ladder.
fn sides(stage: &Stage, tool: &Child) -> Vec<Process> {
    let others = stage.processes().into_iter().filter(|pid| *pid != tool.id());
    let sides: Vec<Process> = others.filter_map(Process::open).collect();
    assert_eq!(sides.len(), 2);
    sides
}

#[test]
fn a_short_ladder_prints_a_table_and_writes_both_files() {
    for_each_user(|stage| {
        let file = |name| stage.runtime().join(name).to_str().unwrap().to_owned();
        let (json, csv) = (file("out.json"), file("out.csv"));
        let table = stage.text(&[&SHORT[..], &["--json", &json, "--csv", &csv]].concat());
        let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!(report["schema"], "sidelane-ladder/1");
        let [tenth, median] = ["tenth", "median"].map(|at| report["pace"][at].as_f64().unwrap());
        assert!(0.0 < tenth && tenth <= median && median <= 1.0, "{}", report["pace"]);
        let rungs = report["rungs"].as_array().unwrap();
        let names: Vec<&str> = rungs.iter().map(|row| row["name"].as_str().unwrap()).collect();
        for name in ["tcp-block", "tcp-poll", "udp-poll", "smoltcp-tcp", "raw", "proto", "am", "mpi", "put", "get"] {
            assert!(names.contains(&name), "{names:?}");
            assert!(table.contains(name), "{table}");
        }
        for row in rungs {
            assert!(row["half_rtt_ns"]["p50"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["beside"], serde_json::json!(["uring"]));
        }
        assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), names.len() + 1);
    });
}

/// What a ladder draws on a terminal of `columns` and of this kind, other than its table.
fn drawn(stage: &Stage, columns: u16, kind: &str) -> String {
    let (mut screen, mut terminal) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let null = std::ptr::null_mut();
    // SAFETY: Two valid places for the answer, and a size that is only read; the others may be null. The descriptors are ours then.
    let (mut screen, terminal) = unsafe {
        assert_eq!(libc::openpty(&raw mut screen, &raw mut terminal, null, null.cast(), &raw const size), 0);
        (fs::File::from_raw_fd(screen), OwnedFd::from_raw_fd(terminal))
    };
    let fabric = ["ladder", "--quick", "--rounds", "1", "--nic", "mem", "--rungs", "proto", "--patterns", "bandwidth"];
    let mut command = stage.sidelane(&fabric);
    let mut tool = command.env("TERM", kind).stdout(Stdio::null()).stderr(terminal).spawn().unwrap();
    // It keeps the terminal, which else ends with the tool.
    drop(command);
    let mut drawn = Vec::new();
    // Ends with EIO (pty(7)).
    let _ = screen.read_to_end(&mut drawn);
    assert!(tool.wait().unwrap().success());
    String::from_utf8(drawn).unwrap()
}

#[test]
fn how_far_it_is_fits_one_line_of_a_terminal_and_is_told_where_nothing_can_be_drawn() {
    let stage = Stage::own_user();
    let bar = drawn(&stage, 60, "xterm");
    assert!(bar.contains("proto bandwidth") && !bar.contains("\x1b[1A"), "it goes up a line: {bar:?}");
    let lines = drawn(&stage, 60, "dumb");
    assert!(lines.contains("mem: round 1 of 1"), "{lines:?}");
}

#[test]
fn figures_on_standard_output_stand_there_alone() {
    let stage = Stage::own_user();
    let ladder = ["ladder", "--nic", "shm", "--quick", "--rounds", "1", "--rungs", "raw", "--patterns", "ping-pong"];
    let run = |arguments: &[&str], more: &[&str]| {
        let output = stage.output(&[arguments, more].concat());
        let (out, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{errors}");
        (out, errors)
    };
    let (out, errors) = run(&ladder, &["--json", "-"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["schema"], "sidelane-ladder/1");
    assert!(errors.contains("raw"), "the table: {errors}");
    let (out, errors) = run(&ladder, &["--csv", "-"]);
    assert!(out.lines().count() == 2 && out.lines().all(|line| line.contains(',')), "{out}");
    assert!(errors.contains("raw"), "{errors}");
    let figures = stage.runtime().join("figures.json");
    let (out, errors) = run(&ladder, &["--html", "-", "--json", figures.to_str().unwrap()]);
    assert!(out.starts_with("<!DOCTYPE html>") && out.trim_end().ends_with("</html>"), "{out}");
    assert!(out.contains("<svg") && errors.contains("raw"), "{errors}");
    let (_, behind) = out.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
    let in_page: Value = serde_json::from_str(behind.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(in_page, serde_json::from_str::<Value>(&fs::read_to_string(figures).unwrap()).unwrap());
    let (out, _) = run(&["ladder", "--nic", "shm", "--breakdown"], &["--json", "-"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["schema"], "sidelane-breakdown/1");
    let barrier = ["ladder", "collectives", "--ranks", "2", "--rounds", "1", "--only", "barrier", "--sizes", "8"];
    let (out, errors) = run(&barrier, &["--json", "-"]);
    assert!(serde_json::from_str::<Value>(&out).unwrap().is_object() && errors.contains("barrier"), "{errors}");
    // What is built in is measured, not what the user's jobs go by.
    let tuning = stage.runtime().join("config/sidelane/tuning.json");
    fs::create_dir_all(tuning.parent().unwrap()).unwrap();
    fs::write(&tuning, "nonsense").unwrap();
    let untuned = stage.sidelane(&barrier).env("XDG_CONFIG_HOME", stage.runtime().join("config")).output().unwrap();
    assert!(untuned.status.success(), "{untuned:?}");
    let tuned = stage.sidelane(&barrier).env("SIDELANE_TUNING", &tuning).output().unwrap();
    let said = String::from_utf8(tuned.stderr).unwrap();
    assert!(!tuned.status.success() && said.contains("tuning.json makes no sense"), "{said}");
    for other in ["--csv", "--html"] {
        let both = stage.output(&[&ladder[..], &["--json", "-", other, "-"]].concat());
        assert!(String::from_utf8_lossy(&both.stderr).contains("there is room for one"), "{both:?}");
    }
    let log = stage.runtime().join("log");
    fs::write(&log, "precious\n").unwrap();
    let mut appending = stage.sidelane(&[&ladder[..], &["--json", "/dev/stdout"]].concat());
    let appended = appending.stdout(OpenOptions::new().append(true).open(&log).unwrap()).output().unwrap();
    assert!(String::from_utf8_lossy(&appended.stderr).contains("raw"), "the table: {appended:?}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(serde_json::from_str::<Value>(text.strip_prefix("precious\n").unwrap()).is_ok(), "{text}");
}

#[test]
fn what_was_written_before_stays_until_there_are_new_figures() {
    let stage = Stage::own_user();
    let file = stage.runtime().join("out.json");
    fs::write(&file, "former").unwrap();
    let json = ["--json", file.to_str().unwrap()];
    // Neither what is refused before the first measurement nor what turns out to be nothing costs the former figures.
    for (arguments, reason) in [
        (&["--nic", "uring:eth7"][..], "name the other machine with --peer"),
        (&["--nic", "shm", "--rungs", "proto-encrypted"], "nothing to measure: shm has none of these rungs"),
        (&["--nic", "shm", "--rungs", "get", "--patterns", "flood"], "nothing to measure"),
    ] {
        let output = stage.output(&[&["ladder", "--quick"][..], arguments, &json].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "former");
    }
    let study = stage.output(&[&["study", "chang", "--nic", "mem"][..], &json].concat());
    assert!(String::from_utf8_lossy(&study.stderr).contains("the fabric is in one"), "{study:?}");
    assert_eq!(fs::read_dir(stage.runtime()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn what_was_broken_down_before_a_failure_is_kept_and_once() {
    let stage = Stage::own_user();
    let file = stage.runtime().join("out.json");
    let nics = ["ladder", "--breakdown", "--nic", "shm,shm,mem", "--rungs", "proto,proto"];
    let output = stage.output(&[&nics[..], &["--json", file.to_str().unwrap()]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("error: mem: "), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let nics: Vec<_> = report["breakdowns"].as_array().unwrap().iter().map(|one| &one["nic"]).collect();
    assert_eq!(nics, ["shm"]);
}

/// Where who sends comes back after its frame has been seen, as on a veth pair, nothing of the way is missing.
#[test]
fn a_breakdown_of_a_kernels_driver_has_every_part() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let output = stage.output(&["ladder", "--breakdown", "--nic", "uring", "--rungs", "proto", "--json", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let parts = report["breakdowns"][0]["parts"].as_array().unwrap();
    assert!(parts.len() >= 7 && parts.iter().all(|part| part["ns"].is_number()), "{report}");
}

#[test]
fn a_study_without_a_lab_says_what_it_measures() {
    let stage = Stage::own_user();
    let mut study = stage.sidelane(&["study", "chang", "--nic", "udp"]);
    refuse(&mut study, libc::SYS_unshare, None, libc::EPERM);
    let mut study = study.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(study.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("no lab, so this runs on loopback")));
    signal(&study, libc::SIGINT);
    assert_eq!(as_a_shell_has_it(study.wait().unwrap()), Some(130));
    stage.assert_nothing_is_left();
}

#[test]
fn without_a_lab_the_ladder_says_why_and_measures_what_it_can() {
    // A user namespace has limits of its own: this forbids labs within, and nowhere else.
    let forbid = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";
    for_each_user(|stage| {
        if !stage.in_user_namespace() {
            println!("skipped as {}: its limits are the machine's", stage.who());
            return;
        }
        let program = stage.program();
        let run = |arguments: &[&str]| {
            let command = ["lab", "run", "--", "sh", "-c", forbid, "sh", &program];
            stage.output(&[&command[..], &SHORT, arguments].concat())
        };
        for (arguments, measured) in
            [(&[][..], ["on udp and shm", "raw shm"]), (&["--nic", "uring,mem"], ["on mem", "proto"])]
        {
            let output = run(arguments);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            assert!(errors.contains("user.max_net_namespaces"), "{errors}");
            let table = String::from_utf8(output.stdout).unwrap();
            assert!(measured.iter().all(|word| table.contains(word)), "{table}");
        }

        let output = run(&["--nic", "uring"]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(errors.contains("`--nic uring` and `--nic xdp` need a lab"), "{errors}");
        assert!(errors.contains("`--nic udp` measures on loopback"), "{errors}");

        let collectives = |more: &[&str]| {
            let calls = ["ladder", "collectives", "--ranks", "2", "--rounds", "1", "--only", "barrier", "--sizes", "8"];
            let command = ["lab", "run", "--", "sh", "-c", forbid, "sh", &program];
            let output = stage.output(&[&command[..], &calls, more].concat());
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        for (more, success) in [(&[][..], true), (&["--mpi", "/nosuch"], false)] {
            let (succeeded, errors) = collectives(more);
            assert!(succeeded == success && errors.contains("user.max_net_namespaces"), "{more:?}: {errors}");
        }
    });
}

#[test]
fn an_interrupted_ladder_ends_both_sides_first() {
    for_each_user(|stage| {
        let (mut tool, _) = start_long(stage);
        let sides = sides(stage, &tool);
        signal(&tool, libc::SIGINT);
        assert_eq!(as_a_shell_has_it(tool.wait().unwrap()), Some(130));
        assert!(sides.iter().all(|side| side.wait(Duration::ZERO)), "both are gone before the tool is");
    });
}

#[test]
fn nothing_survives_a_killed_ladder() {
    for_each_user(|stage| {
        let (mut tool, _) = start_long(stage);
        let sides = sides(stage, &tool);
        tool.kill().unwrap();
        tool.wait().unwrap();
        assert!(sides.iter().all(|side| side.wait(Duration::from_secs(30))));
    });
}

#[test]
fn an_interrupted_ladder_over_vhost_leaves_no_socket() {
    let Some((stage, mut tool, socket)) = waits_over_vhost() else { return };
    signal(&tool, libc::SIGINT);
    assert_eq!(as_a_shell_has_it(tool.wait().unwrap()), Some(130));
    assert!(!socket.exists());
    stage.assert_nothing_is_left();
}

#[test]
fn a_killed_ladder_over_vhost_leaves_no_socket() {
    let Some((stage, mut tool, socket)) = waits_over_vhost() else { return };
    tool.kill().unwrap();
    tool.wait().unwrap();
    // Waits for the end of who removes it.
    stage.assert_nothing_is_left();
    assert!(!socket.exists());
}

/// A ladder whose one side has made the socket, where the other one comes a while later. `None`, with the reason printed, where there is no
/// DPDK.
fn waits_over_vhost() -> Option<(Stage, Child, PathBuf)> {
    let stage = Stage::own_user();
    let report: Value = serde_json::from_slice(&stage.output(&["doctor", "--json"]).stdout).unwrap();
    let dpdk = report["drivers"].as_array().unwrap().iter().find(|driver| driver["name"] == "dpdk").unwrap();
    if dpdk["state"] != "runs" {
        println!("skipped: {}", dpdk["reason"]);
        return None;
    }
    let long = ["ladder", "--quick", "--rounds", "1000", "--patterns=ping-pong", "--nic", "vhost", "--rungs", "raw"];
    let mut tool = stage.sidelane(&long).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = std::env::temp_dir().join(format!("sidelane-ladder-{}.vhost.pair-9000", tool.id()));
    while !socket.exists() {
        assert_eq!(tool.try_wait().unwrap(), None, "it has ended");
        std::thread::yield_now();
    }
    Some((stage, tool, socket))
}

#[test]
fn a_driver_that_cannot_be_had_is_told_before_others_are_measured() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let ladder = ["ladder", "--quick", "--rungs", "raw", "--nic", "udp,vhost"];
    let tune = ["tune", "--quick", "--ranks", "0", "--output", "-", "--nic", "shm,vhost"];
    for asked in [&ladder[..], &tune] {
        // No socket can be made for it.
        let output = stage.sidelane(asked).env("TMPDIR", "/nonexistent").output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("error: vhost: side B: "), "something comes first: {errors}");
        assert_eq!(output.stdout, b"");
        stage.assert_nothing_is_left();
    }
}

#[test]
fn a_killed_side_ends_the_ladder_with_an_error() {
    for_each_user(|stage| {
        let (mut tool, errors) = start_long(stage);
        sides(stage, &tool)[1].signal(libc::SIGKILL).unwrap();
        assert_eq!(tool.wait().unwrap().code(), Some(1));
        let errors = errors.join().unwrap();
        assert!(errors.contains("died: signal: 9"), "{errors}");
    });
}

#[test]
fn two_machines_measure_with_each_other() {
    let stage = Stage::own_user();
    let mut server = stage.sidelane(&["ladder", "serve", "--listen", "127.0.0.1:0"]);
    let server = server.env("SIDELANE_NIC", "udp:127.0.0.1:0").stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = lines.next().unwrap();
    let (core, at) = serving.split_once(" on core ").unwrap().1.split_once(", at ").unwrap();
    let json = stage.runtime().join("two.json").to_str().unwrap().to_owned();
    let measure = ["ladder", "--nic", "udp:127.0.0.1:0", "--peer", at, "--rungs", "udp-poll,proto", "--json", &json];
    // Who connects and says nothing, or something else, keeps it from no ladder.
    let _silent = TcpStream::connect(at).unwrap();
    let mut stranger = TcpStream::connect(at).unwrap();
    stranger.write_all(b"x").unwrap();
    // Twice: it serves one after another. What both are told of one core they would otherwise each spin on.
    let alone = affinity::cores().len() == 1;
    for (options, shares) in [(&[][..], alone), (&["--core", core], true)] {
        let output = stage.output(&[&measure[..], &SHORT[..], options].concat());
        let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(table.contains("between two machines"), "{output:?}");
        assert_eq!(errors.contains(&format!("both sides are on core {core} of this machine")), shares, "{errors}");
    }
    // What is typed here variables say in guests of `lab qemu`.
    let mut told = stage.sidelane(&[&["ladder", "--rungs", "udp-poll,proto", "--core", "0"], &SHORT[..]].concat());
    let output = told.env("SIDELANE_NIC", "udp:127.0.0.1:0").env("SIDELANE_PEER", at).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("between two machines"), "{output:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let rungs: Vec<_> = report["rungs"].as_array().unwrap().iter().map(|row| (&row["name"], &row["regime"])).collect();
    assert_eq!(rungs, [(&"udp-poll".into(), &"wire".into()), (&"proto".into(), &"wire".into())]);
    assert_eq!(report["machine"], report["peer"]);
    let refused = stage.output(&["ladder", "--nic", "shm:here", "--peer", at]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("driver of a network"), "{refused:?}");
    signal(&server, libc::SIGINT);
    assert_eq!(as_a_shell_has_it(server.wait().unwrap()), Some(130));
    stage.assert_nothing_is_left();
}

/// A server that a shell became, and the lines that it writes for people.
fn serve_from_shell(stage: &Stage, script: &str) -> (Child, impl Iterator<Item = String>) {
    let mut shell = stage.command("sh");
    shell.args(["-c", &format!("{script}; exec \"$0\" \"$@\"")]).arg(stage.program());
    shell.args(["ladder", "serve", "--listen", "127.0.0.1:0", "--nic", "udp:127.0.0.1:0"]);
    let mut server = shell.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    (server, lines)
}

/// As nohup(1) has it.
#[test]
fn a_server_goes_on_after_a_hangup_that_is_ignored() {
    let stage = Stage::own_user();
    let (mut server, mut lines) = serve_from_shell(&stage, "trap '' HUP");
    assert!(lines.next().unwrap().starts_with("serving "));
    signal(&server, libc::SIGHUP);
    signal(&server, libc::SIGTERM);
    assert_eq!(server.wait().unwrap().code(), Some(143));
}

/// A shell that became the command may have children, such as what reads its output.
#[test]
fn a_signal_ends_nothing_that_was_there_before() {
    let stage = Stage::own_user();
    let (mut server, mut lines) = serve_from_shell(&stage, "sleep 1000 >/dev/null 2>&1 & echo $! >&2");
    let before = Process::open(lines.next().unwrap().parse().unwrap()).unwrap();
    assert!(lines.next().unwrap().starts_with("serving "));
    signal(&server, libc::SIGTERM);
    assert_eq!(server.wait().unwrap().code(), Some(143));
    assert!(!before.wait(Duration::ZERO), "it goes on");
    before.signal(libc::SIGKILL).unwrap();
    stage.assert_nothing_is_left();
}
