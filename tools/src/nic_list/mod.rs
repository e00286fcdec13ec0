//! Which NICs there are, and what each can do: `sidelane nic list`.

mod interfaces;
mod xdp;

use std::fmt;
use std::io;

use serde::Serialize;
use sidelane_nic::dpdk::pci::{self, Card};

use crate::lab::offload::Offloads;
use crate::table;
pub use xdp::{Program, Xdp};

/// All NICs of this network namespace, and the PCI network cards that have no interface in it.
#[derive(Debug, Clone, Serialize)]
pub struct NicList {
    /// Version of this text's form.
    pub schema: &'static str,
    /// Interfaces in the order of their numbers, then cards without one.
    pub nics: Vec<NicFacts>,
}

/// One NIC. What the system does not tell, or does not have, is absent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NicFacts {
    /// The interface's name, as in `ip link`.
    pub interface: Option<String>,
    /// PCI address of the card.
    pub pci: Option<String>,
    /// The kernel's driver that has it: of the interface, or what a card without one is bound to (`vfio-pci`).
    pub driver: Option<String>,
    /// NUMA node of the card.
    pub numa_node: Option<u32>,
    /// MAC address.
    pub mac: Option<String>,
    /// Whether it is switched on.
    pub up: Option<bool>,
    /// The largest packet behind the Ethernet header.
    pub mtu: Option<u32>,
    /// Receive queues in use.
    pub rx_queues: Option<u32>,
    /// What it hands on uncut and unsummed.
    pub offloads: Option<Offloads>,
    /// What XDP can do here, and what it is used for.
    pub xdp: Option<Xdp>,
    /// Drivers of ours that it can be opened with, as strings.
    pub specs: Vec<String>,
}

impl NicList {
    /// Asks the system. Nothing is opened or changed.
    pub fn gather() -> io::Result<Self> {
        let mut nics = interfaces::gather()?;
        let taken: Vec<String> = nics.iter().filter_map(|nic| nic.pci.clone()).collect();
        let cards = Card::all(pci::NETWORK).into_iter().filter(|card| !taken.contains(&card.address));
        nics.extend(cards.map(NicFacts::of_card));
        let free = |pci: &str| Card::find(pci).is_some_and(|card| card.is_free());
        nics.iter_mut().for_each(|nic| nic.add_dpdk(free));
        Ok(Self { schema: "sidelane-nics/1", nics })
    }
}

impl NicFacts {
    /// The interface's name, or the card's address.
    pub fn name(&self) -> &str {
        self.interface.as_deref().or(self.pci.as_deref()).unwrap_or("?")
    }

    /// One without an interface in this namespace, whatever it is bound to.
    fn of_card(Card { address, driver, numa_node, .. }: Card) -> Self {
        let driver = Some(driver.unwrap_or_else(|| "none".to_owned()));
        Self { pci: Some(address), driver, numa_node, ..Self::default() }
    }

    /// A card that is `free` for DPDK can be opened by that.
    fn add_dpdk(&mut self, free: impl Fn(&str) -> bool) {
        self.specs.extend(self.pci.as_deref().filter(|pci| free(pci)).map(|pci| format!("dpdk:{pci}")));
    }

    fn row(&self) -> [String; 8] {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let state = self.up.map(|up| if up { "up" } else { "down" });
        let (driver, pci) =
            (text(self.driver.clone()), self.pci.as_ref().map_or(String::new(), |pci| format!("\n{pci}")));
        [
            format!("{}{}", self.name(), state.map_or(String::new(), |state| format!("\n{state}"))),
            format!("{driver}{pci}"),
            text(self.numa_node.map(|node| node.to_string())),
            text(self.mtu.map(|mtu| mtu.to_string())),
            text(self.rx_queues.map(|queues| queues.to_string())),
            text(self.offloads.map(|offloads| words(&offloads))),
            text(self.xdp.as_ref().map(Xdp::to_string)),
            if self.specs.is_empty() { "-".to_owned() } else { self.specs.join("\n") },
        ]
    }
}

fn words(offloads: &Offloads) -> String {
    let Offloads { tso, gso, gro, tx_checksum } = *offloads;
    let all = [(tso, "tso"), (gso, "gso"), (gro, "gro"), (tx_checksum, "checksum")];
    let on: Vec<&str> = all.into_iter().filter_map(|(is_on, word)| is_on.then_some(word)).collect();
    if on.is_empty() { "none".to_owned() } else { on.join(" ") }
}

impl fmt::Display for NicList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::begin();
        table.set_header(["NIC", "driver, PCI", "NUMA", "MTU", "rx queues", "offloads", "XDP", "open as"]);
        for nic in &self.nics {
            table.add_row(nic.row());
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_on_every_list() {
        let list = NicList::gather().unwrap();
        let lo = list.nics.iter().find(|nic| nic.interface.as_deref() == Some("lo")).expect("a loopback");
        assert_eq!(lo.pci, None);
        assert!(lo.mtu.is_some_and(|mtu| mtu > 0) && lo.up.is_some(), "{lo:?}");
        let xdp = lo.xdp.as_ref().unwrap();
        assert!(!xdp.native && !xdp.zero_copy);
        assert!(list.to_string().contains("lo"));
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(json["schema"], "sidelane-nics/1");
    }

    #[test]
    fn a_card_without_an_interface_is_called_by_its_address() {
        let card = NicFacts {
            pci: Some("0000:03:00.1".to_owned()),
            driver: Some("vfio-pci".to_owned()),
            ..NicFacts::default()
        };
        let mut list = NicList { schema: "sidelane-nics/1", nics: vec![card.clone(), card] };
        list.nics[0].add_dpdk(|pci| pci == "0000:03:00.1");
        list.nics[1].add_dpdk(|_| false);
        assert_eq!((list.nics[0].specs.concat(), list.nics[1].specs.len()), ("dpdk:0000:03:00.1".to_owned(), 0));
        let table = list.to_string();
        assert!(table.contains("0000:03:00.1") && table.contains("vfio-pci"), "{table}");
    }
}
