//! PCI network cards: sysfs (Documentation/ABI/testing/sysfs-bus-pci).

use std::fs;
use std::path::Path;

use sidelane_nic::dpdk::pci::Card;

use super::NicFacts;

/// Every network card of the machine, whatever it is bound to.
pub fn network_cards() -> Vec<NicFacts> {
    let Ok(devices) = fs::read_dir("/sys/bus/pci/devices") else { return Vec::new() };
    let mut cards: Vec<NicFacts> = devices.flatten().filter_map(|device| card(&device.path())).collect();
    cards.sort_by(|a, b| a.pci.cmp(&b.pci));
    cards
}

fn card(device: &Path) -> Option<NicFacts> {
    let class = fs::read_to_string(device.join("class")).ok()?;
    if !class.starts_with(NETWORK_CONTROLLER) {
        return None;
    }
    let Card { address, driver, numa_node, .. } = Card::find(device.file_name()?.to_str()?)?;
    let driver = Some(driver.unwrap_or_else(|| "none".to_owned()));
    Some(NicFacts { pci: Some(address), driver, numa_node, ..NicFacts::default() })
}

/// The PCI address of the card that a device of sysfs is, or is a part of (a virtio device is a part of one).
pub fn address_of(device: &Path) -> Option<String> {
    let path = fs::canonicalize(device).ok()?;
    let mut names = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    names.find(|name| is_address(name)).map(str::to_owned)
}

/// `0000:03:00.1`
fn is_address(name: &str) -> bool {
    let pattern = name.len() >= 12
        && name.bytes().rev().zip("f.ff:ff:ffff".bytes()).all(|(byte, form)| match form {
            b'f' => byte.is_ascii_hexdigit(),
            separator => byte == separator,
        });
    pattern && name.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}

/// Base class 02h (PCI Code and ID Assignment 1.4).
const NETWORK_CONTROLLER: &str = "0x02";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_from_other_names() {
        for address in ["0000:03:00.1", "0000:ff:1f.7", "10000:e1:00.0"] {
            assert!(is_address(address), "{address}");
        }
        for other in ["virtio2", "pci0000:00", "net", "", "0000:03:00-1", "x0000:03:00.1"] {
            assert!(!is_address(other), "{other}");
        }
    }
}
