//! One guest: QEMU's command line, its process, and what comes over the serial lines.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::descriptors::{memory_file, path};
use super::{Accel, Binding, QemuError, Spec};
use crate::lab::{inherit, tie};

/// What comes from a guest, with its number.
#[derive(Debug)]
pub enum Event {
    /// It tells the lab something about itself.
    Stage(String),
    /// A line that the command printed.
    Line(String),
    /// The command ended with this code.
    Exit(i32),
    /// The guest cannot run it.
    Failed(String),
    /// The guest's output ended, and so did the guest.
    Gone,
}

/// A running guest. It is killed when this is dropped, or when the thread that started it ends.
pub struct Guest {
    child: Child,
    log: File,
    errors: File,
}

/// Cables: one end of each socket pair, for a guest of two.
pub struct Cables {
    /// Joins the NICs that are measured.
    pub wire: OwnedFd,
    /// Joins the NICs of the control network.
    pub control: OwnedFd,
}

/// Both ends of the cables between two guests.
pub fn cables() -> Result<[Cables; 2], QemuError> {
    let pair = || UnixStream::pair().map_err(|error| QemuError::System("make a socket pair", error));
    let (wire, control) = (pair()?, pair()?);
    Ok([
        Cables { wire: wire.0.into(), control: control.0.into() },
        Cables { wire: wire.1.into(), control: control.1.into() },
    ])
}

impl Guest {
    /// Starts guest number `index`. Its events go to `events`.
    pub fn start(
        spec: &Spec,
        accel: Accel,
        kernel: &Path,
        index: usize,
        disk: &[&[u8]],
        cables: Option<Cables>,
        events: Sender<(usize, Event)>,
    ) -> Result<Self, QemuError> {
        let system = |error| QemuError::System("start a guest", error);
        let disk = memory_file(disk).map_err(system)?;
        let (log, errors) = (memory_file(&[]).map_err(system)?, memory_file(&[]).map_err(system)?);
        // Not QEMU's own standard output: some of its devices print there.
        let (serial, far_end) = UnixStream::pair().map_err(system)?;
        let cable_numbers = cables.as_ref().map(|cables| (cables.wire.as_raw_fd(), cables.control.as_raw_fd()));
        let files = Files {
            kernel: kernel.to_string_lossy().into_owned(),
            disk: path(&disk),
            log: path(&log),
            serial: far_end.as_raw_fd(),
        };
        let mut command = Command::new(super::PROGRAM);
        command.args(arguments(spec, accel, index, &files, cable_numbers));
        // The numbers on the command line are those of the originals, so the copy is for us.
        let own_log = log.try_clone().map_err(system)?;
        let mut kept: Vec<OwnedFd> = vec![disk.into(), log.into(), far_end.into()];
        if let Some(Cables { wire, control }) = cables {
            kept.extend([wire, control]);
        }
        inherit(&mut command, kept);
        // Out of the terminal's foreground group: a Ctrl-C reaches us alone, and we end the guests.
        command.process_group(0);
        tie(&mut command);
        let copy = || errors.try_clone().map_err(system);
        let child = command.stdin(Stdio::null()).stdout(copy()?).stderr(copy()?).spawn().map_err(system)?;
        let output = BufReader::new(serial);
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                if events.send((index, Event::read(line.trim_end_matches('\r')))).is_err() {
                    return;
                }
            }
            let _ = events.send((index, Event::Gone));
        });
        Ok(Self { child, log: own_log, errors })
    }

    /// How it ended, once its output has. Ends it if it has not by itself.
    pub fn end(&mut self) -> std::io::Result<ExitStatus> {
        for _ in 0..ENDS_WITHIN_TURNS {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(TURN);
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// What QEMU complained about, and the end of the kernel's log.
    pub fn last_words(&self) -> String {
        let tail = |file: &File| {
            let mut bytes = vec![0; file.metadata().map_or(0, |metadata| metadata.len() as usize)];
            let read = file.read_at(&mut bytes, 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
        };
        [tail(&self.errors), tail(&self.log)].join("\n").trim().to_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Already dead is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Event {
    fn read(line: &str) -> Self {
        let Some(told) = line.strip_prefix("@lab ") else { return Self::Line(line.to_owned()) };
        match told.split_once(' ') {
            Some(("exit", code)) => Self::Exit(code.parse::<u8>().map_or(1, i32::from)),
            Some(("failed", reason)) => Self::Failed(reason.to_owned()),
            _ => Self::Stage(told.to_owned()),
        }
    }
}

/// Files of a guest by the paths under which QEMU opens them.
struct Files {
    kernel: String,
    disk: String,
    log: String,
    /// A socket, for the first serial line.
    serial: RawFd,
}

fn arguments(spec: &Spec, accel: Accel, index: usize, files: &Files, cables: Option<(RawFd, RawFd)>) -> Vec<String> {
    // The time-stamp counter of an emulated processor is the host's, which a kernel in a guest does not believe: it would
    // read the time from an emulated chip, at microseconds a reading.
    let mut append = "console=ttyS1 quiet panic=1 rdinit=/init tsc=reliable clocksource=tsc".to_owned();
    let mut list = vec!["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-cpu", "max"];
    list.extend(match accel {
        Accel::Kvm => ["-accel", "kvm"],
        Accel::Auto | Accel::Tcg => {
            // A fifth of what it takes to boot (bench/NOTES.md 69): to wipe whatever is allocated, and to prove the kernel's cryptography.
            append.push_str(" init_on_alloc=0 cryptomgr.notests");
            ["-accel", "tcg,thread=multi"]
        }
    });
    let mut list: Vec<String> = list.into_iter().map(str::to_owned).collect();
    let mut add = |name: &str, value: String| list.extend([name.to_owned(), value]);
    let mut behind = "";
    if spec.binding == Binding::Vfio {
        // QEMU's intel-iommu wants interrupts split between itself and KVM, and "caching-mode" for VFIO in the guest.
        add("-machine", "q35,kernel-irqchip=split".into());
        add("-device", "intel-iommu,intremap=on,caching-mode=on".into());
        append.push_str(" intel_iommu=on");
        behind = spec.model.behind_iommu();
    } else {
        add("-machine", "q35".into());
    }
    add("-smp", super::CORES.to_string());
    add("-m", MEMORY_MIB.to_string());
    add("-kernel", files.kernel.clone());
    add("-initrd", files.disk.clone());
    add("-append", append);
    add("-chardev", format!("socket,id=out,fd={}", files.serial));
    add("-serial", "chardev:out".into());
    add("-serial", format!("file:{}", files.log));
    let device = spec.model.device();
    for nic in 0..spec.nics {
        let (mac, slot) = (mac(index, nic), SLOT_FIRST + nic);
        add("-netdev", format!("hubport,id=port{nic},hubid=1"));
        add("-device", format!("{device},netdev=port{nic},mac={mac},addr={slot:#x},romfile={behind}"));
    }
    if let Some((wire, control)) = cables {
        add("-netdev", format!("socket,id=wire,fd={wire}"));
        add("-netdev", "hubport,id=uplink,hubid=1,netdev=wire".into());
        add("-netdev", format!("socket,id=control,fd={control}"));
        let mac = mac(index, 0xff);
        add("-device", format!("{device},netdev=control,mac={mac},addr={SLOT_CONTROL:#x},romfile={behind}"));
    }
    list
}

/// PCI address of a NIC, as `lspci` writes it.
pub fn pci_address(nic: usize) -> String {
    format!("0000:00:{:02x}.0", SLOT_FIRST + nic)
}

/// PCI address of the NIC of the control network.
pub fn control_address() -> String {
    format!("0000:00:{SLOT_CONTROL:02x}.0")
}

/// Address on the control network, as the hosts of other labs have it.
pub fn ip(index: usize) -> Ipv4Addr {
    crate::lab::Address::of_host(index).ip
}

/// Locally administered; the last two bytes are the guest's letter and the NIC's number.
fn mac(index: usize, nic: usize) -> String {
    format!("02:00:00:00:{:02x}:{nic:02x}", 0x0a + index)
}

/// PCI slots of our choice, above those of the machine's own devices.
const SLOT_FIRST: usize = 4;
const SLOT_CONTROL: usize = 0x10;
/// 256 for huge pages, 80 for the first file system twice while it is unpacked, the rest for the kernel and programs.
const MEMORY_MIB: usize = 768;
/// Lines of a log that are worth showing.
const LAST_LINES: usize = 25;
/// A guest powers off within a second of its last word.
const TURN: Duration = Duration::from_millis(20);
const ENDS_WITHIN_TURNS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;

    #[test]
    fn lines_to_the_lab_are_told_from_the_command_s() {
        assert!(matches!(Event::read("@lab exit 3"), Event::Exit(3)));
        for none in ["-9", "256", "", "x"] {
            assert!(matches!(Event::read(&format!("@lab exit {none}")), Event::Exit(1)), "{none}");
        }
        assert!(matches!(Event::read("@lab failed no NIC"), Event::Failed(reason) if reason == "no NIC"));
        assert!(matches!(Event::read("@lab up after 3 s"), Event::Stage(_)));
        assert!(matches!(Event::read("exit 3"), Event::Line(_)));
    }

    #[test]
    fn only_guests_of_two_have_cables() {
        let spec = Spec { model: Model::Vmxnet3, binding: Binding::Vfio, hosts: 1, nics: 3 };
        let files = || Files { kernel: "k".into(), disk: "d".into(), log: "l".into(), serial: 6 };
        let alone = arguments(&spec, Accel::Tcg, 0, &files(), None).join(" ");
        assert_eq!(alone.matches("vmxnet3,").count(), 3);
        assert!(!alone.contains("id=wire,fd") && alone.contains("intel-iommu") && alone.contains("intel_iommu=on"));
        let two = arguments(&Spec { hosts: 2, nics: 1, ..spec }, Accel::Tcg, 1, &files(), Some((7, 8))).join(" ");
        assert_eq!(two.matches("vmxnet3,").count(), 2);
        assert!(
            two.contains("id=wire,fd=7") && two.contains("id=control,fd=8") && two.contains("mac=02:00:00:00:0b:00")
        );
    }
}
