//! How jobs end by themselves.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sidelane::lab::process::Process;

use super::{errors, output, own_stage, shells, told};
use crate::patience::until;
use crate::stage::signal;

#[test]
fn the_rank_that_failed_is_named_and_its_code_is_the_jobs() {
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 2 ] && exit 3; exec sleep 1000";
        let (code, _, errors) = shells(stage, &["-n", "4"], script);
        assert_eq!(code, Some(3));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let wanted = format!("sidelane run: rank 2 on host {} ended with exit code 3; the job is ended\n", host.trim());
        assert_eq!(errors, wanted, "one message and no other");

        let (code, _, errors) = shells(stage, &["-n", "4"], "[ $PMI_RANK = 1 ] && kill -9 $$; exec sleep 1000");
        assert_eq!(code, Some(137));
        assert!(errors.contains("rank 1 ") && errors.contains("was killed by SIGKILL (signal 9)"), "{errors}");
    });
}

#[test]
fn ranks_that_fail_within_a_moment_are_all_named() {
    own_stage(|stage| {
        let gate = stage.runtime().join("gate");
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        let script = format!("exec 3< {}; echo $$; read line <&3; exit $((5 + PMI_RANK))", gate.display());
        let mut command = stage.sidelane(&["run", "-n", "3", "sh", "-c", &script]);
        let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut gate = std::fs::OpenOptions::new().read(true).write(true).open(gate).unwrap();
        let lines = BufReader::new(job.stdout.take().unwrap()).lines().take(3);
        let ranks: Vec<_> = lines.map(|pid| Process::open(pid.unwrap().parse().unwrap()).unwrap()).collect();
        // It hears of all ends at once, and of those the kernel tells in the order in which it started them.
        signal(&job, libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", job.id());
        until("the job is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
        gate.write_all(b"\n\n\n").unwrap();
        assert!(ranks.iter().all(|rank| rank.wait(Duration::from_secs(60))));
        signal(&job, libc::SIGCONT);
        let (text, code) = (errors(&mut job), job.wait().unwrap().code().unwrap());
        let named = "ended with exit code 5, seen first; ranks 1 and 2 failed at about";
        assert!(code == 5 && text.starts_with("sidelane run: rank 0 on host "), "{code}: {text}");
        assert!(text.contains(named) && text.lines().count() == 1, "{text}");
    });
}

/// What it said could be another thing than what it began to say.
#[test]
fn half_a_line_of_a_rank_that_has_died_says_nothing() {
    own_stage(|stage| {
        let begun = "echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; read reply <&$PMI_FD; printf %s";
        for half in ["cmd=fin", "cmd=finalize", "cmd=abort exitcode=1"] {
            let script = format!("{begun} '{half}' >&$PMI_FD; kill -9 $$");
            let (code, _, errors) = shells(stage, &["-n", "1"], &script);
            assert!(
                code == Some(137) && errors.contains("was killed by SIGKILL (signal 9)"),
                "{half}: {code:?} {errors}"
            );
        }
    });
}

/// It would fill the launcher's memory, or keep it from hearing others and signals.
#[test]
fn a_rank_that_asks_and_never_reads_ends_the_job() {
    own_stage(|stage| {
        let script =
            "echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; while echo cmd=get_maxes; do :; done >&$PMI_FD";
        let (code, _, errors) = shells(stage, &["-n", "1", "--timeout", "60"], script);
        assert!(
            code == Some(1) && errors.contains("rank 0 ") && errors.contains("it does not read"),
            "{code:?} {errors}"
        );
    });
}

/// What it has started may still have the connection, and what never had it may run as long as it likes.
#[test]
fn a_rank_that_closes_its_connection_and_goes_on_ends_a_job_that_counts_on_it() {
    own_stage(|stage| {
        let script = "say() { echo cmd=$1 >&$PMI_FD; read reply <&$PMI_FD; }
            close() { eval \"exec $PMI_FD>&-\"; }
            case $PMI_RANK in
                0) close; exec sleep 1000;;
                1) say 'init pmi_version=1 pmi_subversion=1'; sleep 1000 & close; wait;;
                2) say 'init pmi_version=1 pmi_subversion=1'; ${WAITS+say barrier_in}; sleep 1000;;
                3) say 'init pmi_version=1 pmi_subversion=1'; ${WAITS-close}; exec sleep 1000;;
            esac";
        let said = "broke the launcher's protocol: it closed its connection before MPI_Finalize; the job is ended\n";
        // Whoever waits for all waits for the first one, too.
        for (options, rank) in [(&[][..], "rank 3 "), (&["-x", "WAITS=", "--keep-going"], "rank 0 ")] {
            let (code, _, errors) = shells(stage, &[&["-n", "4", "--timeout", "60"], options].concat(), script);
            assert_eq!((code, errors.contains(rank) && errors.ends_with(said)), (Some(1), true), "{errors}");
        }
    });
}

#[test]
fn who_is_waited_for_and_fails_is_not_said_to_be_survived() {
    own_stage(|stage| {
        // What it leaves behind has its connection, so that its end is judged when all have long been heard; also by a launcher that
        // is slow to hear the other one's last line.
        let script = format!(
            "say() {{ echo cmd=$1 >&$PMI_FD; }}
            say 'init pmi_version=1 pmi_subversion=1'; read reply <&$PMI_FD
            [ $PMI_RANK = 0 ] || {{ say barrier_in; echo >{0}; read reply <&$PMI_FD; }}
            sleep 1000 & while [ ! -e {0} ]; do sleep 0.01; done; sleep 0.5; exit 3",
            stage.runtime().join("waits").display()
        );
        let (code, _, errors) = shells(stage, &["-n", "2", "--timeout", "60", "--keep-going"], &script);
        assert!(code == Some(3) && errors.ends_with(" ended with exit code 3; the job is ended\n"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    });
}

#[test]
fn a_second_program_and_one_that_leaves_others_in_a_barrier_are_called_what_they_are() {
    own_stage(|stage| {
        let script =
            "say() { echo cmd=$1 >&$PMI_FD; read reply <&$PMI_FD; }; begin='init pmi_version=1 pmi_subversion=1'
            say \"$begin\"; [ $PMI_RANK = 1 ] && say barrier_in; say finalize; ${THEN+say \"$begin\"}";
        let (code, _, errors) = shells(stage, &["-n", "1", "--timeout", "60", "-x", "THEN="], script);
        let advice = "`init` came a second time: a rank is one MPI program; start another one as a job of its own";
        assert!(code == Some(1) && errors.contains(advice), "{errors}");
        let (code, _, errors) = shells(stage, &["-n", "2", "--timeout", "60"], script);
        let absent = "ended after MPI_Finalize, without the barrier of the launcher's that others wait in";
        assert!(code == Some(1) && errors.contains("rank 0 ") && errors.contains(absent), "{errors}");
    });
}

#[test]
fn a_rank_that_ends_without_finalize_fails_and_one_after_it_does_not() {
    own_stage(|stage| {
        let (code, _, errors) = told(&output(stage, &["-n", "3"], "PART=early"));
        assert_eq!(code, Some(1));
        assert!(errors.contains("rank 1 ") && errors.contains("ended without MPI_Finalize"), "{errors}");
        assert_eq!(shells(stage, &["-n", "3"], "sleep 0.0$PMI_RANK"), (Some(0), String::new(), String::new()));
    });
}

#[test]
fn a_rank_that_never_begins_fails_when_others_wait_for_it() {
    own_stage(|stage| {
        let (code, _, errors) = told(&output(stage, &["-n", "3", "--timeout", "60"], "PART=absent"));
        assert_eq!(code, Some(1));
        assert!(errors.contains("rank 1 ") && errors.contains("ended without MPI_Finalize"), "{errors}");
    });
}

#[test]
fn a_rank_that_others_wait_for_fails_with_its_own_code_whoever_goes_on() {
    own_stage(|stage| {
        let (code, _, errors) = told(&output(stage, &["-n", "3", "--timeout", "60", "--keep-going"], "PART=refused"));
        let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("sidelane run: rank 1 ")).collect();
        assert_eq!(code, Some(5), "{errors}");
        assert!(lines.last().unwrap().ends_with(" ended with exit code 5; the job is ended"), "{errors}");
    });
}

#[test]
fn an_abort_ends_all_with_its_code() {
    own_stage(|stage| {
        let options = [&["-n", "4"][..], &["-n", "4", "--keep-going"]];
        for (options, part) in options.into_iter().flat_map(|it| [(it, "PART=abort"), (it, "PART=abort in a call")]) {
            let (code, _, errors) = told(&output(stage, options, part));
            let said = "aborted the job with code 7: lost my way";
            assert!(code == Some(7) && errors.contains("rank 2 ") && errors.contains(said), "{errors}");
        }
    });
}

#[test]
fn what_a_rank_says_tells_a_terminal_nothing_and_fills_no_page() {
    own_stage(|stage| {
        let begin = "echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; read reply <&$PMI_FD";
        let long = "x".repeat(60_000);
        for (says, shown) in [
            ("cmd=\\e[31mRED\\e[2J\\a", "the command `\\u{1b}[31mRED\\u{1b}[2J\\u{7}` is unknown; the job is ended\n"),
            ("cmd=abort exitcode=1 error_msg=\\e]0;pwn\\a", "with code 1: \\u{1b}]0;pwn\\u{7}; the job is ended\n"),
            (&format!("cmd={long}"), "x...` is unknown; the job is ended\n"),
            (&format!("cmd=abort exitcode=1 error_msg={long}"), "x...; the job is ended\n"),
        ] {
            let script = format!("{begin}; printf '{says}\\n' >&$PMI_FD; exec sleep 1000");
            let (code, _, errors) = shells(stage, &["-n", "1", "--timeout", "60"], &script);
            assert!(code == Some(1) && errors.ends_with(shown) && errors.len() < 500, "{errors}");
        }
    });
}

/// By an error handler, or by what its program returns: the rank whose call is wrong, and not those that hear of others' ends.
#[test]
fn who_is_to_blame_is_named_and_who_heard_of_it_aborts_nothing() {
    own_stage(|stage| {
        for options in [&["-n", "4"][..], &["-n", "4", "--keep-going"]] {
            for part in ["PART=wrong rank", "PART=error"] {
                let (code, _, errors) = told(&output(stage, options, part));
                let said = ["rank 2 ", "aborted the job with code 1", "there is no such rank"];
                assert!(code == Some(1) && said.iter().all(|word| errors.contains(word)), "{errors}");
            }
        }
        let (code, _, errors) = told(&output(stage, &["-n", "4"], "PART=crash"));
        // On a busy machine another one's end may be seen first; then both are named, and neither has aborted the job.
        assert!(matches!(code, Some(1 | 5)) && errors.contains("rank 2 "), "{errors}");
        assert!(!errors.contains("aborted the job"), "{errors}");
    });
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    own_stage(|stage| {
        let output = stage.output(&["run", "-n", "2", "no-such-program"]);
        let (code, _, errors) = told(&output);
        assert_eq!(code, Some(127));
        assert!(errors.contains("cannot start `no-such-program`"), "{errors}");
        assert_eq!(stage.output(&["run", "-n", "2", "/"]).status.code(), Some(126));
        let mut here = stage.sidelane(&["run", "-n", "2", "sidelane"]);
        let folder = Path::new(&stage.program()).parent().unwrap().to_owned();
        let (code, _, errors) = told(&here.current_dir(folder).env("PATH", "/nowhere").output().unwrap());
        assert_eq!(code, Some(127));
        assert!(errors.contains("that of this folder is called `./sidelane`"), "{errors}");
        let script = stage.runtime().join("script");
        // Not by this process, whose other tests fork while it would be open.
        let write = ["-c", "printf '#! /no/such\\r\\n' >$0; chmod +x $0", script.to_str().unwrap()];
        assert!(Command::new("sh").args(write).status().unwrap().success());
        let (code, _, errors) = told(&stage.output(&["run", "-n", "2", script.to_str().unwrap()]));
        assert!(code == Some(127) && errors.contains("its first line names `/no/such\\r`, which is not"), "{errors}");
    });
}

#[test]
fn a_job_has_the_time_it_is_given() {
    own_stage(|stage| {
        let began = Instant::now();
        let (code, _, errors) = shells(stage, &["-n", "2", "--timeout", "0.3"], "exec sleep 1000");
        assert_eq!(code, Some(124));
        assert!(errors.contains("took longer than 0.3 s"), "{errors}");
        assert!(began.elapsed() < Duration::from_secs(20));
        assert_eq!(shells(stage, &["-n", "2", "--timeout", "100"], "true").0, Some(0));
    });
}

#[test]
fn what_ends_a_job_ends_its_start_too() {
    own_stage(|stage| {
        let script = "echo told; [ $PMI_RANK != 0 ] || eval $FIRST; exec sleep 1000";
        let ends: [(&[&str], _, _); 4] = [
            (&["-x", "FIRST=exit 3"], 3, "rank 0 on host "),
            (&["-x", "FIRST=kill -TERM $PPID"], 143, ""),
            (&["-x", "FIRST=kill -INT $PPID", "--keep-going"], 130, ""),
            (&["-x", "FIRST=:", "--timeout", "0.01"], 124, "took longer than 0.01 s"),
        ];
        for (options, ends_with, words) in ends {
            let (code, lines, errors) = shells(stage, &[&["-n", "400"], options].concat(), script);
            assert_eq!((code, errors.is_empty()), (Some(ends_with), words.is_empty()), "{options:?}: {errors}");
            let started = lines.lines().count();
            assert!(errors.contains(words) && started < 200, "{options:?}: {started} {errors}");
        }
    });
}

#[test]
fn what_ranks_leave_in_the_background_ends_with_the_job() {
    own_stage(|stage| {
        let script = "sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 & (setsid sleep 1000 &) ; exit 0";
        assert_eq!(shells(stage, &["-n", "2"], script).0, Some(0));
        assert!(stage.processes().is_empty());
    });
}
