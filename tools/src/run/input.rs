//! Standard input for rank 0.
#![allow(unsafe_code)] // tcgetpgrp(3), poll(2), and a thread's mask of signals.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::Duration;

/// How rank 0 gets our standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// As it is: a file or a pipe of which the rank reads as much as it wants.
    Inherited,
    /// By a pipe that we fill. The rank is in a process group of its own, which must not read from the terminal.
    FromTerminal,
    /// Nothing: nobody wants it, or we are in the background ourselves.
    Nothing,
}

impl Input {
    /// What our own standard input allows.
    pub fn find() -> Self {
        match io::stdin().is_terminal() {
            false => Self::Inherited,
            true if matches!(is_in_foreground(), Ok(true)) => Self::FromTerminal,
            true => Self::Nothing,
        }
    }

    /// What rank 0 is started with.
    pub fn stdio(self) -> Stdio {
        match self {
            Self::Inherited => Stdio::inherit(),
            Self::FromTerminal => Stdio::piped(),
            Self::Nothing => Stdio::null(),
        }
    }
}

/// Copies what is typed to rank 0 until either side has enough. The thread ends with the process.
pub fn feed(to: ChildStdin) -> io::Result<()> {
    let terminal = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let copy = move || {
        ignore_background();
        // The terminal is gone, or the rank: nobody reads on.
        let _ = copy(terminal, to);
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(copy).map(drop)
}

/// In the background nothing is taken: what is typed then is for others.
fn copy(mut terminal: File, mut to: ChildStdin) -> io::Result<()> {
    let mut typed = [0; TYPED_LEN];
    while wait(&terminal, &to)? {
        if !is_in_foreground()? {
            thread::sleep(LOOK_AGAIN);
            continue;
        }
        match terminal.read(&mut typed) {
            Ok(0) => break,
            Ok(count) => to.write_all(&typed[..count])?,
            // We have come into the background since.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => thread::sleep(LOOK_AGAIN),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until something was typed; false when the rank does not read any more.
fn wait(terminal: &File, to: &ChildStdin) -> io::Result<bool> {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    // Of a pipe whose reader has gone poll(2) tells without being asked.
    let mut polled = [entry(terminal.as_raw_fd(), libc::POLLIN), entry(to.as_raw_fd(), 0)];
    // SAFETY: Two pollfds, alive during the call.
    if unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) } < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(true) } else { Err(error) };
    }
    Ok(polled[1].revents == 0)
}

/// Whether the terminal's input is ours to take.
fn is_in_foreground() -> io::Result<bool> {
    // SAFETY: Neither takes a pointer; a descriptor that is no terminal is answered with an error.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(0), libc::getpgrp()) };
    if foreground < 0 { Err(io::Error::last_os_error()) } else { Ok(foreground == own) }
}

/// A read of this thread in the background fails, where it would stop the whole job (termios(3), SIGTTIN).
fn ignore_background() {
    // SAFETY: The set is a plain value, made empty before its use; the mask is this thread's alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTTIN);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// A terminal's longest line (N_TTY_BUF_SIZE in the kernel).
const TYPED_LEN: usize = 4096;

/// Nobody tells that a job has come into the foreground. Only looked for while something waits to be read.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
