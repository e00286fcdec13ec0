//! Standard input for rank 0.
#![allow(unsafe_code)] // tcgetpgrp(3).

use std::io::{self, IsTerminal, Write};
use std::process::{ChildStdin, Stdio};
use std::thread;

/// How rank 0 gets our standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// As it is: a file or a pipe of which the rank reads as much as it wants.
    Inherited,
    /// By a pipe that we fill. The rank is in a process group of its own, which must not read from the terminal.
    FromTerminal,
    /// Nothing: we are in the background ourselves.
    Nothing,
}

impl Input {
    /// What our own standard input allows.
    pub fn find() -> Self {
        // SAFETY: Neither takes a pointer; a descriptor that is no terminal is answered with an error.
        let in_foreground = unsafe { libc::tcgetpgrp(0) == libc::getpgrp() };
        match io::stdin().is_terminal() {
            false => Self::Inherited,
            true if in_foreground => Self::FromTerminal,
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

/// Copies the terminal's lines to rank 0 until either side has enough. The thread ends with the process.
pub fn feed(mut to: ChildStdin) -> io::Result<()> {
    let copy = move || {
        for line in io::stdin().lines() {
            let Ok(line) = line else { break };
            if to.write_all(format!("{line}\n").as_bytes()).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(copy).map(drop)
}
