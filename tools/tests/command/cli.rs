//! What the command says: help that teaches, errors that help, JSON that parses.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, pipe};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::patience::{PATIENCE, ended, until};
use crate::stage::{Stage, as_a_shell_has_it, signal};
use serde_json::Value;

fn error(arguments: &[&str]) -> String {
    let output = Stage::own_user().output(arguments);
    assert!(!output.status.success(), "sidelane {arguments:?} should fail");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn help_names_each_subcommand_and_gives_examples() {
    let stage = Stage::own_user();
    let help = stage.text(&["--help"]);
    for word in ["ladder", "lab", "doctor", "--nic", "--real-frames", "--json", "Examples:", "SIDELANE_LOG"] {
        assert!(help.contains(word), "`{word}` is missing in:\n{help}");
    }
    for hidden in ["probe", "side "] {
        assert!(!help.contains(&format!("  {hidden}")), "`{hidden}` shows in:\n{help}");
    }
    let help = stage.text(&["lab", "--help"]);
    for word in ["up", "down", "status", "exec", "run", "SIDELANE_A_IP"] {
        assert!(help.contains(word), "`{word}` is missing in:\n{help}");
    }
    for subcommand in ["ladder", "doctor"] {
        assert!(stage.text(&[subcommand, "--help"]).contains("Usage: sidelane"));
    }
}

#[test]
fn what_is_typed_wrong_is_answered_with_commands_that_help_shows() {
    for (arguments, hidden) in [(&["frob"][..], "probe"), (&["sid"], "side"), (&["lab", "keeper"], "keep")] {
        let text = error(arguments);
        assert!(text.contains("Usage: sidelane") && !text.contains(&format!("'{hidden}'")), "{text}");
        assert!(!text.contains("tip:") && !text.contains("\n\n\n"), "there is nothing else alike: {text}");
    }
    assert!(error(&["docto"]).contains("a similar subcommand exists: 'doctor'"));
}

#[test]
fn nics_are_listed_for_people_and_for_programs() {
    let stage = Stage::own_user();
    assert!(stage.text(&["nic", "list"]).contains("uring:lo"));
    let list: Value = serde_json::from_str(&stage.text(&["nic", "list", "--json"])).unwrap();
    assert_eq!(list["schema"], "sidelane-nics/1");
    let lo = list["nics"].as_array().unwrap().iter().find(|nic| nic["interface"] == "lo").unwrap();
    assert_eq!(lo["xdp"]["mode"], "generic");
}

#[test]
fn a_wrong_argument_is_answered_with_the_right_ones() {
    let text = error(&["--nic", "carrier-pigeon"]);
    assert!(text.contains("uring, xdp, udp, shm, mem"), "{text}");
    let text = error(&["--patterns", "flod"]);
    assert!(text.contains("flood"), "{text}");
    assert!(error(&["lab", "up", "--name", "../x"]).contains("a-z, 0-9"));
    assert!(error(&["lab", "up", "--hosts", "1"]).contains("2 to 26 hosts"));
    assert!(error(&["lab", "up", "--mtu", "40"]).contains("68 to 65535"));
    assert!(error(&["lab", "exec", "A", "--", "true"]).contains("`sidelane lab up`"));
    assert!(error(&["lab", "exec", "--name", "trio", "A", "--", "true"]).contains("`sidelane lab up --name trio`"));
    assert!(error(&["lab", "down"]).contains("no lab named `lab`"));
    for rounds in ["0", "x", "1001"] {
        assert!(error(&["ladder", "--rounds", rounds]).contains("a whole number from 1 to 1000"));
    }
    assert!(error(&["ladder", "--depth", "x"]).contains("a whole number from 1 to 64"));
    assert!(error(&["lab", "up", "--hosts", "x"]).contains("2 to 26 hosts"));
    assert!(error(&["lab", "up", "--mtu", "x"]).contains("a number of bytes"));
    assert!(error(&["ladder", "--depth", "8", "--patterns", "ping-pong"]).contains("--depth is of floods"));
    let text = error(&["ladder", "--depth", "64", "--sizes", "8,5M"]);
    assert!(
        text.contains("--depth 64 of messages of 5242880 B would be 320 MiB unanswered, and 256 are the most"),
        "{text}"
    );
    let text = error(&["ladder", "--breakdown", "--nic", "shm", "--sizes", "8,8M"]);
    assert!(text.contains("--breakdown is of messages of up to 4 MiB") && text.contains("8388608 B"), "{text}");
    let peer = ["ladder", "--peer", "127.0.0.1:9", "--nic", "udp:127.0.0.1:0"];
    assert!(error(&[&peer[..], &["--core", "5000"]].concat()).contains("this process may run on"));
    for port in ["99999", "0", "x", ""] {
        for host in ["localhost", "[::1]"] {
            let text = error(&["ladder", "--peer", &format!("{host}:{port}"), "--nic", "udp:127.0.0.1:0"]);
            assert!(text.contains(&format!("which `{port}` is not")), "{text}");
        }
    }
    assert!(error(&["ladder", "serve", "--nic", "uring:nosuch"]).contains("no interface `nosuch`"));
    assert!(error(&["ladder", "serve", "--nic", "shm:here"]).contains("name a driver of a network"));
    assert!(error(&["ladder", "collectives", "--ranks", "0"]).contains("1 to 256 ranks"));
    let text = error(&["tune", "--nic", "carrier-pigeon"]);
    assert!(text.contains("uring, xdp, udp, shm, memif and vhost") && !text.contains("dpdk"), "{text}");
    assert!(error(&["tune", "--nic", "mem"]).contains("no job runs on `mem`"));
    assert!(error(&["run", "-n", "18446744073709551615", "true"]).contains("1 to 65536 ranks"));
    assert!(error(&["lab", "qemu", "--timeout", "18446744073709551615"]).contains("1..=86400"));
    assert!(error(&["lab", "qemu", "--kernel", "/nosuch"]).contains("name the folder with --kernel"));
}

/// The command with these variables; whether it succeeded, and its output and errors.
fn with(variables: &[(&str, &str)], arguments: &[&str]) -> (bool, String, String) {
    let stage = Stage::own_user();
    let output = stage.sidelane(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn variables_are_read_by_commands_that_have_their_options() {
    let wrong = [("SIDELANE_NIC", "eth1"), ("SIDELANE_PEER", "no such host"), ("SIDELANE_MPI", "/nosuch")];
    for arguments in [&["nic", "list"][..], &["lab", "status"], &["ladder", "--help"], &["tune", "--help"]] {
        let (ok, _, errors) = with(&wrong, arguments);
        assert!(ok && errors.is_empty(), "{arguments:?}: {errors}");
    }
    // What is typed counts, and a variable is not read where its option would not be allowed.
    let (ok, _, errors) = with(&wrong, &["run", "-n", "1", "--nic", "udp", "true"]);
    assert!(ok && errors.is_empty(), "{errors}");
    let depth = ["ladder", "--nic", "mem", "--peer", "127.0.0.1:9", "--depth", "8"];
    assert!(with(&wrong, &depth).2.contains("driver must be named"), "with --peer");
    // Nobody has typed these.
    for (name, value) in [("SIDELANE_PEER", "127.0.0.1:9"), ("SIDELANE_MPI", "/nosuch")] {
        let (ok, _, errors) = with(&[(name, value)], &["ladder", "--quick", "--nic", "shm"]);
        assert!(!ok && errors.contains(name), "{errors}");
    }
    let (_, _, errors) = with(&wrong, &["ladder", "--nic", "mem", "--breakdown", "--rungs", "raw"]);
    assert!(errors.contains("--breakdown knows the rungs"), "{errors}");
}

#[test]
fn a_variable_stands_for_its_option_and_is_named_where_it_makes_no_sense() {
    let nic = [("SIDELANE_NIC", "eth1")];
    let commands: [&[&str]; 4] = [&["--quick"], &["ladder", "serve"], &["study", "chang"], &["run", "-n", "1", "true"]];
    for arguments in commands {
        let (ok, _, errors) = with(&nic, arguments);
        assert!(!ok && errors.starts_with("error: SIDELANE_NIC=eth1: "), "{arguments:?}: {errors}");
    }
    let (_, out, errors) = with(&[("SIDELANE_NICS", "udp:127.0.0.1:0 udp:127.0.0.1:0")], &["nic", "test"]);
    assert!(out.contains(" passed, "), "{errors}");
    let (_, _, errors) = with(&[("SIDELANE_NICS", "udp:127.0.0.1:0 eth1")], &["nic", "test"]);
    assert!(errors.starts_with("error: SIDELANE_NICS=udp:127.0.0.1:0 eth1: "), "{errors}");
}

#[test]
fn an_empty_variable_is_as_none() {
    let empty = ["SIDELANE_NIC", "SIDELANE_NICS", "SIDELANE_PEER", "SIDELANE_MPI"].map(|name| (name, ""));
    let (ok, _, errors) = with(&empty, &["run", "-n", "1", "true"]);
    assert!(ok && errors.is_empty(), "{errors}");
    let (ok, _, errors) = with(&empty, &FABRIC);
    assert!(ok, "{errors}");
    assert!(with(&empty, &["ladder", "serve"]).2.contains("name the driver to serve"));
    assert!(with(&empty, &["nic", "test"]).2.contains("no driver was named; name two or three"));
    assert!(with(&empty, &["ladder", "--core", "0"]).2.contains("name that with --peer"));
}

#[test]
fn the_suite_needs_two_drivers_of_one_kind() {
    assert!(error(&["nic", "test", "udp:127.0.0.1:0"]).contains("name two or three drivers"));
    assert!(error(&["nic", "test", "udp:127.0.0.1:0", "mem:"]).contains("mem: is of another kind"));
    assert!(error(&["nic", "test", "mem:", "mem:", "mem:", "mem:"]).contains("mem: would not be tested"));
    assert!(error(&["nic", "test", "shm:one", "shm:other"]).contains("shm:other is in another domain than shm:one"));
    let usage = Stage::own_user().output(&["nic", "test", "mem:"]).status.code();
    assert_eq!(usage, Some(2), "1 is for what was tested");
    let twice = |nic| error(&["nic", "test", nic, nic]);
    assert!(
        twice("uring:lo").contains("named twice; two on one interface need numbers of their own: write `,endpoint=1`")
    );
    assert!(
        twice("uring:lo,endpoint=1").contains("need numbers of their own: write another one than 1 for one of them")
    );
}

/// As a script of bash's that does not care for its own children has it.
#[test]
fn ends_of_children_that_were_ignored_before_the_command_are_heard() {
    let stage = Stage::own_user();
    let mut command = stage.command("bash");
    command.args(["-c", "trap '' CHLD; exec \"$0\" \"$@\"", &stage.program()]);
    let output = command.args(["ladder", "serve", "--nic", "uring:nosuch"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no interface `nosuch`"), "{errors}");
}

/// Measures for a tenth of a second.
const FABRIC: [&str; 9] =
    ["ladder", "--quick", "--rounds", "1", "--nic", "mem", "--rungs", "raw", "--patterns=ping-pong"];

#[test]
fn nobody_has_to_read() {
    let stage = Stage::own_user();
    for (arguments, code) in [(&FABRIC[..], 0), (&["run", "-n", "1", "/nosuch"], 127), (&["lab", "down"], 1)] {
        let closed = || pipe().unwrap().1;
        let status = stage.sidelane(arguments).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let stage = Stage::own_user();
    for arguments in
        [&FABRIC[..], &["lab", "status"], &["doctor"], &["--help"], &["run", "-h"], &["help", "lab"], &["--version"]]
    {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = stage.sidelane(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("No space left"), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_log_that_cannot_be_is_told_of_in_one_line() {
    let stage = Stage::own_user();
    let log = |filter: &str| {
        let output = stage.sidelane(&FABRIC).env("SIDELANE_LOG", filter).output().unwrap();
        assert!(output.status.success(), "{filter}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        errors.lines().filter(|line| line.contains("SIDELANE_LOG")).map(str::to_owned).collect::<Vec<_>>()
    };
    let told = log("sidelane_nic=verbose");
    assert!(matches!(&told[..], [line] if line.contains("sidelane_nic=verbose")), "{told:?}");
    assert_eq!(log("sidelane_nic=error"), [""; 0]);
}

/// The kernel asks for CAP_NET_RAW in the user namespace that owns the network namespace.
#[test]
fn root_of_a_user_namespace_is_told_what_helps_there() {
    let stage = Stage::own_user();
    let root = ["--user", "--map-root-user"];
    if !stage.command("unshare").args(root).arg("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: no user namespace here");
        return;
    }
    let own_network = [&root[..], &["--net"]].concat();
    let without_right = [&own_network[..], &["setpriv", "--bounding-set", "-net_raw"]].concat();
    for (namespaces, helps) in [
        (&root[..], "`unshare -Urn`"),
        (&own_network, "`ip link set lo up`"),
        (&without_right, "root lacks CAP_NET_RAW here, as in a container: start that with `--cap-add=NET_RAW`"),
    ] {
        let mut probe = stage.command("unshare");
        let output = probe.args(namespaces).arg(stage.program()).args(["probe", "uring:lo"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(helps), "{namespaces:?}: {errors}");
    }
}

#[test]
fn the_doctor_says_what_runs_and_why_the_rest_does_not() {
    for stage in Stage::each_user() {
        let output = stage.output(&["doctor", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["schema"], "sidelane-doctor/1");
        assert_eq!(output.status.success(), report["ready"] == true);
        let drivers = report["drivers"].as_array().unwrap();
        let state = |name: &str| &drivers.iter().find(|driver| driver["name"] == name).unwrap()["state"];
        assert_eq!(state("mem"), "runs");
        // One or the other, as this machine is; never a driver that does not exist.
        assert!(state("dpdk") == "runs" || state("dpdk") == "refused", "{}", state("dpdk"));
        for driver in drivers.iter().filter(|driver| driver["state"] == "refused") {
            assert!(!driver["reason"].as_str().unwrap().is_empty(), "{driver}");
        }
        assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
        let table = String::from_utf8(stage.output(&["doctor"]).stdout).unwrap();
        for driver in drivers {
            assert!(table.contains(driver["name"].as_str().unwrap()), "{table}");
        }
        // What takes a card or an interface from somebody mends nothing.
        let (_, mends) = table.split_once("\nWhat mends it:").unwrap_or_default();
        let mends = mends.split("\n\n").next().unwrap_or_default();
        for driver in
            drivers.iter().filter(|driver| driver["reason"].as_str().is_some_and(|why| why.contains("`sudo`")))
        {
            let remedy = driver["remedy"].as_str().unwrap_or_default();
            assert!(remedy.starts_with("sudo /") && mends.contains(remedy), "{driver}: {table}");
        }
        assert!(!mends.contains("unbind") && !mends.contains("ethtool"), "{table}");
        for card in report["dpdk"]["cards"].as_array().unwrap() {
            assert!(card["in_use"].is_boolean() || report["dpdk"]["routes_unknown"].is_string(), "{card}");
        }
        stage.assert_nothing_is_left();
    }
}

/// A shell's loop, and a script, ends with what Ctrl-C has killed, and goes on after an exit code.
#[test]
fn what_ctrl_c_ends_is_killed_by_it() {
    let stage = Stage::own_user();
    let waits = ["sh", "-c", "echo waits; exec sleep 1000"];
    let serves = ["ladder", "serve", "--nic", "udp:127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let mut commands = vec![[&["run", "-n", "1"], &waits[..]].concat(), serves.to_vec()];
    if stage.has_labs() {
        commands.push([&["lab", "run", "--"], &waits[..]].concat());
    }
    for arguments in commands {
        let (reader, writer) = pipe().unwrap();
        let mut command = stage.sidelane(&arguments);
        let mut tool = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        // It keeps both ends for others, with which the pipe would not end with the tool.
        drop(command);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert!(line.starts_with("waits") || line.starts_with("serving"), "{arguments:?}: {line}");
        signal(&tool, libc::SIGINT);
        assert_eq!(tool.wait().unwrap().signal(), Some(libc::SIGINT), "{arguments:?}");
    }
    stage.assert_nothing_is_left();
}

/// Also one whose output nobody reads, and that waits for somebody to.
#[test]
fn a_signal_ends_what_is_stuck_in_its_output() {
    let stage = Stage::own_user();
    for (by, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let (reader, writer) = pipe().unwrap();
        let mut others = writer.try_clone().unwrap();
        // Until it is full, and then for ever; ends with the reader.
        std::thread::spawn(move || io::copy(&mut io::repeat(b'x'), &mut others));
        let ladder = ["ladder", "--quick", "--rounds", "1", "--nic", "mem", "--rungs", "raw", "--patterns=ping-pong"];
        let mut tool = stage.sidelane(&ladder).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        let stuck = format!("{} 0x1 ", libc::SYS_write);
        let call = format!("/proc/{}/syscall", tool.id());
        until("it writes to standard output", || fs::read_to_string(&call).unwrap().starts_with(&stuck));
        signal(&tool, by);
        assert_eq!(as_a_shell_has_it(ended("the ladder", &mut tool, PATIENCE)), Some(code));
        drop(reader);
    }
    stage.assert_nothing_is_left();
}
