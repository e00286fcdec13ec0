//! The descriptor that the launcher left open for us.
#![allow(unsafe_code)] // A number becomes the owner of what it stands for.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes the descriptor named by `PMI_FD`, once in a process. What this process starts does not inherit it, though the
/// environment still names it: there the number may be any other file's, which is refused. `inode` is the connection's, of
/// a launcher that tells it.
pub fn take(fd: i32, inode: Option<u64>) -> io::Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // 0 to 2 are the standard streams, which others use.
    if fd < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    if TAKEN.load(Ordering::Relaxed) {
        return Err(io::Error::other("this process, or the one that it was forked from, has done so already"));
    }
    let is_connection = is_connection(fd, inode).map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => io::Error::other(CLOSED),
        _ => error,
    })?;
    if !is_connection || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other(ANOTHER));
    }
    // SAFETY: Takes no pointer; a number that is no open descriptor is answered with an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: It is open, as the call above shows, the launcher left it for nobody but us, and `TAKEN` lets nobody
    // come here twice.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const CLOSED: &str = "it was closed by what started this process, which was itself started as a rank; have that leave descriptors open \
     (Python's subprocess: close_fds=False), or set SIDELANE_ALONE=1 for a job of its own";
const ANOTHER: &str =
    "it is another file's; was this process started by a rank? For a job of its own, set SIDELANE_ALONE=1";

/// Whether it is a socket, and the one with that number.
fn is_connection(fd: i32, inode: Option<u64>) -> io::Result<bool> {
    // SAFETY: All bytes of it may be zero.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is a valid place for the answer; a number that is no open descriptor is answered with an error.
    if unsafe { libc::fstat(fd, &raw mut status) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status.st_mode & libc::S_IFMT == libc::S_IFSOCK && inode.is_none_or(|inode| inode == status.st_ino))
}
