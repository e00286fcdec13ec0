//! The descriptor that the launcher left open for us.
#![allow(unsafe_code)] // A number becomes the owner of what it stands for.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes the descriptor named by `PMI_FD`, once in a process. What this process starts does not inherit it.
pub fn take(fd: i32) -> io::Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // 0 to 2 are the standard streams, which others use.
    if fd < 3 || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: Takes no pointer; a number that is no open descriptor is answered with an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: It is open, as the call above shows, the launcher left it for nobody but us, and `TAKEN` lets nobody
    // come here twice.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
