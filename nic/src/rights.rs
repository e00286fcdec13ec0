//! Whose this process is, what it may do (capabilities(7)), and what helps where that is too little.
#![allow(unsafe_code)] // geteuid(2).

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The effective user, whose our sockets are.
pub fn own_user() -> u32 {
    // SAFETY: a plain call that cannot fail.
    unsafe { libc::geteuid() }
}

/// A capability that some drivers need, by its number in linux/capability.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the kernel")]
pub enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    Bpf = 39,
}

impl Capability {
    /// Whether this process has it, within its user namespace. That is no right in a network namespace of another one.
    pub fn is_effective(self) -> bool {
        self.is_in(effective())
    }

    fn is_in(self, effective: u64) -> bool {
        effective >> self as u32 & 1 == 1
    }

    /// Asked for outside of any user namespace; the others where the network namespace's owner is.
    fn is_of_the_host(self) -> bool {
        self == Self::Bpf
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
        Who::RootOfNamespace if needed.iter().any(|needed| needed.is_of_the_host()) => {
            "this process is root of a user namespace only (a lab that is not root's is one): as root of the machine, run it outside of that".to_owned()
        }
        Who::RootOfNamespace if missing.is_empty() => {
            "this process has that in its user namespace, and the network is another's: run it outside of that namespace, \
             or with a network of its own (`unshare -Urn`, a container without `--network=host`)"
                .to_owned()
        }
        _ if missing.is_empty() => "this process has that, and is refused all the same, as by a container's sandbox: \
             start that with `--privileged`"
            .to_owned(),
        Who::User => format!("this process lacks {}: run it with `sudo`", listed("CAP_", ", ")),
        Who::Root | Who::RootOfNamespace => format!(
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
        for (effective, who) in [(all, Who::User), (all, Who::Root), (all, Who::RootOfNamespace)] {
            let told = words(&needed, effective, who);
            assert!(!told.contains("sudo") && !told.contains("lacks"), "{told}");
        }
    }

    #[test]
    fn root_of_a_user_namespace_is_told_to_leave_it_only_where_nothing_else_helps() {
        let raw = 1 << Capability::NetRaw as u32;
        let lacking = words(&[Capability::NetRaw], 0, Who::RootOfNamespace);
        assert_eq!(lacking, words(&[Capability::NetRaw], 0, Who::Root), "a container that is given it does");
        let elsewhere = words(&[Capability::NetRaw], raw, Who::RootOfNamespace);
        assert!(elsewhere.contains("`unshare -Urn`") && !elsewhere.contains("--cap-add"), "{elsewhere}");
        for effective in [0, u64::MAX] {
            let of_the_host = words(&[Capability::NetRaw, Capability::Bpf], effective, Who::RootOfNamespace);
            assert!(of_the_host.ends_with("run it outside of that"), "{of_the_host}");
        }
    }
}
