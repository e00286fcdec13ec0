//! The file of the socket over which the sides of a vhost pair meet. Its name goes when both have, which takes a while; else with this
//! command, and after a `kill -9` of that with the sides: a process of its own waits for the end of all three. Where that is killed too,
//! the next ladder removes the file.

use std::io::{self, ErrorKind, PipeWriter, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, fs, path, process};

use sidelane::guard;
use sidelane::lab::{self, process as processes};

use super::place::{SERVER, pair};
use crate::interrupt;

/// The pair's device, one for all of this command, without the side's role.
pub fn device() -> String {
    format!("vhost:{}", own_in(&env::temp_dir()).display())
}

/// The file that its server makes.
fn file() -> PathBuf {
    pair(device(), SERVER).socket().expect("a vhost server has one")
}

/// Has it removed when this command and all that were named here have ended, whichever way. To be called before it is made.
pub fn guard_until_the_end_of(side: &mut Command) -> io::Result<()> {
    static HELD: Mutex<Option<PipeWriter>> = Mutex::new(None);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_none() {
        remove_left(&env::temp_dir());
        let file = path::absolute(file())?;
        interrupt::remove_at_end(file.clone());
        *held = Some(post_guard(&file)?);
    }
    let held = held.as_ref().expect("it was posted above");
    lab::inherit(side, vec![held.try_clone()?.into()]);
    Ok(())
}

/// Posts it. It learns by the end of a pipe that nobody holds what is returned.
fn post_guard(file: &Path) -> io::Result<PipeWriter> {
    let (theirs, ours) = io::pipe()?;
    guard::post(&["socket-guard".as_ref(), file.as_os_str()], theirs).map(|_| ours)
}

/// The life of a guard, whose standard input is the pipe.
pub fn stand(file: &Path) -> io::Result<()> {
    processes::detach()?;
    guard::on_duty()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn own_in(folder: &Path) -> PathBuf {
    folder.join(format!("{PREFIX}{}{SUFFIX}", process::id()))
}

/// Removes those of commands that have ended.
fn remove_left(folder: &Path) {
    for left in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = left.file_name().to_string_lossy().into_owned();
        // Behind the name stands what tells pairs apart.
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(SUFFIX)).map(|(pid, _)| pid);
        let ended = pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        // Somebody may have it whose processes are not shown here.
        if ended && is_nobodys(&left.path()) {
            let _ = fs::remove_file(left.path());
        }
    }
}

/// Asks without being a caller, who would wait where others do already: one of another kind is refused for that (EPROTOTYPE), and where
/// nobody has the socket for this (unix(7)).
fn is_nobodys(socket: &Path) -> bool {
    let asked = UnixDatagram::unbound().and_then(|own| own.connect(socket));
    asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

const PREFIX: &str = "sidelane-ladder-";
const SUFFIX: &str = ".vhost";

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_socket_that_a_killed_ladder_left_goes_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        // No process has this number (proc(5), /proc/sys/kernel/pid_max), and this one runs.
        let left = folder.path().join(format!("{PREFIX}{}{SUFFIX}.pair-9000", u32::MAX));
        let own = own_in(folder.path()).with_added_extension("pair-9000");
        for socket in [&left, &own] {
            drop(UnixListener::bind(socket).unwrap());
        }
        remove_left(folder.path());
        assert!(!left.exists() && own.exists());
    }

    #[test]
    #[allow(unsafe_code)] // listen(2): std has no choice of how many callers may wait.
    fn a_socket_at_which_callers_wait_is_left_alone_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{PREFIX}{}{SUFFIX}", u32::MAX));
        let listener = UnixListener::bind(&left).unwrap();
        // SAFETY: it takes numbers.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // As many as may.
        let _waits = UnixStream::connect(&left).unwrap();
        let (done, over) = channel();
        let folder_of_it = folder.path().to_owned();
        thread::spawn(move || {
            remove_left(&folder_of_it);
            done.send(()).unwrap();
        });
        over.recv_timeout(Duration::from_secs(60)).expect("it does not wait in line");
        assert!(left.exists());
    }
}
