//! What DPDK needs and has here: the library, its drivers, memory, and the binding of each card.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;
use sidelane_nic::dpdk::pci::Card;
use sidelane_nic::dpdk::{Installed, free_hugepages};

use super::Verdict;
use super::routes::Routes;

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct DpdkFacts {
    /// Such as `DPDK 22.11.11`; absent where it can't be loaded.
    pub version: Option<String>,
    /// Its drivers of network devices.
    pub drivers: Vec<String>,
    /// MiB in hugepages that nobody uses.
    pub hugepages_free_mib: u64,
    /// Devices are behind an IOMMU, so that VFIO can be used.
    pub iommu: bool,
    /// PCI network cards.
    pub cards: Vec<CardFacts>,
}

/// A network card, as far as DPDK is concerned.
#[derive(Debug, Clone, Serialize)]
pub struct CardFacts {
    /// Such as `0000:00:04.0`.
    pub address: String,
    /// Vendor and device number.
    pub id: String,
    /// The kernel's driver that it is bound to.
    pub driver: Option<String>,
    /// The kernel's interfaces on it.
    pub interfaces: Vec<String>,
    /// `dpdk:ADDRESS` can have it as it is.
    pub free: bool,
    /// The machine's default route leads over it: who takes it away may cut the machine off.
    pub in_use: bool,
    /// The commands that give it to DPDK.
    pub remedy: Option<String>,
}

impl DpdkFacts {
    /// Looks around; starts nothing.
    pub fn gather() -> Self {
        let (version, drivers) = match Installed::find() {
            Ok(Installed { version, drivers }) => (Some(version), drivers),
            Err(_) => (None, Vec::new()),
        };
        let routes = Routes::gather();
        let cards = Card::all().into_iter().map(|card| CardFacts::new(card, &routes)).collect();
        let iommu = fs::read_dir("/sys/class/iommu").is_ok_and(|mut units| units.next().is_some());
        Self { version, drivers, hugepages_free_mib: free_hugepages() >> 20, iommu, cards }
    }

    /// What would let DPDK do more.
    pub fn remedies(&self) -> Vec<String> {
        let mut remedies = Vec::new();
        if self.version.is_some() && self.hugepages_free_mib < HUGEPAGES_MIB {
            let why = if self.cards.is_empty() { "memif copies less" } else { "cards need them" };
            remedies.push(format!("  dpdk   echo 512 | sudo tee /proc/sys/vm/nr_hugepages    ({why})"));
        }
        remedies
    }

    /// What gives each card to DPDK, where that is. Nothing is wrong with a card that the kernel has.
    pub fn takeovers(&self) -> Vec<String> {
        if self.version.is_none() {
            return Vec::new();
        }
        let takeover = |card: &CardFacts| Some(format!("  {}: {}", card.called(), card.remedy.as_ref()?));
        self.cards.iter().filter_map(takeover).collect()
    }
}

impl CardFacts {
    fn new(card: Card, routes: &Routes) -> Self {
        let (free, remedy) = (card.is_free(), card.remedy());
        let Card { address, id, driver, interfaces, .. } = card;
        let in_use = interfaces.iter().any(|name| routes.lead_over(name));
        Self { address, id, driver, interfaces, free, in_use, remedy: (!free).then_some(remedy) }
    }

    /// Its address, and what the kernel has on it.
    fn called(&self) -> String {
        let in_use = if self.in_use { ", IN USE: this machine's default route" } else { "" };
        match self.interfaces.first() {
            Some(name) => format!("{} ({name}{in_use})", self.address),
            None => self.address.clone(),
        }
    }
}

impl fmt::Display for DpdkFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(version) = &self.version else { return Ok(()) };
        writeln!(
            f,
            "{version}, {} drivers, {} MiB in free hugepages, {} IOMMU",
            self.drivers.len(),
            self.hugepages_free_mib,
            if self.iommu { "with" } else { "no" }
        )?;
        for card in &self.cards {
            let driver = card.driver.as_deref().unwrap_or("no driver");
            let whose = if card.free { "free for dpdk:" } else { "the kernel's, with" };
            writeln!(f, "card {} [{}]: {whose} {driver}", card.address, card.id)?;
        }
        Ok(())
    }
}

/// Starts DPDK on a device that swallows everything; in a process of its own, since it can't be stopped again.
pub fn verdict() -> Verdict {
    if let Err(error) = Installed::find() {
        return Verdict::Refused { reason: error.to_string(), remedy: Some(INSTALL.to_owned()) };
    }
    let probe = || {
        let own = std::env::current_exe()?;
        Command::new(own).args(["probe", "dpdk:net_null0"]).stdin(Stdio::null()).output()
    };
    match probe() {
        Ok(output) if output.status.success() => {
            let cards = Card::all().iter().filter(|card| card.is_free()).count();
            let note = format!("with virtual devices; cards that are free for it: {cards}");
            Verdict::Runs { note: Some(note) }
        }
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Verdict::Refused { reason, remedy: Some(INSTALL.to_owned()) }
        }
        Err(error) => Verdict::Refused { reason: error.to_string(), remedy: None },
    }
}

/// Brings the library, all of its drivers, and what a build needs.
const INSTALL: &str = "sudo apt-get install --no-install-recommends libdpdk-dev pkg-config    (and build again)";

/// What the driver asks for before it uses any.
const HUGEPAGES_MIB: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: Option<&str>) -> DpdkFacts {
        let card = |address: &str, interface: &str| Card {
            address: address.to_owned(),
            id: "8086:10d3".to_owned(),
            driver: Some("e1000e".to_owned()),
            interfaces: vec![interface.to_owned()],
            iommu: false,
            numa_node: None,
        };
        let routes = Routes::over(&["eth0"]);
        let cards = [card("0000:00:04.0", "eth0"), card("0000:00:05.0", "eth1")];
        DpdkFacts {
            version: version.map(str::to_owned),
            drivers: Vec::new(),
            hugepages_free_mib: 1024,
            iommu: false,
            cards: cards.map(|card| CardFacts::new(card, &routes)).to_vec(),
        }
    }

    #[test]
    fn a_card_of_the_kernels_is_nothing_to_mend() {
        assert_eq!(facts(Some("DPDK 22.11.11")).remedies(), Vec::<String>::new());
        assert_eq!(facts(None).takeovers(), Vec::<String>::new(), "nobody there could take it");
    }

    #[test]
    fn the_card_that_the_machine_is_reached_over_is_marked() {
        let takeovers = facts(Some("DPDK 22.11.11")).takeovers();
        assert!(takeovers[0].starts_with("  0000:00:04.0 (eth0, IN USE: this machine's default route): sudo "));
        assert!(takeovers[1].starts_with("  0000:00:05.0 (eth1): sudo "), "{takeovers:?}");
    }
}
