//! The conformance suite over the drivers that need nothing from the system, and over the wrappers.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use sidelane_nic::LinkAddr;
use sidelane_nic::conformance::{self, Ended, Outcome, Setup};
use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::mem::{Config, Fabric, LinkModel, MemNic};
use sidelane_nic::pcap::{Capture, Origin};
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

/// A driver below a wrapper that draws no faults: what is left is the wrapper's own conduct.
struct FaultOver<S>(S);

impl<S: Setup> Setup for FaultOver<S> {
    type Nic = Fault<S::Nic>;

    fn open(&mut self, count: usize) -> Result<Vec<Self::Nic>, String> {
        Ok(self.0.open(count)?.into_iter().map(|nic| Fault::new(nic, Faults::NONE, 1)).collect())
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        self.0.absent()
    }
}

/// A driver below a wrapper that writes down what passes.
struct CaptureOver<S>(S);

impl<S: Setup> Setup for CaptureOver<S> {
    type Nic = Capture<S::Nic, Vec<u8>>;

    fn open(&mut self, count: usize) -> Result<Vec<Self::Nic>, String> {
        Ok(self.0.open(count)?.into_iter().map(|nic| Capture::new(nic, Vec::new(), Origin::Wall)).collect())
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
        conformance::run(&mut FaultOver(Mem { link, config: Config::default() })).assert_passed();
    }
}

/// What was missing at every try is told, since tries that differ tell of another fault than tries that are alike.
#[test]
fn every_try_of_a_case_is_reported() {
    let link = LinkModel { faults: Faults { loss: 1.0, ..Faults::NONE }, ..LinkModel::default() };
    let report = conformance::run(&mut Mem { link, config: Config::default() });
    let at = report.cases.iter().position(|case| case.name == "a frame arrives").unwrap();
    let missed = &report.cases[at].missed;
    assert_eq!(missed.len(), 4);
    assert!(missed.iter().all(|what| what.starts_with("0 of 1 frames came to")), "{missed:?}");
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().skip(at).take(6).collect();
    assert!(lines[0].starts_with("FAILED   ") && lines[4].starts_with("         try 4: 0 of 1"), "{lines:#?}");
    assert!(lines[5].starts_with("skipped  ") && lines[5].ends_with(": no frame arrives"), "{lines:#?}");
    // Nothing else was waited for.
    let skipped = |case: &Ended| case.outcome == Outcome::Skipped("no frame arrives".to_owned());
    assert!(report.cases.len() > 20 && report.cases[at + 1..].iter().all(skipped), "{text}");
}

/// What opens for one case and never again.
struct Once(bool);

impl Setup for Once {
    type Nic = MemNic;

    fn open(&mut self, count: usize) -> Result<Vec<MemNic>, String> {
        if std::mem::replace(&mut self.0, true) {
            return Err("taken".to_owned());
        }
        Mem { link: LinkModel::default(), config: Config::default() }.open(count)
    }
}

#[test]
#[should_panic(expected = "not tried:\nskipped  the same address gives the same link: taken\n")]
fn what_opens_only_once_has_not_passed_all() {
    conformance::run(&mut Once(false)).assert_all_passed();
}

#[test]
fn capture_over_mem() {
    conformance::run(&mut CaptureOver(Mem { link: delayed(), config: Config::default() })).assert_passed();
}

/// Endpoints of domains that no other test uses.
struct Shm {
    name: &'static str,
    domains: u32,
}

impl Shm {
    fn new(name: &'static str) -> Self {
        Self { name, domains: 0 }
    }

    fn domain(&self) -> String {
        format!("{}-{}-{}", self.name, std::process::id(), self.domains)
    }
}

impl Setup for Shm {
    type Nic = ShmNic;

    fn open(&mut self, count: usize) -> Result<Vec<ShmNic>, String> {
        self.domains += 1;
        (0..count).map(|_| ShmNic::open(&self.domain(), None).map_err(|error| error.to_string())).collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some(LinkAddr::Shm { endpoint: 999 })
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        let LinkAddr::Shm { endpoint } = victim else { unreachable!() };
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        let name = format!("sidelane-shm-{user}-{}-{endpoint}", self.domain());
        let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        // It may have hung up before everything was said.
        let _ = socket.write_all(bytes);
        true
    }
}

#[test]
fn shm() {
    conformance::run(&mut Shm::new("shm")).assert_all_passed();
    conformance::run_threads(&mut Shm::new("shm-threads")).assert_all_passed();
}

#[test]
fn fault_over_shm() {
    conformance::run(&mut FaultOver(Shm::new("fault"))).assert_passed();
    conformance::run_threads(&mut FaultOver(Shm::new("fault-threads"))).assert_passed();
}
