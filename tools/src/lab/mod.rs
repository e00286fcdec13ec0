//! Labs: hosts that are network namespaces, joined by veth.
//!
//! A [`Lab`] has no name in the system: its namespaces are held by descriptors and by the processes inside, and the
//! kernel removes them with the last of these. So nothing is left behind, however a program ends. Root makes the
//! namespaces under its own user namespace, anybody else under a new one of which they are root.

mod dial;
mod enter;
mod error;
pub mod guard;
pub mod keeper;
pub(crate) mod offload;
mod place;
pub mod process;
mod seed;
mod wiring;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub use enter::{Lifetime, inherit, pin_to, tie};
pub use error::{Forbidden, LabError};
pub use offload::Offloads;

use enter::Entry;

/// Hosts have one letter each.
pub const HOSTS_MAX: usize = 26;

/// The name of every host's interface.
pub const INTERFACE: &str = "veth0";

/// Length of the network's prefix: all hosts are neighbours.
pub const PREFIX_LEN: u8 = 24;

/// How long a left-over process may take to end by itself before it is killed.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// What a lab shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabSpec {
    /// How many hosts: two are joined by one veth pair, more by a bridge.
    pub hosts: usize,
    /// Largest IP packet of every interface, in bytes.
    pub mtu: u32,
    /// Offloads off: no frame exceeds the MTU and every checksum is computed, as on a wire. With offloads on, the
    /// kernel hands on segments of up to 64 KiB that are never cut.
    pub real_frames: bool,
}

impl Default for LabSpec {
    fn default() -> Self {
        Self { hosts: 2, mtu: 1500, real_frames: false }
    }
}

/// Hosts joined by veth, for as long as this value, or a process inside, lives.
#[derive(Debug)]
pub struct Lab {
    spec: LabSpec,
    hosts: Vec<Host>,
    /// Nobody runs in the bridge's namespace, so it is held here. It also goes with the last port.
    _bridge: Option<OwnedFd>,
}

/// One host of a lab.
#[derive(Debug)]
pub struct Host {
    name: char,
    address: Address,
    entry: Entry,
    offloads: Offloads,
}

/// Where a host is found, by IP and by Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// 10.79.0.1 for A, and so on.
    pub ip: Ipv4Addr,
    /// Locally administered: 02:00 and the four bytes of the IP address.
    pub mac: [u8; 6],
}

impl Lab {
    /// Makes the namespaces and everything in them. On failure nothing is left.
    pub fn build(spec: &LabSpec) -> Result<Self, LabError> {
        if !(2..=HOSTS_MAX).contains(&spec.hosts) {
            return Err(LabError::Hosts(spec.hosts));
        }
        // RFC 791: every host takes 68 bytes. 65535 is the largest IP packet, and veth's largest MTU.
        if !(68..=65_535).contains(&spec.mtu) {
            return Err(LabError::Mtu(spec.mtu));
        }
        let with_bridge = spec.hosts > 2;
        let namespaces = seed::open(spec.hosts + usize::from(with_bridge)).map_err(LabError::from_seed)?;
        let mut nets = namespaces.nets;
        let bridge = if with_bridge { nets.pop() } else { None };
        let addresses: Vec<Address> = (0..spec.hosts).map(Address::of_host).collect();
        wiring::connect(&nets, &addresses, bridge.as_ref(), spec.mtu)?;
        if spec.real_frames {
            let off = |net: &seed::Net, interface: &str| {
                offload::turn_off(net.control.as_fd(), interface)
                    .map_err(|source| LabError::System { doing: "turn offloads off", source })
            };
            nets.iter().try_for_each(|net| off(net, INTERFACE))?;
            if let Some(net) = &bridge {
                (0..spec.hosts).try_for_each(|i| off(net, &format!("port{i}")))?;
            }
        }
        let user = namespaces.user.map(Arc::new);
        let hosts = nets.into_iter().zip(addresses).enumerate().map(|(i, (net, address))| {
            let offloads = offload::read(net.control.as_fd(), INTERFACE)
                .map_err(|source| LabError::System { doing: "read offloads", source })?;
            let entry = Entry { user: user.clone(), net: Arc::new(net.namespace) };
            Ok(Host { name: (b'A' + i as u8) as char, address, entry, offloads })
        });
        let hosts = hosts.collect::<Result<_, LabError>>()?;
        Ok(Self { spec: *spec, hosts, _bridge: bridge.map(|net| net.namespace) })
    }

    /// What it was made as.
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// All hosts, A first.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Host number `index`: 0 is A. Panics when there is no such host.
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Ends whatever still runs inside: what a command put in the background and left there. Returns how many there were.
    pub fn end_inhabitants(&self) -> std::io::Result<usize> {
        let namespaces: Vec<_> = self.hosts.iter().map(|host| &*host.entry.net).collect();
        process::end_all(&namespaces, END_PATIENCE)
    }

    /// True when the lab is in a user namespace of its own: made without root's rights.
    pub fn in_user_namespace(&self) -> bool {
        self.hosts[0].entry.user.is_some()
    }
}

impl Host {
    /// A, B, ...
    pub fn name(&self) -> char {
        self.name
    }

    /// Where the others find it.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The name of its interface.
    pub fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// What its interface leaves to others, as read back when the lab was made.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Its network namespace, for a process that shall enter by itself.
    pub fn namespace(&self) -> std::io::Result<OwnedFd> {
        self.entry.net.try_clone()
    }

    /// A command whose process will run in this host. It is killed when the THREAD that spawned it ends (prctl(2),
    /// PR_SET_PDEATHSIG), so spawn from one that lives long enough.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.command_with(program, Lifetime::Tied, None)
    }

    /// As [`Host::command`], pinned to `core`.
    pub fn pinned_command(&self, program: impl AsRef<std::ffi::OsStr>, core: usize) -> Command {
        self.command_with(program, Lifetime::Tied, Some(core))
    }

    /// As [`Host::command`], with a choice of what ends it.
    pub fn command_with(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        lifetime: Lifetime,
        core: Option<usize>,
    ) -> Command {
        let mut command = Command::new(program);
        self.entry.apply(&mut command, lifetime, core);
        command
    }
}

impl Address {
    /// The address of host number `index`.
    pub fn of_host(index: usize) -> Self {
        let ip = [10, 79, 0, index as u8 + 1];
        let [a, b, c, d] = ip;
        Self { ip: ip.into(), mac: [2, 0, a, b, c, d] }
    }

    /// The MAC address as text.
    pub fn mac_text(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

#[cfg(test)]
mod tests;
