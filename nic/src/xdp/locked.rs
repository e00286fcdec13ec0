//! Memory that a process may lock (RLIMIT_MEMLOCK, getrlimit(2)). Frames' room counts as locked where the process has no
//! CAP_IPC_LOCK, and before Linux 5.11 so do maps, whoever it is.
#![allow(unsafe_code)] // Raw system calls.

use std::{fs, io};

/// Takes a step, again with the limit raised if it lacks locked memory and the limit can be.
pub fn with_more<T>(lacks: impl Fn(&io::Error) -> bool, mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match step() {
        Err(error) if lacks(&error) && raise_limit() => step(),
        result => result,
    }
}

/// True for what the kernel says when it may not lock the room of frames (`xdp_umem_account_pages`).
pub fn lacks_for_frames(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// True for what the kernel says when it may not charge for a map (`bpf_charge_memlock`), and where it does. To the missing right it says
/// the same.
pub fn lacks_for_map(error: &io::Error) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    error.raw_os_error() == Some(libc::EPERM)
        && charges_for_maps(&release)
        && limit().is_ok_and(|it| it.rlim_cur < MAP_LEN)
}

fn charges_for_maps(release: &str) -> bool {
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version < (5, 11))
}

/// As far as this process may. False: no further than it is.
fn raise_limit() -> bool {
    let Ok(now) = limit() else { return false };
    if now.rlim_cur == libc::RLIM_INFINITY {
        return false;
    }
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    set_limit(unlimited) || now.rlim_cur < now.rlim_max && set_limit(libc::rlimit { rlim_cur: now.rlim_max, ..now })
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

fn set_limit(limit: libc::rlimit) -> bool {
    // SAFETY: `limit` is readable through the call.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 }
}

/// A map of 65,536 sockets, a pointer each.
pub const MAP_LEN: libc::rlim_t = 8 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_5_11_charge_for_maps() {
        for (release, charges) in
            [("5.9.0", true), ("5.10.0-28-amd64\n", true), ("5.11.0", false), ("6.1.0-rc1", false), ("", false)]
        {
            assert_eq!(charges_for_maps(release), charges, "{release}");
        }
    }

    #[test]
    fn a_step_that_lacks_locked_memory_is_taken_again_with_the_limit_raised() {
        let before = limit().unwrap();
        if before.rlim_max <= 64 << 10 {
            println!("skipped: no more than 64 KiB may be locked here");
            return;
        }
        assert!(set_limit(libc::rlimit { rlim_cur: 64 << 10, ..before }));
        let lacking = || io::Error::from_raw_os_error(libc::ENOBUFS);
        let step = || if limit().unwrap().rlim_cur == 64 << 10 { Err(lacking()) } else { Ok(()) };
        with_more(lacks_for_frames, step).unwrap();
        let other = || Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM));
        assert!(with_more(lacks_for_frames, other).is_err());
    }
}
