//! When this command is killed, its ranks are too, by the kernel; but not what they have started. So a process of its own
//! waits for the command's end, and ends the ranks' process groups.
#![allow(unsafe_code)] // kill(2) of a group.

use std::io::{self, BufRead, Write};
use std::process::{Child, Stdio};

use sidelane::guard;
use sidelane::lab::process;

/// The guard of a job. It learns of our end, however that comes, by the end of a pipe.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Posts a guard; returns once it is on duty.
    pub fn post() -> io::Result<Self> {
        guard::post(&["run-guard"], Stdio::piped()).map(Self)
    }

    /// Tells it of a rank's process group.
    pub fn watch(&mut self, group: u32) -> io::Result<()> {
        let to = self.0.stdin.as_mut().expect("only `dismiss` takes it");
        to.write_all(format!("{group}\n").as_bytes())
    }

    /// A group has no members any more, and its number may be another's soon.
    pub fn forget(&mut self, group: u32) {
        let to = self.0.stdin.as_mut().expect("only `dismiss` takes it");
        // A guard that has gone ends nobody.
        let _ = to.write_all(format!("{FORGET}{group}\n").as_bytes());
    }

    /// All ranks have ended, and their numbers may be others' soon.
    pub fn dismiss(mut self) {
        let mut to = self.0.stdin.take().expect("only here is it taken");
        let _ = to.write_all(DISMISSED.as_bytes());
        drop(to);
        let _ = self.0.wait();
    }
}

/// The life of a guard.
pub fn stand() -> io::Result<()> {
    process::detach()?;
    guard::on_duty()?;
    let mut groups: Vec<i32> = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let (gone, number) = line.strip_prefix(FORGET).map_or((false, &line[..]), |number| (true, number));
        match number.parse::<i32>() {
            Ok(group) if gone => groups.retain(|other| *other != group),
            Ok(group) if group > 1 => groups.push(group),
            _ => return Ok(()),
        }
    }
    for group in groups {
        // SAFETY: Takes no pointer. The launcher ended moments ago, and the group had members then: its number is the rank's.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    Ok(())
}

const DISMISSED: &str = "dismissed\n";
const FORGET: char = '-';
