//! The way to a keeper's socket: past one that is stale, and not waiting for ever in the line of one that is stopped.

use std::fs;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use sidelane_nic::process::pids;

use super::place;

/// The keeper behind `path`, or `None` when there is none. A stale socket is removed.
pub fn connect(path: &Path) -> io::Result<Option<UnixStream>> {
    match dial(path, KEEPER_WAIT) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let lock = place::lock()?;
            let keeper = connect_or_clean(path)?;
            drop(lock);
            place::leave(path);
            Ok(keeper)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// As `connect`, for whoever holds the lock, and keeps no others waiting for a keeper that is stopped.
pub fn connect_or_clean(path: &Path) -> io::Result<Option<UnixStream>> {
    match dial(path, Duration::ZERO) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map(|()| None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// As `UnixStream::connect`, with a limit: a keeper that is stopped takes nobody in, and its queue is full some day, of those that gave up.
#[allow(unsafe_code)] // std has none.
fn dial(path: &Path, at_most: Duration) -> io::Result<UnixStream> {
    // SAFETY: All zeroes is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    // A zero ends it.
    if name.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, byte) in address.sun_path.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: Takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The call just opened the descriptor for us, so nobody else owns it.
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    let until = Instant::now() + at_most;
    loop {
        // SO_SNDTIMEO counts for connect(2) too (socket(7)). None at all would be for ever.
        let left = until.saturating_duration_since(Instant::now());
        stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        // SAFETY: The address is alive during the call, and as long as it says.
        if unsafe { libc::connect(socket, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) } == 0
        {
            return Ok(stream);
        }
        match io::Error::last_os_error() {
            // Whoever was stopped, too, and goes on (signal(7)). No connection is under way (unix(7)).
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, silence(who_listens(path))));
            }
            error => return Err(error),
        }
    }
}

/// The process that listens at `path`, if it is one that we may look into. The kernel tells a client only who it is connected to.
fn who_listens(path: &Path) -> Option<u32> {
    // Num RefCount Protocol Flags Type St Inode Path, of which a listener has the flag __SO_ACCEPTCON (proc_net_unix(5), linux/net.h).
    let sockets = fs::read_to_string("/proc/net/unix").ok()?;
    let name = format!(" {}", path.display());
    let mut inodes = sockets.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (flags, inode) = (fields.nth(3)?, fields.nth(2)?);
        (flags == "00010000" && line.ends_with(&name)).then_some(inode)
    });
    let socket = format!("socket:[{}]", inodes.next()?);
    let has_it = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|one| fs::read_link(one.path()).is_ok_and(|to| to.as_os_str() == &*socket))
    };
    pids().ok()?.find(has_it)
}

/// What helps with a keeper that does not answer.
pub fn silence(pid: Option<u32>) -> String {
    let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    format!(
        "it does not answer; if it was stopped, `kill -CONT {pid}` lets it go on, and `kill -KILL {pid}` ends it and the lab"
    )
}

/// A keeper that was not stopped answers within milliseconds, unless another client has it wait.
pub const KEEPER_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
pub mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::patience::{PATIENCE, once_asleep, until, watch};

    /// It is this process.
    pub fn assert_helps(error: &io::Error) {
        let helps = format!("`kill -CONT {}` lets it go on", std::process::id());
        assert!(error.to_string().starts_with("it does not answer; ") && error.to_string().contains(&helps), "{error}");
    }

    /// A keeper, and who waits for it in a queue for one.
    #[allow(unsafe_code)] // listen(2).
    fn with_full_queue(place: &tempfile::TempDir) -> (PathBuf, UnixListener, UnixStream) {
        let path = place.path().join("lab.lab");
        let keeper = UnixListener::bind(&path).unwrap();
        // SAFETY: Takes no pointer. It shortens the queue.
        assert_eq!(unsafe { libc::listen(keeper.as_raw_fd(), 0) }, 0);
        let in_line = dial(&path, PATIENCE).unwrap();
        (path, keeper, in_line)
    }

    #[test]
    fn a_keeper_whose_queue_is_full_does_not_keep_us() {
        watch("who dials a keeper", PATIENCE);
        let place = tempfile::tempdir().unwrap();
        let (path, _keeper, _in_line) = with_full_queue(&place);
        assert_helps(&dial(&path, Duration::from_millis(1)).unwrap_err());
        // Nor those who wait for the lock.
        let began = Instant::now();
        assert_helps(&connect_or_clean(&path).unwrap_err());
        assert!(began.elapsed() < KEEPER_WAIT);
    }

    #[test]
    #[allow(unsafe_code)] // gettid(2), tgkill(2).
    fn a_signal_does_not_end_the_wait_in_a_keepers_line() {
        watch("who dials a keeper", PATIENCE);
        let place = tempfile::tempdir().unwrap();
        let (path, keeper, _in_line) = with_full_queue(&place);
        let handled = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGUSR2, Arc::clone(&handled)).unwrap();
        // SAFETY: Takes nothing.
        let dials = unsafe { libc::gettid() };
        // It listens until the end: who was woken may dial later than the thread ends.
        let accepts = keeper.try_clone().unwrap();
        let signals = once_asleep(move || {
            // SAFETY: Takes no pointer. The thread lives: it waits for its turn, which nobody gives it yet.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), dials, libc::SIGUSR2) };
            until("the signal is handled", || handled.load(Ordering::Relaxed));
            accepts.accept().unwrap();
        });
        dial(&path, PATIENCE).unwrap();
        signals.join().unwrap();
    }
}
