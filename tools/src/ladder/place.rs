//! Where the two sides run: hosts of a lab, or this machine itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use sidelane::lab::{self, Lab, LabError, LabSpec};
use sidelane_bench::affinity;
use sidelane_bench::ladder::{Host, NicKind, Regime};
use sidelane_nic::spec::Spec;

/// Where to measure.
pub enum Place {
    /// Namespaces joined by veth, made when they are asked for.
    Lab,
    /// 127.0.0.1.
    Loopback,
}

impl Place {
    /// A lab, if one can be made: one is, and given up at once.
    pub fn lab() -> Result<Self, LabError> {
        Lab::build(&LabSpec::default()).map(|_| Self::Lab)
    }

    /// True when `regime` can be had here for `nic`: loopback never cuts a segment, and what is not a network has no frames.
    pub fn has(&self, nic: NicKind, regime: Regime) -> bool {
        regime == Regime::DefaultOffloads || (matches!(self, Self::Lab) && crosses_a_wire(nic))
    }

    /// The two places for `regime`, A first. What they need is kept in `labs`, to be held until the sides have ended.
    pub fn hosts(&self, nic: NicKind, regime: Regime, labs: &mut Vec<Lab>) -> io::Result<(Host, Host)> {
        let cores = affinity::cores();
        // One core for both is crowded, and the sides are told so.
        let core = |side: usize| cores[side.min(cores.len() - 1)];
        let own = std::env::current_exe()?;
        let side = |mut command: Command, ip: IpAddr, nic: String, core| {
            // Out of the terminal's foreground group: a Ctrl-C reaches us alone, and we end the sides in order.
            command.arg("side").process_group(0);
            Host { command, ip, nic, core }
        };
        match self {
            Self::Lab if crosses_a_wire(nic) => {
                let real_frames = regime == Regime::RealFrames;
                let lab = Lab::build(&LabSpec { real_frames, ..LabSpec::default() }).map_err(io::Error::other)?;
                let host = |index| {
                    let host = lab.host(index);
                    let ip = IpAddr::V4(host.address().ip);
                    let nic = driver(nic, host.interface(), ip, regime, index);
                    side(host.pinned_command(&own, core(index)), ip, nic, core(index))
                };
                let both = (host(0), host(1));
                labs.push(lab);
                Ok(both)
            }
            // Processes on one host share memory within one network namespace (`shm` meets over abstract sockets), and
            // what they are compared with is the kernel's loopback.
            Self::Lab | Self::Loopback => {
                let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let host = |index| {
                    let mut command = Command::new(&own);
                    lab::tie(&mut command);
                    side(command, ip, driver(nic, "lo", ip, regime, index), core(index))
                };
                Ok((host(0), host(1)))
            }
        }
    }
}

fn crosses_a_wire(nic: NicKind) -> bool {
    matches!(nic, NicKind::Uring | NicKind::Udp)
}

/// The driver as a string, at side number `side`.
fn driver(nic: NicKind, interface: &str, ip: IpAddr, regime: Regime, side: usize) -> String {
    let spec = match nic {
        // Both the interface and the namespace are the side's own, so any endpoint will do.
        NicKind::Uring => Spec::Uring { interface: interface.to_owned(), endpoint: 0, real_frames: false },
        NicKind::Udp => Spec::Udp { bind: SocketAddr::new(ip, 0) },
        // The domain is this run's own.
        NicKind::Shm => {
            Spec::Shm { domain: format!("ladder-{}-{regime}", std::process::id()), endpoint: Some(side as u16) }
        }
        NicKind::Mem => Spec::Mem,
    };
    spec.to_string()
}
