//! Where two sides meet: hosts of a lab, or this host's loopback, shared memory or a pair of DPDK's.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sidelane::lab::{Lab, LabError, LabSpec};
use sidelane_nic::dpdk::Installed;
use tempfile::TempDir;

use crate::patience::watch;

/// A driver with a place for two endpoints, A and B.
pub enum Stage {
    /// A veth between two hosts, one endpoint on each.
    Uring(Lab),
    /// Likewise.
    Xdp(Lab),
    /// Loopback.
    Udp,
    /// A domain of its own.
    Shm(String),
    /// Two ends of this name. A serves, so it has to be there first.
    Memif(String),
    /// Likewise, in a folder of its own.
    Vhost(TempDir),
}

impl Stage {
    /// Two hosts and a veth; `None`, and the reason printed, where there is none to be had.
    pub fn uring(real_frames: bool) -> Option<Self> {
        match Lab::build(&LabSpec { real_frames, ..LabSpec::default() }) {
            Ok(lab) => Some(Self::Uring(lab)),
            Err(LabError::Forbidden(reason)) => {
                println!("skipped: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Likewise; `None` also for who may not load XDP programs.
    fn xdp() -> Option<Self> {
        let Some(Self::Uring(lab)) = Self::uring(false) else { return None };
        let host = lab.host(0);
        let probe = host.command(program()).args(["probe", &format!("xdp:{}", host.interface())]).output();
        match probe {
            Ok(output) if output.status.success() => Some(Self::Xdp(lab)),
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Every driver that can run here; `test` makes names that no other test has.
    pub fn all(test: &str) -> Vec<Self> {
        let mut stages: Vec<Self> = Self::uring(false).into_iter().chain(Self::xdp()).collect();
        stages.push(Self::Udp);
        stages.extend(Self::reliable(test));
        stages
    }

    /// Every reliable one.
    pub fn reliable(test: &str) -> Vec<Self> {
        let name = format!("e2e-{test}-{}", std::process::id());
        let mut stages = vec![Self::Shm(name.clone())];
        match Installed::find() {
            Ok(_) => stages.extend([Self::Memif(name), Self::Vhost(tempfile::tempdir().unwrap())]),
            Err(error) => println!("skipped: {error}"),
        }
        stages
    }

    /// Whether A serves and B is its client, so that one is not as the other.
    pub fn is_pair(&self) -> bool {
        matches!(self, Self::Memif(_) | Self::Vhost(_))
    }

    /// For messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Uring(_) => "uring",
            Self::Xdp(_) => "xdp",
            Self::Udp => "udp",
            Self::Shm(_) => "shm",
            Self::Memif(_) => "dpdk memif",
            Self::Vhost(_) => "dpdk vhost",
        }
    }

    /// `sidelane soak`, at A (0) or B (1).
    pub fn soak(&self, at: usize) -> Command {
        let program = program();
        let mut command = match self {
            Self::Uring(lab) | Self::Xdp(lab) => lab.host(at).command(program),
            Self::Udp | Self::Shm(_) | Self::Memif(_) | Self::Vhost(_) => Command::new(program),
        };
        command.arg("soak");
        command
    }

    /// A side at A or B. It takes the address that `at` had, if it had one.
    pub fn side(&self, at: usize, port: u16) -> Command {
        let mut command = self.soak(at);
        let nic = match self {
            Self::Uring(lab) => format!("uring:{},endpoint=1", lab.host(at).interface()),
            Self::Xdp(lab) => format!("xdp:{},endpoint=1", lab.host(at).interface()),
            Self::Udp => format!("udp:127.0.0.1:{port}"),
            Self::Shm(domain) => format!("shm:{domain},endpoint={}", at + 1),
            Self::Memif(name) => format!("dpdk:memif:{name},{}", PAIR_ENDS[at]),
            Self::Vhost(folder) => format!("dpdk:vhost:{},{}", folder.path().join("pair").display(), PAIR_ENDS[at]),
        };
        command.args(["side", "--nic", &nic]);
        command
    }
}

/// A server has an address that is always the same, or that no other has.
const PAIR_ENDS: [&str; 2] = ["server", "mac=02:00:00:00:00:02"];

/// Names another place of the program than where it was built.
pub const PROGRAM: &str = "SIDELANE_E2E_PROGRAM";

/// The program that all processes run.
pub fn program() -> String {
    std::env::var(PROGRAM).unwrap_or_else(|_| env!("CARGO_BIN_EXE_sidelane").to_owned())
}

/// One test at a time: they measure times, and fill every core on their own. Who has the turn ends in time, or the program does.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing behind but its turn.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    watch("it", TURN_MAX);
    turn
}

/// The longest have ten minutes of traffic.
const TURN_MAX: Duration = Duration::from_secs(900);
