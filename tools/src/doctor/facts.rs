//! What of the machine decides about drivers and figures.

use std::fmt;
use std::fs;

use serde::Serialize;
use sidelane_bench::machine::Machine;
use sidelane_nic::rights::Capability;

/// The machine as the system describes it; what it does not tell is absent.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// As in a report of the ladder.
    #[serde(flatten)]
    pub machine: Machine,
    /// This process may open packet sockets on every interface it sees.
    pub cap_net_raw: bool,
    /// This process may change interfaces.
    pub cap_net_admin: bool,
    /// `kernel.io_uring_disabled`: 0 free to all, 1 to a group, 2 to nobody.
    pub io_uring_disabled: Option<u32>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, on Debian's kernels.
    pub unprivileged_userns_clone: Option<u32>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, on Ubuntu's kernels.
    pub apparmor_restrict_unprivileged_userns: Option<u32>,
    /// How much memory may be locked, as /proc/self/limits says it.
    pub memlock: Option<String>,
    /// `kernel.perf_event_paranoid`: from 2 on only one's own processes may be profiled, from 3 on none.
    pub perf_event_paranoid: Option<i32>,
    /// Huge pages of 2 MiB, reserved.
    pub hugepages: Option<u64>,
}

impl Facts {
    /// Reads them.
    pub fn gather() -> Self {
        Self {
            machine: Machine::describe(),
            cap_net_raw: Capability::NetRaw.is_effective(),
            cap_net_admin: Capability::NetAdmin.is_effective(),
            io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            memlock: memlock(),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            hugepages: number("/proc/sys/vm/nr_hugepages"),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let Machine { cpu, cores, kernel, clocksource, virtualised, memory_mib, tcp_congestion_controls } =
            &self.machine;
        writeln!(f, "{cpu}, {cores} cores, {memory_mib} MiB{}", if *virtualised { ", virtualised" } else { "" })?;
        writeln!(f, "Linux {kernel}, clock {clocksource}, TCP {}", tcp_congestion_controls.join(" "))?;
        write!(f, "CAP_NET_RAW {}, CAP_NET_ADMIN {}", yes(self.cap_net_raw), yes(self.cap_net_admin))?;
        let numbers = [
            ("kernel.io_uring_disabled", self.io_uring_disabled.map(i128::from)),
            ("user.max_user_namespaces", self.max_user_namespaces.map(i128::from)),
            ("kernel.unprivileged_userns_clone", self.unprivileged_userns_clone.map(i128::from)),
            (
                "kernel.apparmor_restrict_unprivileged_userns",
                self.apparmor_restrict_unprivileged_userns.map(i128::from),
            ),
            ("kernel.perf_event_paranoid", self.perf_event_paranoid.map(i128::from)),
            ("vm.nr_hugepages", self.hugepages.map(i128::from)),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                write!(f, "\n{name} {value}")?;
            }
        }
        match &self.memlock {
            Some(memlock) => write!(f, "\nlocked memory at most {memlock}"),
            None => Ok(()),
        }
    }
}

fn number<N: std::str::FromStr>(path: &str) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn memlock() -> Option<String> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse::<u64>().map_or_else(|_| soft.to_owned(), |bytes| format!("{} KiB", bytes / 1024)))
}
