//! What the kernel says of this host's processes: `/proc` (proc(5)).

use std::{fs, io};

/// A process, as its `stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Also true of one that nobody has waited for yet (a zombie).
    pub has_ended: bool,
    /// Whose child it is.
    pub parent: u32,
    /// In clock ticks after the machine's start: which of all processes that have its number.
    pub started: u64,
}

impl Stat {
    /// `None` if there is none of that number, or it is hidden.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `NUMBER (NAME) STATE PARENT ...`, where the name may have anything in it.
    fn parse(stat: &[u8]) -> Option<Self> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // Fields 20 and 22, `num_threads` and `starttime`.
        let threads: u32 = fields.nth(15)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // The first thread may end before others, and is a zombie meanwhile.
        Some(Self { has_ended: matches!(state, "Z" | "X" | "x") && threads <= 1, parent, started })
    }
}

/// The numbers of all that `/proc` shows.
pub fn pids() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read_whatever_the_name() {
        let of = |state: &str, threads: u32| {
            let stat = format!("77 (a) Z (b 1\n) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 4321 9 9");
            Stat::parse(stat.as_bytes())
        };
        let stat = |has_ended| Some(Stat { has_ended, parent: 1, started: 4321 });
        assert_eq!(of("S", 1), stat(false));
        assert_eq!(of("Z", 1), stat(true));
        assert_eq!(of("Z", 2), stat(false), "its other threads go on");
        for nonsense in [&b""[..], b"77 (a) S 1 2", b"77 a S", b"77 (a) \xff"] {
            assert!(Stat::parse(nonsense).is_none());
        }
    }

    #[test]
    fn this_process_is_among_all_and_has_not_ended() {
        let own = std::process::id();
        assert!(pids().unwrap().any(|pid| pid == own));
        assert_eq!(
            Stat::of(own).map(|stat| (stat.has_ended, stat.parent)),
            Some((false, std::os::unix::process::parent_id()))
        );
    }
}
