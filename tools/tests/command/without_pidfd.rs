//! Where processes cannot be had as descriptors: before Linux 5.3, and in sandboxes whose filter of system calls refuses it.

use std::process::Output;

use sidelane::lab::process::Process;

use crate::filter::refuse;
use crate::stage::{Stage, for_each_user};

const OPEN: libc::c_long = libc::SYS_pidfd_open;
const SEND: libc::c_long = libc::SYS_pidfd_send_signal;

/// A command that leaves another one running, where `calls` are refused.
fn leave_one(stage: &Stage, calls: &[libc::c_long], errno: libc::c_int) -> Output {
    let leaves = "sleep 1000 >/dev/null 2>&1 & exit 3";
    let mut command = stage.sidelane(&["lab", "run", "--", "sh", "-c", leaves]);
    calls.iter().for_each(|call| refuse(&mut command, *call, None, errno));
    command.output().unwrap()
}

#[test]
fn what_a_run_leaves_in_the_background_is_ended_without_pidfds() {
    for_each_user(|stage| {
        for (calls, errno) in
            [(&[OPEN, SEND][..], libc::ENOSYS), (&[OPEN], libc::EPERM), (&[SEND], libc::EPERM), (&[SEND], libc::ENOSYS)]
        {
            let output = leave_one(stage, calls, errno);
            assert_eq!((output.status.code(), stage.processes()), (Some(3), Vec::new()), "{calls:?}: {output:?}");
        }
    });
}

#[test]
fn a_run_says_so_when_it_may_not_end_what_was_left() {
    for_each_user(|stage| {
        let output = leave_one(stage, &[SEND, libc::SYS_kill], libc::EPERM);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("cannot end what the command left running: Operation not permitted"), "{errors}");
        assert_eq!(output.status.code(), Some(3), "the command's own");
        for left in stage.processes().into_iter().filter_map(Process::open) {
            left.signal(libc::SIGKILL).unwrap();
        }
    });
}
