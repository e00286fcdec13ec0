//! The folder for what can be had again: compiled programs, a kernel that was downloaded.

use std::path::PathBuf;

/// `$XDG_CACHE_HOME/sidelane`, or where that is by default; `None` for a user without a home.
pub fn folder() -> Option<PathBuf> {
    // Relative ones count as unset (XDG Base Directory Specification).
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|cache| cache.join("sidelane"))
}
