//! What this process may do (capabilities(7)), and what helps where that is too little.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A capability that some drivers need, by its number in linux/capability.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the kernel")]
pub enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    Bpf = 39,
}

impl Capability {
    /// Whether this process has it, within its user namespace.
    pub fn is_effective(self) -> bool {
        self.is_in(effective())
    }

    fn is_in(self, effective: u64) -> bool {
        effective >> self as u32 & 1 == 1
    }

    /// Without the prefix that all have.
    fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "NET_ADMIN",
            Self::NetRaw => "NET_RAW",
            Self::Bpf => "BPF",
        }
    }
}

/// As whom this process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Who may become root, perhaps.
    User,
    /// Who may lack rights all the same, as in a container.
    Root,
    /// In a user namespace, in which nobody has all rights.
    RootOfNamespace,
}

impl Who {
    /// Found out anew.
    pub fn am_i() -> Self {
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        Self::of(is_root, &fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }

    /// By the map of users (user_namespaces(7)): outside of any namespace each is itself.
    fn of(is_root: bool, uid_map: &str) -> Self {
        match is_root {
            false => Self::User,
            true if uid_map.split_whitespace().eq(["0", "0", "4294967295"]) => Self::Root,
            true => Self::RootOfNamespace,
        }
    }
}

/// Why a process that needs these was refused, and what helps it: a part of a sentence.
pub(crate) fn refusal(needed: &[Capability]) -> String {
    words(needed, effective(), Who::am_i())
}

fn words(needed: &[Capability], effective: u64, who: Who) -> String {
    let missing: Vec<&str> = needed.iter().filter(|needed| !needed.is_in(effective)).map(|it| it.name()).collect();
    let listed = |prefix: &str, between: &str| {
        missing.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(between)
    };
    match who {
        Who::RootOfNamespace => "this process is root of a user namespace only: run it outside of that".to_owned(),
        _ if missing.is_empty() => {
            "this process has that, and is refused all the same, as by a container's sandbox".to_owned()
        }
        Who::User => format!("this process lacks {}: run it with `sudo`", listed("CAP_", ", ")),
        Who::Root => format!(
            "root lacks {} here, as in a container: start that with `{}`",
            listed("CAP_", ", "),
            listed("--cap-add=", " ")
        ),
    }
}

/// The capabilities in effect, a bit each; none where that is not told.
fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_root_is_known_by_the_map_of_users() {
        let everybody = "         0          0 4294967295\n";
        assert_eq!(Who::of(false, everybody), Who::User);
        assert_eq!(Who::of(true, everybody), Who::Root);
        assert_eq!(Who::of(true, "         0       1000          1\n"), Who::RootOfNamespace);
    }

    #[test]
    fn what_is_missing_is_named_and_only_a_user_is_told_to_become_root() {
        let needed = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];
        let (all, raw) = (u64::MAX, 1 << Capability::NetRaw as u32);
        let user = words(&needed, 0, Who::User);
        assert_eq!(user, "this process lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF: run it with `sudo`");
        let root = words(&needed, raw, Who::Root);
        assert!(root.starts_with("root lacks CAP_NET_ADMIN, CAP_BPF here"), "{root}");
        assert!(root.ends_with("`--cap-add=NET_ADMIN --cap-add=BPF`"), "{root}");
        for (effective, who) in [(all, Who::Root), (all, Who::RootOfNamespace), (raw, Who::RootOfNamespace)] {
            let told = words(&needed, effective, who);
            assert!(!told.contains("sudo") && !told.contains("lacks"), "{told}");
        }
    }
}
