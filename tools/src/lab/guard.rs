//! A killed tool ends nothing any more. So a process of its own waits for the tool's end, and ends what is left inside.
//!
//! The tool holds the writing end of a pipe that the guard reads: its end, however it comes, closes the pipe. The guard holds the
//! namespaces open, so that none of their inode numbers can be another namespace's by then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Lab;
use super::process;

/// The guard of a lab, for as long as this value lives. Then it ends by itself.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Posts a guard; returns once it is on duty.
    pub fn post(lab: &Lab) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["lab", "guard"]).args(lab.hosts.iter().map(|host| host.entry.net.as_raw_fd().to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        child.stdout.take().expect("its output is a pipe").read_exact(&mut [0])?;
        Ok(Self(child))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The life of a guard, whose parent has the namespaces at these descriptors.
pub fn stand(descriptors: &[i32]) -> io::Result<()> {
    process::detach()?;
    let tool = std::os::unix::process::parent_id();
    let open = |fd| File::open(format!("/proc/{tool}/fd/{fd}")).map(OwnedFd::from);
    let namespaces: Vec<OwnedFd> = descriptors.iter().map(open).collect::<io::Result<_>>()?;
    io::stdout().write_all(b"r")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    process::end_all(&namespaces.iter().collect::<Vec<_>>(), Duration::ZERO).map(drop)
}
