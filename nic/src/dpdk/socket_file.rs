//! The file of a server's socket, which DPDK removes by its name when the server ends (22.11: memif_socket_remove_device,
//! rte_vhost_driver_unregister). With `once` the name is free before, and another server may have it by then: its file stays.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A server's file, from when it is made to its end.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, which are nobody else's while the socket is open; `None`: a client has removed it at once.
    made: Option<(u64, u64)>,
}

impl SocketFile {
    /// The one that was made just now.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), made: identity(path) }
    }

    /// Has the socket's `end` remove no other server's file.
    pub fn end_with(self, end: impl FnOnce()) {
        let theirs = identity(&self.path).filter(|found| self.made != Some(*found));
        let aside = theirs.map(|(_, inode)| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".of-{inode}"));
            PathBuf::from(name)
        });
        let kept = aside.filter(|aside| fs::hard_link(&self.path, aside).is_ok());
        end();
        if let Some(aside) = kept {
            // Unless it is there still.
            let _ = fs::hard_link(&aside, &self.path);
            let _ = fs::remove_file(aside);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
