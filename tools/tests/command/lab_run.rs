//! `sidelane lab run`, as it is used.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use crate::lab::{start, start_idle};
use crate::patience::{PATIENCE, ended, until};
use crate::stage::{Stage, as_a_shell_has_it, for_each_user, signal, signal_group_with_a_child};
use crate::terminal::Session;

#[test]
fn a_run_ends_with_its_command_and_takes_its_exit_code() {
    for_each_user(|stage| {
        assert_eq!(stage.output(&["lab", "run", "--", "sh", "-c", "exit 3"]).status.code(), Some(3));
        assert_eq!(stage.output(&["lab", "run", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
        for (program, code) in [("/no/such", 127), ("/etc", 126)] {
            let output = stage.output(&["lab", "run", "--", program]);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(
                output.status.code() == Some(code) && errors.contains(&format!("cannot run `{program}`")),
                "{errors}"
            );
        }
    });
}

/// As nohup(1) has it, by what is run and by the command.
#[test]
fn a_run_goes_on_after_a_hangup_that_is_ignored() {
    for_each_user(|stage| {
        let ignores = "for pid in $$ $PPID; do
                           mask=$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/$pid/status); [ $((0x$mask & 1)) = 1 ] || exit 1
                       done";
        let mut command = stage.command("sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(stage.program());
        let output = command.args(["lab", "run", "--", "sh", "-c", ignores]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    });
}

#[test]
fn what_a_run_leaves_in_the_background_is_ended() {
    for_each_user(|stage| {
        stage.text(&["lab", "run", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 &"]);
    });
}

#[test]
fn what_starts_another_one_while_it_is_ended_leaves_nothing() {
    let leaves = "trap 'setsid sleep 1000 & exit' TERM; echo at $$; while :; do sleep 1000 & wait; done";
    for_each_user(|stage| {
        stage.text(&["lab", "up"]);
        let inside = ["lab", "exec", "B", "--", "sh", "-c", leaves];
        let (mut exec, _) = start(&mut stage.sidelane(&inside), "at ");
        stage.text(&["lab", "down"]);
        exec.wait().unwrap();
        assert_eq!(stage.processes(), Vec::<u32>::new());
    });
}

#[test]
fn an_interrupted_run_ends_its_command_first() {
    for_each_user(|stage| {
        for number in [libc::SIGINT, libc::SIGTERM] {
            let (mut tool, inside) = start_idle(stage);
            signal(&tool, number);
            assert_eq!(as_a_shell_has_it(tool.wait().unwrap()), Some(128 + number));
            assert!(inside.wait(Duration::ZERO), "the command is gone before the tool is");

            let (lock, met) = (stage.runtime().join("lock"), stage.runtime().join("met"));
            let cleans_up = format!(
                "clean_up() {{ echo >{1}; [ $MODE = once ] || return; rm {0} {1}; exit 5; }}
                 echo >{0}; trap clean_up INT TERM; echo at $$; while :; do sleep 0.01; done",
                lock.display(),
                met.display()
            );
            for (mode, code) in [("once", 5), ("never", 128 + number)] {
                let run = ["lab", "run", "--", "sh", "-c", &cleans_up];
                let (mut tool, _) = start(stage.sidelane(&run).env("MODE", mode), "at ");
                signal(&tool, number);
                if mode == "never" {
                    until("the command has met the signal", || met.exists());
                    signal(&tool, number);
                }
                assert_eq!(as_a_shell_has_it(ended("the run", &mut tool, PATIENCE)), Some(code));
                assert_eq!(lock.exists(), mode == "never", "the command cleans up");
            }
            [lock, met].iter().for_each(|file| fs::remove_file(file).unwrap());
        }
    });
}

/// What is typed reaches the command by itself, and counts for nothing here; what a process sends reaches this one alone.
#[test]
fn at_a_terminal_a_run_hands_on_what_its_command_would_not_get() {
    let counts = "trap 'echo interrupted' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    for_each_user(|stage| {
        for typed in [true, false] {
            let mut session = Session::start(stage.sidelane(&["lab", "run", "--", "sh", "-c", counts]));
            assert_eq!(session.line(), "ready");
            if typed {
                session.type_in(b"\x03");
            } else {
                signal(&session.child, libc::SIGINT);
            }
            assert_eq!(session.line(), "interrupted");
            // The first one that it hands on, or the second, after which it waits no longer.
            signal(&session.child, libc::SIGTERM);
            assert_eq!(session.code(), Some(if typed { 7 } else { 128 + libc::SIGTERM }));
        }
    });
}

/// As in a sandbox that has no /dev/tty.
#[test]
fn what_is_typed_is_not_handed_on_where_the_terminal_cannot_be_asked() {
    let stage = Stage::own_user();
    if !stage.has_labs() || stage.in_user_namespace() {
        println!("skipped: needs root, who may mount");
        return;
    }
    let mut command = stage.command("unshare");
    let hides = "mount --bind /dev/null /dev/tty && exec \"$0\" lab run -- sh -c \"$1\"";
    let counts = "trap 'echo interrupted' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    command.args(["--mount", "sh", "-c", hides, &stage.program(), counts]);
    let mut session = Session::start(command);
    assert_eq!(session.line(), "ready");
    session.type_in(b"\x03");
    assert_eq!(session.line(), "interrupted");
    signal(&session.child, libc::SIGTERM);
    assert_eq!(session.code(), Some(7), "it is the first signal that is handed on");
    stage.assert_nothing_is_left();
}

/// What is started first is the lab's guard.
#[test]
fn a_signal_to_its_whole_group_ends_a_run_that_has_just_begun() {
    for_each_user(|stage| {
        for number in [libc::SIGINT, libc::SIGTERM].repeat(4) {
            let mut command = stage.sidelane(&["lab", "run", "--", "sleep", "1000"]);
            let tool = command.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
            signal_group_with_a_child(&tool, number);
            let output = tool.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!((as_a_shell_has_it(output.status), &*errors), (Some(128 + number), ""));
        }
    });
}
