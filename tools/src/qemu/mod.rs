//! Labs of emulated machines: one or two guests of QEMU with real PCI NIC models, a Debian kernel, and this very program
//! inside, to prove the drivers where there is no such NIC.
//!
//! The NICs that are measured hang on one wire; two guests have a second NIC each, driven by the kernel, through which a
//! ladder talks to its peer and over which the kernel's rungs run. Nothing of a guest has a name in a file system: disks
//! are files in memory, cables are socket pairs, and QEMU dies with the thread that started it.

mod archive;
mod descriptors;
mod error;
mod guest;
mod image;
mod kernel;
mod model;

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::ValueEnum;

pub use error::QemuError;
pub use kernel::Kernel;
pub use model::{Binding, Model};

use guest::{Event, Guest};

/// What the guests shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Their NICs.
    pub model: Model,
    /// What the NICs that are measured are bound to.
    pub binding: Binding,
    /// One guest, or two.
    pub hosts: usize,
    /// NICs on the wire, in each guest.
    pub nics: usize,
}

/// How the guests' instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// By the processor where KVM works, else by emulation
    Auto,
    /// By the processor
    Kvm,
    /// By emulation
    Tcg,
}

/// Something that happens while a command runs.
#[derive(Debug)]
pub enum News<'a> {
    /// A guest tells how far it is.
    Stage(char, &'a str),
    /// The command printed a line.
    Line(&'a str),
    /// Guest B's command printed a line.
    Beside(&'a str),
}

/// The lab's parts that do not change between two runs.
#[derive(Debug)]
pub struct Qemu {
    kernel: Kernel,
    accel: Accel,
}

impl Qemu {
    /// Checks that QEMU is here, and how it can run.
    pub fn new(kernel: Kernel, accel: Accel) -> Result<Self, QemuError> {
        if image::find(PROGRAM).is_none() {
            return Err(QemuError::Missing { what: PROGRAM.to_owned(), package: "qemu-system-x86" });
        }
        let accel = match accel {
            Accel::Auto if kvm_works() => Accel::Kvm,
            Accel::Auto => Accel::Tcg,
            chosen => chosen,
        };
        Ok(Self { kernel, accel })
    }

    /// True when a processor executes the guests.
    pub fn is_accelerated(&self) -> bool {
        self.accel == Accel::Kvm
    }

    /// Boots the guests, runs `command` in A, and `beside` in B if there is a B; returns the exit code of `command`.
    /// Every guest is gone when this returns, which it does within `limit`.
    pub fn run(
        &self,
        spec: &Spec,
        command: &[OsString],
        beside: &[OsString],
        limit: Duration,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<i32, QemuError> {
        assert!((1..=2).contains(&spec.hosts) && (1..=NICS_MAX).contains(&spec.nics), "{spec:?} is no lab");
        let until = Instant::now() + limit;
        let base = image::base(&self.kernel, spec.model, spec.binding)?;
        let mut cables: Vec<_> = if spec.hosts == 2 { guest::cables()?.map(Some).into() } else { vec![None] };
        let (events_in, events) = mpsc::channel();
        let mut guests = Vec::new();
        for (index, cables) in cables.drain(..).enumerate() {
            let own = image::own(&self.settings(spec, index)?, if index == 0 { command } else { beside });
            let disk = [&base[..], &own[..]];
            let events = events_in.clone();
            guests.push(Guest::start(spec, self.accel, &self.kernel.image, index, &disk, cables, events)?);
        }
        drop(events_in);
        let mut last_of_b: Vec<String> = Vec::new();
        loop {
            let event = events.recv_timeout(until.saturating_duration_since(Instant::now()));
            let died = |guests: &mut Vec<Guest>, index: usize, reason: String| {
                let log = [guests[index].last_words(), last_of_b.join("\n")].join("\n");
                QemuError::Died { host: letter(index), reason, log: log.trim().to_owned() }
            };
            match event {
                Ok((index, Event::Stage(text))) => tell(News::Stage(letter(index), &text)),
                Ok((0, Event::Line(text))) => tell(News::Line(&text)),
                Ok((_, Event::Line(text))) => {
                    tell(News::Beside(&text));
                    last_of_b.push(text);
                    if last_of_b.len() > LINES_OF_B {
                        last_of_b.remove(0);
                    }
                }
                Ok((0, Event::Exit(code))) => return Ok(code),
                Ok((index, Event::Exit(code))) => {
                    return Err(died(&mut guests, index, format!("its command ended with code {code}")));
                }
                Ok((index, Event::Failed(reason))) => return Err(died(&mut guests, index, reason)),
                Ok((index, Event::Gone)) => {
                    let status =
                        guests[index].end().map_or_else(|error| error.to_string(), |status| status.to_string());
                    return Err(died(&mut guests, index, format!("QEMU ended with {status}")));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(QemuError::Late(limit, [guests[0].last_words(), last_of_b.join("\n")].join("\n")));
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("every guest says that it is gone"),
            }
        }
    }

    /// What `init.sh` reads, and the environment of the command.
    fn settings(&self, spec: &Spec, index: usize) -> Result<Vec<(&'static str, String)>, QemuError> {
        let control = spec.hosts == 2;
        let names = |modules| -> Result<String, QemuError> {
            let modules = self.kernel.modules(modules)?;
            Ok(modules.iter().map(|module| &*module.name).collect::<Vec<_>>().join(" "))
        };
        let bypass = spec.binding.modules();
        let kernel_driven = if control || spec.binding == Binding::Kernel { spec.model.modules() } else { &[] };
        let nics: Vec<String> = (0..spec.nics).map(guest::pci_address).collect();
        let mut settings = vec![
            ("NICS", nics.join(" ")),
            ("BIND", spec.binding.driver().unwrap_or_default().to_owned()),
            ("BYPASS_MODULES", names(bypass)?),
            ("KERNEL_MODULES", names(kernel_driven)?),
            ("SIDELANE_HOST", letter(index).to_string()),
        ];
        if control {
            settings.extend([
                ("CONTROL_NIC", guest::control_address()),
                ("CONTROL_IP", guest::ip(index).to_string()),
                ("SIDELANE_A_IP", guest::ip(0).to_string()),
                ("SIDELANE_B_IP", guest::ip(1).to_string()),
            ]);
            if index == 0 {
                settings.push(("SIDELANE_PEER", guest::ip(1).to_string()));
            }
        }
        Ok(settings)
    }
}

/// Whether a virtual processor can be made with KVM: some clouds have the device, but not all that QEMU asks of it. One that does without
/// the processor's help (kvm-pvm) runs only guests made for it: others start, and their kernel never comes up.
fn kvm_works() -> bool {
    if !std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|info| virtualises(&info)) {
        return false;
    }
    let arguments = "-accel kvm -cpu max -machine q35 -nodefaults -display none -S -monitor stdio";
    let mut command = Command::new(PROGRAM);
    command.args(arguments.split(' ')).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    crate::lab::tie(&mut command);
    let Ok(mut child) = command.spawn() else { return false };
    let asked = child.stdin.take().map(|mut monitor| monitor.write_all(b"quit\n"));
    let ended = child.wait().is_ok_and(|status| status.success());
    matches!(asked, Some(Ok(()))) && ended
}

/// Whether the processors that `info` tells of, as /proc/cpuinfo does, have Intel's or AMD's virtualisation.
fn virtualises(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

fn letter(index: usize) -> char {
    (b'A' + index as u8) as char
}

/// Virtual cores of a guest. Guests that share a wire share this machine too, and their sides poll.
const CORES: usize = 2;

/// Most NICs that a guest can have on the wire: PCI slots up to that of the control network.
pub const NICS_MAX: usize = 8;
const PROGRAM: &str = "qemu-system-x86_64";
/// Of what B printed, for when it fails.
const LINES_OF_B: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_virtualisation_runs_no_guest_by_itself() {
        let info = |flags: &str| format!("processor\t: 0\nflags\t\t: fpu {flags} sse2\nbugs\t\t: vmx\n");
        assert!(virtualises(&info("vmx")) && virtualises(&info("svm")));
        assert!(!virtualises(&info("vmx_flag tsc")) && !virtualises(""));
    }
}
