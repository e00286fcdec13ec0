//! What of DPDK is installed, without starting its environment.

use std::fs;

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
}

impl Installed {
    /// Looks for it.
    pub fn find() -> Result<Self, LoadError> {
        let shim = Shim::load()?;
        let files = fs::read_dir(shim.driver_dir()).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let mut drivers: Vec<String> = names.filter_map(|name| driver(&name)).collect();
        drivers.sort();
        drivers.dedup();
        Ok(Self { version: shim.version(), drivers })
    }
}

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
}
