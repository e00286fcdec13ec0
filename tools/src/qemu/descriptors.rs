//! Descriptors that a child inherits, and files that have no name: nothing of a guest ever lies in a folder, so that
//! nothing is left in one, whatever ends this program.
#![allow(unsafe_code)] // memfd_create, and what happens between fork and exec, have no safe interface.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A file in memory with these bytes. It goes with the last descriptor.
pub fn memory_file(bytes: &[&[u8]]) -> io::Result<File> {
    // SAFETY: The name is a string with a terminating zero.
    let fd = unsafe { libc::memfd_create(c"sidelane-guest".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The call just opened the descriptor for us, so nobody else owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    bytes.iter().try_for_each(|part| file.write_all(part))?;
    Ok(file)
}

/// The path under which a child that inherits `file` can open it.
pub fn path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Lets the process that `command` spawns keep `descriptors`, under their numbers here.
pub fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    // SAFETY: The closure makes only fcntl calls, allocates nothing and takes no lock. It owns the descriptors, so they
    // are open whenever it runs.
    unsafe {
        command.pre_exec(move || descriptors.iter().try_for_each(|one| keep_on_exec(one.as_raw_fd())));
    }
}

fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes a number and no pointer.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reads_a_file_that_has_no_name() {
        let file = memory_file(&[b"no ", b"name"]).unwrap();
        let mut command = Command::new("cat");
        command.arg(path(&file));
        inherit(&mut command, vec![file.into()]);
        assert_eq!(command.output().unwrap().stdout, b"no name");
    }
}
