//! Asking for the job's end, whatever else the launcher is being asked.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use super::request::Request;

/// A way to the launcher that is there while another call waits for its answer.
#[derive(Debug)]
pub struct Abort(Option<UnixStream>);

impl Abort {
    /// There is no launcher.
    pub(super) const ALONE: Self = Self(None);

    pub(super) fn by(stream: &UnixStream) -> io::Result<Self> {
        stream.try_clone().map(Some).map(Self)
    }

    /// Asks for the end of the whole job with the exit code `code`. The caller has to end itself: not every launcher does it at
    /// once, and one that has gone ends the job without being asked.
    pub fn ask(&self, code: i32, why: &str) {
        let Some(mut stream) = self.0.as_ref() else { return };
        let mut why: String =
            why.chars().map(|c| if c.is_whitespace() || c.is_control() { BLANK } else { c }).collect();
        while why.len() > WHY_MAX {
            why.pop();
        }
        let _ = stream.write_all(format!("{}\n", Request::Abort { code, why: &why }).as_bytes());
    }
}

/// Stands for what would end the reason, for launchers whose values are words: to people it is a blank.
pub(super) const BLANK: char = '\u{a0}';

/// A line of MPICH's launcher holds 1,024 bytes, with the command before it.
const WHY_MAX: usize = 900;
