//! Where the sockets of kept labs lie: a directory that only this user can enter.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory, made if it is not there yet.
pub fn directory() -> io::Result<PathBuf> {
    let own = own_uid()?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Under `sudo` the variable may be another user's.
    let parent = [runtime, Some(PathBuf::from(format!("/run/user/{own}"))), Some(PathBuf::from("/run"))]
        .into_iter()
        .flatten()
        .find(|path| fs::metadata(path).is_ok_and(|parent| parent.is_dir() && parent.st_uid() == own));
    let directory = match parent {
        Some(parent) => parent.join("sidelane"),
        // World-writable, so the name tells users apart and `check` refuses what another one put there.
        None => std::env::temp_dir().join(format!("sidelane-{own}")),
    };
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(&directory, own)?;
    Ok(directory)
}

/// The path of a kept lab's socket.
pub fn socket(name: &str) -> io::Result<PathBuf> {
    Ok(directory()?.join(format!("{name}{SUFFIX}")))
}

/// The names of all labs that have a socket, alive or stale.
pub fn names() -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory()?)?
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Held while a socket is put in place or a stale one is removed, so that two commands do not take turns in it.
/// Given up when the file is closed.
pub fn lock() -> io::Result<File> {
    let directory = File::open(directory()?)?;
    directory.lock()?;
    Ok(directory)
}

const SUFFIX: &str = ".lab";

fn check(directory: &Path, own: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.st_uid() == own && found.st_mode() & 0o077 == 0 {
        return Ok(());
    }
    let text = format!("{} is not a directory of this user's alone; remove it", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn own_uid() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.st_uid())
}
