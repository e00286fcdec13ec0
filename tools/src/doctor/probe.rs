//! The system calls whose success decides.
#![allow(unsafe_code)] // std opens neither packet sockets nor anonymous memory files.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The hidden subcommand: exit code 0 when a packet socket opens in the namespace it was started in.
pub fn main() -> i32 {
    match packet_socket() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// Opens an `AF_PACKET` socket that receives nothing, and closes it.
pub fn packet_socket() -> io::Result<()> {
    // SAFETY: Takes no pointer.
    close(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Makes an anonymous file of shared memory with one page, and closes it.
pub fn shared_memory() -> io::Result<()> {
    // SAFETY: The name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"sidelane-probe".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: Takes no pointer; a bad descriptor is an error as any other.
    let sized = unsafe { libc::ftruncate(fd, 4096) };
    let refused = io::Error::last_os_error();
    close(fd)?;
    if sized < 0 { Err(refused) } else { Ok(()) }
}

fn close(fd: i32) -> io::Result<()> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The caller opened it for this one purpose.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}
