//! What root can do here, nobody can: labs in user namespaces, shared memory, loopback.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::stage::{self, PROGRAM};

/// The kernel's overflow id: nobody on every Linux.
const NOBODY: u32 = 65_534;

#[test]
fn nobody_sends_as_root_does() {
    let place = tempfile::Builder::new().prefix("sidelane-e2e").tempdir().unwrap();
    if fs::metadata(place.path()).unwrap().uid() != 0 {
        println!("skipped: not root, so all tests were the ordinary user's");
        return;
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // By another process: what this one writes cannot be run (ETXTBSY) while a process that another test starts has a copy of the
    // descriptor, until its exec.
    let copy = |from: &Path, name: &str| {
        let to = place.path().join(name);
        assert!(Command::new("cp").arg("-p").arg(from).arg(&to).status().unwrap().success());
        to
    };
    let program = copy(Path::new(&stage::program()), "sidelane");
    let tests = copy(&std::env::current_exe().unwrap(), "e2e");
    let mut again = Command::new(tests);
    again.args(["super_packets", "every_driver", "restarted", "--nocapture", "--test-threads", "1"]);
    let _turn = stage::turn();
    let status = again.env(PROGRAM, program).uid(NOBODY).gid(NOBODY).current_dir("/").status().unwrap();
    assert!(status.success(), "as nobody: {status}");
}
