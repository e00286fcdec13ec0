//! Files that have no name: nothing of a guest ever lies in a folder, so that nothing is left in one, whatever ends this program.
#![allow(unsafe_code)] // memfd_create has no safe interface.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::lab::inherit;

    #[test]
    fn a_child_reads_a_file_that_has_no_name() {
        let file = memory_file(&[b"no ", b"name"]).unwrap();
        let mut command = Command::new("cat");
        command.arg(path(&file));
        inherit(&mut command, vec![file.into()]);
        assert_eq!(command.output().unwrap().stdout, b"no name");
    }
}
