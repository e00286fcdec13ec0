//! Which drivers can run here, why the others cannot, and what mends it.

mod checks;
mod dpdk;
mod facts;
mod probe;
mod routes;

use std::fmt;

use serde::Serialize;

use crate::nic_list::{NicFacts, NicList, Program};
use crate::table;

pub use dpdk::{CardFacts, DpdkFacts};
pub use facts::Facts;
pub use probe::main as probe;

/// All that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this text's form.
    pub schema: &'static str,
    /// True when a driver other than the simulated one can run.
    pub ready: bool,
    /// Each driver, in the order of preference.
    pub drivers: Vec<Driver>,
    /// Whether labs can be made.
    pub lab: Verdict,
    /// What DPDK has here.
    pub dpdk: DpdkFacts,
    /// Every NIC, and what XDP can do on it.
    pub nics: Vec<NicFacts>,
    /// Why it is unknown which there are, where it is.
    pub nics_unknown: Option<String>,
    /// The machine.
    pub machine: Facts,
}

/// One driver.
#[derive(Debug, Clone, Serialize)]
pub struct Driver {
    /// As in `--nic`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// Whether it can run.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Whether a thing works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Verdict {
    /// It was tried and it works.
    Runs {
        /// How far, where that is not everywhere.
        note: Option<String>,
    },
    /// It was tried and refused.
    Refused {
        /// Why.
        reason: String,
        /// A command that mends it, where there is one.
        remedy: Option<String>,
    },
}

impl Report {
    /// Tries everything. Takes a few milliseconds and leaves nothing behind.
    pub fn make() -> Self {
        let lab = checks::lab();
        let drivers = checks::drivers(&lab);
        let ready = drivers.iter().any(|driver| driver.name != "mem" && driver.verdict.runs());
        let (nics, nics_unknown) = match NicList::gather() {
            Ok(list) => (list.nics, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            schema: "sidelane-doctor/1",
            ready,
            drivers,
            lab: lab.map_or_else(|verdict| verdict, |_| Verdict::runs_everywhere()),
            dpdk: DpdkFacts::gather(),
            nics,
            nics_unknown,
            machine: Facts::gather(),
        }
    }
}

impl Verdict {
    /// True when it works.
    pub fn runs(&self) -> bool {
        matches!(self, Self::Runs { .. })
    }

    fn runs_everywhere() -> Self {
        Self::Runs { note: None }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::begin();
        table.set_header(["driver", "what it is", "here"]);
        for driver in &self.drivers {
            table.add_row([driver.name, driver.what, &driver.verdict.to_string()]);
        }
        table.add_row(["lab", "network namespaces joined by veth", &self.lab.to_string()]);
        writeln!(f, "{table}")?;
        for nic in &self.nics {
            if let Some(xdp) = &nic.xdp {
                writeln!(f, "XDP on {}: {xdp}", nic.name())?;
            }
        }
        if let Some(why) = &self.nics_unknown {
            writeln!(f, "NICs, and XDP on them: unknown, {why}")?;
        }
        write!(f, "{}", self.dpdk)?;
        writeln!(f, "{}", self.machine)?;
        let all = self.drivers.iter().map(|driver| (driver.name, &driver.verdict)).chain([("lab", &self.lab)]);
        let mut remedies: Vec<String> = all
            .filter_map(|(name, verdict)| match verdict {
                Verdict::Refused { remedy: Some(remedy), .. } => Some(format!("  {name:<6} {remedy}")),
                _ => None,
            })
            .collect();
        remedies.extend(self.dpdk.remedies());
        list(f, "What mends it:", &remedies)?;
        list(
            f,
            "To give a card to DPDK, which takes it from the kernel until it is given back or the machine starts anew:",
            &self.dpdk.takeovers(),
        )?;
        let xdp: Vec<String> = self.nics.iter().flat_map(xdp_takeovers).collect();
        list(f, "To give an interface to xdp:", &xdp)
    }
}

/// Lines under a heading, where there are any.
fn list(f: &mut fmt::Formatter<'_>, heading: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() { Ok(()) } else { writeln!(f, "\n{heading}\n{}", lines.join("\n")) }
}

/// What makes an interface free for `xdp:`, and has that see all of its frames. Whoever uses it has to do without.
fn xdp_takeovers(nic: &NicFacts) -> Vec<String> {
    let (Some(name), Some(xdp)) = (&nic.interface, &nic.xdp) else { return Vec::new() };
    let mut takeovers = Vec::new();
    if let Some(Program::Foreign { remedy, .. }) = xdp.program {
        takeovers
            .push(format!("  {name}: sudo ip link set {name} {remedy}    (ends the program that another one uses)"));
    }
    if nic.rx_queues.is_some_and(|queues| queues > 1) {
        takeovers.push(format!(
            "  {name}: sudo ethtool -L {name} combined 1    (frames on other queues than 0 are not seen)"
        ));
    }
    takeovers
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs { note: None } => write!(f, "runs"),
            Self::Runs { note: Some(note) } => write!(f, "runs {note}"),
            Self::Refused { reason, .. } => write!(f, "cannot run: {reason}"),
        }
    }
}
