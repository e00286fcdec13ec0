//! Memory without a name in any file system, which other processes map by its descriptor: memfd_create(2).
#![allow(unsafe_code)] // memfd_create, seals, getrlimit.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// All zeroes, and not sealed yet. `/proc` shows it by `name`.
pub(crate) fn create(name: &CStr, len: usize) -> io::Result<File> {
    check(len)?;
    // SAFETY: the name is a C string, which the kernel copies. The descriptor that comes back is nobody else's.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(fd))
    };
    file.set_len(len as u64)?;
    Ok(file)
}

/// Nobody can change its size any more, and `more` seals are set (fcntl(2), F_ADD_SEALS).
pub(crate) fn seal(file: &impl AsRawFd, more: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call on a descriptor that the caller has.
    let added = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS | more) };
    if added < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The length of memory that is another process's, if it will keep it: an access behind an end that has moved would kill us.
pub(crate) fn sealed_len(file: &impl AsRawFd) -> Option<u64> {
    // SAFETY: `stat` is plain old data for which zeroes are a value, and outlives the call.
    let (status, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(file.as_raw_fd(), &mut stat), stat)
    };
    // SAFETY: a plain call on a descriptor that the caller has; others than of memory answer with an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    (status == 0 && seals >= 0 && seals & SIZE_SEALS == SIZE_SEALS).then_some(stat.st_size as u64)
}

const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Whether as much may be made. Beyond its limit a process is ended by a signal (SIGXFSZ), unless it has made provision.
pub(crate) fn check(len: usize) -> io::Result<()> {
    let why = "it counts as a file, and none may be so long; `ulimit -f unlimited` lifts that";
    let fits = len as u64 <= longest_file();
    if fits { Ok(()) } else { Err(io::Error::new(io::ErrorKind::FileTooLarge, why)) }
}

/// Bytes of the longest file that this process may make.
fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid place for the answer; on failure it stays as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::page::Page;
    use crate::share::Shared;
    use crate::shm::{OpenError, ShmNic};

    #[test]
    #[ignore = "run by another test"]
    fn part_of_a_process_whose_files_are_short() {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::FileTooLarge;
        let beyond = longest_file() as usize + 1;
        assert!(Shared::new(beyond).is_err_and(refused) && Shared::lazy(beyond).is_err_and(refused));
        assert!(beyond > 4096 || Page::new(&[], &[]).is_err_and(refused));
        match ShmNic::open(&format!("short-files-{}", std::process::id()), None) {
            Err(OpenError::System(_, error)) => assert!(refused(error)),
            _ => panic!("an endpoint that could connect to nobody"),
        }
    }

    #[test]
    fn memory_longer_than_a_file_may_be_is_an_error_and_not_the_end() {
        let own = std::env::current_exe().unwrap();
        let part = "memfd::tests::part_of_a_process_whose_files_are_short";
        // Of blocks of 512 or 1,024 B: less than a page, and more than the first that an endpoint makes.
        for limit in ["1", "100"] {
            let script = "ulimit -f \"$2\"; exec \"$0\" --exact \"$1\" --ignored";
            let output = Command::new("sh").args(["-c", script]).arg(&own).args([part, limit]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }
}
