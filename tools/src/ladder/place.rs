//! Where the two sides run: hosts of a lab, this machine itself, or this machine and another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use sidelane::lab::{self, Lab, LabError, LabSpec};
use sidelane_bench::ladder::{self, End, Host, LadderError, NicKind, Pair, Reach, Regime};
use sidelane_bench::machine::Machine;
use sidelane_nic::affinity;
use sidelane_nic::dpdk;
use sidelane_nic::spec::Spec;
use sidelane_nic::xdp::Preference;

use super::peer::Peer;
use super::socket;

/// Where to measure.
pub enum Place {
    /// Namespaces joined by veth, made when they are asked for.
    Lab,
    /// 127.0.0.1.
    Loopback,
    /// This machine and another one.
    Peer(Box<Peer>),
}

impl Place {
    /// A lab, if one can be made: one is, and given up at once.
    pub fn lab() -> Result<Self, LabError> {
        Lab::build(&LabSpec::default()).map(|_| Self::Lab)
    }

    /// What is left without a lab, which is told.
    pub fn without_lab(error: &LabError) -> Self {
        tell!("no lab, so this runs on loopback and without `uring` and `xdp`: {error}");
        Self::Loopback
    }

    /// True when `regime` can be had here for `nic`: loopback never cuts a segment, what is not a network has no frames,
    /// and other machines' offloads are theirs.
    pub fn has(&self, nic: NicKind, regime: Regime) -> bool {
        match (self, regime) {
            (Self::Peer(_), regime) => regime == Regime::Wire,
            (_, Regime::Wire) => false,
            (_, Regime::DefaultOffloads) => true,
            (place, Regime::RealFrames) => matches!(place, Self::Lab) && nic.crosses_a_wire(),
        }
    }

    /// The other machine, where there is one.
    pub fn peer_machine(&self) -> Option<Machine> {
        match self {
            Self::Peer(peer) => Some(peer.machine()),
            Self::Lab | Self::Loopback => None,
        }
    }

    /// The drivers that run on the same hosts, together; in the order that they are asked for in.
    pub fn groups(&self, nics: &[NicKind]) -> Vec<Vec<NicKind>> {
        let on_a_wire = |nic: NicKind| matches!(self, Self::Lab) && nic.crosses_a_wire();
        let mut groups: Vec<Vec<NicKind>> = Vec::new();
        for &nic in nics {
            let group = groups.iter_mut().find(|group| on_a_wire(group[0]) == on_a_wire(nic));
            match group {
                Some(group) if group.contains(&nic) => {}
                Some(group) => group.push(nic),
                None => groups.push(vec![nic]),
            }
        }
        groups
    }

    /// Opens each of these drivers once and closes it again: what cannot be had is told before minutes are spent on the others.
    pub fn rehearse(&self, nics: &[NicKind]) -> Result<(), (NicKind, LadderError)> {
        let regime = Regime::DefaultOffloads;
        let opens = |nic: NicKind| {
            // It lives as long as the sides in it.
            let mut labs = Vec::new();
            let (a, b) = self.hosts(&[nic], regime, &mut labs).map_err(|error| LadderError::Hosts(regime, error))?;
            ladder::rehearse(nic, regime, &mut Pair::spawn(a, b).map_err(LadderError::Sides)?)
        };
        // `mem` is within one side.
        let each = nics.iter().filter(|nic| **nic != NicKind::Mem);
        each.copied().try_for_each(|nic| opens(nic).map_err(|error| (nic, error)))
    }

    /// The two places for `regime`, A first, with all of `nics`, a group. What they need is kept in `labs`, to be held until the sides have ended.
    pub fn hosts(&self, nics: &[NicKind], regime: Regime, labs: &mut Vec<Lab>) -> io::Result<(Host, Host)> {
        let cores = cores();
        let side = |command, ip, interface: &str, index| {
            let nics = nics.iter().map(|nic| (*nic, driver(*nic, interface, ip, regime, index))).collect();
            let (reach, end) = (Reach::Command(command), End { ip, nics });
            Host { reach, end, core: cores[index], patience: Host::PATIENCE }
        };
        match self {
            Self::Peer(peer) => peer.hosts(),
            Self::Lab if nics.iter().any(|nic| nic.crosses_a_wire()) => {
                let real_frames = regime == Regime::RealFrames;
                let lab = Lab::build(&LabSpec { real_frames, ..LabSpec::default() }).map_err(io::Error::other)?;
                let host = |index| {
                    let host = lab.host(index);
                    let ip = IpAddr::V4(host.address().ip);
                    own().map(|own| side(as_side(host.pinned_command(own, cores[index])), ip, host.interface(), index))
                };
                let both = host(0).and_then(|a| Ok((a, host(1)?)));
                labs.push(lab);
                both
            }
            // Processes on one host share memory within one network namespace (`shm` meets over abstract sockets), and
            // what they are compared with is the kernel's loopback.
            Self::Lab | Self::Loopback => {
                let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let has_socket = nics.contains(&NicKind::Vhost);
                let host = |index| {
                    let mut command = own_side()?;
                    if has_socket {
                        socket::guard_until_the_end_of(&mut command)?;
                    }
                    Ok::<_, io::Error>(side(command, ip, "lo", index))
                };
                Ok((host(0)?, host(1)?))
            }
        }
    }
}

/// A side in the namespaces that this program is in. It is killed when the thread that spawns it ends.
pub fn own_side() -> io::Result<Command> {
    own_command().map(as_side)
}

/// This program, in the same way.
pub(super) fn own_command() -> io::Result<Command> {
    let mut command = Command::new(own()?);
    lab::tie(&mut command);
    Ok(command)
}

/// The cores of the two sides. One for both is crowded, and the sides are told so.
pub fn cores() -> [usize; 2] {
    let cores = affinity::cores_apart();
    [0, 1].map(|side: usize| cores[side.min(cores.len() - 1)])
}

fn own() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Out of the terminal's foreground group: a Ctrl-C reaches us alone, and we end the sides in order.
fn as_side(mut command: Command) -> Command {
    command.arg("side").process_group(0);
    command
}

/// True of drivers that the loopback has no place for.
pub fn needs_a_lab(nic: NicKind) -> bool {
    matches!(nic, NicKind::Uring | NicKind::Xdp)
}

/// The driver as a string, at side number `side`.
fn driver(nic: NicKind, interface: &str, ip: IpAddr, regime: Regime, side: usize) -> String {
    let spec = match nic {
        // Both the interface and the namespace are the side's own, so any endpoint will do.
        NicKind::Uring => Spec::Uring { interface: interface.to_owned(), endpoint: 0, real_frames: false },
        // Not the endpoint of `uring`, which may still be closing.
        NicKind::Xdp => {
            Spec::Xdp { interface: interface.to_owned(), endpoint: 1, queue: 0, prefer: Preference::Fastest }
        }
        NicKind::Udp => Spec::Udp { bind: SocketAddr::new(ip, 0) },
        // The domain is this run's own.
        NicKind::Shm => {
            Spec::Shm { domain: format!("ladder-{}-{regime}", std::process::id()), endpoint: Some(side as u16) }
        }
        // Without a card, what DPDK has between two processes without privileges.
        NicKind::Dpdk | NicKind::Memif => {
            Spec::Dpdk(pair(format!("memif:sidelane-ladder-{}", std::process::id()), side))
        }
        NicKind::Vhost => Spec::Dpdk(pair(socket::device(), side)),
        NicKind::Mem => Spec::Mem,
    };
    spec.to_string()
}

/// The side that serves a pair.
pub const SERVER: usize = 1;

/// One end of a pair of DPDK's.
pub fn pair(name: String, side: usize) -> dpdk::Config {
    let role = if side == SERVER { ",server" } else { ",once" };
    dpdk::Config { mtu: Some(PAIR_MTU), ..dpdk::Config::new(name + role) }
}

/// C programs on such pairs moved up to twice the bytes with 9 KB frames that they moved with 1500 B ones.
const PAIR_MTU: u16 = 9000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_of_one_network_are_measured_side_by_side() {
        use NicKind::{Mem, Shm, Udp, Uring, Xdp};
        let asked = [Xdp, Shm, Uring, Xdp, Mem, Udp];
        assert_eq!(Place::Lab.groups(&asked), [vec![Xdp, Uring, Udp], vec![Shm, Mem]]);
        assert_eq!(Place::Loopback.groups(&[Udp, Shm]), [vec![Udp, Shm]]);
    }
}
