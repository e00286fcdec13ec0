//! Jobs at a terminal.

use std::ffi::c_int;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::own_stage;

/// A terminal, and what runs there.
struct Session {
    keyboard: File,
    child: Child,
    lines: Receiver<String>,
}

impl Session {
    /// Starts `command` in a session of its own, whose terminal is its input. Its output is a pipe.
    fn start(mut command: Command) -> Self {
        let (mut keyboard, mut terminal): (c_int, c_int) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: Both are valid places for the answer, and the other arguments may be null. The descriptors are ours then.
        let (keyboard, terminal) = unsafe {
            assert_eq!(libc::openpty(&raw mut keyboard, &raw mut terminal, null, null.cast(), null.cast()), 0);
            (File::from_raw_fd(keyboard), OwnedFd::from_raw_fd(terminal))
        };
        // SAFETY: Two async-signal-safe system calls, which take no pointer.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let streams = command.stdin(terminal).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = streams.spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line.unwrap())));
        Self { keyboard, child, lines }
    }

    fn type_in(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// The next line of output. A bound for a loaded machine: a job that is stopped says nothing for ever.
    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

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
