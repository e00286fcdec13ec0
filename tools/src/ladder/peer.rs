//! The ladder between this machine and another one, on which `sidelane ladder serve` runs.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use sidelane_bench::ladder::{End, Host, NicKind, Reach};
use sidelane_bench::machine::Machine;
use sidelane_bench::remote::{self, Greeting, RemoteError};
use sidelane_mpi::launch::Shown;
use sidelane_nic::affinity;
use sidelane_nic::spec::Spec;

use super::args::{LadderArgs, NicArg, PORT};
use super::place::own_side;

/// Another machine, met and ready.
pub struct Peer {
    connection: TcpStream,
    greeting: Greeting,
    nic: Spec,
    kind: NicKind,
    core: usize,
}

/// Why no ladder can be run with another machine.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error(
        "with a peer (--peer or SIDELANE_PEER) this machine's own driver must be named, too: --nic uring:INTERFACE"
    )]
    NoDriver,
    #[error("no ladder between two machines runs on `{0}`; name a driver of a network, such as uring:INTERFACE")]
    Local(Spec),
    #[error("this machine's driver is {ours} and the peer's is {theirs}; both must be of one kind", theirs = Shown(theirs))]
    Kinds { ours: Spec, theirs: String },
    #[error("`--peer HOST:PORT` ends with a port from 1 to 65535, which `{0}` is not")]
    NoPort(String),
    #[error("`{0}` is no host: {1}")]
    NoHost(String, io::Error),
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl Peer {
    /// Connects to `host`, which may have no port.
    pub fn meet(host: &str, args: &LadderArgs) -> Result<Self, PeerError> {
        let [NicArg::Driver(nic)] = &args.nic[..] else { return Err(PeerError::NoDriver) };
        let kind = kind_on_a_network(nic)?;
        if let Some(port) = port_of(host)
            && !port.parse::<u16>().is_ok_and(|port| port > 0)
        {
            return Err(PeerError::NoPort(port.to_owned()));
        }
        let at = resolve(host).map_err(|error| PeerError::NoHost(host.to_owned(), error))?;
        let (connection, greeting) = remote::connect(&at, STARTS_WITHIN)?;
        match greeting.nic.parse::<Spec>() {
            Ok(theirs) if kind_of(&theirs) == Some(kind) => {}
            _ => return Err(PeerError::Kinds { ours: nic.clone(), theirs: greeting.nic }),
        }
        let taken = greeting.is_from_here().then_some(greeting.core);
        let core = args.core.unwrap_or_else(|| last_core_but(taken));
        if taken == Some(core) {
            tell!("both sides are on core {core} of this machine; give one of them another one with --core");
        }
        Ok(Self { connection, greeting, nic: nic.clone(), kind, core })
    }

    /// Which driver both machines have.
    pub fn kind(&self) -> NicKind {
        self.kind
    }

    /// What the other one is.
    pub fn machine(&self) -> Machine {
        self.greeting.machine.clone()
    }

    /// This machine as A and the other one as B. The kernel's rungs run between the addresses of the connection.
    pub fn hosts(&self) -> io::Result<(Host, Host)> {
        let connection = self.connection.try_clone()?;
        let here = Host {
            reach: Reach::Command(own_side()?),
            end: End { ip: connection.local_addr()?.ip(), nics: vec![(self.kind, self.nic.to_string())] },
            core: self.core,
            patience: Host::PATIENCE_WITH_LINKS,
        };
        let there = Host {
            end: End { ip: connection.peer_addr()?.ip(), nics: vec![(self.kind, self.greeting.nic.clone())] },
            reach: if self.greeting.is_from_here() {
                Reach::ConnectionHere(connection)
            } else {
                Reach::Connection(connection)
            },
            core: self.greeting.core,
            patience: Host::PATIENCE_WITH_LINKS,
        };
        Ok((here, there))
    }
}

/// The kind of the driver that `spec` names, if that reaches other machines.
pub fn kind_on_a_network(spec: &Spec) -> Result<NicKind, PeerError> {
    match kind_of(spec) {
        Some(kind @ (NicKind::Uring | NicKind::Xdp | NicKind::Dpdk | NicKind::Udp)) => Ok(kind),
        _ => Err(PeerError::Local(spec.clone())),
    }
}

/// The kind of the driver that `spec` names. `None`: the ladder has no such kind.
fn kind_of(spec: &Spec) -> Option<NicKind> {
    spec.to_string().split(':').next()?.parse().ok()
}

/// The first core usually has the interrupts of everything, so the last one measures, but one that is `taken` only where there is
/// no other.
pub fn last_core_but(taken: Option<usize>) -> usize {
    last_of(&affinity::cores(), taken)
}

fn last_of(cores: &[usize], taken: Option<usize>) -> usize {
    let free = cores.iter().rfind(|core| Some(**core) != taken);
    free.or(cores.last()).copied().unwrap_or(0)
}

/// What stands for the port: behind the colon of a name, and behind the brackets of an IPv6 address.
fn port_of(host: &str) -> Option<&str> {
    let (name, port) = host.rsplit_once(':')?;
    (name.ends_with(']') || !name.contains(':')).then_some(port)
}

/// All addresses of `host`, of which the machine may serve at one only.
fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = match host.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(_) => (host, PORT).to_socket_addrs()?.collect(),
    };
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// Both machines may be started at once.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_core_measures_unless_another_side_has_it() {
        assert_eq!([None, Some(3), Some(1)].map(|taken| last_of(&[0, 1, 3], taken)), [3, 1, 3]);
        assert_eq!(last_of(&[5], Some(5)), 5, "there is no other");
    }
}
