//! DPDK's environment as its process sees it. It starts once a process, so each test has one of its own. Where there is no libdpdk,
//! each test says so and passes.
#![allow(unsafe_code)] // A function of DPDK's by which its own buses tell.

mod libdpdk;
mod patience;

use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::process::{Command, Output};

use sidelane_nic::Nic;
use sidelane_nic::dpdk::{Config, Dpdk, OpenError};

#[test]
#[ignore = "runs in a process of its own: the test below starts it"]
fn started_with_a_wrong_argument() {
    let open = || Dpdk::open(&Config { eal: Some("--no-such-argument".to_owned()), ..Config::new("net_null0") });
    for _ in 0..2 {
        match open() {
            Err(OpenError::Environment { log, .. }) => println!("said: {log}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

#[test]
fn a_wrong_argument_is_told_and_nothing_is_printed() {
    if libdpdk::is_missing() {
        return;
    }
    let output = in_its_own_process("started_with_a_wrong_argument");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let said: Vec<&str> = printed.lines().filter_map(|line| line.split_once("said: ")).map(|(_, log)| log).collect();
    assert!(said.len() == 2 && said[0].contains("Invalid 'command line' arguments") && said[0] == said[1], "{printed}");
    assert!(!printed.contains("--lcores"), "{printed}");
}

#[test]
#[ignore = "runs in a process of its own: the test below starts it"]
fn started_with_a_place_for_folders() {
    let variables = || std::env::vars_os().collect::<Vec<_>>();
    let before = variables();
    drop(Dpdk::open(&Config::new("net_null0")).unwrap());
    assert_eq!(variables(), before);
}

#[test]
fn no_folder_is_made_that_a_killed_process_would_leave() {
    if libdpdk::is_missing() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    fs::create_dir(&folder).unwrap();
    // Of both, root's DPDK knows the first only.
    for variable in ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"] {
        // A folder tells of what was made in it and removed again, too.
        let changed = || fs::metadata(&folder).unwrap().modified().unwrap();
        let before = changed();
        let mut command = own_process("started_with_a_place_for_folders");
        let output = command.env_remove("RUNTIME_DIRECTORY").env(variable, &folder).output().unwrap();
        assert!(output.status.success(), "{variable}: {output:?}");
        assert_eq!(changed(), before, "{variable}: {:?}", fs::read_dir(&folder).unwrap().collect::<Vec<_>>());
    }
}

#[test]
#[ignore = "runs in a process of its own: the test below starts it"]
fn opened_until_there_is_no_memory() {
    let open =
        |number| Dpdk::open(&Config { mtu: Some(65_322), shared: true, ..Config::new(format!("net_null{number}")) });
    let mut open_ones = Vec::new();
    for number in 0..4 {
        match open(number) {
            Ok(nic) => open_ones.push(nic),
            Err(error) => return println!("said: {error}"),
        }
    }
    println!("skipped: there are hugepages for all of them");
}

#[test]
fn too_little_memory_is_told_with_what_helps() {
    if libdpdk::is_missing() {
        return;
    }
    let output = in_its_own_process("opened_until_there_is_no_memory");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let told = ["said: ", "nr_hugepages", "mtu="].iter().all(|part| printed.contains(part));
    assert!(told || printed.contains("skipped: there are hugepages"), "{printed}");
}

#[test]
fn a_driver_that_gives_no_reason_is_not_said_to_lack_permission() {
    if libdpdk::is_missing() {
        return;
    }
    let error = Dpdk::open(&Config::new("net_pcap_none,rx_pcap=/nowhere")).map(drop).unwrap_err().to_string();
    assert!(error.contains("no reason given") && error.contains("No such file"), "{error}");
}

#[test]
#[ignore = "runs in a process of its own: the test below starts it"]
fn told_of_removals() {
    let open = |device: &str| Dpdk::open(&Config::new(device)).unwrap();
    let (mut taken, mut kept) = (open("net_null_taken"), open("net_null_kept"));
    let is_gone = |nic: &mut Dpdk| {
        let link = nic.link("02:00:00:00:00:99/9".parse().unwrap()).unwrap();
        nic.is_gone(link)
    };
    assert!(!is_gone(&mut taken));
    tell(c"net_null_taken", ADDED);
    assert!(!is_gone(&mut taken));
    tell(c"net_null_taken", REMOVED);
    assert!(is_gone(&mut taken) && !is_gone(&mut kept));
    // One that has come back is another one.
    drop(taken);
    let mut back = open("net_null_taken");
    assert!(!is_gone(&mut back) && !is_gone(&mut kept));
    tell(c"net_null_taken", REMOVED);
    assert!(is_gone(&mut back) && !is_gone(&mut kept));
}

#[test]
fn a_device_that_is_taken_away_is_gone() {
    if libdpdk::is_missing() {
        return;
    }
    let output = in_its_own_process("told_of_removals");
    assert!(output.status.success(), "{output:?}");
}

/// Has DPDK hear what it hears from the kernel and from VFIO of a card.
fn tell(device: &CStr, event: c_int) {
    // SAFETY: libdpdk is loaded for all to see, as there is a device. The function is rte_dev.h's rte_dev_event_callback_process, and
    // takes what it takes there.
    unsafe {
        let process = libc::dlsym(libc::RTLD_DEFAULT, c"rte_dev_event_callback_process".as_ptr());
        assert!(!process.is_null());
        let process: unsafe extern "C" fn(*const c_char, c_int) = std::mem::transmute(process);
        process(device.as_ptr(), event);
    }
}

/// As in rte_dev.h's rte_dev_event_type.
const ADDED: c_int = 0;
const REMOVED: c_int = 1;

/// What a test that is ignored here prints and comes to there.
fn in_its_own_process(test: &str) -> Output {
    own_process(test).output().unwrap()
}

fn own_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", test]);
    command
}
