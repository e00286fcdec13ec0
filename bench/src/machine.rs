//! The machine that figures were taken on, as far as it matters to them.

use std::{fmt, fs};

use serde::{Deserialize, Serialize};

/// A description for the head of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Cores that we may run on.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// What the kernel reads the time from.
    pub clocksource: String,
    /// True under a hypervisor.
    pub virtualised: bool,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Congestion controls that TCP sockets may choose from, in the kernel's order.
    pub tcp_congestion_controls: Vec<String>,
}

impl Machine {
    /// This machine. What the system does not tell is `unknown`.
    pub fn describe() -> Self {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        let memory_kib = field(&meminfo, "MemTotal").and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
        let unknown = || "unknown".to_owned();
        Self {
            cpu: field(&cpuinfo, "model name").map_or_else(unknown, str::to_owned),
            cores: sidelane_nic::affinity::cores().len(),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .unwrap_or_else(unknown),
            virtualised: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            tcp_congestion_controls: congestion_controls(),
        }
    }
}

/// A line for people.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let virtualised = if self.virtualised { " (virtual)" } else { "" };
        let Self { cpu, cores, kernel, clocksource, .. } = self;
        write!(f, "{cpu}, {cores} cores{virtualised}, Linux {kernel}, clocksource {clocksource}")
    }
}

/// Congestion controls that the kernel has loaded.
pub fn congestion_controls() -> Vec<String> {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    available.split_whitespace().map(str::to_owned).collect()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The value behind `name:` in the way of /proc.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_proc_is_found_by_its_whole_name() {
        let text = "model\t\t: 143\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::describe();
        assert!(machine.cores > 0);
        assert!(machine.kernel.contains('.'));
    }
}
