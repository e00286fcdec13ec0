//! A `newc` archive: what Linux unpacks into its first file system.
//! The format is in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Files, folders and links, in the order of adding; a folder comes before what is in it.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    /// Everything added so far, by its path from the root.
    known: BTreeSet<PathBuf>,
}

impl Archive {
    /// Adds a file under `path`, with the folders on the way there. A second one of the same path is left out.
    pub fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: &[u8]) {
        let path = path.as_ref();
        if let Some(folder) = path.parent() {
            self.folder(folder);
        }
        self.entry(path, REGULAR | mode, content);
    }

    /// Adds a folder and those on the way there.
    pub fn folder(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let Some(parent) = path.parent() else { return };
        if !self.known.contains(path) {
            self.folder(parent);
            self.entry(path, FOLDER | 0o755, &[]);
        }
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        let path = path.as_ref();
        if let Some(folder) = path.parent() {
            self.folder(folder);
        }
        self.entry(path, LINK | 0o777, target.as_ref().as_os_str().as_encoded_bytes());
    }

    /// Adds a file of this machine under its own path, with the links that lead there as links: a library that is
    /// reached by two names stays one file, as the loader wants it.
    pub fn copy(&mut self, path: &Path) -> io::Result<()> {
        let mut links = 0;
        let mut at = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = parts(path);
        while let Some(next) = rest.pop() {
            if next == Path::new("..") {
                at.pop();
                continue;
            }
            at.push(next);
            let found = at.symlink_metadata()?;
            if found.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let target = at.read_link()?;
                self.link(&at, &target);
                rest.extend(parts(&target));
                if target.is_absolute() {
                    at = PathBuf::from("/");
                } else {
                    at.pop();
                }
            } else if !found.is_dir() && !self.known.contains(&at) {
                self.file(&at, found.mode() & 0o777, &std::fs::read(&at)?);
            }
        }
        Ok(())
    }

    /// The archive's bytes. Another one may follow them: the kernel unpacks both.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("/TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        if !self.known.insert(path.to_owned()) {
            return;
        }
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_encoded_bytes();
        let inode = self.known.len();
        let (size, name_size) = (content.len(), name.len() + 1);
        // Magic, inode, mode, user, group, links, time, size, two devices of two numbers each, length of name, checksum.
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The names on a path, last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    let mut names: Vec<PathBuf> = names.map(|part| PathBuf::from(part.as_os_str())).collect();
    names.reverse();
    names
}

const REGULAR: u32 = libc::S_IFREG;
const FOLDER: u32 = libc::S_IFDIR;
const LINK: u32 = libc::S_IFLNK;
/// As the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    /// What is in an archive, by name: its header, and its content.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let number = |field: usize| {
                let start = at + 6 + 8 * field;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = String::from_utf8(bytes[at + 110..at + 110 + name_size - 1].to_vec()).unwrap();
            let start = (at + 110 + name_size).next_multiple_of(4);
            at = (start + size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(at, bytes.len());
                return entries;
            }
            entries.push((name, mode, bytes[start..start + size].to_vec()));
        }
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_once() {
        let mut archive = Archive::default();
        archive.file("/a/b/one", 0o644, b"1");
        archive.file("/a/b/two", 0o755, b"22222");
        archive.file("/a/b/two", 0o755, b"again");
        let names: Vec<_> = entries(&archive.finish()).into_iter().map(|(name, mode, _)| (name, mode)).collect();
        let expected = [("a", 0o40755), ("a/b", 0o40755), ("a/b/one", 0o100644), ("a/b/two", 0o100755)]
            .map(|(n, m)| (n.into(), m));
        assert_eq!(names, expected);
    }

    #[test]
    fn a_file_that_two_links_lead_to_is_one_file() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        std::fs::create_dir(place.join("deep")).unwrap();
        std::fs::write(place.join("deep/real"), b"content").unwrap();
        symlink("deep/real", place.join("one")).unwrap();
        symlink(place.join("deep"), place.join("short")).unwrap();
        let mut archive = Archive::default();
        for path in ["one", "short/real", "short/../deep/real"] {
            archive.copy(&place.join(path)).unwrap();
        }
        let entries = entries(&archive.finish());
        let files = entries.iter().filter(|(_, _, content)| content == b"content").count();
        let links = entries.iter().filter(|(_, mode, _)| mode & libc::S_IFMT == LINK).count();
        assert_eq!((files, links), (1, 2));
    }

    #[test]
    fn what_cpio_reads_is_what_was_written() {
        let mut archive = Archive::default();
        archive.file("/etc/word", 0o644, b"hello");
        archive.link("/bin", "usr/bin");
        let list = Command::new("cpio").arg("-it").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut list) = list else {
            println!("skipped: cpio is not installed");
            return;
        };
        io::Write::write_all(&mut list.stdin.take().unwrap(), &archive.finish()).unwrap();
        assert_eq!(list.wait_with_output().unwrap().stdout, b"etc\netc/word\nbin\n");
    }
}
