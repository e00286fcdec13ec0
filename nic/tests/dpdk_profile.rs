//! What a frame does not cost on a DPDK device: callgrind counts the calls that frames make, and no others. Where there is no
//! valgrind or no libdpdk, the test says so and passes.

mod libdpdk;
mod patience;

use std::process::{Command, Stdio};

use patience::{SUITE_PATIENCE, ended, until};
use sidelane_nic::dpdk::{Config, Dpdk};
use sidelane_nic::{Link, Nic, TxSlot};

#[test]
#[ignore = "runs under valgrind: the test below runs it there"]
fn inside() {
    let name = format!("memif:sidelane-profile-{}", std::process::id());
    let mut a = Dpdk::open(&Config::new(format!("{name},server"))).unwrap();
    let mut b = Dpdk::open(&Config::new(name)).unwrap();
    until("the two meet", || a.link_is_up() && b.link_is_up());
    let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
    // The first ones may wait for the handler that let the two meet, and take their share of the packet buffers.
    for _ in 0..WARM_UP {
        exchange(&mut a, to_b, &mut b);
        exchange(&mut b, to_a, &mut a);
    }
    for _ in 0..FRAMES / 2 {
        counted_exchange(&mut a, to_b, &mut b);
        counted_exchange(&mut b, to_a, &mut a);
    }
}

/// Callgrind knows it by its name.
#[inline(never)]
fn counted_exchange(from: &mut Dpdk, link: Link, to: &mut Dpdk) {
    exchange(from, link, to);
}

fn exchange(from: &mut Dpdk, link: Link, to: &mut Dpdk) {
    for _ in 0..TRIES {
        let mut slot = from.tx_slot(link, 8).expect("a slot, since the last frame is out");
        slot.copy_from_slice(b"a frame!");
        slot.commit();
        from.flush();
        // It is in the ring by now. A device that may lose frames has lost one that is not.
        if (0..LOOKS).any(|_| to.rx_burst(1, |frame, _| assert_eq!(frame, b"a frame!")) > 0) {
            return;
        }
    }
    panic!("{TRIES} frames were lost, one after the other");
}

#[test]
fn frames_take_no_lock_and_no_memory() {
    if libdpdk::is_missing() {
        return;
    }
    if option_env!("RUSTFLAGS").is_some_and(|flags| flags.contains("sanitizer")) {
        return println!("skipped: valgrind and a sanitizer do not go together");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: there is no valgrind (Debian: valgrind)");
    }
    let calls = calls();
    // Each frame is sent by a call of the shim's, and received by one: so many are seen, or nothing is.
    assert!(calls.of_pmd >= 2 * FRAMES, "{} calls into the driver", calls.of_pmd);
    assert_eq!(calls.unwanted, []);
}

struct Calls {
    /// From anywhere into memif's driver.
    of_pmd: u64,
    /// Of functions that lock, allocate, or enter the kernel, by name.
    unwanted: Vec<(String, u64)>,
}

/// Runs the frames under callgrind and reads its call graph.
fn calls() -> Calls {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut valgrind = Command::new("valgrind")
        // Threads take turns: whoever spins keeps nobody else from running.
        .args(["--tool=callgrind", "--quiet", "--fair-sched=yes", "--compress-strings=no"])
        .args(["--toggle-collect=*counted_exchange*"])
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "inside", "--ignored", "--nocapture"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(ended("valgrind", &mut valgrind, SUITE_PATIENCE).success());
    let graph = std::fs::read_to_string(&file).unwrap();
    let mut calls = Calls { of_pmd: 0, unwanted: Vec::new() };
    let (mut object, mut function) = ("", "");
    // Callgrind's format: who is called (cob=, cfn=), then how often (calls=COUNT POSITION).
    for line in graph.lines() {
        if let Some(name) = line.strip_prefix("cob=") {
            object = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            function = name;
        } else if let Some(rest) = line.strip_prefix("calls=") {
            let count: u64 = rest.split(' ').next().unwrap().parse().unwrap();
            if object.contains("librte_net_memif") {
                calls.of_pmd += count;
            }
            if UNWANTED.iter().any(|part| function.contains(part)) {
                match calls.unwanted.iter_mut().find(|(name, _)| name == function) {
                    Some((_, sum)) => *sum += count,
                    None => calls.unwanted.push((function.to_owned(), count)),
                }
            }
            (object, function) = ("", "");
        }
    }
    calls
}

/// Parts of the names of what no frame may call.
const UNWANTED: [&str; 8] =
    ["malloc", "calloc", "realloc", "mutex_lock", "rwlock", "syscall", "nanosleep", "rte_mempool_create"];

/// Frames that are counted, half of them each way.
const FRAMES: u64 = 4_000;
/// As many as the rings of both hold.
const WARM_UP: u32 = 1_000;
/// Times that a frame is sent, and looks at each.
const TRIES: u32 = 1_000;
const LOOKS: u32 = 100;
