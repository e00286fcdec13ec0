//! Why a device did not become a port, in words and with what would help.

use std::io;

use super::OpenError;
use super::device::{Device, Wire};
use super::eal::Eal;
use super::pci::{self, Card};
use super::sys::Shim;

/// A step that failed.
pub struct Refused {
    pub step: &'static str,
    pub error: io::Error,
    /// What it failed for, where that is known.
    pub lacks: Option<Lacks>,
    /// What DPDK said.
    pub log: String,
}

/// What is not there in full.
pub enum Lacks {
    /// The device has this much.
    Mtu(u16),
    /// So many MiB were asked for, of a memory node.
    Memory(u64, i32),
    /// The server, this process, is there.
    Answer(Option<u32>),
}

impl Refused {
    pub fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self { step, error, lacks: None, log: String::new() }
    }

    /// Its packet buffers are not in one piece, as they have to be where they are lent.
    pub fn is_for_lending(&self) -> bool {
        self.error.raw_os_error() == Some(libc::EXDEV)
    }

    /// In words, with DPDK's own and what would help.
    pub fn told(self, device: &Device, eal: Eal) -> OpenError {
        let name = || device.name.clone();
        match self.lacks {
            Some(Lacks::Mtu(max)) => return OpenError::MtuTooLarge { device: name(), mtu: device.mtu, max },
            Some(Lacks::Memory(mib, node)) if eal.hugepages => {
                let node = u32::try_from(node).ok();
                return OpenError::FewHugepages { device: name(), mib, node };
            }
            Some(Lacks::Memory(mib, _)) => return OpenError::NoMemory { device: name(), mib },
            Some(Lacks::Answer(process)) => {
                let socket = device.own_users.as_ref().map(|socket| socket.display().to_string()).unwrap_or_default();
                return OpenError::NoAnswer { socket, process };
            }
            None => {}
        }
        if let Some(package) = missing_driver(device, eal.shim) {
            return OpenError::NoDriver { device: device.name.clone(), package };
        }
        if device.is_pair && self.error.raw_os_error() == Some(libc::ENOSYS) {
            return OpenError::NoVhost(device.name.clone());
        }
        if device.bus == "pci"
            && let Some(Err(lacks)) = Card::find(&device.name).as_ref().map(pci::require_driver)
        {
            return lacks;
        }
        if self.is_for_lending() {
            return OpenError::InPieces(device.name.clone());
        }
        if device.wire == Wire::PairClient {
            // Or DPDK did not get as far as asking: it does not know an option, for one.
            return nobody_there(device, self.log);
        }
        OpenError::Refused {
            device: device.name.clone(),
            step: self.step,
            error: self.error.to_string(),
            log: self.log,
        }
    }
}

fn nobody_there(device: &Device, log: String) -> OpenError {
    OpenError::NobodyThere { args: device.args.clone(), log }
}

/// The package of a virtual device's driver, when the driver is not installed.
fn missing_driver(device: &Device, shim: Shim) -> Option<String> {
    if device.bus != "vdev" {
        return None;
    }
    let directory = shim.driver_dir();
    // Drivers are named librte_net_memif.so.23.0, devices net_memif with anything behind.
    let is_its_driver = |file: &str| {
        let name = file.strip_prefix("librte_").and_then(|rest| rest.split(".so").next());
        name.is_some_and(|name| device.name.starts_with(name))
    };
    let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    if files.filter_map(|file| file.file_name().into_string().ok()).any(|file| is_its_driver(&file)) {
        return None;
    }
    // The directory is named after the ABI: pmds-23.0.
    let abi = directory.rsplit('-').next().unwrap_or_default();
    let driver = device.name.trim_end_matches(|last: char| last.is_ascii_digit());
    let driver = ["net_virtio_user", "net_memif", "net_vhost"].into_iter().find(|known| driver.starts_with(known));
    let driver = match driver {
        Some("net_virtio_user") => "net_virtio",
        Some(known) => known,
        None => device.name.trim_end_matches(|last: char| last.is_ascii_digit()),
    };
    Some(sidelane_dpdk_sys::debian_package(&format!("librte_{driver}.so.{abi}")))
}
