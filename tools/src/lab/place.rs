//! Where the sockets of kept labs lie: a directory that only this user can enter.

use std::fs::{self, File};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::private::{TRIES, among_others, entries, found_among_others, is_private, make, own_uid};

/// The directory, made if it is not there yet.
pub fn directory() -> io::Result<PathBuf> {
    let own = own_uid()?;
    let Some(parent) = runtime(own) else { return among_others(&temporary(std::env::temp_dir()), PREFIX) };
    let directory = parent.join(NAME);
    if make(&directory, own)? { Ok(directory) } else { Err(of_others(&directory)) }
}

/// The directory, if somebody has made it. It may go any moment, with the last lab.
fn found() -> io::Result<Option<PathBuf>> {
    let own = own_uid()?;
    let Some(parent) = runtime(own) else {
        return Ok(found_among_others(&temporary(std::env::temp_dir()), PREFIX, own));
    };
    let directory = parent.join(NAME);
    match is_private(&directory, own) {
        None => Ok(None),
        Some(true) => Ok(Some(directory)),
        Some(false) => Err(of_others(&directory)),
    }
}

fn of_others(directory: &Path) -> io::Error {
    let text = format!("{} is not a directory of this user's alone; remove it", directory.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The directory of user `own` for what lasts as long as it is logged in.
fn runtime(own: u32) -> Option<PathBuf> {
    // The keeper is in another folder than who looks for it. What is relative is to be ignored (XDG Base Directory Specification).
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    // Under `sudo` the variable may be another user's.
    runtime
        .into_iter()
        .chain(entries(Path::new("/run/user")))
        .chain([PathBuf::from("/run")])
        .find(|path| fs::metadata(path).is_ok_and(|parent| parent.is_dir() && parent.st_uid() == own))
}

/// The folder for temporary files, as TMPDIR names it, if that is the same one everywhere.
fn temporary(named: PathBuf) -> PathBuf {
    if named.is_absolute() { named } else { PathBuf::from("/tmp") }
}

/// The path of a kept lab's socket; `None` where the directory for it is not there, and so no lab.
pub fn socket(name: &str) -> io::Result<Option<PathBuf>> {
    let Some(directory) = found()? else { return Ok(None) };
    let socket = directory.join(format!("{name}{SUFFIX}"));
    if SocketAddr::from_pathname(&socket).is_ok() {
        return Ok(Some(socket));
    }
    let text = format!(
        "{} is longer than a socket's path may be (unix(7)): have XDG_RUNTIME_DIR name a folder with a shorter one",
        socket.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The names of all labs that have a socket, alive or stale.
pub fn names() -> io::Result<Vec<String>> {
    found()?.map_or(Ok(Vec::new()), |directory| names_in(&directory))
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        // The last lab has ended since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Held while a socket is put in place or a stale one is removed, so that two commands do not take turns in it. Makes the directory, if
/// it is not there. Given up when the file is closed.
pub fn lock() -> io::Result<File> {
    for _ in 0..TRIES {
        let directory = match File::open(directory()?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            directory => directory?,
        };
        directory.lock()?;
        // Whoever had the lock may have taken the directory away.
        if directory.metadata()?.st_nlink() > 0 {
            return Ok(directory);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Takes the directory away in which `socket` was, if nothing else is in it and nobody has the lock.
pub fn leave(socket: &Path) {
    let Some(directory) = socket.parent() else { return };
    if let Ok(lock) = File::open(directory)
        && lock.try_lock().is_ok()
        // Else it is another one that has this name by now.
        && lock.metadata().is_ok_and(|it| it.st_nlink() > 0)
    {
        // Not empty: there are other labs.
        let _ = fs::remove_dir(directory);
    }
}

const NAME: &str = "sidelane";
const PREFIX: &str = "sidelane-labs-";
const SUFFIX: &str = ".lab";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_has_just_gone_has_no_labs() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(names_in(&place.path().join("gone")).unwrap(), [""; 0]);
    }

    #[test]
    fn a_relative_folder_for_temporary_files_is_ignored() {
        assert_eq!(
            ["/var/tmp", "rel", ""].map(|named| temporary(named.into())),
            ["/var/tmp", "/tmp", "/tmp"].map(Path::new)
        );
    }
}
