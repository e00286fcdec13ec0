//! Jobs whose frames carry a tag, or are encrypted.

use std::io::Read;
use std::os::fd::FromRawFd;

use sidelane_mpi::world::World;

use super::{output, pass, said, told};
use crate::stage::for_each_user;

const SECRET: &[u8] = b"nobody else is to read this";

/// Listens to all frames of its host, and tells whether one of them has the bytes of a message.
pub fn part_of_a_rank() {
    let mut world = World::init().unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: makes a descriptor, which is this file's then.
    let mut line = unsafe {
        let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        std::fs::File::from_raw_fd(socket)
    };
    let rank = world.rank();
    assert_eq!(pass(&mut world, SECRET), SECRET);
    let (mut frame, mut overheard) = (vec![0; 1 << 17], false);
    while let Ok(len) = line.read(&mut frame) {
        overheard |= frame[..len].windows(SECRET.len()).any(|part| part == SECRET);
    }
    println!("\ntold: {rank} {overheard}");
    world.finalize().unwrap();
}

#[test]
fn who_listens_reads_no_message_of_a_job_that_encrypts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        for driver in ["uring", "udp"] {
            for (protection, readable) in
                [(&[][..], true), (&["--protect", "authenticated"], true), (&["--protect", "encrypted"], false)]
            {
                let job = ["-n", "2", "--hosts", "lab", "--timeout", "60", "--nic", driver];
                let output = output(stage, &[&job, protection].concat(), "PART=secret");
                let mut lines = said(&output);
                lines.sort();
                assert_eq!(
                    lines,
                    [format!("0 {readable}"), format!("1 {readable}")],
                    "{driver} {protection:?}: {output:?}"
                );
                assert!(output.status.success(), "{output:?}");
            }
        }
        stage.text(&["lab", "down"]);
    });
}

#[test]
fn a_rank_that_was_told_of_another_protection_is_named() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        let other = "SIDELANE_PROTECTION=encrypted:no";
        let job = ["-n", "2", "--hosts", "lab", "--timeout", "60"];
        let (_, _, errors) = told(&output(stage, &[&job[..], &["-x", other]].concat(), "PART=secret"));
        assert!(errors.contains("SIDELANE_PROTECTION: write checked, authenticated:KEY or encrypted:KEY"), "{errors}");
        let program = stage.test_program();
        let script = format!(
            "test $PMI_RANK = 1 && unset SIDELANE_PROTECTION
             PART=secret exec {program} --exact run::part_of_a_rank --ignored --nocapture --quiet"
        );
        let arguments = [&["run"], &job[..], &["--protect", "encrypted", "sh", "-c", &script]].concat();
        let (_, _, errors) = told(&stage.output(&arguments));
        assert!(errors.contains("rank 1 has another SIDELANE_PROTECTION than rank 0"), "{errors}");
        stage.text(&["lab", "down"]);
    });
}
