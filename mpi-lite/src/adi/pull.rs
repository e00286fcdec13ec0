//! Reading and writing another process's memory: one copy from the sender's buffer to the receiver's, by either.
#![allow(unsafe_code)] // process_vm_readv and process_vm_writev have no safe wrapper.

use super::peer::Pull;
use super::process::Process;
use super::request::Error;

/// Fills `room` from `address` on in the memory of `process`. `ProcFailed` when that is not there any more.
///
/// Linux allows it to who may trace the process (process_vm_readv(2)). Process numbers of two PID namespaces may be those of
/// different processes, so its mark is looked at first: where that is not to be read, nobody tries again.
pub(super) fn pull(state: &mut Pull, process: &Process, address: u64, room: &mut [u8]) -> Result<(), Error> {
    if !works(state, process) {
        return Err(Error::NoAccess);
    }
    if read(process.pid, address, room) {
        return Ok(());
    }
    // Some memory is only its owner's to read, such as a device's; that says nothing of the rest.
    Err(if has_mark(process) { Error::NoAccess } else { Error::ProcFailed })
}

/// Whether memory of `process` can be read.
pub(super) fn works(state: &mut Pull, process: &Process) -> bool {
    if *state == Pull::Untried {
        *state = if has_mark(process) { Pull::Works } else { Pull::Never };
    }
    *state == Pull::Works
}

/// Lets the other processes of our launcher read our memory also where the system allows that to a process's parents only: Yama, with
/// `ptrace_scope` 1, as some distributions have it. The one who is named may, and all that descend from him
/// (Documentation/admin-guide/LSM/Yama.rst); a job whose ranks have a parent each stays with two copies. A tracer that the process has
/// named itself is named no more.
pub fn let_siblings_read() {
    // SAFETY: plain calls. Without Yama the second one is refused, and not needed.
    unsafe {
        let parent = libc::getppid();
        // From init all descend; 0 is outside of this namespace.
        if parent > 1 {
            libc::prctl(libc::PR_SET_PTRACER, parent as libc::c_ulong, 0, 0, 0);
        }
    }
}

/// Whether what is written to `process` is. The number of one that has ended may be another's: so this is asked before the first
/// [`push`] of what it waits for. Within the time that takes a number would have to be given up and used again, after all others.
pub(super) fn may_push(process: &Process) -> Result<(), Error> {
    if has_mark(process) { Ok(()) } else { Err(Error::ProcFailed) }
}

/// Writes `bytes` to `address` in the memory of `process`, which waits for them. `ProcFailed` when that is not there any more.
pub(super) fn push(process: &Process, address: u64, bytes: &[u8]) -> Result<(), Error> {
    if write(process.pid, address, bytes) {
        return Ok(());
    }
    Err(if has_mark(process) { Error::NoAccess } else { Error::ProcFailed })
}

fn has_mark(process: &Process) -> bool {
    let mut mark = [0; 8];
    read(process.pid, process.mark_at, &mut mark) && u64::from_ne_bytes(mark) == process.mark
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

fn write(pid: u32, address: u64, bytes: &[u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize + done), iov_len: rest.len() };
        // SAFETY: `local` names `rest`, which is only read, and is borrowed for as long as the call takes; the kernel checks the other
        // process's addresses itself.
        let written =
            unsafe { libc::process_vm_writev(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => done += written,
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
        assert_eq!(pull(&mut state, &process, from.as_ptr().expose_provenance() as u64, &mut room), Ok(()));
        assert_eq!((room, state), (from, Pull::Works));
    }

    #[test]
    fn memory_of_a_process_with_its_mark_is_written() {
        let (process, from, mut room) = (Process::here("here", &[]), vec![7u8; 10_000], vec![0; 10_000]);
        assert_eq!(may_push(&process), Ok(()));
        assert_eq!(push(&process, room.as_mut_ptr().expose_provenance() as u64, &from), Ok(()));
        assert_eq!(room, from);
        assert_eq!(push(&process, 8, &from), Err(Error::NoAccess));
        let other = Process { mark: 0, ..process };
        assert_eq!((may_push(&other), push(&other, 8, &from)), (Err(Error::ProcFailed), Err(Error::ProcFailed)));
    }

    #[test]
    fn memory_of_another_process_is_left_alone() {
        let process = Process { mark: 0, ..Process::here("here", &[]) };
        let (from, mut room, mut state) = ([7u8; 8], [0; 8], Pull::Untried);
        for _ in 0..2 {
            let read = pull(&mut state, &process, from.as_ptr().expose_provenance() as u64, &mut room);
            assert_eq!(read, Err(Error::NoAccess));
        }
        assert_eq!((room, state), ([0; 8], Pull::Never));
    }

    #[test]
    fn an_address_that_is_not_there_says_nothing_of_others() {
        let (process, from, mut room) = (Process::here("here", &[]), [7u8; 8], [0; 8]);
        let mut state = Pull::Untried;
        assert_eq!(pull(&mut state, &process, 8, &mut room), Err(Error::NoAccess));
        assert_eq!(pull(&mut state, &process, from.as_ptr().expose_provenance() as u64, &mut room), Ok(()));
        assert_eq!(room, from);
    }

    #[test]
    fn a_process_that_has_lost_its_mark_is_gone() {
        let (mut process, mut room) = (Process::here("here", &[]), [0; 8]);
        let mut state = Pull::Works;
        process.mark ^= 1;
        assert_eq!(pull(&mut state, &process, 8, &mut room), Err(Error::ProcFailed));
    }
}
