//! One thread, one core.

#![allow(unsafe_code)] // sched_setaffinity has no safe form in std.

use std::io;

/// Cores that this process may run on, in ascending order.
pub fn cores() -> Vec<usize> {
    // SAFETY: A `cpu_set_t` is a plain array of bits, for which all zeros is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: The kernel writes at most the size given, which is that of `set`.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if result < 0 {
        return vec![0];
    }
    // SAFETY: Every index is below CPU_SETSIZE, the number of bits in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// How many cores the machine runs on, whether this thread may use them or not; 1 where the system does not tell.
pub fn online() -> usize {
    let ranges = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count(&ranges).max(1)
}

/// Members of a kernel's list of numbers: `0-3,6` (Documentation/admin-guide/cputopology.rst).
fn count(ranges: &str) -> usize {
    let members = ranges.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((last.parse::<usize>().ok()? + 1).saturating_sub(first.parse().ok()?))
    });
    members.sum()
}

/// Keeps the calling thread on `core`.
pub fn pin_to(core: usize) -> io::Result<()> {
    assert!(core < libc::CPU_SETSIZE as usize, "a core's number fits the kernel's set");
    // SAFETY: As in `cores`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: The index is below CPU_SETSIZE, asserted above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: The kernel reads the size given, which is that of `set`.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_lists_are_counted() {
        assert_eq!([count("0-1\n"), count("0"), count("0-3,6,8-9"), count("")], [2, 1, 7, 0]);
        assert!(online() >= cores().len());
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let core = *cores().last().expect("a thread runs somewhere");
            pin_to(core).unwrap();
            assert_eq!(cores(), [core]);
        })
        .join()
        .unwrap();
    }
}
