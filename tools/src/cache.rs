//! The folder for what can be had again: compiled programs, a kernel that was downloaded.

use std::path::PathBuf;
use std::{env, fs, io};

use crate::private;

/// `$XDG_CACHE_HOME/sidelane`, or where that is by default, made if it is not there yet. Of a user without a home (Debian's services have
/// /nonexistent) one among the temporary files, where nobody else can put something in its place.
pub fn folder() -> io::Result<PathBuf> {
    // Relative ones count as unset (XDG Base Directory Specification).
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let own = cache.map(|cache| cache.join("sidelane")).filter(|folder| fs::create_dir_all(folder).is_ok());
    own.map_or_else(|| private::among_others(&env::temp_dir(), "sidelane-cache-"), Ok)
}
