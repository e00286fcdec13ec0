//! One rank, and everything that it starts.
#![allow(unsafe_code)] // prctl(2), waitpid(2), kill(2) of a group, and what happens between fork and exec.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use sidelane_mpi::launch::{SOCKET, Socket};

use super::answers::Answers;

/// A rank that was started. Its process leads a group of its own, so that signals reach what it starts too.
#[derive(Debug)]
pub struct Rank {
    /// Its process, and the number of its group.
    pub pid: u32,
    /// The launcher's end of its PMI connection.
    pub pmi: Answers,
    /// Its streams, to be taken.
    pub child: Child,
}

impl Rank {
    /// Starts `command` as rank `rank` of `size`, which it will find with its PMI connection in the environment.
    pub fn start(mut command: Command, rank: usize, size: usize, streams: [Stdio; 3]) -> io::Result<Self> {
        let (pmi, theirs) = UnixStream::pair()?;
        let socket = Socket { fd: theirs.as_raw_fd(), rank, size, inode: inode(&theirs)? };
        command.env("PMI_FD", socket.fd.to_string()).env("PMI_RANK", rank.to_string());
        command.env("PMI_SIZE", size.to_string()).env(SOCKET, socket.to_string()).process_group(0);
        let [stdin, stdout, stderr] = streams;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let fd = theirs.as_raw_fd();
        // SAFETY: The closure makes one async-signal-safe system call; `theirs` is open until `spawn` has returned.
        unsafe {
            command.pre_exec(move || keep_on_exec(fd));
        }
        let child = command.spawn()?;
        Ok(Self { pid: child.id(), pmi: Answers::new(pmi), child })
    }

    /// Sends a signal to the rank and to what it has started in its group. Only while the rank has not been reaped:
    /// until then nobody else can get its number. An error when none of them may be signalled, as when the rank has become
    /// another user.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: Takes no pointer.
        if unsafe { libc::kill(-(self.pid as i32), signal) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // A group that is gone is no error to us.
        if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
    }

    /// Whether its group has members: until then the number stays its own, also when the rank has been reaped.
    pub fn has_group(&self) -> bool {
        // SAFETY: Takes no pointer, and signal 0 is none.
        unsafe { libc::kill(-(self.pid as i32), 0) == 0 }
    }
}

fn inode(socket: &UnixStream) -> io::Result<u64> {
    File::from(socket.as_fd().try_clone_to_owned()?).metadata().map(|metadata| metadata.ino())
}

fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: Takes no pointer.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From now on, what our descendants leave behind becomes our child, however it has detached itself.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a number.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A child that has ended, and how; `None` when there is none just now. From here on its number may be another's.
pub fn reap() -> Option<(u32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid as u32, ExitStatus::from_raw(status)))
}
