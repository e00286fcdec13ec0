//! libdpdk behind a table of functions that work on bursts, loaded when it is wanted.
//!
//! The shim (`shim/`) is compiled when this crate is built, and its shared object is part of the binary. It names
//! libdpdk as what it needs, so the system's loader brings in libdpdk when [`load`] is called, and not before: the same
//! binary runs on machines without it.
#![allow(unsafe_code)] // Loading a shared object, and the table in it.

#[allow(missing_docs, non_camel_case_types)]
mod bindings;

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;

pub use bindings::*;

/// Why there is no DPDK in this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// This binary was built where libdpdk was not.
    #[error("this binary was built without DPDK, since {0}: install that and build again")]
    NotBuilt(&'static str),
    /// A library of DPDK's is not installed here.
    #[error("DPDK is not installed here: {library} is missing (Debian: apt-get install {package})")]
    Missing {
        /// File name of the library.
        library: String,
        /// The package that has it.
        package: String,
    },
    /// The loader has another objection.
    #[error("DPDK could not be loaded: {0}")]
    Refused(String),
}

/// The table, loaded at the first call.
pub fn load() -> Result<&'static sl_dpdk, LoadError> {
    static TABLE: OnceLock<Result<&'static sl_dpdk, LoadError>> = OnceLock::new();
    TABLE.get_or_init(open).clone()
}

/// Why this binary has no shim; `None`: it has one.
pub fn missing_at_build() -> Option<&'static str> {
    SHIM.is_empty().then_some(env!("SIDELANE_SHIM_MISSING"))
}

/// The shim's shared object; empty where it could not be made.
static SHIM: &[u8] = include_bytes!(env!("SIDELANE_SHIM"));

fn open() -> Result<&'static sl_dpdk, LoadError> {
    if let Some(missing) = missing_at_build() {
        return Err(LoadError::NotBuilt(missing));
    }
    let system = |error: std::io::Error| LoadError::Refused(format!("its shim found no place: {error}"));
    // A file of memory, so that nothing is left behind, wherever the process may write.
    // SAFETY: the name is a C string; the descriptor that comes back is ours alone.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"sidelane-dpdk".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(system(std::io::Error::last_os_error()));
        }
        File::from_raw_fd(fd)
    };
    file.write_all(SHIM).map_err(system)?;
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero in it");
    // SAFETY: the shim's initialisers are those of libdpdk's libraries, which any program linked to it would run.
    // RTLD_GLOBAL: drivers that DPDK loads find its interrupt functions before DPDK's (shim/memif.c). The object is
    // never closed, so its table lives as long as the process.
    let table = unsafe {
        let shim = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        if shim.is_null() {
            return Err(refusal(&last_error()));
        }
        let table = libc::dlsym(shim, c"sidelane_dpdk".as_ptr());
        if table.is_null() {
            return Err(LoadError::Refused(last_error()));
        }
        &*table.cast::<sl_dpdk>()
    };
    assert_eq!(table.size as usize, size_of::<sl_dpdk>(), "the bindings are those of the shim's own header");
    Ok(table)
}

fn last_error() -> String {
    // SAFETY: dlerror gives null or a C string that is good until the next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and read before anything else is loaded.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Reads the loader's words (ld.so(8): `NAME: cannot open shared object file: ...`).
fn refusal(words: &str) -> LoadError {
    let library = words.split(": ").next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    if words.contains("cannot open shared object file") && library.starts_with("lib") {
        return LoadError::Missing { library: library.to_owned(), package: debian_package(library) };
    }
    LoadError::Refused(words.to_owned())
}

/// The Debian package of a library or driver: `librte_net_e1000.so.23` is in `librte-net-e1000-23`.
pub fn debian_package(library: &str) -> String {
    let (name, version) = library.split_once(".so.").unwrap_or((library, ""));
    let version = version.split('.').next().unwrap_or_default();
    let name = name.replace('_', "-");
    let dash = if name.ends_with(|last: char| last.is_ascii_digit()) { "-" } else { "" };
    format!("{name}{dash}{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let error = refusal("librte_ethdev.so.23: cannot open shared object file: No such file or directory");
        assert_eq!(
            error.to_string(),
            "DPDK is not installed here: librte_ethdev.so.23 is missing (Debian: apt-get install librte-ethdev23)"
        );
        assert!(matches!(refusal("/proc/self/fd/3: undefined symbol: x"), LoadError::Refused(_)));
    }

    #[test]
    fn packages_are_named_as_debian_names_them() {
        assert_eq!(debian_package("librte_net_memif.so.23"), "librte-net-memif23");
        assert_eq!(debian_package("librte_net_e1000.so.23.0"), "librte-net-e1000-23");
        assert_eq!(debian_package("libnuma.so.1"), "libnuma1");
    }

    #[test]
    fn loads_where_it_was_built() {
        match load() {
            Ok(table) => {
                let version = table.version.expect("a full table");
                // SAFETY: `version` takes nothing and gives a C string that is constant.
                let version = unsafe { CStr::from_ptr(version()) };
                assert!(version.to_string_lossy().starts_with("DPDK "), "{version:?}");
            }
            Err(error @ LoadError::Refused(_)) => panic!("{error}"),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
