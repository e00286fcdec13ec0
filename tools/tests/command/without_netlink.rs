//! Where the kernel cannot be asked by netlink: as in sandboxes whose filter of system calls refuses it.
#![allow(unsafe_code)] // What happens between fork and exec: prctl(2), seccomp(2).

use std::io;
use std::os::unix::process::CommandExt;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use serde_json::Value;

use crate::stage::Stage;

/// From now on this process, and what it becomes, gets EPERM for each netlink socket (seccomp(2), seccomp_data).
fn refuse_netlink() -> io::Result<()> {
    let load = |at: u32| sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let skip_unless = |k: u32, jf: u8| sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: 0, jf, k };
    let end = |k: u32| sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k };
    let mut filter = [
        load(NUMBER),
        skip_unless(libc::SYS_socket as u32, 3),
        load(FIRST_ARGUMENT),
        skip_unless(libc::AF_NETLINK as u32, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is there until the kernel has copied it, in the second call; the first takes numbers.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where seccomp_data has what the filter looks at: the call's number, and the low half of its first argument.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

#[test]
fn the_doctor_says_what_is_unknown_and_why() {
    let stage = Stage::own_user();
    let said = |arguments: &[&str]| {
        let mut command = stage.sidelane(arguments);
        // SAFETY: it makes async-signal-safe system calls only.
        unsafe { command.pre_exec(refuse_netlink) };
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let report: Value = serde_json::from_str(&said(&["doctor", "--json"])).unwrap();
    for why in [&report["nics_unknown"], &report["dpdk"]["routes_unknown"]] {
        assert!(why.as_str().unwrap().contains("not permitted"), "{report}");
    }
    let with_interface = |card: &&Value| card["interfaces"] != Value::Array(Vec::new());
    let mut cards = report["dpdk"]["cards"].as_array().unwrap().iter().filter(with_interface);
    assert!(cards.all(|card| card["in_use"].is_null()), "{report}");
    let text = said(&["doctor"]);
    assert!(text.contains("\nNICs, and XDP on them: unknown, Operation not permitted"), "{text}");
    stage.assert_nothing_is_left();
}
