//! What a frame does not cost on a DPDK device: callgrind counts the calls that a number of frames makes, and those that
//! twice the number does. Where there is no valgrind or no libdpdk, the test says so and passes.

use std::process::Command;

use sidelane_nic::dpdk::{Config, Dpdk};
use sidelane_nic::{Link, Nic, TxSlot};

/// How many frames go to and fro.
const FRAMES: &str = "SIDELANE_TEST_FRAMES";

#[test]
#[ignore = "runs under valgrind: the test below runs it there"]
fn inside() {
    let name = format!("memif:sidelane-profile-{}", std::process::id());
    let mut a = Dpdk::open(&Config::new(format!("{name},server"))).unwrap();
    let mut b = Dpdk::open(&Config::new(name)).unwrap();
    while !(a.link_is_up() && b.link_is_up()) {
        std::thread::yield_now();
    }
    let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
    for _ in 0..std::env::var(FRAMES).unwrap().parse().unwrap() {
        exchange(&mut a, to_b, &mut b);
        exchange(&mut b, to_a, &mut a);
    }
}

fn exchange(from: &mut Dpdk, link: Link, to: &mut Dpdk) {
    let mut slot = from.tx_slot(link, 8).expect("a slot, since the last frame is out");
    slot.copy_from_slice(b"a frame!");
    slot.commit();
    from.flush();
    while to.rx_burst(1, |frame, _| assert_eq!(frame, b"a frame!")) == 0 {}
}

#[test]
fn frames_take_no_lock_and_no_memory() {
    if let Err(error) = sidelane_dpdk_sys::load() {
        return println!("skipped: {error}");
    }
    if option_env!("RUSTFLAGS").is_some_and(|flags| flags.contains("sanitizer")) {
        return println!("skipped: valgrind and a sanitizer do not go together");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: there is no valgrind (Debian: valgrind)");
    }
    let [few, many] = [2_000, 4_000].map(calls);
    // Each frame is received by a call of the shim's: so many are seen, or nothing is.
    assert!(many.of_pmd >= few.of_pmd + 2_000, "{} and {} calls into the driver", few.of_pmd, many.of_pmd);
    for (name, of_many) in many.unwanted {
        let of_few = few.unwanted.iter().find(|(other, _)| *other == name).map_or(0, |(_, calls)| *calls);
        // Threads of DPDK's and the test's own make some, however many frames there are.
        assert!(of_many <= of_few + 100, "{name}: {of_few} calls, then {of_many}");
    }
}

struct Calls {
    /// From anywhere into memif's driver.
    of_pmd: u64,
    /// Of functions that lock, allocate, or enter the kernel, by name.
    unwanted: Vec<(String, u64)>,
}

/// Runs so many frames under callgrind and reads its call graph.
fn calls(frames: u32) -> Calls {
    let file = std::env::temp_dir().join(format!("sidelane-profile-{}-{frames}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "inside", "--ignored", "--nocapture"])
        .env(FRAMES, frames.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let graph = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
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
