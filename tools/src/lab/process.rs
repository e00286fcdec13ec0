//! Other processes: who is inside a namespace, and how to end one and know that it is gone.
#![allow(unsafe_code)] // pidfd_open(2), pidfd_send_signal(2) and kill(2) have no safe interface.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sidelane_nic::process::{self, Stat};

/// A process that cannot be taken for another one that got its number later.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    known_by: KnownBy,
}

/// What tells a process from a later one of its number.
#[derive(Debug)]
enum KnownBy {
    Pidfd(OwnedFd),
    /// Where there is no pidfd: when it started, in clock ticks since boot. A number is used again only after all others.
    Start(u64),
}

impl Process {
    /// `None` when there is no such process.
    pub fn open(pid: u32) -> Option<Self> {
        // SAFETY: Takes no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd >= 0 {
            // SAFETY: The call just opened the descriptor for us, so nobody else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
            return Some(Self { pid, known_by: KnownBy::Pidfd(pidfd) });
        }
        if io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
            return None;
        }
        // Linux before 5.3, or a filter of system calls.
        Some(Self { pid, known_by: KnownBy::Start(start(pid)?) })
    }

    /// Sends a signal. A process that is already gone is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let sent = match &self.known_by {
            KnownBy::Pidfd(pidfd) => match send_by(pidfd, signal) {
                // A filter of system calls, unless this user may not: kill(2) tells.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => self.kill(signal),
                sent => sent,
            },
            KnownBy::Start(_) => self.kill(signal),
        };
        sent.or_else(|error| if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) })
    }

    /// Waits until it has ended; false when that took longer.
    pub fn wait(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        match &self.known_by {
            KnownBy::Pidfd(pidfd) => ends(pidfd, until),
            KnownBy::Start(at) => loop {
                if start(self.pid) != Some(*at) {
                    return true;
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                thread::sleep(left.min(LOOK_EVERY));
            },
        }
    }

    /// Its number is its own for as long as it has not ended, so only the moment between look and call is open.
    fn kill(&self, signal: i32) -> io::Result<()> {
        if self.wait(Duration::ZERO) {
            return Ok(());
        }
        // SAFETY: Takes no pointer.
        check(unsafe { libc::kill(self.pid as i32, signal) }.into())
    }
}

/// How often a process without a descriptor is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

fn send_by(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: A null siginfo is allowed and means that of kill(2).
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) })
}

fn ends(pidfd: &OwnedFd, until: Instant) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        // SAFETY: One pollfd, alive during the call.
        let ended = unsafe { libc::poll(&raw mut poll, 1, i32::try_from(left).unwrap_or(i32::MAX)) };
        // The end of another child, say, interrupts whichever thread the kernel chooses.
        if ended >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return ended > 0;
        }
    }
}

fn check(outcome: libc::c_long) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// When a process started, `None` when it has ended.
fn start(pid: u32) -> Option<u64> {
    Stat::of(pid).filter(|stat| !stat.has_ended).map(|stat| stat.started)
}

/// A killed process is gone as soon as it is next scheduled; only one stuck in a device lasts longer.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// The processes in each of these network namespaces, as far as this user may see them.
pub fn inhabitants(namespaces: &[&OwnedFd]) -> Vec<Vec<u32>> {
    let identity = |path: String| fs::metadata(path).map(|found| (found.st_dev(), found.st_ino())).ok();
    let own: Vec<_> = namespaces.iter().map(|it| identity(format!("/proc/self/fd/{}", it.as_raw_fd()))).collect();
    let mut inside = vec![Vec::new(); own.len()];
    for pid in pids() {
        let net = identity(format!("/proc/{pid}/ns/net"));
        if let Some(at) = net.and_then(|net| own.iter().position(|own| *own == Some(net))) {
            inside[at].push(pid);
        }
    }
    inside
}

/// Ends every process inside `namespaces` but this one, and whatever they start meanwhile: asks, and after `patience` kills. Returns
/// how many there were.
pub fn end_all(namespaces: &[&OwnedFd], patience: Duration) -> io::Result<usize> {
    let own = std::process::id();
    let kill_from = Instant::now() + patience;
    let mut met = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let inside = inhabitants(namespaces).into_iter().flatten().filter(|pid| *pid != own);
        let inside: Vec<(u32, Process)> = inside.filter_map(|pid| Some((pid, Process::open(pid)?))).collect();
        if inside.is_empty() {
            return Ok(met.len());
        }
        met.extend(inside.iter().map(|(pid, _)| *pid));
        if Instant::now() < kill_from {
            for (_, process) in &inside {
                let _ = process.signal(libc::SIGTERM);
            }
            for (_, process) in &inside {
                process.wait(kill_from.saturating_duration_since(Instant::now()));
            }
        }
        kill_each(inside.iter().map(|(_, process)| process))?;
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "processes inside start others faster than they can be ended"))
}

/// Looks for processes that were started while others were ended.
const LOOKS_MAX: usize = 100;

/// The direct children of this process.
pub fn children() -> Vec<u32> {
    let own = std::process::id();
    pids().filter(|pid| parent(*pid) == Some(own)).collect()
}

/// The children of this process, theirs, and so on, each with when it started.
pub fn descendants() -> Known {
    let parents: Vec<(u32, u32)> = pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut known = Known(HashMap::new());
    let mut parent_of_next = vec![std::process::id()];
    while let Some(above) = parent_of_next.pop() {
        for (pid, _) in parents.iter().filter(|(_, parent)| *parent == above) {
            known.add(*pid);
            parent_of_next.push(*pid);
        }
    }
    known
}

/// Processes by number and when they started: one that gets a number later is not known.
#[derive(Debug)]
pub struct Known(HashMap<u32, u64>);

impl Known {
    /// Adds one, unless it has ended.
    pub fn add(&mut self, pid: u32) {
        self.0.extend(start(pid).map(|at| (pid, at)));
    }

    /// The numbers of those that have not ended.
    pub fn alive(&self) -> HashSet<u32> {
        self.0.iter().filter(|(pid, at)| start(**pid) == Some(**at)).map(|(pid, _)| *pid).collect()
    }
}

/// Kills every direct child that is not among `others`, and whatever else becomes one meanwhile, and waits until each is gone. One
/// that may not be killed is an error, when the others are gone.
pub fn kill_children_but(others: &HashSet<u32>) -> io::Result<()> {
    let mut seen = others.clone();
    let mut outcome = Ok(());
    for _ in 0..LOOKS_MAX {
        let found: Vec<u32> = children().into_iter().filter(|pid| seen.insert(*pid)).collect();
        if found.is_empty() {
            break;
        }
        let found: Vec<Process> = found.into_iter().filter_map(Process::open).collect();
        outcome = outcome.and(kill_each(&found));
    }
    outcome
}

/// Kills all, waits until they are gone, and returns the first refusal. Who is refused is not waited for.
fn kill_each<'a>(processes: impl IntoIterator<Item = &'a Process>) -> io::Result<()> {
    // All are told before one is waited for.
    let killed: Vec<_> = processes.into_iter().map(|process| (process, process.signal(libc::SIGKILL))).collect();
    let mut outcome = Ok(());
    for (process, killed) in killed {
        if killed.is_ok() {
            process.wait(KILL_WAIT);
        }
        outcome = outcome.and(killed);
    }
    outcome
}

fn parent(pid: u32) -> Option<u32> {
    Some(Stat::of(pid)?.parent)
}

/// None where there is no `/proc`.
fn pids() -> impl Iterator<Item = u32> {
    process::pids().into_iter().flatten()
}

/// Whether Ctrl-C at our terminal reaches a process by itself when it reaches us: it is in our process group.
pub fn is_in_own_group(pid: u32) -> bool {
    // SAFETY: Neither takes a pointer. Without such a process the second answers with -1.
    unsafe { libc::getpgrp() == libc::getpgid(pid as i32) }
}

/// Has `command` lead a session of its own before it is anything else, so that no signal to our process group (Ctrl-C) ends it.
pub fn in_own_session(command: &mut Command) {
    // SAFETY: The closure makes one async-signal-safe system call. A forked process leads no group, so that it may (setsid(2)).
    unsafe {
        command.pre_exec(|| check(libc::setsid().into()));
    }
}

/// Leaves the session, the directory and the open files of whoever started this process, but not its standard streams.
/// To be called first thing, before anything was opened.
pub fn detach() -> io::Result<()> {
    std::env::set_current_dir("/")?;
    // SAFETY: it takes nothing, and fails where there is a session of its own already.
    unsafe { libc::setsid() };
    close_inherited()
}

/// A script's lock, say.
fn close_inherited() -> io::Result<()> {
    // SAFETY: nothing of ours is closed, since nothing was opened yet.
    if unsafe { libc::close_range(3, u32::MAX, 0) } == 0 {
        return Ok(());
    }
    // Linux before 5.9, or a filter of system calls.
    let open = fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let inherited: Vec<RawFd> = open.filter(|fd| *fd > 2).collect();
    // SAFETY: as above. That of the folder itself is no more.
    inherited.into_iter().for_each(|fd| _ = unsafe { libc::close(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::patience::{PATIENCE, until};

    #[test]
    fn a_process_is_ended_without_a_pidfd_and_one_of_its_number_is_not() {
        let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
        let started = start(child.id()).unwrap();
        let known_by = |start| Process { pid: child.id(), known_by: KnownBy::Start(start) };
        let (process, predecessor) = (known_by(started), known_by(started - 1));
        assert!(predecessor.wait(Duration::ZERO), "the number is another's");
        predecessor.signal(libc::SIGKILL).unwrap();
        assert!(!process.wait(Duration::ZERO), "nobody has ended it");
        process.signal(libc::SIGKILL).unwrap();
        assert!(process.wait(PATIENCE), "a zombie has ended");
        child.wait().unwrap();
        process.signal(libc::SIGKILL).unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_has_not() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "lab::process::tests::goes_on_without_its_first_thread", "--ignored"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Process { pid: child.id(), known_by: KnownBy::Start(start(child.id()).unwrap()) };
        let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        until("its first thread is a zombie", || stat().contains(") Z "));
        assert!(!process.wait(Duration::ZERO), "another thread goes on");
        drop(child.stdin.take());
        assert!(process.wait(PATIENCE), "the last one has ended");
        child.wait().unwrap();
    }

    /// Until its input ends.
    #[test]
    #[ignore = "run by another test"]
    fn goes_on_without_its_first_thread() {
        extern "C" fn end(_: i32) {
            // SAFETY: Takes a number. The first thread waits for others, and nothing of its is theirs.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let other = thread::spawn(|| {
            let pid = std::process::id();
            // SAFETY: The handler makes one system call. The second call takes no pointer, and the first thread has the process's number.
            unsafe {
                libc::signal(libc::SIGUSR1, end as extern "C" fn(i32) as libc::sighandler_t);
                libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGUSR1);
            }
            io::stdin().read_line(&mut String::new()).unwrap();
            std::process::exit(0)
        });
        other.join().unwrap()
    }

    #[test]
    fn a_process_leads_its_own_session_from_the_start() {
        let mut command = Command::new("cat");
        in_own_session(command.arg("/proc/self/stat"));
        let stat = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (pid, fields) = (stat.split(' ').next().unwrap(), stat.rsplit_once(") ").unwrap().1);
        // State, parent, process group, session (proc(5)).
        assert_eq!(fields.split(' ').skip(2).take(2).collect::<Vec<_>>(), [pid; 2], "{stat}");
    }

    #[test]
    fn a_signal_does_not_end_the_wait_for_a_process() {
        let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        let handled = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGUSR1, Arc::clone(&handled)).unwrap();
        let (sender, waiter) = channel();
        let waits = thread::spawn(move || {
            // SAFETY: Takes nothing.
            sender.send(unsafe { libc::gettid() }).unwrap();
            process.wait(PATIENCE)
        });
        let waiter = waiter.recv().unwrap();
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{waiter}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
        };
        until("the thread sleeps", sleeps);
        // SAFETY: Takes no pointer. The thread lives: it waits for a child that nobody has ended.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), waiter, libc::SIGUSR1) };
        until("the signal is handled", || handled.load(Ordering::Relaxed));
        child.kill().unwrap();
        assert!(waits.join().unwrap(), "it was told of the signal, and not of the end");
        child.wait().unwrap();
    }
}
