//! What `sidelane lab` is told.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use sidelane::lab::keeper::USUAL_NAME;
use sidelane::lab::{HOSTS_MAX, LabSpec};
use sidelane::qemu::{Accel, Binding, Model, NICS_MAX};

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Make a lab and keep it until `down`
    Up {
        #[command(flatten)]
        spec: SpecArgs,
        #[command(flatten)]
        name: NameArg,
    },
    /// End a kept lab and every process inside
    Down {
        #[command(flatten)]
        name: NameArg,
    },
    /// Show the kept labs of this user
    Status {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a host of a kept lab
    Exec {
        /// The host: A, B, ...
        host: String,
        #[command(flatten)]
        name: NameArg,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Run a command in host A of a lab that ends with it
    Run {
        #[command(flatten)]
        spec: SpecArgs,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Run a command beside emulated PCI NICs, or prove all drivers on them
    #[command(after_help = QEMU_EXAMPLES)]
    Qemu(QemuArgs),
    /// Ends what is inside a lab when its tool is killed; started by `run` and for `up`
    #[command(hide = true)]
    Guard,
    /// Holds a lab; started by `up`
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        spec: SpecArgs,
        #[command(flatten)]
        name: NameArg,
    },
}

pub const EXAMPLES: &str = "\
Examples:
  sidelane lab up --hosts 3 --name trio
  sidelane lab exec --name trio B -- ip addr
  sidelane lab status
  sidelane lab down --name trio
  sidelane lab run -- ip neighbour

Host A has the address 10.79.0.1, B 10.79.0.2 and so on; a command inside finds them in SIDELANE_A_IP, \
SIDELANE_A_MAC..., its own name in SIDELANE_HOST and that of a kept lab in SIDELANE_LAB. Root is not needed where user \
namespaces are allowed (`sidelane doctor` tells).";

/// What a lab shall be.
#[derive(Debug, Clone, Args)]
pub struct SpecArgs {
    /// How many hosts, up to 26
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = hosts)]
    pub hosts: usize,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES", value_parser = mtu)]
    pub mtu: u32,
    /// Offloads off, frames of at most the MTU: as on a wire
    #[arg(long)]
    pub real_frames: bool,
}

impl SpecArgs {
    pub fn spec(&self) -> LabSpec {
        LabSpec { hosts: self.hosts, mtu: self.mtu, real_frames: self.real_frames }
    }
}

/// Which kept lab.
#[derive(Debug, Clone, Args)]
pub struct NameArg {
    /// Name of the lab
    #[arg(long, default_value = USUAL_NAME, value_parser = lab_name)]
    pub name: String,
}

/// Whether a lab can have as many, it says itself.
fn hosts(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("2 to {HOSTS_MAX} hosts"))
}

/// The same of bytes.
fn mtu(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a number of bytes, such as 1500".to_owned())
}

/// A name that is a file name and short enough for a socket's path (unix(7): 108 bytes with the directory).
pub fn lab_name(text: &str) -> Result<String, String> {
    let fits = (1..=NAME_MAX).contains(&text.len());
    if fits && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Ok(text.to_owned());
    }
    Err(format!("a lab's name has 1 to {NAME_MAX} of the characters a-z, 0-9 and -"))
}

const NAME_MAX: usize = 32;

/// Guests of QEMU, and what they shall do.
#[derive(Debug, Args)]
pub struct QemuArgs {
    /// NIC model, or several, comma separated [default: all; with a command e1000e]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODEL")]
    pub model: Vec<Model>,
    /// What the NICs are bound to
    #[arg(long, value_enum, value_name = "DRIVER", default_value = "uio_pci_generic")]
    pub driver: Binding,
    /// Guests for the command: 1, or 2 of which the other serves ladders
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = small(2))]
    pub hosts: usize,
    /// NICs in each guest for the command
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = small(NICS_MAX))]
    pub nics: usize,
    /// How the guests are executed
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub accel: Accel,
    /// A folder with an unpacked Debian kernel package [default: downloaded once to ~/.cache/sidelane]
    #[arg(long, value_name = "FOLDER")]
    pub kernel: Option<PathBuf>,
    /// Longest time of one run of the guests, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// The command for guest A and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const QEMU_EXAMPLES: &str = "\
Examples:
  sidelane lab qemu                                     the conformance suite and a ladder on all models
  sidelane lab qemu --model vmxnet3 --driver vfio-pci   the same on one, behind an IOMMU
  sidelane lab qemu --model e1000e -- sidelane ladder --quick
  sidelane lab qemu --driver kernel -- sidelane ladder --quick --rungs tcp-poll,raw,proto
  sidelane lab qemu --hosts 1 --nics 3 -- sidelane nic test
  sidelane lab qemu --hosts 1 -- sh -c 'ip addr; cat /proc/meminfo'

Needs QEMU, busybox and, but for --driver kernel, DPDK, all of this machine:
  sudo apt-get install --no-install-recommends qemu-system-x86 busybox-static libdpdk-dev
No root, and nothing of this machine is touched: the guests have a kernel of their own, this program and its \
libraries.

Inside, SIDELANE_NIC names the driver of the guest's first NIC (dpdk:0000:00:04.0), SIDELANE_NICS those of all, and \
SIDELANE_PEER the other guest; so the commands need no options for it. On a real NIC they are typed:
  echo vfio-pci > /sys/bus/pci/devices/0000:04:00.0/driver_override
  echo 0000:04:00.0 > /sys/bus/pci/devices/0000:04:00.0/driver/unbind
  echo 0000:04:00.0 > /sys/bus/pci/drivers_probe
  sidelane ladder --nic dpdk:0000:04:00.0 --peer HOST";

fn small(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_name_is_a_plain_file_name() {
        assert!(lab_name("trio-2").is_ok());
        for bad in ["", "..", "a/b", "A", &"x".repeat(33)] {
            assert!(lab_name(bad).is_err(), "{bad}");
        }
    }
}
