//! Where processes cannot be had as descriptors: before Linux 5.3, and in sandboxes whose filter of system calls refuses it.

use std::process::Output;

use sidelane::lab::process::Process;

use crate::filter::refuse;
use crate::stage::{Stage, for_each_user};

const OPEN: libc::c_long = libc::SYS_pidfd_open;
const SEND: libc::c_long = libc::SYS_pidfd_send_signal;

/// What starts a command, and how it says that it could not end what that has left.
const WAYS: [(&[&str], &str); 2] = [
    (&["lab", "run"], "cannot end what the command left running: Operation not permitted"),
    (&["run", "-n", "1"], "cannot end what ranks left behind: Operation not permitted"),
];

/// A command that leaves another one running, where `calls` are refused.
fn leave_one(stage: &Stage, way: &[&str], calls: &[libc::c_long], errno: libc::c_int) -> Output {
    let mut command = stage.sidelane(way);
    command.args(["--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 3"]);
    calls.iter().for_each(|call| refuse(&mut command, *call, None, errno));
    command.output().unwrap()
}

#[test]
fn what_is_left_in_the_background_is_ended_without_pidfds() {
    let refused: [(&[_], _); 4] =
        [(&[OPEN, SEND], libc::ENOSYS), (&[OPEN], libc::EPERM), (&[SEND], libc::EPERM), (&[SEND], libc::ENOSYS)];
    for_each_user(|stage| {
        for (way, _) in WAYS {
            for (calls, errno) in refused {
                let output = leave_one(stage, way, calls, errno);
                let left = stage.processes();
                assert_eq!((output.status.code(), left), (Some(3), Vec::new()), "{way:?} {calls:?}: {output:?}");
            }
        }
    });
}

#[test]
fn what_is_left_and_may_not_be_ended_is_told() {
    for_each_user(|stage| {
        for (way, words) in WAYS {
            let output = leave_one(stage, way, &[SEND, libc::SYS_kill], libc::EPERM);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(errors.contains(words), "{errors}");
            assert_eq!(output.status.code(), Some(3), "the command's own");
            for left in stage.processes().into_iter().filter_map(Process::open) {
                left.signal(libc::SIGKILL).unwrap();
            }
        }
    });
}
