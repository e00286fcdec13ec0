//! Jobs at a terminal.

use std::process::Command;

use super::own_stage;
use crate::terminal::Session;

#[test]
fn what_is_typed_reaches_rank_0_byte_by_byte() {
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 0 ] || exit 0; echo ready; od -An -tx1 -N 5; cat; echo end";
        let mut session = Session::start(stage.sidelane(&["run", "-n", "2", "sh", "-c", script]));
        assert_eq!(session.line(), "ready");
        session.type_in(b"a\xff\x80b\n");
        assert_eq!(session.line().trim(), "61 ff 80 62 0a");
        session.type_in(b"more\n");
        assert_eq!(session.line(), "more");
        // Ctrl-D ends the input.
        session.type_in(b"\x04");
        assert_eq!((session.line().as_str(), session.code()), ("end", Some(0)));
    });
}

#[test]
fn a_job_in_the_background_goes_on_and_leaves_what_is_typed_to_the_shell() {
    own_stage(|stage| {
        let fifo = stage.runtime().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let at_shell = "set -m
            $0 run -n 1 sh -c 'echo ready; cat $0; echo went on; cat' $1
            bg >/dev/null
            echo stopped
            read word; echo shell: $word
            echo go >$1
            read word; echo shell: $word
            fg >/dev/null";
        let mut shell = stage.command("sh");
        shell.args(["-c", at_shell, &stage.program()]).arg(&fifo);
        let mut session = Session::start(shell);
        assert_eq!(session.line(), "ready");
        // Ctrl-Z.
        session.type_in(b"\x1a");
        assert_eq!(session.line(), "stopped");
        session.type_in(b"one\n");
        assert_eq!(session.line(), "shell: one");
        assert_eq!([session.line(), session.line()], ["go", "went on"]);
        session.type_in(b"two\n");
        assert_eq!(session.line(), "shell: two");
        session.type_in(b"three\n\x04");
        assert_eq!((session.line().as_str(), session.code()), ("three", Some(0)));
    });
}

/// Whoever has started the command is in another session, as with `ssh -t`: no shell could let it go on. Process 1 of a
/// container does not even stop.
#[test]
fn a_stop_that_nobody_could_end_is_none() {
    own_stage(|stage| {
        let script = "trap 'echo went on; exit 0' CONT; echo ready; while :; do sleep 0.01; done";
        let job = ["run", "-n", "2", "sh", "-c", script];
        let mut commands = vec![stage.sidelane(&job)];
        let mut container = stage.command("unshare");
        container.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--"]);
        if container.arg("true").status().is_ok_and(|status| status.success()) {
            let mut first = stage.command("unshare");
            first.args(container.get_args().filter(|word| *word != "true")).arg(stage.program()).args(job);
            commands.push(first);
        } else {
            println!("skipped for process 1: no namespace of processes here");
        }
        for command in commands {
            let mut session = Session::start(command);
            assert_eq!([session.line(), session.line()], ["ready", "ready"]);
            // Ctrl-Z.
            session.type_in(b"\x1a");
            assert_eq!([session.line(), session.line()], ["went on", "went on"]);
            assert_eq!(session.code(), Some(0));
        }
    });
}

#[test]
fn input_that_no_rank_shall_have_is_left_alone() {
    own_stage(|stage| {
        let script = "$0 run -n 1 --stdin none sh -c 'cat; echo ready; read word <$0; echo $word' $1
            read word; echo shell: $word";
        let fifo = stage.runtime().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut shell = stage.command("sh");
        shell.args(["-c", script, &stage.program()]).arg(&fifo);
        let mut session = Session::start(shell);
        assert_eq!(session.line(), "ready");
        session.type_in(b"for the shell\n");
        std::fs::write(&fifo, "go\n").unwrap();
        assert_eq!([session.line(), session.line()], ["go", "shell: for the shell"]);
        assert_eq!(session.code(), Some(0));
    });
}
