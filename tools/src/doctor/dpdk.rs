//! What DPDK needs and has here: the library, its drivers, memory, and the binding of each card.

use std::fmt;
use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;
use sidelane_nic::dpdk::pci::{self, Card};
use sidelane_nic::dpdk::{Installed, LoadError, free_hugepages};

use super::routes::Routes;
use super::{Verdict, probe};

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
    /// Why it is unknown which of them this machine's default route leads over, where it is.
    pub routes_unknown: Option<String>,
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
    /// An installed driver of DPDK's is for such cards. `None`: unknown, as DPDK is not there.
    pub known: Option<bool>,
    /// The machine's default route leads over it: who takes it away may cut the machine off. `None`: unknown.
    pub in_use: Option<bool>,
    /// `dpdk:ADDRESS` needs hugepages: it is not bound to VFIO behind an IOMMU, or would not be.
    pub needs_hugepages: bool,
    /// The commands that give it to DPDK.
    pub remedy: Option<String>,
}

impl DpdkFacts {
    /// Looks around; starts nothing.
    pub fn gather() -> Self {
        let (version, drivers, known) = match Installed::find() {
            Ok(installed) => {
                let known = installed.known_cards();
                (Some(installed.version), installed.drivers, Some(known))
            }
            Err(_) => (None, Vec::new(), None),
        };
        let routes = Routes::gather();
        let fact = |card: Card| {
            let known = known.as_ref().map(|known| known.may_be(&card.id));
            CardFacts::new(card, &routes, known)
        };
        let cards = Card::all(pci::ETHERNET).into_iter().map(fact).collect();
        let iommu = fs::read_dir("/sys/class/iommu").is_ok_and(|mut units| units.next().is_some());
        let routes_unknown = routes.unknown().map(str::to_owned);
        Self { version, drivers, hugepages_free_mib: free_hugepages() >> 20, iommu, cards, routes_unknown }
    }

    /// What lets cards run that DPDK may have, and that lack something.
    pub fn remedies(&self) -> Vec<String> {
        let lacking = self.lacks_hugepages() && self.cards.iter().any(|card| card.is_usable() && card.needs_hugepages);
        lacking.then(|| format!("  dpdk   {MAKE_HUGEPAGES}    (cards need them)")).into_iter().collect()
    }

    /// What gives each card to DPDK, where that is. Nothing is wrong with a card that the kernel has.
    pub fn takeovers(&self) -> Vec<String> {
        if self.version.is_none() {
            return Vec::new();
        }
        let takeover = |card: &CardFacts| {
            let remedy = card.remedy.as_ref().filter(|_| card.known != Some(false))?;
            let needs_more = self.lacks_hugepages() && card.needs_hugepages;
            let first = if needs_more { format!("{MAKE_HUGEPAGES} && ") } else { String::new() };
            Some(format!("  {}: {first}{remedy}", card.called()))
        };
        self.cards.iter().filter_map(takeover).collect()
    }

    fn lacks_hugepages(&self) -> bool {
        self.version.is_some() && self.hugepages_free_mib < HUGEPAGES_MIB
    }
}

impl CardFacts {
    fn new(card: Card, routes: &Routes, known: Option<bool>) -> Self {
        let (free, remedy, needs_hugepages) = (card.is_free(), card.remedy(), card.needs_hugepages());
        let Card { address, id, driver, interfaces, .. } = card;
        let over: Option<Vec<bool>> = interfaces.iter().map(|name| routes.lead_over(name)).collect();
        let in_use = over.map(|over| over.contains(&true));
        Self {
            address,
            id,
            driver,
            interfaces,
            free,
            known,
            in_use,
            needs_hugepages,
            remedy: (!free).then_some(remedy),
        }
    }

    /// It is free, and there is a driver for it.
    fn is_usable(&self) -> bool {
        self.free && self.known != Some(false)
    }

    /// Its address, and what the kernel has on it.
    fn called(&self) -> String {
        self.interface().map_or_else(|| self.address.clone(), |interface| format!("{} ({interface})", self.address))
    }

    /// The kernel's first interface on it, and whether that is in use.
    fn interface(&self) -> Option<String> {
        let in_use = match self.in_use {
            Some(true) => ", IN USE: this machine's default route",
            Some(false) => "",
            None => ", PERHAPS IN USE: this machine's default route is unknown",
        };
        self.interfaces.first().map(|name| format!("{name}{in_use}"))
    }
}

impl fmt::Display for DpdkFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(version) = &self.version else { return Ok(()) };
        writeln!(
            f,
            "{version}, {} drivers, {} MiB in free hugepages{}, {} IOMMU",
            self.drivers.len(),
            self.hugepages_free_mib,
            // None has to be there, but somebody may want them.
            if self.lacks_hugepages() {
                format!(" (without 64 memif copies more: {MAKE_HUGEPAGES})")
            } else {
                String::new()
            },
            if self.iommu { "with" } else { "no" }
        )?;
        for card in &self.cards {
            let driver = card.driver.as_deref().unwrap_or("no driver");
            let whose = if card.free { "free for dpdk:" } else { "the kernel's, with" };
            let unknown = if card.known == Some(false) { "no DPDK driver installed for it, " } else { "" };
            write!(f, "card {} [{}]: {unknown}{whose} {driver}", card.address, card.id)?;
            // Its interface stays the kernel's, and hears nothing.
            match card.interface().filter(|_| card.free) {
                Some(interface) => writeln!(f, "; while it is open, DPDK takes what comes for {interface}")?,
                None => writeln!(f)?,
            }
        }
        match self.routes_unknown.as_ref().filter(|_| !self.cards.is_empty()) {
            Some(why) => writeln!(f, "card that the default route leads over: unknown, {why}"),
            None => Ok(()),
        }
    }
}

/// Starts DPDK; in a process of its own, since it can't be stopped again.
pub fn verdict() -> Verdict {
    let installed = match Installed::find() {
        Ok(installed) => installed,
        Err(error) => {
            return Verdict::Refused { reason: error.to_string(), remedy: install(&error).map(str::to_owned) };
        }
    };
    let start = || {
        let own = std::env::current_exe()?;
        Command::new(own).args(["probe", probe::DPDK]).stdin(Stdio::null()).output()
    };
    match start() {
        Ok(output) if output.status.success() => {
            let known = installed.known_cards();
            let cards = Card::all(pci::ETHERNET).iter().filter(|card| card.is_free() && known.may_be(&card.id)).count();
            let note = format!("with virtual devices; cards that are free for it: {cards}");
            Verdict::Runs { note: Some(note) }
        }
        Ok(output) => {
            // Nothing that is installed mends that.
            Verdict::Refused { reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(), remedy: None }
        }
        Err(error) => Verdict::Refused { reason: error.to_string(), remedy: None },
    }
}

/// What to install where it does not load.
fn install(error: &LoadError) -> Option<&'static str> {
    match error {
        LoadError::NotBuilt(_) | LoadError::Missing { .. } => Some(INSTALL),
        LoadError::Refused(_) => None,
    }
}

/// Brings the library, all of its drivers, and what a build needs.
const INSTALL: &str = "sudo apt-get install --no-install-recommends libdpdk-dev pkg-config    (and build again)";

/// What the driver asks for before it uses any.
const HUGEPAGES_MIB: u64 = 64;

/// As many as several devices take.
const MAKE_HUGEPAGES: &str = "echo 512 | sudo tee /proc/sys/vm/nr_hugepages";

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's two cards, of which `driver` may have the first one instead.
    fn facts(version: Option<&str>, routes: &Routes, driver: &str) -> DpdkFacts {
        let card = |address: &str, interface: &str, driver: &str| Card {
            address: address.to_owned(),
            id: "8086:10d3".to_owned(),
            driver: Some(driver.to_owned()),
            interfaces: vec![interface.to_owned()],
            iommu: false,
            vfio_without_iommu: false,
            numa_node: None,
        };
        let cards = [card("0000:00:04.0", "eth0", driver), card("0000:00:05.0", "eth1", KERNELS)];
        DpdkFacts {
            version: version.map(str::to_owned),
            drivers: Vec::new(),
            hugepages_free_mib: 1024,
            iommu: false,
            cards: cards.map(|card| CardFacts::new(card, routes, Some(true))).to_vec(),
            routes_unknown: routes.unknown().map(str::to_owned),
        }
    }

    const KERNELS: &str = "e1000e";

    #[test]
    fn what_is_installed_is_not_to_be_installed() {
        assert_eq!(install(&LoadError::NotBuilt("there was no libdpdk")), Some(INSTALL));
        assert_eq!(install(&LoadError::Refused("undefined symbol: x".to_owned())), None);
    }

    #[test]
    fn a_card_of_the_kernels_is_nothing_to_mend() {
        let routes = Routes::over(&["eth0"]);
        let mut facts = facts(Some("DPDK 22.11.11"), &routes, KERNELS);
        assert_eq!(facts.remedies(), Vec::<String>::new());
        facts.hugepages_free_mib = 0;
        assert_eq!(facts.remedies(), Vec::<String>::new(), "nothing lacks them");
        let said = facts.to_string();
        assert!(
            said.contains("copies more: echo 512 | sudo tee /proc/sys/vm/nr_hugepages)"),
            "who wants them is told: {said}"
        );
        assert!(facts.takeovers().iter().all(|line| line.contains(": echo 512 | sudo tee ")), "they would");
        facts.version = None;
        assert_eq!(facts.takeovers(), Vec::<String>::new(), "nobody there could take it");
    }

    #[test]
    fn a_card_that_dpdk_has_no_driver_for_stays_the_kernels() {
        let mut facts = facts(Some("DPDK 22.11.11"), &Routes::over(&[]), KERNELS);
        facts.cards[0].known = Some(false);
        let (said, takeovers) = (facts.to_string(), facts.takeovers());
        assert!(
            said.contains("04.0 [8086:10d3]: no DPDK driver installed for it, the kernel's, with e1000e"),
            "{said}"
        );
        assert!(takeovers.len() == 1 && takeovers[0].contains("0000:00:05.0"), "{takeovers:?}");
        facts.cards[0] = CardFacts { driver: Some("vfio-pci".to_owned()), free: true, ..facts.cards[0].clone() };
        facts.hugepages_free_mib = 0;
        assert_eq!(facts.remedies(), Vec::<String>::new(), "hugepages would not help it");
    }

    #[test]
    fn an_interface_that_dpdk_would_starve_is_named() {
        let said = |routes: &Routes| facts(Some("DPDK 22.11.11"), routes, "mlx5_core").to_string();
        let used = said(&Routes::over(&["eth0"]));
        assert!(used.contains("mlx5_core; while it is open, DPDK takes what comes for eth0, IN USE: this"), "{used}");
        assert!(used.ends_with("the kernel's, with e1000e\n"), "nothing of the card that DPDK does not have: {used}");
        assert!(said(&Routes::over(&[])).contains("takes what comes for eth0\n"));
    }

    #[test]
    fn hugepages_are_named_where_a_card_lacks_them() {
        let remedies = |driver: &str, free_mib: u64| {
            let facts = facts(Some("DPDK 22.11.11"), &Routes::over(&[]), driver);
            DpdkFacts { hugepages_free_mib: free_mib, ..facts }.remedies().concat()
        };
        assert!(remedies("uio_pci_generic", 0).contains("nr_hugepages"));
        assert!(remedies("vfio-pci", 0).contains("nr_hugepages"), "it is not behind an IOMMU");
        assert_eq!(remedies("uio_pci_generic", 64) + &remedies("vfio-pci", 64), "");
    }

    #[test]
    fn routes_that_nobody_knows_may_lead_over_any_card() {
        let facts = facts(Some("DPDK 22.11.11"), &Routes::refused("Operation not permitted"), KERNELS);
        let said = facts.to_string();
        assert!(said.contains("default route leads over: unknown, Operation not permitted\n"), "{said}");
        assert!(facts.takeovers().iter().all(|line| line.contains("PERHAPS IN USE")), "{facts:?}");
        assert_eq!(serde_json::to_value(&facts).unwrap()["cards"][0]["in_use"], serde_json::Value::Null);
    }

    #[test]
    fn the_card_that_the_machine_is_reached_over_is_marked() {
        let takeovers = facts(Some("DPDK 22.11.11"), &Routes::over(&["eth0"]), KERNELS).takeovers();
        assert!(takeovers[0].starts_with("  0000:00:04.0 (eth0, IN USE: this machine's default route): sudo "));
        assert!(takeovers[1].starts_with("  0000:00:05.0 (eth1): sudo "), "{takeovers:?}");
    }
}
