//! Where the sockets of kept labs lie: a directory that only this user can enter.
//!
//! It is known by its owner, and not by the user's number: that is 0 for everybody inside a lab's user namespace, where files still are
//! one's own or are not (user_namespaces(7)).

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
    let parent = runtime
        .into_iter()
        .chain(entries(Path::new("/run/user")))
        .chain([PathBuf::from("/run")])
        .find(|path| fs::metadata(path).is_ok_and(|parent| parent.is_dir() && parent.st_uid() == own));
    let Some(parent) = parent else { return among_others(&std::env::temp_dir(), own) };
    let directory = parent.join("sidelane");
    if make(&directory, own)? {
        return Ok(directory);
    }
    let text = format!("{} is not a directory of this user's alone; remove it", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
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

/// The directory in one where everybody may make some.
fn among_others(parent: &Path, own: u32) -> io::Result<PathBuf> {
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    if let Some(found) = entries(parent).into_iter().find(|path| named(path) && is_private(path, own)) {
        return Ok(found);
    }
    for number in 0..NAMES_MAX {
        let directory = parent.join(format!("{PREFIX}{own}-{number}"));
        // Another user of this number, inside a lab, may have it.
        if make(&directory, own)? {
            return Ok(directory);
        }
    }
    let text =
        format!("{} has {NAMES_MAX} directories {PREFIX}{own}-* and none is this user's alone", parent.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

const PREFIX: &str = "sidelane-labs-";

/// Users whose first lab was made inside a lab have one name each; hardly anybody's is.
const NAMES_MAX: u32 = 100;

/// Makes the directory if it is not there yet; false when it is another's.
fn make(directory: &Path, own: u32) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Ok(is_private(directory, own))
}

fn is_private(path: &Path, own: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.st_uid() == own && found.st_mode() & 0o077 == 0)
}

/// In an order that is always the same; none of what cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    entries
}

fn own_uid() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.st_uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_found_by_its_owner_under_any_number() {
        let place = tempfile::tempdir().unwrap();
        let own = own_uid().unwrap();
        let made = among_others(place.path(), own).unwrap();
        let renamed = place.path().join("sidelane-labs-4711-7");
        fs::rename(made, &renamed).unwrap();
        assert_eq!(among_others(place.path(), own).unwrap(), renamed);
    }

    #[test]
    fn what_others_can_enter_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let own = own_uid().unwrap();
        let open = among_others(place.path(), own).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let private = among_others(place.path(), own).unwrap();
        assert_ne!(private, open);
        assert_eq!(among_others(place.path(), own).unwrap(), private);
    }
}
