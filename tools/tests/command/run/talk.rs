//! Ranks hear each other.

use std::time::Instant;

use super::{job, output, own_stage, said, said_in, shells, told};
use crate::stage::{Stage, for_each_user};

#[test]
fn messages_go_round_between_ranks_of_one_host() {
    for stage in Stage::each_user() {
        for ranks in ["1", "2", "9"] {
            let output = output(&stage, &["-n", ranks, "--timeout", "60"], "PART=ring");
            assert_eq!(said(&output).len().to_string(), ranks, "{output:?}");
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
        stage.assert_nothing_is_left();
    }
}

#[test]
fn messages_go_round_between_hosts_by_each_driver() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        // In a user namespace only its own root may load XDP programs, and the kernel wants the first one's.
        let drivers: &[&[&str]] = &[&[], &["--nic", "udp"], &["--nic", "uring:veth0,endpoint=40"], &["--nic", "xdp"]];
        for driver in &drivers[..if stage.in_user_namespace() { 3 } else { 4 }] {
            let options = [&["-n", "5", "--hosts", "lab", "--timeout", "60"], *driver].concat();
            let output = output(stage, &options, "PART=ring");
            assert_eq!(said(&output).len(), 5, "{driver:?}: {output:?}");
            assert!(output.status.success() && output.stderr.is_empty(), "{driver:?}: {output:?}");
        }
        let options = ["-n", "2", "--hosts", "lab", "-x", "SIDELANE_VERBOSE=1"];
        let why = String::from_utf8(output(stage, &options, "PART=ring").stderr).unwrap();
        assert!(why.contains("rank 1: other hosts by uring:veth0: 10.79.0.0/24 is a network of all hosts"), "{why}");
        for one_host in ["mem:", "uring:lo", "udp:127.0.0.1:0"] {
            let options = ["-n", "2", "--hosts", "lab", "--timeout", "60", "--nic", one_host];
            let (_, _, errors) = told(&output(stage, &options, "PART=ring"));
            assert!(errors.contains(&format!("SIDELANE_NIC={one_host} reaches no other host")), "{errors}");
        }
        stage.text(&["lab", "down"]);
    });
}

/// Frames of the second rank leave by an interface behind which nobody is.
#[test]
fn a_rank_that_no_frame_reaches_is_named_with_what_may_help() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        let program = stage.test_program();
        let script = format!(
            "if test $PMI_RANK = 1; then
                 ip link add far0 type veth peer name far1 && ip link set far0 up && ip link set far1 up
                 export SIDELANE_NIC=uring:far0
             fi
             PART='wrong rank' exec {program} --exact run::part_of_a_rank --ignored --nocapture --quiet"
        );
        let job = ["-n", "2", "--hosts", "lab", "--timeout", "60", "-x", "SIDELANE_SILENCE=0.2"];
        let (code, _, errors) = told(&stage.output(&[&["run"], &job[..], &["sh", "-c", &script]].concat()));
        assert!(code != Some(0), "{errors}");
        let told = "has never answered by uring:";
        assert!(errors.contains(told) && errors.contains("SIDELANE_NIC=udp"), "{errors}");
        stage.text(&["lab", "down"]);
    });
}

#[test]
fn sixty_four_ranks_talk() {
    own_stage(|stage| {
        let began = Instant::now();
        let output = output(stage, &["-n", "64", "--timeout", "100"], "PART=ring");
        assert_eq!(said(&output).len(), 64, "{output:?}");
        println!("64 ranks: {:?}", began.elapsed());
    });
}

#[test]
fn ranks_tell_each_other_what_they_will() {
    for stage in Stage::each_user() {
        let output = output(&stage, &["-n", "4"], "PART=exchange");
        let mut lines = said(&output);
        lines.sort();
        assert_eq!(lines, ["0/4 0,1,2,3", "1/4 0,1,2,3", "2/4 0,1,2,3", "3/4 0,1,2,3"], "{output:?}");
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{output:?}");
        stage.assert_nothing_is_left();
    }
}

#[test]
fn hosts_of_a_lab_are_hosts_of_a_job() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        for (options, wanted) in [
            (["-n", "4", "--hosts", "lab"], "0A,1A,2B,3C"),
            (["-n", "2", "--hosts", "A,C"], "0A,1C"),
            (["-n", "3", "--hosts", "lab:B"], "0B,1B,2B"),
        ] {
            let output = output(stage, &options, "PART=exchange");
            let lines = said(&output);
            assert_eq!(lines.len(), wanted.split(',').count(), "{output:?}");
            assert!(lines.iter().all(|line| line.ends_with(wanted)), "{lines:?}");
        }
        let (code, _, errors) = shells(stage, &["-n", "2", "--hosts", "A,B"], "[ $SIDELANE_HOST = A ] || exit 5");
        assert_eq!(code, Some(5));
        assert!(errors.contains("rank 1 on host B ended with exit code 5"), "{errors}");
        let (code, began, errors) = shells(stage, &["-n", "30", "--hosts", "A,Z"], "echo $SIDELANE_HOST");
        assert!(code == Some(1) && errors.contains("no host `Z`"), "{errors}");
        assert_eq!(began, "", "no rank is started where another one cannot be");
        stage.text(&["lab", "down"]);
    });
}

#[test]
fn sixty_four_ranks_begin_and_end() {
    own_stage(|stage| {
        let output = output(stage, &["-n", "64"], "PART=exchange");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(said(&output).len(), 64);
    });
}

/// As Python's subprocess closes what it does not know of.
#[test]
fn who_has_lost_the_launchers_descriptor_is_told_what_to_do() {
    own_stage(|stage| {
        let rank = [&stage.test_program(), "--exact", "run::part_of_a_rank", "--ignored", "--nocapture", "--quiet"];
        let script = format!("eval \"exec $PMI_FD>&-\"; PART=exchange exec {}", rank.join(" "));
        let (code, lines, errors) = shells(stage, &["-n", "1", "--timeout", "60"], &script);
        let advice = "close_fds=False), or set SIDELANE_ALONE=1 for a job of its own";
        assert!(code == Some(101) && errors.contains(advice), "{code:?} {lines}{errors}");
        let alone = script.replace("PART=", "SIDELANE_ALONE=1 PART=");
        let (code, lines, errors) = shells(stage, &["-n", "2", "--timeout", "60"], &alone);
        let each: Vec<_> = lines.lines().filter_map(said_in).collect();
        assert_eq!((code, each), (Some(0), vec!["0/1 0"; 2]), "{errors}");
        // What the user has set for other launchers' ranks is not said of ours.
        let arguments = job(stage, &["-n", "2"], "PART=exchange");
        let mut command = stage.sidelane(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let mut together = said(&command.env("SIDELANE_ALONE", "1").output().unwrap());
        together.sort_unstable();
        assert_eq!(together, ["0/2 0,1", "1/2 0,1"]);
    });
}
