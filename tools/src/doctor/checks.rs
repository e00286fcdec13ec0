//! Tries each driver's means.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use io_uring::IoUring;
use sidelane_nic::rights::{Capability, Who};
use sidelane_nic::spec::{OpenError, Spec};
use sidelane_nic::uring;
use sidelane_nic::xdp::{self, Preference};

use super::{Driver, Verdict, dpdk, probe};
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
        ("dpdk", "network cards without the kernel; memif and vhost between processes", dpdk::verdict()),
        ("xdp", "AF_XDP sockets, on an interface", xdp()),
        ("uring", "AF_PACKET ring and io_uring, on an interface", uring(lab)),
        ("udp", "UDP sockets", udp()),
        ("mem", "simulated fabric in one process", Verdict::runs_everywhere()),
    ];
    all.into_iter().map(|(name, what, verdict)| Driver { name, what, verdict }).collect()
}

fn shm() -> Verdict {
    let domain = format!("doctor-{}", std::process::id());
    verdict(open(&Spec::Shm { domain, endpoint: None }), None)
}

fn udp() -> Verdict {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    slower_without_ring(verdict(open(&Spec::Udp { bind }), Some("sudo ip link set lo up".to_owned())))
}

/// Opens the loopback, which every machine has. Its frames are passed on meanwhile.
fn xdp() -> Verdict {
    let lo = Spec::Xdp { interface: "lo".to_owned(), endpoint: PROBE_ENDPOINT, queue: 0, prefer: Preference::Fastest };
    let opened = probe::open(&lo);
    let lacks_rights = matches!(opened, Err(OpenError::Xdp(xdp::OpenError::NotPermitted)));
    let remedy = more_rights(Who::am_i()).filter(|_| lacks_rights).map(|program| format!("{program} ladder --nic xdp"));
    verdict(opened.map_err(|error| error.to_string()), remedy)
}

fn uring(lab: &Result<Lab, Verdict>) -> Verdict {
    // Every machine has a loopback.
    let refusal = match probe::open(&on_interface("lo")) {
        Ok(()) => return slower_without_ring(Verdict::runs_everywhere()),
        Err(error) => error,
    };
    let Ok(lab) = lab else {
        return verdict(Err(format!("{refusal}; and there is no lab to run in")), more_rights(Who::am_i()));
    };
    match in_lab(lab) {
        Ok(()) => slower_without_ring(Verdict::Runs {
            note: Some(format!("in a lab; {}", elsewhere(&refusal, Capability::NetRaw.is_effective(), Who::am_i()))),
        }),
        refused => verdict(refused, more_rights(Who::am_i())),
    }
}

/// Tries the driver where a lab's program would open it.
fn in_lab(lab: &Lab) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let host = lab.host(0);
    let mut probe: Command = host.command(own);
    let spec = on_interface(host.interface()).to_string();
    let output = probe.args(["probe", &spec]).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("not even in a lab: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The command that gives this program the rights that it lacks. What helps root is in the reason.
fn more_rights(who: Who) -> Option<String> {
    // Where `cargo install` puts programs, sudo does not look.
    let own = std::env::current_exe().unwrap_or_else(|_| "sidelane".into());
    (who == Who::User).then(|| format!("sudo {}", own.display()))
}

/// What `uring` wants outside of labs, where it was refused.
fn elsewhere(refusal: &OpenError, may_send_raw: bool, who: Who) -> String {
    let OpenError::Uring(uring::OpenError::NotPermitted) = refusal else { return format!("here {refusal}") };
    let wants = match who {
        Who::User => "only with CAP_NET_RAW (sudo)",
        Who::RootOfNamespace if may_send_raw => "only outside of this user namespace",
        Who::Root | Who::RootOfNamespace => "only with CAP_NET_RAW",
    };
    format!("on other interfaces {wants}")
}

/// Opens a driver and lets it go, or says why not.
fn open(spec: &Spec) -> Result<(), String> {
    probe::open(spec).map_err(|error| error.to_string())
}

fn on_interface(name: &str) -> Spec {
    Spec::Uring { interface: name.to_owned(), endpoint: 0, real_frames: false }
}

fn verdict(outcome: Result<(), String>, remedy: Option<String>) -> Verdict {
    match outcome {
        Ok(()) => Verdict::runs_everywhere(),
        Err(reason) => Verdict::Refused { reason, remedy },
    }
}

/// Drivers that send through io_uring go on without it, by a system call a frame.
fn slower_without_ring(verdict: Verdict) -> Verdict {
    match (verdict, IoUring::new(RING_ENTRIES)) {
        (Verdict::Runs { note }, Err(error)) => {
            let slower = format!("without io_uring, by a system call a frame: {}", no_ring(&error));
            Verdict::Runs { note: Some(note.into_iter().chain([slower]).collect::<Vec<_>>().join("; ")) }
        }
        (verdict, _) => verdict,
    }
}

fn no_ring(error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has none (5.1 brought it), or a sandbox hides it",
        Some(libc::EPERM) => "it is forbidden, by `sysctl kernel.io_uring_disabled` or a container's seccomp profile",
        Some(libc::ENOMEM) => "too little memory may be locked; `ulimit -l unlimited`",
        _ => "it does not start",
    };
    format!("{reason} ({error})")
}

/// Not the one that a program takes unless it is told.
const PROBE_ENDPOINT: u16 = u16::MAX;
/// As many as a driver at least asks for.
const RING_ENTRIES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_without_rights_is_not_told_to_become_root() {
        assert!(more_rights(Who::User).is_some_and(|command| command.contains("sudo")));
        assert_eq!([Who::Root, Who::RootOfNamespace].map(more_rights), [None, None]);
        let told = |may_send_raw, who| elsewhere(&uring::OpenError::NotPermitted.into(), may_send_raw, who);
        assert!(told(false, Who::User).ends_with("CAP_NET_RAW (sudo)"));
        assert!(told(false, Who::Root).ends_with("CAP_NET_RAW"));
        assert!(told(false, Who::RootOfNamespace).ends_with("CAP_NET_RAW"));
        assert!(
            told(true, Who::RootOfNamespace).ends_with("outside of this user namespace"),
            "it has the right within"
        );
    }

    #[test]
    fn an_interface_that_is_down_is_not_taken_for_a_missing_right() {
        let down = uring::OpenError::InterfaceDown("lo".to_owned()).into();
        assert!(elsewhere(&down, true, Who::RootOfNamespace).ends_with("`ip link set lo up`"));
    }

    #[test]
    fn a_ring_that_is_refused_is_told_and_refuses_nothing() {
        let told = no_ring(&io::Error::from_raw_os_error(libc::EPERM));
        assert!(told.contains("io_uring_disabled"), "{told}");
        let refused = Verdict::Refused { reason: "no interface".to_owned(), remedy: None };
        assert_eq!(slower_without_ring(refused.clone()), refused);
        assert!(slower_without_ring(Verdict::runs_everywhere()).runs());
    }
}
