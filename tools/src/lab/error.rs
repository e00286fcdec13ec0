//! Why there is no lab, and what mends it.

use std::fmt;
use std::io;

use super::seed::Step;

/// Why a lab could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A lab has 2 to 26 hosts, A to Z.
    #[error("a lab has 2 to {max} hosts, not {0}", max = super::HOSTS_MAX)]
    Hosts(usize),
    /// An MTU that IPv4 or veth does not carry.
    #[error("the MTU of a lab is 68 to 65535 bytes, not {0}")]
    Mtu(u32),
    /// This user may not make network namespaces here.
    #[error("{0}")]
    Forbidden(Forbidden),
    /// The system failed otherwise.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried, after "cannot".
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused a request about interfaces.
    #[error("cannot {doing}: {answer}{advice}", advice = netlink_advice(answer))]
    Netlink {
        /// What was tried, after "cannot".
        doing: String,
        /// The kernel's answer.
        answer: rtnetlink::Error,
    },
}

/// What forbids namespaces, as far as the system tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forbidden {
    /// A sysctl that can be changed: its name, and the value that allows namespaces.
    Sysctl(&'static str, &'static str),
    /// No sysctl is in the way: a container's seccomp filter or security module.
    Sandbox(String),
}

impl LabError {
    pub(super) fn from_seed((step, source): (Step, io::Error)) -> Self {
        let denied = matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS));
        match step {
            Step::Start => Self::System { doing: "start the process that makes namespaces", source },
            Step::Open => Self::System { doing: "open a new namespace", source },
            Step::User | Step::Map | Step::Net if denied => Self::Forbidden(Forbidden::find(&source)),
            Step::User | Step::Map => Self::System { doing: "make a user namespace", source },
            Step::Net => Self::System { doing: "make a network namespace", source },
        }
    }
}

impl Forbidden {
    /// Looks for the sysctl in the way; `refusal` is the system's answer when none is.
    pub fn find(refusal: &io::Error) -> Self {
        let sysctl = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).map(|text| text.trim().to_owned())
        };
        SYSCTLS
            .iter()
            .find(|(name, forbidding, _)| sysctl(name).is_ok_and(|value| value == *forbidding))
            .map_or_else(|| Self::Sandbox(refusal.to_string()), |&(name, _, allowing)| Self::Sysctl(name, allowing))
    }

    /// The reason, without the remedy.
    pub fn reason(&self) -> String {
        match self {
            Self::Sysctl(name, _) => format!("this user may not make network namespaces: {name} forbids it"),
            Self::Sandbox(refusal) => {
                format!("this process may not make network namespaces ({refusal}): a container's or service's sandbox")
            }
        }
    }

    /// The command that mends it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Sysctl(name, allowing) => format!("sudo sysctl -w {name}={allowing}"),
            Self::Sandbox(_) => "start the container with --privileged (docker, podman)".to_owned(),
        }
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; mend it with `{}`", self.reason(), self.remedy())?;
        if matches!(self, Self::Sysctl(..)) {
            write!(f, ", or run with `sudo`")?;
        }
        Ok(())
    }
}

/// Sysctl, the value that forbids user namespaces, and one that allows them. The first is Debian's, the second
/// Ubuntu's, the others are every kernel's (namespaces(7)).
const SYSCTLS: [(&str, &str, &str); 4] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "15000"),
    ("user.max_net_namespaces", "0", "15000"),
];

/// A kernel without veth or bridge answers `EOPNOTSUPP`, which helps nobody.
fn netlink_advice(answer: &rtnetlink::Error) -> &'static str {
    match answer {
        rtnetlink::Error::NetlinkError(message) if message.raw_code() == -libc::EOPNOTSUPP => {
            "; the kernel lacks the module: `sudo modprobe -a veth bridge`"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidding_sysctl_is_named_with_its_remedy() {
        let text = Forbidden::Sysctl("kernel.unprivileged_userns_clone", "1").to_string();
        assert!(text.contains("`sudo sysctl -w kernel.unprivileged_userns_clone=1`"), "{text}");
        assert!(!text.contains("--nic"), "of commands that have no such option too: {text}");
    }

    #[test]
    fn no_memory_is_not_taken_for_a_missing_right() {
        let error = LabError::from_seed((Step::Net, io::Error::from_raw_os_error(libc::ENOMEM)));
        assert!(matches!(error, LabError::System { .. }), "{error}");
    }
}
