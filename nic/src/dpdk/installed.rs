//! What of DPDK is installed, without starting its environment.

use std::fs;
use std::path::PathBuf;

use sidelane_dpdk_sys::LoadError;

use super::sys::Shim;
use super::{OpenError, eal, hugepages};

/// The libdpdk of this machine.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Such as `DPDK 22.11.11`.
    pub version: String,
    /// Its drivers of network devices: `net_e1000`, `net_memif`.
    pub drivers: Vec<String>,
    /// Where they are.
    directory: PathBuf,
}

impl Installed {
    /// Looks for it.
    pub fn find() -> Result<Self, LoadError> {
        let shim = Shim::load()?;
        let directory = PathBuf::from(shim.driver_dir());
        let files = fs::read_dir(&directory).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let mut drivers: Vec<String> = names.filter_map(|name| driver(&name)).collect();
        drivers.sort();
        drivers.dedup();
        Ok(Self { version: shim.version(), drivers, directory })
    }

    /// The cards that its drivers are for. Reads all of them: 15 MB, if all that Debian has are installed.
    pub fn known_cards(&self) -> KnownCards {
        let Ok(files) = fs::read_dir(&self.directory) else { return KnownCards(None) };
        let files = files.flatten().filter(|file| file.file_name().to_str().and_then(driver).is_some());
        KnownCards(Some(files.filter_map(|file| fs::read(file.path()).ok()).flat_map(|file| card_ids(&file)).collect()))
    }
}

/// Cards that DPDK's drivers are for, by vendor and device number; `None` where it is not known which drivers there are.
#[derive(Clone, Debug)]
pub struct KnownCards(Option<Vec<(u16, u16)>>);

impl KnownCards {
    /// False when there is no driver for cards of this [`Card::id`].
    ///
    /// [`Card::id`]: super::pci::Card::id
    pub fn may_be(&self, id: &str) -> bool {
        let Some(known) = &self.0 else { return true };
        let number = |text| u16::from_str_radix(text, 16).ok();
        let numbers = id.split_once(':').and_then(|(vendor, device)| Some((number(vendor)?, number(device)?)));
        numbers.is_none_or(|(vendor, device)| known.iter().any(|&of| of == (vendor, device) || of == (vendor, ANY)))
    }
}

/// What a driver's file says of the cards that it is for: a line of JSON for each of its parts, written when it was linked (DPDK's
/// buildtools/pmdinfogen.py). An entry is `[vendor, device, vendor and device of the board]`.
fn card_ids(driver: &[u8]) -> Vec<(u16, u16)> {
    let mut ids = Vec::new();
    let starts = driver.windows(INFO.len()).enumerate().filter(|(_, bytes)| *bytes == INFO);
    for (at, _) in starts {
        let line = driver[at..].split(|byte| *byte == 0).next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let Some((_, list)) = line.split_once("\"pci_ids\": [") else { continue };
        ids.extend(list.split('[').filter_map(|entry| {
            let mut numbers = entry.split([',', ']']).map(|number| number.trim().parse().ok());
            Some((numbers.next()??, numbers.next()??))
        }));
    }
    ids
}

const INFO: &[u8] = b"PMD_INFO_STRING= ";
/// RTE_PCI_ANY_ID of rte_pci.h.
const ANY: u16 = u16::MAX;

/// Starts DPDK in this process, where it then stays, and opens no device.
pub fn try_start() -> Result<(), OpenError> {
    eal::up_without_device()
}

/// Bytes in hugepages that nobody uses or has reserved: DPDK's memory is there if there is enough of them, and nothing limits how
/// many this process may have.
pub fn free_hugepages() -> u64 {
    hugepages::free()
}

/// Files are named librte_net_e1000.so.23.0.
fn driver(file: &str) -> Option<String> {
    let name = file.strip_prefix("librte_")?.split_once(".so.")?.0;
    name.starts_with("net_").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_of_network_devices_are_known_by_their_files() {
        assert_eq!(driver("librte_net_e1000.so.23.0"), Some("net_e1000".to_owned()));
        // A link for the linker, and another kind of device.
        assert_eq!(driver("librte_net_e1000.so"), None);
        assert_eq!(driver("librte_crypto_null.so.23.0"), None);
    }

    #[test]
    fn cards_are_known_by_what_the_drivers_say() {
        let file = b"\x7fELF\0PMD_INFO_STRING= {\"name\": \"net_a\", \"kmod\": \"vfio-pci\", \"pci_ids\": [[32902, 4307, 65535, 65535], \
            [5555, 65535, 65535, 65535]]}\0[1, 2]\0PMD_INFO_STRING= {\"name\": \"net_b\", \"pci_ids\": []}\0\
            PMD_INFO_STRING= {\"name\": \"net_c\", \"pci_ids\": [[6900, 4096, 65535, 65535]]}";
        let ids = card_ids(file);
        assert_eq!(ids, [(0x8086, 0x10d3), (0x15b3, ANY), (0x1af4, 0x1000)]);
        let known = KnownCards(Some(ids));
        assert!(["8086:10d3", "15b3:1017", "1af4:1000"].iter().all(|id| known.may_be(id)));
        assert!(!known.may_be("ffff:0001") && !known.may_be("8086:1000"));
        assert!(KnownCards(None).may_be("10ec:8168"), "nobody can tell");
        for cut in ["PMD_INFO_STRING= ", "PMD_INFO_STRING= {\"pci_ids\": [[1, 2", "PMD_INFO_STRING= {\"pci_ids\": [[1"]
        {
            assert!(card_ids(cut.as_bytes()).len() <= 1, "{cut}");
        }
    }

    #[test]
    fn cards_of_installed_drivers_are_known() {
        match Installed::find() {
            Ok(installed) if installed.drivers.iter().any(|driver| driver == "net_e1000") => {
                let known = installed.known_cards();
                assert!(known.may_be("8086:10d3") && !known.may_be("ffff:0001"));
            }
            Ok(_) => println!("skipped: the driver of e1000 is not installed"),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
