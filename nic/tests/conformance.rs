//! The conformance suite over the drivers that need nothing from the system.

use sidelane_nic::LinkAddr;
use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::mem::{Config, Fabric, LinkModel, MemNic};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;

struct Mem {
    link: LinkModel,
    config: Config,
}

impl Setup for Mem {
    type Nic = MemNic;

    fn open(&mut self, count: usize) -> Result<Vec<MemNic>, String> {
        let fabric = Fabric::new(1);
        fabric.set_default_link(self.link);
        Ok((0..count).map(|_| fabric.nic(self.config)).collect())
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some(LinkAddr::Mem { node: 9 })
    }
}

/// The simulated fabric below a wrapper that draws no faults: what is left is the wrapper's own conduct.
struct FaultOverMem(Mem);

impl Setup for FaultOverMem {
    type Nic = Fault<MemNic>;

    fn open(&mut self, count: usize) -> Result<Vec<Self::Nic>, String> {
        Ok(self.0.open(count)?.into_iter().map(|nic| Fault::new(nic, Faults::NONE, 1)).collect())
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        self.0.absent()
    }
}

fn delayed() -> LinkModel {
    LinkModel { delay: Duration::from_micros(7), ..LinkModel::default() }
}

#[test]
fn mem() {
    for link in [LinkModel::default(), delayed()] {
        for mtu in [128, 1500, 65_535] {
            conformance::run(&mut Mem { link, config: Config { mtu, mtu_safe: mtu, ..Config::default() } })
                .assert_passed();
        }
    }
}

#[test]
fn fault_over_mem() {
    for link in [LinkModel::default(), delayed()] {
        conformance::run(&mut FaultOverMem(Mem { link, config: Config::default() })).assert_passed();
    }
}

/// Endpoints of a domain that no other test uses.
struct Shm {
    domains: u32,
}

impl Setup for Shm {
    type Nic = ShmNic;

    fn open(&mut self, count: usize) -> Result<Vec<ShmNic>, String> {
        self.domains += 1;
        let domain = format!("conformance-{}-{}", std::process::id(), self.domains);
        (0..count).map(|_| ShmNic::open(&domain, None).map_err(|error| error.to_string())).collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some(LinkAddr::Shm { endpoint: 999 })
    }
}

#[test]
fn shm() {
    conformance::run(&mut Shm { domains: 0 }).assert_passed();
    conformance::run_threads(&mut Shm { domains: 1_000 }).assert_passed();
}
