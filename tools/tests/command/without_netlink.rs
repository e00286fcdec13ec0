//! Where the kernel cannot be asked by netlink: as in sandboxes whose filter of system calls refuses it.

use serde_json::Value;

use crate::filter::refuse;
use crate::stage::Stage;

#[test]
fn the_doctor_says_what_is_unknown_and_why() {
    let stage = Stage::own_user();
    let said = |arguments: &[&str]| {
        let mut command = stage.sidelane(arguments);
        refuse(&mut command, libc::SYS_socket, Some(libc::AF_NETLINK as u32), libc::EPERM);
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
