//! Reading another process's memory: one copy from the sender's buffer to the receiver's.
#![allow(unsafe_code)] // process_vm_readv has no safe wrapper.

use super::peer::Pull;
use super::process::Process;

/// Fills `room` from `address` on in the memory of `process`. False where that cannot be done; then nobody tries again.
///
/// Linux allows it to who may trace the process (process_vm_readv(2)). Process numbers of two PID namespaces may be those of
/// different processes, so its mark is looked at first.
pub(super) fn pull(state: &mut Pull, process: &Process, address: u64, room: &mut [u8]) -> bool {
    if *state == Pull::Untried {
        let mut mark = [0; 8];
        let same = read(process.pid, process.mark_at, &mut mark) && u64::from_ne_bytes(mark) == process.mark;
        *state = if same { Pull::Works } else { Pull::Never };
    }
    if *state == Pull::Works && !read(process.pid, address, room) {
        *state = Pull::Never;
    }
    *state == Pull::Works
}

fn read(pid: u32, address: u64, room: &mut [u8]) -> bool {
    let mut done = 0;
    while done < room.len() {
        let rest = &mut room[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize + done), iov_len: rest.len() };
        // SAFETY: `local` names `rest`, which is borrowed mutably for as long as the call takes; the kernel checks the
        // other process's addresses itself.
        let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => done += read,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_with_its_mark_is_read() {
        let (process, from, mut room) = (Process::here("here", &[]), vec![7u8; 10_000], vec![0; 10_000]);
        let mut state = Pull::Untried;
        assert!(pull(&mut state, &process, from.as_ptr().expose_provenance() as u64, &mut room));
        assert_eq!((room, state), (from, Pull::Works));
    }

    #[test]
    fn memory_of_another_process_is_left_alone() {
        let process = Process { mark: 0, ..Process::here("here", &[]) };
        let (from, mut room, mut state) = ([7u8; 8], [0; 8], Pull::Untried);
        for _ in 0..2 {
            assert!(!pull(&mut state, &process, from.as_ptr().expose_provenance() as u64, &mut room));
        }
        assert_eq!((room, state), ([0; 8], Pull::Never));
    }

    #[test]
    fn an_address_that_is_not_there_ends_it() {
        let (process, mut room, mut state) = (Process::here("here", &[]), [0; 8], Pull::Untried);
        assert!(!pull(&mut state, &process, 8, &mut room));
        assert_eq!(state, Pull::Never);
    }
}
