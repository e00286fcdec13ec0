//! A terminal, and somebody who types.

use std::ffi::c_int;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A terminal, and what runs there.
pub struct Session {
    keyboard: File,
    pub child: Child,
    lines: Receiver<String>,
}

impl Session {
    /// Starts `command` in a session of its own, whose terminal is its input. Its output is a pipe.
    pub fn start(mut command: Command) -> Self {
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

    pub fn type_in(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// The next line of output. A bound for a loaded machine: a job that is stopped says nothing for ever.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    pub fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}
