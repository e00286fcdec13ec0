//! The folder for what can be had again: compiled programs, a kernel that was downloaded.

use std::path::PathBuf;
use std::sync::Once;
use std::{env, fs, io};

use crate::private;

/// `$XDG_CACHE_HOME/sidelane`, or where that is by default, made if it is not there yet. Of a user without a home (Debian's services have
/// /nonexistent) one among the temporary files, where nobody else can put something in its place; that the usual one cannot be made is
/// told once.
pub fn folder() -> io::Result<PathBuf> {
    // Relative ones count as unset (XDG Base Directory Specification).
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let usual = cache.map(|cache| cache.join("sidelane"));
    let made = usual.as_ref().map(fs::create_dir_all);
    if let (Some(usual), Some(Ok(()))) = (&usual, &made) {
        return Ok(usual.clone());
    }
    let folder = private::among_others(&env::temp_dir(), "sidelane-cache-")?;
    if let (Some(usual), Some(Err(error))) = (usual, made) {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            tracing::warn!(
                "cannot make {}: {error}; what can be kept for the next time is in {}, which may not last: have XDG_CACHE_HOME name a folder \
                 that can be made",
                usual.display(),
                folder.display()
            );
        });
    }
    Ok(folder)
}
