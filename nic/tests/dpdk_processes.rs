//! The `dpdk` driver between two processes: the whole conformance suite, one process at each end. Where there is no
//! libdpdk, each test says so and passes.

mod libdpdk;
mod patience;
mod remote;

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use remote::{Process, Remote};
use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::dpdk::{Config, Dpdk, OpenError, Pair};
use sidelane_nic::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot};

#[test]
#[ignore = "the other side of a test"]
fn other_side() {
    remote::serve();
}

/// An endpoint in one of the two processes.
enum Either<N> {
    Here(Box<N>),
    There(Remote),
}

/// The first endpoint here, on the first of two ends; the others there, on the second.
struct Between<N> {
    there: Process,
    ends: [String; 2],
    open: fn(&Config) -> Result<N, OpenError>,
    link_is_up: fn(&N) -> bool,
    /// As the option says it.
    lossy: &'static str,
}

impl Between<Dpdk> {
    fn new(name: &str, ends: [String; 2]) -> Self {
        let there = Process::start("other_side", name);
        Self { there, ends, open: Dpdk::open, link_is_up: Dpdk::link_is_up, lossy: ",lossy" }
    }
}

impl Between<Pair> {
    fn new_pair(name: &str, ends: [String; 2]) -> Self {
        let there = Process::start("other_side", name);
        Self { there, ends, open: Pair::open, link_is_up: |pair| pair.link_is_up(), lossy: "" }
    }
}

impl<N: Nic + 'static> Setup for Between<N> {
    type Nic = Either<N>;

    fn open(&mut self, count: usize) -> Result<Vec<Either<N>>, String> {
        if N::RELIABLE && count > 2 {
            return Err("a pair has two ends".to_owned());
        }
        let [first, second] = &self.ends;
        let opened = (self.open)(&Config { endpoint: 1, ..Config::new(first) });
        let here = opened.map_err(|error| error.to_string())?;
        let mut there = Vec::new();
        for endpoint in 2..=count {
            let shared = if count > 2 { ",shared" } else { self.lossy };
            there.push(Either::There(self.there.open(&format!("dpdk:{second},endpoint={endpoint}{shared}"))?));
        }
        let give_up = Instant::now() + Duration::from_secs(5);
        while count > 1 && !(self.link_is_up)(&here) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        there.insert(0, Either::Here(Box::new(here)));
        Ok(there)
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }
}

fn keeps_the_contract<N: Nic + Send + 'static>(setup: impl FnOnce() -> Between<N>) {
    if libdpdk::is_missing() {
        return;
    }
    let mut setup = setup();
    drop(setup.open(if N::RELIABLE { 2 } else { 3 }).unwrap());
    conformance::run(&mut setup).assert_passed();
    conformance::run_threads(&mut setup).assert_passed();
}

fn unique(name: &str) -> String {
    format!("sidelane-two-{name}-{}", std::process::id())
}

#[test]
fn memif_served_here_keeps_the_contract() {
    let name = unique("memif-here");
    keeps_the_contract(|| Between::new("memif-here", [format!("memif:{name},server"), format!("memif:{name}")]));
}

#[test]
fn a_pair_keeps_the_contract_of_a_reliable_driver() {
    let name = unique("pair");
    keeps_the_contract(|| Between::new_pair("pair", [format!("memif:{name},server"), format!("memif:{name}")]));
}

#[test]
fn vhost_served_here_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vhost").display().to_string();
    keeps_the_contract(|| Between::new("vhost-here", [format!("vhost:{path},server"), format!("vhost:{path},once")]));
    assert!(!std::fs::exists(&path).unwrap(), "its socket is still there");
}

#[test]
fn a_vhost_pair_keeps_the_contract_of_a_reliable_driver() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pair").display().to_string();
    keeps_the_contract(|| {
        Between::new_pair("vhost-pair", [",server", ",once"].map(|role| format!("vhost:{path}{role}")))
    });
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its socket is still there");
}

#[test]
fn a_killed_process_is_gone_and_its_successor_is_met_again() {
    if libdpdk::is_missing() {
        return;
    }
    let name = unique("killed");
    let mut here = Dpdk::open(&Config::new(format!("memif:{name},server"))).unwrap();
    for round in 0..2 {
        let there = Process::start("other_side", &format!("killed-{round}"));
        let mut other = there.open(&format!("dpdk:memif:{name},lossy")).unwrap();
        let to_other = here.link(other.caps().addr).unwrap();
        let to_here = other.link(here.caps().addr).unwrap();
        let mut slot = other.tx_slot(to_here, 5).unwrap();
        slot.copy_from_slice(b"hello");
        slot.commit();
        other.flush();
        let give_up = here.now() + sidelane_nic::time::Duration::from_millis(5_000);
        let mut got = Vec::new();
        while here.rx_burst(1, |frame, _| got = frame.to_vec()) == 0 {
            assert!(here.now() < give_up, "nothing came");
            here.wait(Some(give_up)).unwrap();
        }
        assert_eq!(got, b"hello");
        assert!(!here.is_gone(to_other));
        // SIGKILL, with the endpoint open.
        drop(there);
        while !here.is_gone(to_other) {
            assert!(here.now() < give_up, "its death was not noticed");
            here.wait(Some(here.now() + sidelane_nic::time::Duration::from_millis(1))).unwrap();
        }
        // Nobody is there, and nothing breaks.
        for _ in 0..1_000 {
            if let Some(slot) = here.tx_slot(to_other, 100) {
                slot.commit();
            }
            here.flush();
        }
        here.unlink(to_other);
    }
}

macro_rules! either {
    ($self:expr, $nic:ident => $call:expr) => {
        match $self {
            Either::Here($nic) => $call,
            Either::There($nic) => $call,
        }
    };
}

impl<N: Nic> Nic for Either<N> {
    const RELIABLE: bool = N::RELIABLE;

    fn caps(&self) -> &Caps {
        either!(self, nic => nic.caps())
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        either!(self, nic => nic.link(to))
    }

    fn unlink(&mut self, link: Link) {
        either!(self, nic => nic.unlink(link))
    }

    fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
        either!(self, nic => nic.rx_burst(budget, each))
    }

    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        match self {
            Self::Here(nic) => nic.tx_slot(link, len).map(EitherSlot::Here),
            Self::There(nic) => nic.tx_slot(link, len).map(EitherSlot::There),
        }
    }

    fn flush(&mut self) {
        either!(self, nic => nic.flush())
    }

    fn wait(&mut self, deadline: Option<sidelane_nic::time::Instant>) -> std::io::Result<()> {
        either!(self, nic => nic.wait(deadline))
    }

    fn waker(&mut self) -> std::io::Result<std::task::Waker> {
        either!(self, nic => nic.waker())
    }

    fn is_gone(&self, link: Link) -> bool {
        either!(self, nic => nic.is_gone(link))
    }

    fn counters(&self) -> Counters {
        either!(self, nic => nic.counters())
    }

    fn now(&self) -> sidelane_nic::time::Instant {
        either!(self, nic => nic.now())
    }
}

enum EitherSlot<H, T> {
    Here(H),
    There(T),
}

impl<H: TxSlot, T: TxSlot> Deref for EitherSlot<H, T> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(slot) => slot,
            Self::There(slot) => slot,
        }
    }
}

impl<H: TxSlot, T: TxSlot> DerefMut for EitherSlot<H, T> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Here(slot) => slot,
            Self::There(slot) => slot,
        }
    }
}

impl<H: TxSlot, T: TxSlot> TxSlot for EitherSlot<H, T> {
    fn commit(self) {
        match self {
            Self::Here(slot) => slot.commit(),
            Self::There(slot) => slot.commit(),
        }
    }
}
