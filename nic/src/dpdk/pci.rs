//! What the kernel says of a PCI device: whether it is there, and whose it is. Asked before DPDK is, whose own answer to
//! everything is that it found no port.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::{Installed, OpenError};

/// A network card as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Such as `0000:00:04.0`.
    pub address: String,
    /// Vendor and device number, such as `8086:10d3` (pci.ids).
    pub id: String,
    /// The kernel's driver that it is bound to; `None`: to none.
    pub driver: Option<String>,
    /// Interfaces that the kernel has on it.
    pub interfaces: Vec<String>,
    /// It is behind an IOMMU.
    pub iommu: bool,
    /// VFIO lets cards without an IOMMU be used on this machine, and then DPDK uses physical addresses with all of them
    /// (pci.c, pci_device_iova_mode).
    pub vfio_without_iommu: bool,
    /// Memory node, where there are several.
    pub numa_node: Option<u32>,
}

impl Card {
    /// All cards of a class, [`ETHERNET`] or [`NETWORK`], by address.
    pub fn all(class: &str) -> Vec<Self> {
        let mut cards: Vec<Self> = fs::read_dir(DEVICES)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|device| read(&device.path(), "class").is_some_and(|of_device| of_device.starts_with(class)))
            .filter_map(|device| Self::find(device.file_name().to_str()?))
            .collect();
        cards.sort_by(|a, b| a.address.cmp(&b.address));
        cards
    }

    /// The device at `address`, written in full.
    pub fn find(address: &str) -> Option<Self> {
        let device = Path::new(DEVICES).join(address);
        let number = |file| read(&device, file).map(|text| text.trim_start_matches("0x").to_owned());
        // A virtio device's interface is one step further down.
        let mut interfaces = names(&device.join("net"));
        for below in names(&device).iter().filter(|name| name.starts_with("virtio")) {
            interfaces.extend(names(&device.join(below).join("net")));
        }
        Some(Self {
            address: address.to_owned(),
            id: format!("{}:{}", number("vendor")?, number("device")?),
            driver: target(&device.join("driver")),
            interfaces,
            iommu: is_behind_iommu(&device.join("iommu_group")),
            vfio_without_iommu: fs::read_to_string(NO_IOMMU_MODE).is_ok_and(|mode| mode.trim() == "Y"),
            numa_node: read(&device, "numa_node").and_then(|node| node.parse().ok()),
        })
    }

    /// DPDK can have it as it is.
    pub fn is_free(&self) -> bool {
        // These drive their cards beside the kernel's interface, which stays ("bifurcated").
        const SHARED_WITH_KERNEL: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];
        let driver = self.driver.as_deref().unwrap_or_default();
        FREE.contains(&driver) || SHARED_WITH_KERNEL.contains(&driver)
    }

    /// As it is bound, or would be by [`Self::remedy`], it needs memory at known physical addresses: all cards do but those that VFIO
    /// has behind an IOMMU, which makes any memory addressable.
    pub fn needs_hugepages(&self) -> bool {
        let vfio = if self.is_free() { self.driver.as_deref() == Some(VFIO) } else { self.iommu };
        !(vfio && self.iommu && !self.vfio_without_iommu)
    }

    /// The commands that give it to DPDK.
    pub fn remedy(&self) -> String {
        // Without an IOMMU, VFIO is off; UIO lets the card at all of memory.
        let driver = if self.iommu { VFIO } else { "uio_pci_generic" };
        format!(
            "sudo modprobe {driver} && echo {driver} | sudo tee {DEVICES}/{address}/driver_override && echo {address} | \
             sudo tee {DEVICES}/{address}/driver/unbind; echo {address} | sudo tee /sys/bus/pci/drivers_probe",
            address = self.address
        )
    }
}

/// Class 02 (network), subclass 00 (Ethernet) (PCI Code and ID Assignment 1.11, 1.3).
pub const ETHERNET: &str = "0x0200";
/// Class 02, whatever the network is.
pub const NETWORK: &str = "0x02";

/// The PCI address of the card that a device of sysfs is, or is a part of (a virtio device is a part of one).
pub fn address_of(device: &Path) -> Option<String> {
    let path = fs::canonicalize(device).ok()?;
    let mut names = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    names.find(|name| is_address(name)).map(str::to_owned)
}

/// `[DDDD:]BB:DD.F` in the form that the kernel and DPDK name devices by.
pub(super) fn address(text: &str) -> Option<String> {
    let hex = |text: &str, max: u32| u32::from_str_radix(text, 16).ok().filter(|number| *number <= max);
    let parts: Vec<&str> = text.split(':').collect();
    let (domain, bus, rest) = match parts[..] {
        [domain, bus, rest] => (hex(domain, 0xffff_ffff)?, bus, rest),
        [bus, rest] => (0, bus, rest),
        _ => return None,
    };
    let (device, function) = rest.split_once('.')?;
    Some(format!("{domain:04x}:{:02x}:{:02x}.{:x}", hex(bus, 0xff)?, hex(device, 0x1f)?, hex(function, 7)?))
}

/// It is an address in that form.
fn is_address(name: &str) -> bool {
    address(name).as_deref() == Some(name)
}

/// A card that this process has, as long as this lives. UIO gives one to as many as ask, whose rings are then each other's.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

/// Claims the card, or says why DPDK could not have it. `hugepages`: there are some.
pub fn claim(address: &str, hugepages: bool) -> Result<Claim, OpenError> {
    let card = Card::find(address).ok_or_else(|| OpenError::NoPciDevice(address.to_owned()))?;
    if !card.is_free() {
        // It would be taken from the kernel for nothing.
        require_driver(&card)?;
        let owner = match (&card.driver, card.interfaces.first()) {
            (Some(driver), Some(interface)) => format!("the kernel's {driver} (interface {interface})"),
            (Some(driver), None) => format!("the kernel's {driver}"),
            (None, _) => "no driver".to_owned(),
        };
        return Err(OpenError::NotBound { device: card.address.clone(), owner, remedy: card.remedy() });
    }
    if !hugepages && card.needs_hugepages() {
        return Err(OpenError::NoHugepages(card.address));
    }
    lock(&Path::new(DEVICES).join(address).join("config")).map_err(|refused| match refused {
        TryLockError::WouldBlock => OpenError::InUseElsewhere(card.address),
        TryLockError::Error(error) => OpenError::Refused {
            device: card.address,
            step: "claiming it",
            error: error.to_string(),
            log: String::new(),
        },
    })
}

/// An error where DPDK has no driver for the card.
pub fn require_driver(card: &Card) -> Result<(), OpenError> {
    if Installed::find().is_ok_and(|installed| !installed.known_cards().may_be(&card.id)) {
        return Err(OpenError::NoCardDriver { device: card.address.clone(), id: card.id.clone() });
    }
    Ok(())
}

/// By a file that every card has and every user may read. It says nothing to who does not ask.
fn lock(file: &Path) -> Result<Claim, TryLockError> {
    let file = File::open(file).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(Claim { _locked: file })
}

/// Whether the card may read and write memory; `None`: the kernel does not tell.
pub fn is_bus_master(address: &str) -> Option<bool> {
    let config = fs::read(Path::new(DEVICES).join(address).join("config")).ok()?;
    Some(config.get(COMMAND)? & MASTER != 0)
}

/// A card that VFIO has without an IOMMU is in a group too, one made up for it (drivers/vfio/group.c, vfio_noiommu_group_alloc).
fn is_behind_iommu(group: &Path) -> bool {
    group.exists() && read(group, "name").as_deref() != Some("vfio-noiommu")
}

fn read(device: &Path, file: &str) -> Option<String> {
    fs::read_to_string(device.join(file)).ok().map(|text| text.trim().to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn target(link: &PathBuf) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// The kernel's list (sysfs-bus-pci).
const DEVICES: &str = "/sys/bus/pci/devices";
/// A parameter of the kernel's module vfio: `Y` or `N`.
const NO_IOMMU_MODE: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
const VFIO: &str = "vfio-pci";
/// The command register's place in the configuration space, and its bit for bus mastering (PCI 3.0, 6.2.2).
const COMMAND: usize = 4;
const MASTER: u8 = 1 << 2;
/// The kernel's drivers that leave a card to a program (DPDK's Linux guide, 7.2).
const FREE: [&str; 3] = [VFIO, "uio_pci_generic", "igb_uio"];

#[cfg(test)]
mod tests {
    use super::*;

    fn card(driver: Option<&str>, iommu: bool) -> Card {
        Card {
            address: "0000:00:04.0".into(),
            id: "8086:10d3".into(),
            driver: driver.map(str::to_owned),
            interfaces: Vec::new(),
            iommu,
            vfio_without_iommu: false,
            numa_node: None,
        }
    }

    #[test]
    fn a_card_is_free_when_its_driver_leaves_it_to_programs() {
        for driver in ["vfio-pci", "uio_pci_generic", "mlx5_core"] {
            assert!(card(Some(driver), true).is_free(), "{driver}");
        }
        assert!(!card(Some("e1000e"), true).is_free());
        assert!(!card(None, true).is_free());
    }

    #[test]
    fn the_remedy_fits_the_machine() {
        assert!(card(Some("e1000e"), true).remedy().contains("modprobe vfio-pci"));
        let without = card(Some("e1000e"), false).remedy();
        assert!(without.contains("modprobe uio_pci_generic"));
        assert!(without.contains("echo 0000:00:04.0 | sudo tee /sys/bus/pci/drivers_probe"), "{without}");
    }

    #[test]
    fn only_vfio_with_an_iommu_goes_without_hugepages() {
        let needs = |driver, iommu, vfio_without_iommu| {
            Card { vfio_without_iommu, ..card(Some(driver), iommu) }.needs_hugepages()
        };
        assert!(!needs("vfio-pci", true, false) && needs("vfio-pci", false, true) && needs("vfio-pci", true, true));
        assert!(needs("uio_pci_generic", true, false) && needs("uio_pci_generic", false, false));
        // The kernel's card, once it is given to VFIO or to UIO.
        assert!(!needs("e1000e", true, false) && needs("e1000e", false, false));
    }

    #[test]
    fn a_group_that_vfio_made_up_is_no_iommu() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_behind_iommu(&folder.path().join("none")));
        assert!(is_behind_iommu(folder.path()));
        fs::write(folder.path().join("name"), "vfio-noiommu\n").unwrap();
        assert!(!is_behind_iommu(folder.path()));
    }

    #[test]
    fn a_card_is_one_s_until_it_is_given_back() {
        let config = tempfile::NamedTempFile::new().unwrap();
        let first = lock(config.path()).unwrap();
        let second = lock(config.path());
        assert!(matches!(second, Err(TryLockError::WouldBlock)), "{second:?}");
        drop(first);
        let third = lock(config.path());
        assert!(third.is_ok(), "{third:?}");
    }

    #[test]
    fn addresses_are_known_from_other_names() {
        for address in ["0000:03:00.1", "0000:ff:1f.7", "10000:e1:00.0"] {
            assert!(is_address(address), "{address}");
        }
        for other in ["virtio2", "pci0000:00", "net", "", "03:00.1", "0000:03:00-1", "x0000:03:00.1", "0000:03:00.1x"] {
            assert!(!is_address(other), "{other}");
        }
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        assert!(matches!(claim("ffff:ff:1f.7", true), Err(OpenError::NoPciDevice(_))));
    }
}
