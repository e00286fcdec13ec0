//! How a device begins: which port leads to which process.

use sidelane_nic::LinkAddr;
use sidelane_nic::time::Instant;

use super::config::{Config, Patience};
use super::credit::Credit;
use super::device::Device;
use super::engine::Engine;
use super::living::Living;
use super::peer::{Peer, Pull, Way};
use super::port::Port;
use super::process::{Process, cores_of};

/// Why a device cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The job has no such process.
    #[error("process {own} is none of the job's {size}")]
    NoSuchProcess {
        /// What was said to be this process's number.
        own: u32,
        /// Processes of the job.
        size: usize,
    },
    /// None of the ports reaches a process.
    #[error("no port of this process reaches process {process} ({description})")]
    NoWay {
        /// Which.
        process: u32,
        /// How it describes itself.
        description: String,
    },
}

impl Device {
    /// Process `own` of a job of `processes`, which it reaches by `ports`; on its own host by one that is for that, if there is one.
    /// Connections are made when they are needed.
    pub fn open(own: u32, processes: Vec<Process>, mut ports: Vec<Port>, config: &Config) -> Result<Self, OpenError> {
        let size = processes.len();
        let host = processes.get(own as usize).map(|process| process.host.clone());
        let host = host.ok_or(OpenError::NoSuchProcess { own, size })?;
        let neighbours = || processes.iter().filter(|process| process.host == host);
        let is_crowded = neighbours().count() > cores_of(neighbours());
        let peers = processes.iter().zip(0u32..).map(|(process, number)| {
            let way = if number == own { Way::Own } else { way(process, &host, &ports) };
            if way == Way::None {
                return Err(OpenError::NoWay { process: number, description: process.to_string() });
            }
            let limits = match way {
                Way::Port { port, .. } if ports[port].is_pair() => config.paired,
                Way::Port { port, .. } if !ports[port].is_on_host() => config.off_host,
                _ => config.on_host,
            };
            Ok(Peer {
                way,
                id: None,
                gone: false,
                limits,
                credit: Credit::new(config.credit),
                waiting: Default::default(),
                stirred: false,
                pull: Pull::Untried,
                board: None,
                whole_max: 0,
                incomplete: None,
            })
        });
        let peers = peers.collect::<Result<Vec<Peer>, _>>()?;
        for (at, port) in ports.iter_mut().enumerate() {
            let of_this_port = |(peer, process): (&Peer, _)| match peer.way {
                Way::Port { port, addr } if port == at => Some((addr, process)),
                _ => None,
            };
            let others: Vec<(LinkAddr, &Process)> = peers.iter().zip(&processes).filter_map(of_this_port).collect();
            let own = &processes[own as usize];
            // A rank that is a thread may end without its process.
            if others.iter().all(|(_, other)| own.sees(other) && own.pid != other.pid) {
                port.wait_for_answers();
            }
            port.expect_only(others.into_iter().map(|(addr, _)| addr));
        }
        let now = ports.first().map_or(Instant::ZERO, Port::now);
        let living = Living::new(own, &processes, now);
        let engine = Engine::new(own, processes, peers, ports.len(), config.single_copy);
        let patience = if is_crowded { config.patience_crowded } else { config.patience };
        let cost = ports.iter().map(Port::turn_cost).max().unwrap_or(1);
        let yields = if cost == 1 { patience.yields } else { patience.yields.min(YIELDS_OF_CALLS) };
        let patience = Patience { spin: patience.spin / cost, yields };
        Ok(Self {
            ports,
            engine,
            patience,
            sends: 0,
            services: Vec::new(),
            watch: None,
            informant: None,
            living,
            passes: 0,
        })
    }
}

/// How `process` is reached from `host`.
fn way(process: &Process, host: &str, ports: &[Port]) -> Way {
    let by = |on_host: bool| {
        let mut ways = ports.iter().enumerate().filter(|(_, port)| port.is_on_host() == on_host);
        ways.find_map(|(port, by)| {
            let addr = *process.links.iter().find(|link| by.reaches(**link))?;
            Some(Way::Port { port, addr })
        })
    };
    let on_host = if process.host == host { by(true) } else { None };
    on_host.or_else(|| by(false)).unwrap_or(Way::None)
}

/// Yields before a sleep where each turn between them is a system call or two: then as many last as long as five times as many elsewhere.
const YIELDS_OF_CALLS: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_reached_by_no_port_is_named() {
        let processes = ["here", "there"].map(|host| Process::here(host, &[])).to_vec();
        let opened = |own| Device::open(own, processes.clone(), Vec::new(), &Config::default()).map(drop);
        assert!(matches!(opened(0), Err(OpenError::NoWay { process: 1, .. })));
        assert!(matches!(opened(2), Err(OpenError::NoSuchProcess { own: 2, size: 2 })));
    }
}
