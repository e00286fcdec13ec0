//! Directories of this user's alone.
//!
//! They are known by their owner, and not by the user's number: that is 0 for everybody inside a lab's user namespace, where files still
//! are one's own or are not (user_namespaces(7)).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// One in `parent`, where everybody may make some: it is there, or made. Its name begins with `prefix`.
pub fn among_others(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    let own = own_uid()?;
    if let Some(found) = found_among_others(parent, prefix, own) {
        return Ok(found);
    }
    for number in 0..NAMES_MAX {
        let directory = parent.join(format!("{prefix}{own}-{number}"));
        // Another user of this number, inside a lab, may have it.
        if make(&directory, own)? {
            return Ok(directory);
        }
    }
    let text =
        format!("{} has {NAMES_MAX} directories {prefix}{own}-* and none is this user's alone", parent.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// The one of user `own` that is there.
pub fn found_among_others(parent: &Path, prefix: &str, own: u32) -> Option<PathBuf> {
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
    entries(parent).into_iter().find(|path| named(path) && is_private(path, own) == Some(true))
}

/// Users whose first lab was made inside a lab have one name each; hardly anybody's is.
const NAMES_MAX: u32 = 100;

/// Makes the directory if it is not there yet; false when it is another's than that of user `own`.
pub fn make(directory: &Path, own: u32) -> io::Result<bool> {
    for _ in 0..TRIES {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", directory.display())));
            }
            _ => {}
        }
        // Whoever made it may have taken it away.
        if let Some(is_private) = is_private(directory, own) {
            return Ok(is_private);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{} comes and goes", directory.display())))
}

/// Whether it is a directory of user `own` alone; `None`: there is nothing.
pub fn is_private(path: &Path, own: u32) -> Option<bool> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(found.is_dir() && found.st_uid() == own && found.st_mode() & 0o077 == 0)
}

/// How often a directory may go while somebody makes it: once for each lab that ends meanwhile.
pub const TRIES: usize = 100;

/// What is in a directory, in an order that is always the same; nothing of one that cannot be read.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    entries
}

/// This user's number, as it is here.
pub fn own_uid() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.st_uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    #[test]
    fn a_directory_is_found_by_its_owner_under_any_number() {
        let place = tempfile::tempdir().unwrap();
        let made = among_others(place.path(), "sidelane-labs-").unwrap();
        let renamed = place.path().join("sidelane-labs-4711-7");
        fs::rename(made, &renamed).unwrap();
        assert_eq!(among_others(place.path(), "sidelane-labs-").unwrap(), renamed);
    }

    #[test]
    fn what_others_can_enter_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let open = among_others(place.path(), "sidelane-labs-").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let private = among_others(place.path(), "sidelane-labs-").unwrap();
        assert_ne!(private, open);
        assert_eq!(among_others(place.path(), "sidelane-labs-").unwrap(), private);
    }

    #[test]
    fn a_directory_that_another_takes_away_is_made_again_and_never_taken_for_anothers() {
        let place = tempfile::tempdir().unwrap();
        let (directory, own) = (place.path().join("sidelane"), own_uid().unwrap());
        thread::scope(|scope| {
            let takes_away = scope.spawn(|| (0..20_000).for_each(|_| drop(fs::remove_dir(&directory))));
            while !takes_away.is_finished() {
                assert!(make(&directory, own).unwrap());
            }
        });
    }

    #[test]
    fn a_place_where_nothing_can_be_made_is_named() {
        let error = among_others(Path::new("/proc/no/such"), "sidelane-labs-").unwrap_err();
        assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().starts_with("/proc/no/such/"), "{error}");
    }
}
