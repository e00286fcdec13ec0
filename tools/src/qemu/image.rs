//! What a guest finds in its first file system: this program, the libraries that it needs, and a shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::Archive;
use super::kernel::{Kernel, Module};
use super::{Binding, Model, QemuError};

/// The part that all guests share.
pub fn base(kernel: &Kernel, model: Model, binding: Binding) -> Result<Vec<u8>, QemuError> {
    let mut archive = Archive::default();
    for folder in ["/dev", "/proc", "/sys", "/etc", "/mnt", "/var"] {
        archive.folder(folder);
    }
    let busybox = find("busybox").ok_or_else(|| missing("busybox", "busybox-static"))?;
    let own = std::env::current_exe().map_err(|error| QemuError::System("find this program", error))?;
    // Where this machine has merged /usr, so has the guest.
    for folder in ["/bin", "/lib", "/lib64"] {
        copy(&mut archive, Path::new(folder))?;
    }
    archive.folder("/usr/bin");
    // By it the loader finds what is outside of its own folders, in /usr/local for one. A machine may do without.
    if Path::new(LOADER_CACHE).exists() {
        copy(&mut archive, Path::new(LOADER_CACHE))?;
    }
    for (name, program) in [("/bin/busybox", &busybox), ("/usr/bin/sidelane", &own)] {
        libraries(program)?.iter().try_for_each(|library| copy(&mut archive, library))?;
        archive.file(name, 0o755, &std::fs::read(program).map_err(QemuError::file(program))?);
    }
    if binding != Binding::Kernel {
        let plugins = plugins()?;
        for name in PLUGINS {
            let plugin = newest(&plugins, &format!("librte_{name}.so."))
                .ok_or_else(|| missing(&format!("DPDK's librte_{name}"), "libdpdk-dev"))?;
            with_libraries(&mut archive, &plugin)?;
        }
    }
    let modules: Vec<&str> = binding.modules().iter().chain(model.modules()).copied().collect();
    for Module { name, content } in kernel.modules(&modules)? {
        archive.file(format!("/lab/modules/{name}.ko"), 0o644, &content);
    }
    archive.file("/init", 0o755, include_bytes!("init.sh"));
    Ok(archive.finish())
}

/// The part that is one guest's own: who it is, and what it shall run.
pub fn own(settings: &[(&str, String)], command: &[OsString]) -> Vec<u8> {
    let mut archive = Archive::default();
    let mut text = Vec::new();
    for (name, value) in settings {
        text.extend(format!("{}{name}=", if name.starts_with("SIDELANE_") { "export " } else { "" }).bytes());
        quote(value.as_bytes(), &mut text);
        text.push(b'\n');
    }
    archive.file("/lab/settings", 0o644, &text);
    let mut text = b"#!/bin/sh\nexec".to_vec();
    for word in command {
        text.push(b' ');
        quote(word.as_bytes(), &mut text);
    }
    text.push(b'\n');
    archive.file("/lab/command", 0o755, &text);
    archive.finish()
}

/// The file of a program that is on the path, or where only root's path leads.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn with_libraries(archive: &mut Archive, file: &Path) -> Result<(), QemuError> {
    copy(archive, file)?;
    libraries(file)?.iter().try_for_each(|library| copy(archive, library))
}

fn copy(archive: &mut Archive, path: &Path) -> Result<(), QemuError> {
    archive.copy(path).map_err(QemuError::file(path))
}

/// The libraries that the loader would load for `file`. A static program has none.
fn libraries(file: &Path) -> Result<Vec<PathBuf>, QemuError> {
    let output = Command::new("ldd").arg(file).output().map_err(|_| missing("ldd", "libc-bin"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.ends_with("not found")) {
        return Err(QemuError::Program(format!("loading {}", file.display()), line.trim().to_owned()));
    }
    // `name => path (address)`, and for the loader itself `path (address)`.
    let path = |line: &str| {
        let path = line.split("=>").last()?.split(" (").next()?.trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    Ok(text.lines().filter_map(path).collect())
}

/// Where DPDK looks for its plugins: `dpdk/pmds-VERSION` below the folder of libraries.
fn plugins() -> Result<PathBuf, QemuError> {
    let folders = ["/usr/lib/x86_64-linux-gnu/dpdk", "/usr/lib64/dpdk", "/usr/local/lib/x86_64-linux-gnu/dpdk"];
    let found = folders.iter().find_map(|folder| newest(Path::new(folder), "pmds-"));
    found.ok_or_else(|| missing("DPDK", "libdpdk-dev"))
}

/// The entry of `folder` that starts with `start` and comes last: of several versions the newest.
fn newest(folder: &Path, start: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))).max()
}

fn missing(what: &str, package: &'static str) -> QemuError {
    QemuError::Missing { what: what.to_owned(), package }
}

/// As one word of a shell.
fn quote(word: &[u8], into: &mut Vec<u8>) {
    into.push(b'\'');
    for &byte in word {
        match byte {
            b'\'' => into.extend(b"'\\''"),
            byte => into.push(byte),
        }
    }
    into.push(b'\'');
}

/// ld.so(8).
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// Buses, the mempool that everything uses, the drivers of [`Model`], and memif, which does more where there are hugepages.
const PLUGINS: [&str; 7] =
    ["bus_pci", "bus_vdev", "mempool_ring", "net_e1000", "net_virtio", "net_vmxnet3", "net_memif"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_survives_the_shell() {
        let words = ["plain", "two words", "it's", "$HOME `x` \\ \"", ""];
        let mut line = b"printf '%s\\n'".to_vec();
        for word in words {
            line.push(b' ');
            quote(word.as_bytes(), &mut line);
        }
        let output = Command::new("sh").arg("-c").arg(String::from_utf8(line).unwrap()).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), words);
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{libraries:?}");
    }
}
