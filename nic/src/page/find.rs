//! Which processes show pages, as `/proc` has it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::View;
use super::memory::LINK;
use crate::process::pids;

/// A process with its pages.
pub struct Running {
    /// Its process id, as seen from here.
    pub pid: u32,
    /// Its program and arguments.
    pub command: String,
    /// A page an endpoint, the oldest first.
    pub pages: Vec<View>,
}

/// Every process that shows pages and that we may look into, by process id. Those of other users are silently left out.
pub fn running() -> io::Result<Vec<Running>> {
    let mut found = Vec::new();
    for pid in pids()? {
        let process = Path::new("/proc").join(pid.to_string());
        let pages = pages(&process);
        if !pages.is_empty() {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            found.push(Running { pid, command: command_line(&command), pages });
        }
    }
    found.sort_by_key(|running| running.pid);
    Ok(found)
}

/// The pages of the process at `process`. One that ends meanwhile has none.
fn pages(process: &Path) -> Vec<View> {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return Vec::new() };
    let mut numbers: Vec<u32> = descriptors
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            (fs::read_link(entry.path()).ok()? == Path::new(LINK)).then_some(number)
        })
        .collect();
    if numbers.is_empty() {
        return Vec::new();
    }
    numbers.sort_unstable();
    let own_pid = pid_within(process);
    let open = |number: &u32| View::new(open(&process.join(format!("fd/{number}"))).ok()?).ok();
    // A child that was forked has its parent's descriptors too.
    numbers.iter().filter_map(open).filter(|view| Some(view.pid()) == own_pid).collect()
}

/// The number may lead elsewhere by now, and who asks may be root: a device is not as much as opened, so it is held first, and looked at.
/// Opening what is a file must not wait either, as for somebody's lease.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
    let held_at = format!("/proc/self/fd/{}", held.as_raw_fd());
    if !held.metadata()?.is_file() || fs::read_link(&held_at)? != Path::new(LINK) {
        return Err(io::ErrorKind::NotFound.into());
    }
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(held_at)
}

/// The process id within the innermost namespace, which is the one that the process itself sees (proc(5), NSpid).
fn pid_within(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

/// Arguments with spaces between them, and nothing that moves a terminal's cursor.
fn command_line(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_moves_nobody_s_cursor() {
        assert_eq!(command_line(b"run\0a b\0\x1b[2J\n\xff\0"), "run a b  [2J \u{fffd}");
        assert_eq!(command_line(b""), "");
    }

    #[test]
    fn what_is_no_page_is_not_opened() {
        for path in ["/dev/null", "/proc/self/exe"] {
            assert_eq!(open(Path::new(path)).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
