//! Tries each driver's means.

use std::io;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use io_uring::IoUring;

use super::{Driver, Verdict, probe};
use crate::lab::{Lab, LabError, LabSpec};

/// A lab, or why there is none. It is given up by dropping it.
pub fn lab() -> Result<Lab, Verdict> {
    Lab::build(&LabSpec::default()).map_err(|error| {
        let remedy = match &error {
            LabError::Forbidden(forbidden) => Some(forbidden.remedy()),
            _ => None,
        };
        let reason = match &error {
            LabError::Forbidden(forbidden) => forbidden.reason(),
            other => other.to_string(),
        };
        Verdict::Refused { reason, remedy }
    })
}

/// All drivers. Those not contained are named too, so that nobody searches for them.
pub fn drivers(lab: &Result<Lab, Verdict>) -> Vec<Driver> {
    let all = [
        ("shm", "processes on one host", shm()),
        ("dpdk", "network card without the kernel", Verdict::NotBuilt),
        ("xdp", "AF_XDP sockets", Verdict::NotBuilt),
        ("uring", "AF_PACKET ring and io_uring, on an interface", uring(lab)),
        ("udp", "UDP sockets through io_uring", udp()),
        ("mem", "simulated fabric in one process", Verdict::runs_everywhere()),
    ];
    all.into_iter().map(|(name, what, verdict)| Driver { name, what, verdict }).collect()
}

fn shm() -> Verdict {
    match probe::shared_memory() {
        Ok(()) => Verdict::runs_everywhere(),
        Err(error) => Verdict::Refused { reason: format!("no shared memory to be had: {error}"), remedy: None },
    }
}

fn udp() -> Verdict {
    if let Err(verdict) = ring() {
        return verdict;
    }
    match UdpSocket::bind("127.0.0.1:0") {
        Ok(_) => Verdict::runs_everywhere(),
        Err(error) => Verdict::Refused {
            reason: format!("no UDP socket on loopback: {error}"),
            remedy: Some("sudo ip link set lo up".to_owned()),
        },
    }
}

fn uring(lab: &Result<Lab, Verdict>) -> Verdict {
    if let Err(verdict) = ring() {
        return verdict;
    }
    let refusal = match probe::packet_socket() {
        Ok(()) => return Verdict::runs_everywhere(),
        Err(error) => error,
    };
    let Ok(lab) = lab else {
        return Verdict::Refused {
            reason: format!("no packet socket without CAP_NET_RAW ({refusal}), and no lab that would have one"),
            remedy: Some("sudo sidelane (or the remedy for `lab`)".to_owned()),
        };
    };
    match in_lab(lab) {
        Ok(()) => Verdict::Runs { note: Some("in a lab; on other interfaces only with CAP_NET_RAW (sudo)".to_owned()) },
        Err(reason) => Verdict::Refused { reason, remedy: Some("sudo sidelane".to_owned()) },
    }
}

/// Tries the packet socket where a lab's program would open it.
fn in_lab(lab: &Lab) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut probe: Command = lab.host(0).command(own);
    let output = probe.arg("probe").stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("no packet socket even in a lab: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// An io_uring instance with the entries that a driver at least asks for.
fn ring() -> Result<(), Verdict> {
    IoUring::new(RING_ENTRIES).map(drop).map_err(|error| refused_ring(&error))
}

const RING_ENTRIES: u32 = 256;

fn refused_ring(error: &io::Error) -> Verdict {
    let (reason, remedy) = match error.raw_os_error() {
        Some(libc::ENOSYS) => ("the kernel has no io_uring (5.1 brought it), or a sandbox hides it", None),
        Some(libc::EPERM) => {
            ("io_uring is forbidden: kernel.io_uring_disabled", Some("sudo sysctl -w kernel.io_uring_disabled=0"))
        }
        Some(libc::ENOMEM) => ("too little memory may be locked for io_uring", Some("ulimit -l unlimited")),
        _ => ("io_uring does not start", None),
    };
    Verdict::Refused { reason: format!("{reason} ({error})"), remedy: remedy.map(str::to_owned) }
}
