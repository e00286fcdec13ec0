//! Ctrl-C and SIGTERM: the children end before the command does, and nothing unfinished is left.

#![allow(unsafe_code)] // sigaction(2), signal(2), pthread_sigmask(3), raise(3).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sidelane::lab::process;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Whether an ending signal has come.
#[derive(Debug, Clone)]
pub struct Interrupted(Arc<AtomicUsize>);

impl Interrupted {
    /// True once one has.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// What then is due, as [`code_of`] has it.
    pub fn code(&self) -> i32 {
        code_of(self.0.load(Ordering::Relaxed) as i32)
    }
}

/// How a command ends that `signal` has ended: with the exit code that a shell reports for that. Of Ctrl-C by the signal itself, for
/// which its negative number stands: after one that only says 130 a shell goes on with its loop, as with one that has made something
/// else of the signal (bash(1), SIGNALS).
pub const fn code_of(signal: i32) -> i32 {
    if signal == SIGINT { -SIGINT } else { 128 + signal }
}

/// Ends this process with `code`, as [`code_of`] has it.
pub fn exit(code: i32) -> ! {
    if code < 0 {
        unblock(&[-code]);
        // SAFETY: the default is no handler of ours, and this thread's to meet.
        unsafe {
            libc::signal(-code, libc::SIG_DFL);
            libc::raise(-code);
        }
    }
    // Process 1 of a container cannot end so (pid_namespaces(7)).
    std::process::exit(if code < 0 { 128 - code } else { code })
}

/// From now on such a signal sets what is returned, kills every direct child that is started from now on, waits until each is
/// gone, and ends as [`code_of`] has it. Whoever meets an error of a child looks at the flag first: the child may have been killed here.
/// Starts a thread, so nothing after it can enter a user namespace.
pub fn end_children_on_signal() -> io::Result<Interrupted> {
    let interrupted = Interrupted(Arc::default());
    for signal in ending() {
        signal_hook::flag::register_usize(signal, Arc::clone(&interrupted.0), signal as usize)?;
    }
    // A shell that became this command may have started them.
    let others: HashSet<u32> = process::children().into_iter().collect();
    let mut signals = Signals::new(ending())?;
    unblock(&ending().collect::<Vec<_>>());
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if let Err(error) = process::kill_children_but(&others) {
                tell!("error: cannot end a child: {error}");
            }
            // Nobody else goes on with them: the lock is kept.
            let _kept = remove_unfinished();
            exit(code_of(signal));
        }
    })?;
    Ok(interrupted)
}

/// Says from now on whether the last SIGINT was the terminal's own, Ctrl-C, which its whole foreground group gets, and not a process's
/// (sigaction(2), SI_KERNEL). To be called before anything else hears of SIGINT.
pub fn typed() -> io::Result<Arc<AtomicBool>> {
    let typed = Arc::new(AtomicBool::new(false));
    let of_last = Arc::clone(&typed);
    let note = move |info: &libc::siginfo_t| of_last.store(info.si_code == libc::SI_KERNEL, Ordering::Relaxed);
    // SAFETY: it reads a field and stores to an atomic, which a handler may.
    unsafe { signal_hook_registry::register_sigaction(SIGINT, note)? };
    Ok(typed)
}

/// The signals that end a command: SIGHUP too, but under nohup(1).
pub fn ending() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Whether whoever has started us wants it to be ignored. To be asked before it is handled.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes is a valid sigaction; the old one is only asked for, and is a valid place for the answer.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Has children's ends told also where whoever has started us ignores them, which execve(2) keeps: the kernel would forget at once how
/// they ended (wait(2)).
pub fn hear_of_children() {
    if is_ignored(SIGCHLD) {
        // SAFETY: the default is no handler of ours.
        unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
    }
}

/// Lets these signals come to this thread, and to all that it starts from now on, also where whoever has started us blocks
/// them, which execve(2) keeps.
pub fn unblock(signals: &[i32]) {
    // SAFETY: The set is a plain value, made empty before its use; the mask is this thread's alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// A file that is not yet what it shall be: it goes with this value, or with the command that a signal ends.
#[derive(Debug)]
pub struct Unfinished(PathBuf);

static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// `file`, if it is there then, goes at the end of the command, or with what a signal ends.
pub fn remove_at_end(file: PathBuf) {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if !unfinished.contains(&file) {
        unfinished.push(file);
    }
}

/// To be called at the command's end.
pub fn remove_unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    unfinished.iter().for_each(|file| drop(fs::remove_file(file)));
    unfinished
}

impl Unfinished {
    /// The file may be written to from now on.
    pub fn new(file: PathBuf) -> Self {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(file.clone());
        Self(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        // One that got its final name is not there any more.
        let _ = fs::remove_file(&self.0);
        unfinished.retain(|file| *file != self.0);
    }
}
