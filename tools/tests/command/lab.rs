//! Labs from the command line, as root and as an ordinary user: they work, and nothing of them is left.

use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::filter::refuse;
use crate::patience::{PATIENCE, ended, until, watch};
use crate::stage::{Stage, for_each_user};
use serde_json::Value;
use sidelane::lab::inherit;
use sidelane::lab::process::Process;

/// Starts a command and waits for its first line that starts with `with`; returns the rest of that line too.
pub fn start(command: &mut Command, with: &str) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix(with).map(str::to_owned));
    // Goes on reading, so that the child never meets a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (child, line.expect("the command said what was expected"))
}

/// A `lab run` whose command says its number and then does nothing; returns both processes.
pub fn start_idle(stage: &Stage) -> (Child, Process) {
    let idle = ["lab", "run", "--", "sh", "-c", "echo at $$; exec sleep 1000"];
    let (tool, inside) = start(&mut stage.sidelane(&idle), "at ");
    let inside = Process::open(inside.parse().unwrap()).unwrap();
    (tool, inside)
}

fn status(stage: &Stage) -> Vec<Value> {
    let text = stage.text(&["lab", "status", "--json"]);
    serde_json::from_str::<Value>(&text).unwrap()["labs"].as_array().unwrap().clone()
}

#[test]
fn hosts_exchange_datagrams() {
    for_each_user(|stage| {
        let program = stage.test_program();
        let part = |name| [program.as_str(), "--exact", name, "--ignored", "--nocapture"];
        stage.text(&["lab", "up", "--hosts", "3"]);
        let responder = [&["lab", "exec", "C", "--"][..], &part("lab::part_of_the_responder")].concat();
        let (mut responder, _) = start(&mut stage.sidelane(&responder), "ready");
        stage.text(&[&["lab", "exec", "A", "--"][..], &part("lab::part_of_the_initiator")].concat());
        assert!(responder.wait().unwrap().success());
        stage.text(&["lab", "down"]);
    });
}

#[test]
#[ignore = "run inside a lab by `hosts_exchange_datagrams`"]
fn part_of_the_responder() {
    let socket = UdpSocket::bind((std::env::var("SIDELANE_C_IP").unwrap(), PORT)).unwrap();
    println!("\nready");
    let mut buffer = [0; 2000];
    for _ in 0..EXCHANGES {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(&buffer[..len], from).unwrap();
    }
}

#[test]
#[ignore = "run inside a lab by `hosts_exchange_datagrams`"]
fn part_of_the_initiator() {
    assert_eq!(std::env::var("SIDELANE_HOST").unwrap(), "A");
    let socket = UdpSocket::bind((std::env::var("SIDELANE_A_IP").unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.connect((std::env::var("SIDELANE_C_IP").unwrap(), PORT)).unwrap();
    let mut buffer = [0; 2000];
    for i in 0..EXCHANGES {
        // From nothing to the largest datagram that fits an MTU of 1500.
        let message = vec![i as u8; i * 1472 / (EXCHANGES - 1)];
        socket.send(&message).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], message);
    }
}

const PORT: u16 = 7000;
const EXCHANGES: usize = 100;

#[test]
fn a_kept_lab_goes_through_its_whole_life() {
    for_each_user(|stage| {
        assert_eq!(status(stage).len(), 0);
        stage.text(&["lab", "up"]);
        stage.text(&["lab", "up", "--name", "second", "--real-frames", "--mtu", "9000"]);
        let labs = status(stage);
        assert_eq!(labs.iter().map(|lab| lab["name"].as_str().unwrap()).collect::<Vec<_>>(), ["lab", "second"]);
        assert_eq!(labs[1]["mtu"], 9000);
        for (lab, on) in labs.iter().zip([true, false]) {
            for host in lab["hosts"].as_array().unwrap() {
                assert_eq!(host["offloads"]["tso"], on, "{host}");
                assert_eq!(host["offloads"]["gso"], on, "{host}");
                assert_eq!(host["offloads"]["tx_checksum"], on, "{host}");
                assert!(on || host["offloads"]["gro"] == false, "{host}");
            }
        }
        let again = stage.output(&["lab", "up"]);
        assert!(!again.status.success());
        let errors = String::from_utf8_lossy(&again.stderr);
        assert!(errors.contains("up already; end it with `sidelane lab down`"), "{errors}");
        let again = stage.output(&["lab", "up", "--name", "second"]);
        let errors = String::from_utf8_lossy(&again.stderr);
        assert!(errors.contains("up already; end it with `sidelane lab down --name second`"), "{errors}");
        let code = stage.output(&["lab", "exec", "b", "--", "sh", "-c", "exit 7"]).status.code();
        assert_eq!(code, Some(7), "the exit code is the command's own");

        let idle = ["lab", "exec", "B", "--", "sh", "-c", "echo at $$; exec sleep 1000"];
        let (mut exec, inside) = start(&mut stage.sidelane(&idle), "at ");
        let inside: u64 = inside.parse().unwrap();
        assert_eq!(status(stage)[0]["hosts"][1]["processes"], serde_json::json!([inside]));
        assert!(stage.text(&["lab", "down"]).contains("one process inside"));
        assert!(!exec.wait().unwrap().success(), "the process inside was ended");
        stage.text(&["lab", "down", "--name", "second"]);
        assert_eq!(status(stage).len(), 0);
        assert!(!stage.output(&["lab", "down"]).status.success());
    });
}

/// Or the lines of a file, which `lab status` writes here.
#[test]
fn many_processes_on_a_host_fit_the_terminal() {
    for_each_user(|stage| {
        stage.text(&["lab", "up"]);
        let many = "for number in $(seq 40); do sleep 1000 & done; echo at $$; wait";
        let (mut exec, inside) = start(&mut stage.sidelane(&["lab", "exec", "B", "--", "sh", "-c", many]), "at ");
        let text = stage.text(&["lab", "status"]);
        assert!(text.contains(&inside) && text.lines().all(|line| line.chars().count() <= 120), "{text}");
        stage.text(&["lab", "down"]);
        exec.wait().unwrap();
    });
}

/// As after su(1), in cron(8) and in containers.
#[test]
fn users_without_a_runtime_directory_find_their_own_labs_from_inside_too() {
    let Some(users) = Stage::two_ordinary_users() else { return };
    let common = tempfile::tempdir().unwrap();
    fs::set_permissions(common.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let users: Vec<&Stage> = users.iter().filter(|stage| stage.has_labs()).collect();
    let text = |stage: &Stage, line: &str| {
        let program = stage.program();
        let arguments = line.split(' ').map(|word| if word == "sidelane" { &program } else { word });
        let mut command = stage.sidelane(&arguments.collect::<Vec<_>>());
        let output = command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", common.path()).output().unwrap();
        assert!(output.status.success(), "{line} as {}: {output:?}", stage.who());
        String::from_utf8(output.stdout).unwrap()
    };
    for stage in &users {
        // Inside they have the same number, and now their directories.
        assert!(text(stage, "lab run -- sidelane lab status").contains("no lab is up"));
        text(stage, "lab up");
    }
    for stage in &users {
        for line in ["lab status", "lab exec A -- sidelane lab status", "lab exec A -- unshare -Ur sidelane lab status"]
        {
            assert_eq!(text(stage, line).matches("lab `lab`").count(), 1, "{line} as {}", stage.who());
        }
        text(stage, "lab down");
        stage.assert_nothing_is_left();
    }
}

#[test]
fn a_command_that_was_given_raw_frames_has_labs_too() {
    for stage in Stage::each_user().iter().filter(|stage| stage.has_labs() && stage.give_raw_frames()) {
        let inside = ["lab", "run", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 3"];
        let output = stage.output(&inside);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let (mut tool, inside) = start_idle(stage);
        tool.kill().unwrap();
        tool.wait().unwrap();
        assert!(inside.wait(Duration::from_secs(30)), "the command is killed with the tool");
        stage.text(&["lab", "up"]);
        stage.text(&["lab", "exec", "B", "--", "true"]);
        assert_eq!(status(stage)[0]["name"], "lab");
        stage.text(&["lab", "down"]);
        stage.assert_nothing_is_left();
    }
}

#[test]
fn a_lab_whose_keeper_was_killed_is_noticed_and_cleaned() {
    for_each_user(|stage| {
        stage.text(&["lab", "up"]);
        let idle = ["lab", "exec", "B", "--", "sh", "-c", "sleep 1000 & echo at $$; wait"];
        let (mut exec, _) = start(&mut stage.sidelane(&idle), "at ");
        let keeper = Process::open(status(stage)[0]["pid"].as_u64().unwrap() as u32).unwrap();
        keeper.signal(libc::SIGKILL).unwrap();
        assert!(keeper.wait(Duration::from_secs(30)));
        assert!(!exec.wait().unwrap().success(), "what was inside was ended");
        let error = String::from_utf8(stage.output(&["lab", "exec", "A", "--", "true"]).stderr).unwrap();
        assert!(error.contains("no lab named `lab` is up"), "{error}");
        stage.assert_nothing_is_left();
        stage.text(&["lab", "up"]);
        stage.text(&["lab", "down"]);
    });
}

#[test]
fn a_keeper_ends_cleanly_when_asked_by_a_signal() {
    for_each_user(|stage| {
        stage.text(&["lab", "up"]);
        let keeper = Process::open(status(stage)[0]["pid"].as_u64().unwrap() as u32).unwrap();
        keeper.signal(libc::SIGTERM).unwrap();
        assert!(keeper.wait(Duration::from_secs(30)));
        stage.assert_nothing_is_left();
    });
}

#[test]
fn a_keeper_that_fails_hides_no_other_lab() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--name", "after"]);
        let path = stage.runtime().join("sidelane/before.lab");
        let failing = UnixListener::bind(&path).unwrap();
        // Nobody may connect to it too.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        // Ends with the test program; each client is hung up on.
        std::thread::spawn(move || failing.incoming().for_each(drop));
        let output = stage.output(&["lab", "status", "--json"]);
        let labs: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(labs["labs"][0]["name"], "after", "{labs}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("cannot ask the keeper of lab `before`"), "{errors}");
        assert_eq!(output.status.code(), Some(1));
        fs::remove_file(path).unwrap();
        stage.text(&["lab", "down", "--name", "after"]);
    });
}

#[test]
fn who_is_short_of_descriptors_is_told_so() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "26"]);
        for arguments in ["exec Z -- true", "status", "down"] {
            let line = format!("ulimit -n 20; exec \"$0\" lab {arguments}");
            let output = stage.command("sh").args(["-c", &line, &stage.program()]).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && errors.contains("Too many open files"), "{arguments}: {errors}");
        }
        stage.text(&["lab", "down"]);
    });
}

/// As when Ctrl-C ends `lab up` meanwhile.
#[test]
fn a_lab_that_nobody_hears_of_any_more_ends() {
    for_each_user(|stage| {
        let unheard = std::io::pipe().unwrap().1;
        let mut keeper = stage.sidelane(&["lab", "keep"]).stdout(unheard).spawn().unwrap();
        assert!(!ended("the keeper", &mut keeper, PATIENCE).success());
        assert_eq!(status(stage).len(), 0);
    });
}

#[test]
fn nothing_survives_a_killed_tool() {
    for_each_user(|stage| {
        let (mut tool, inside) = start_idle(stage);
        tool.kill().unwrap();
        tool.wait().unwrap();
        assert!(inside.wait(Duration::from_secs(30)), "the command is killed with the tool");
    });
}

/// The kernel kills only the command itself with the tool; what that has started is the guard's affair.
#[test]
fn what_a_command_started_does_not_survive_a_killed_tool() {
    for_each_user(|stage| {
        let family = "sleep 1000 & setsid sh -c 'sleep 1000; true' & echo at $!; wait";
        let (mut tool, inside) = start(&mut stage.sidelane(&["lab", "run", "--", "sh", "-c", family]), "at ");
        let inside = Process::open(inside.parse().unwrap()).unwrap();
        tool.kill().unwrap();
        tool.wait().unwrap();
        assert!(inside.wait(Duration::from_secs(30)), "the command's child is killed too");
    });
}

#[test]
fn nothing_survives_a_killed_command() {
    for_each_user(|stage| {
        let (mut tool, inside) = start_idle(stage);
        inside.signal(libc::SIGKILL).unwrap();
        assert_eq!(tool.wait().unwrap().code(), Some(137));
    });
}

#[test]
fn who_looks_for_labs_where_there_are_none_leaves_no_folder() {
    let stage = Stage::own_user();
    for asks in [&["lab", "status"][..], &["lab", "down"], &["lab", "exec", "B", "--", "true"]] {
        let output = stage.output(asks);
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(told.contains("is up; make one with `sidelane lab up`"), "{asks:?}: {told}");
        assert_eq!(fs::read_dir(stage.runtime()).unwrap().count(), 0, "{asks:?}");
    }
}

#[test]
fn the_last_lab_takes_the_folder_with_it() {
    for_each_user(|stage| {
        let is_there = || stage.runtime().join("sidelane").exists();
        ["one", "two"].iter().for_each(|name| drop(stage.text(&["lab", "up", "--name", name])));
        stage.text(&["lab", "down", "--name", "one"]);
        assert!(is_there(), "the other one is up");
        stage.text(&["lab", "down", "--name", "two"]);
        assert!(!is_there());
        // What a killed keeper leaves goes with whoever meets it.
        stage.text(&["lab", "up"]);
        let keeper = status(stage)[0]["pid"].as_u64().unwrap() as u32;
        let keeper = Process::open(keeper).unwrap();
        keeper.signal(libc::SIGKILL).unwrap();
        assert!(keeper.wait(PATIENCE));
        assert!(is_there());
        assert_eq!(status(stage), Vec::<Value>::new());
        assert!(!is_there());
    });
}

/// Also before Linux 5.9, and in sandboxes whose filter of system calls refuses close_range(2).
#[test]
fn a_lab_keeps_no_lock_of_the_script_that_made_it() {
    for_each_user(|stage| {
        let lock = stage.runtime().join("lock");
        for is_refused in [false, true] {
            let held = File::create(&lock).unwrap();
            held.lock().unwrap();
            let mut script = stage.sidelane(&["lab", "up"]);
            inherit(&mut script, vec![held.into()]);
            if is_refused {
                refuse(&mut script, libc::SYS_close_range, None, libc::ENOSYS);
            }
            assert!(script.output().unwrap().status.success());
            drop(script);
            // A process that another test starts may have a copy of it, until its exec.
            until("nobody has the lock", || File::open(&lock).unwrap().try_lock().is_ok());
            stage.text(&["lab", "down"]);
        }
    });
}

#[test]
fn a_lab_that_ends_while_it_is_asked_is_not_up() {
    let stage = Stage::own_user();
    let folder = stage.runtime().join("sidelane");
    DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let socket = folder.join("lab.lab");
    watch("what asks a keeper", PATIENCE);
    let asks = [["lab", "status"], ["lab", "down"]];
    for (asks, is_heard) in asks.into_iter().flat_map(|asks| [(asks, false), (asks, true)]) {
        let keeper = UnixListener::bind(&socket).unwrap();
        let tool = stage.sidelane(&asks).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut asked, _) = keeper.accept().unwrap();
        // What was not is told so by a reset, else it is an orderly end.
        if is_heard {
            asked.read_exact(&mut [0]).unwrap();
        }
        fs::remove_file(&socket).unwrap();
        drop((keeper, asked));
        let output = tool.wait_with_output().unwrap();
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(told.contains("is up; make one with `sidelane lab up`"), "{asks:?}: {told}");
    }
}

/// The keeper is in `/`, and whoever asks for it may be anywhere.
#[test]
fn a_relative_runtime_directory_is_ignored() {
    let Some([stage, _]) = Stage::two_ordinary_users() else { return };
    if !stage.has_labs() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let relative = place.path().join("rel");
    fs::create_dir(&relative).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    chown(&relative, Some(fs::metadata(stage.runtime()).unwrap().uid()), None).unwrap();
    for asks in ["up", "down"] {
        let mut command = stage.sidelane(&["lab", asks]);
        command.current_dir(place.path()).env("XDG_RUNTIME_DIR", "rel").env("TMPDIR", place.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{asks}: {output:?}");
    }
    assert_eq!(fs::read_dir(relative).unwrap().count(), 0);
    stage.assert_nothing_is_left();
}

#[test]
fn a_folder_whose_path_is_too_long_for_a_socket_is_named() {
    let stage = Stage::own_user();
    let long = stage.runtime().join("x".repeat(108));
    fs::create_dir(&long).unwrap();
    for asks in [&["lab", "up"][..], &["lab", "down"]] {
        let output = stage.sidelane(asks).env("XDG_RUNTIME_DIR", &long).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains("have XDG_RUNTIME_DIR name a folder"), "{errors}");
    }
}
