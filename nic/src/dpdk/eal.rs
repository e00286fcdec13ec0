//! DPDK's environment (EAL), started once a process with what the machine has.

use std::sync::{Mutex, PoisonError};

use super::device::Device;
use super::pci::Claim;
use super::pipes::Quiet;
use super::sys::{Shim, take_log};
use super::{OpenError, hugepages, pci};
use crate::affinity;

/// The environment of this process.
#[derive(Clone, Copy)]
pub struct Eal {
    pub shim: Shim,
    /// Memory is in hugepages.
    pub hugepages: bool,
    /// PCI devices can be had.
    pub pci: bool,
}

/// The environment, started by the first call for `device`, with `extra` arguments from who knows better.
/// With it comes the claim to a card.
pub fn up(device: &Device, extra: Option<&str>) -> Result<(Eal, Option<Claim>), OpenError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let hugepages = match &*started {
        Some(Ok(eal)) => eal.hugepages,
        Some(Err(error)) => return Err(error.clone()),
        None => {
            // Nobody gives a card away to hear only then that DPDK is not there.
            Shim::load()?;
            hugepages::suffice()
        }
    };
    // Before the environment starts, since that takes hold of the card, and its refusal is final: it can't be started a second time.
    let claim = (device.bus == "pci").then(|| pci::claim(&device.name, hugepages)).transpose()?;
    let card = claim.is_some().then_some(device);
    let eal = started.get_or_insert_with(|| start(card, hugepages, extra)).clone()?;
    if device.bus == "pci" && !eal.pci {
        return Err(OpenError::NoPciHere(device.name.clone()));
    }
    Ok((eal, claim))
}

/// Starts it for virtual devices, to know whether it does.
pub fn up_without_device() -> Result<(), OpenError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.get_or_insert_with(|| start(None, hugepages::suffice(), None)).clone().map(|_| ())
}

/// Started once, whatever came of it.
static STARTED: Mutex<Option<Result<Eal, OpenError>>> = Mutex::new(None);

fn start(card: Option<&Device>, hugepages: bool, extra: Option<&str>) -> Result<Eal, OpenError> {
    let shim = Shim::load()?;
    // The prefix names nothing: neither kind of memory has files, and no folder is made for them (dpdk-sys/shim/start.c).
    let prefix = format!("sidelane-{}", std::process::id());
    let mut arguments: Vec<String> =
        ["sidelane", "--no-telemetry", "--file-prefix", &prefix].map(str::to_owned).to_vec();
    arguments.extend(["--lcores".to_owned(), format!("0@({})", allowed_cores())]);
    let memory: &[&str] =
        if hugepages { &["--in-memory", "-m", HUGE_MIB] } else { &["--no-huge", "--no-shconf", "-m", NO_HUGE_MIB] };
    arguments.extend(memory.iter().map(|word| (*word).to_owned()));
    // memif without a copy and virtio_user hand descriptors of memory to the other side. Without hugepages it is in one file anyway
    // (eal_legacy_hugepage_init), but memif's driver does not hear of it (memif_set_zc).
    arguments.push("--single-file-segments".to_owned());
    if let Some(card) = card {
        // On the list from the start, since what it is bound to decides about the kind of addresses.
        arguments.extend(["-a".to_owned(), allowed_card(card)]);
    } else {
        arguments.push("--no-pci".to_owned());
    }
    arguments.extend(extra.unwrap_or_default().split_whitespace().map(str::to_owned));
    tracing::debug!(target: "dpdk", "{} starts with {arguments:?}", shim.version());
    take_log();
    // In a thread of its own: it takes the place of DPDK's main thread, and whatever becomes of its affinity.
    let start = || {
        // Its threads are quiet, as this one is.
        Quiet::begin().for_good();
        shim.eal_up(&arguments)
    };
    let outcome = std::thread::scope(|scope| scope.spawn(start).join())
        .unwrap_or_else(|_| Err(std::io::Error::other("DPDK's environment panicked")));
    match outcome {
        Ok(()) => Ok(Eal { shim, hugepages, pci: card.is_some() }),
        Err(error) => Err(OpenError::Environment { error: error.to_string(), log: last_words(&take_log()) }),
    }
}

/// A card with its own arguments, which its driver reads when the environment starts.
fn allowed_card(Device { name, args, .. }: &Device) -> String {
    if args.is_empty() { name.clone() } else { format!("{name},{args}") }
}

/// The last lines of a log, of those that say more than that something was tried.
pub fn last_words(log: &str) -> String {
    const LINES: usize = 4;
    const IDLE: [&str; 7] = [
        // Said of the folder that it is kept from making.
        "'/dev/null/dpdk'",
        "No DPDK runtime directory created",
        // Said by every memif and tap, since there are no files shared with secondary processes.
        "mp action",
        // Said behind each reason why a device could not be attached.
        "EAL: Driver cannot attach the device",
        "EAL: Failed to attach device",
        "EAL: Device is not probed",
        // Said of a port that is put away before it was started.
        "already stopped",
    ];
    let idle = |line: &str| line.is_empty() || IDLE.iter().any(|words| line.contains(words));
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !idle(line)).collect();
    lines[lines.len().saturating_sub(LINES)..].join("; ")
}

/// The cores that this thread may run on, as a list: `0,1,8`. Not those of `/proc/self/status`, among which are some that are
/// offline or never were: the environment refuses them.
fn allowed_cores() -> String {
    let cores = affinity::cores().into_iter().filter(|core| *core < EAL_CORES_MAX);
    cores.map(|core| core.to_string()).collect::<Vec<_>>().join(",")
}

/// Numbers of cores are below it (eal_common_options.c, eal_parse_set: `CPU_SETSIZE`).
const EAL_CORES_MAX: usize = libc::CPU_SETSIZE as usize;
/// [`hugepages::NEEDED`], taken at once; more is added as ports need it.
const HUGE_MIB: &str = "64";
/// All that there will be; pages that are not used cost nothing.
pub const NO_HUGE_MIB: &str = "512";

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn last_words_are_the_last_lines() {
        assert_eq!(last_words("a\nb\n\nc\nd\n e \n"), "b; c; d; e");
        assert_eq!(last_words(""), "");
        let behind = "Device with port_id=0 already stopped\nEAL: Driver cannot attach the device (net_x)\n\
            EAL: Failed to attach device on primary process\nEAL: Device is not probed\n";
        assert_eq!(last_words(&format!("why\n{behind}")), "why");
    }

    #[test]
    fn a_card_s_arguments_are_those_of_its_string() {
        let allowed = |text| allowed_card(&Device::read(&Config::new(text), 0).unwrap());
        assert_eq!(allowed("3b:00.1,rx_vec_en=0,devargs=1"), "0000:3b:00.1,rx_vec_en=0,devargs=1");
        assert_eq!(allowed("3b:00.1"), "0000:3b:00.1");
    }

    #[test]
    fn cores_are_a_list_of_numbers() {
        let cores = std::thread::spawn(|| {
            let last = *affinity::cores().last().expect("a thread runs somewhere");
            affinity::pin_to(last).map(|()| (last, allowed_cores()))
        });
        let (last, cores) = cores.join().unwrap().unwrap();
        assert_eq!(cores, last.to_string());
        let all: Vec<String> = affinity::cores().iter().map(usize::to_string).collect();
        assert_eq!(allowed_cores(), all.join(","));
    }
}
