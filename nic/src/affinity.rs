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
