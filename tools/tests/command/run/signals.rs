//! How jobs are ended.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use sidelane::lab::process::Process;

use super::{errors, job, own_stage, said_in, shells, told};
use crate::filter::refuse;
use crate::patience::{PATIENCE, ended, until};
use crate::stage::{Stage, as_a_shell_has_it, for_each_user, signal, signal_group_with_a_child};

/// Starts a job whose ranks say their number and wait; returns it and their processes, by rank.
fn start_waiting(stage: &Stage, ranks: usize) -> (Child, Vec<Process>) {
    let arguments = job(stage, &[], "PART=wait");
    let count = ranks.to_string();
    let arguments: Vec<&str> =
        ["run", "-n", &count].into_iter().chain(arguments[1..].iter().map(String::as_str)).collect();
    let mut command = stage.sidelane(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut found: Vec<(usize, u32)> = Vec::new();
    while found.len() < ranks {
        let line = lines.next().unwrap().unwrap();
        if let Some((rank, pid)) = said_in(&line).and_then(|said| said.split_once(' ')) {
            found.push((rank.parse().unwrap(), pid.parse().unwrap()));
        }
    }
    found.sort_unstable();
    // Goes on reading, so that the job never meets a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (child, found.into_iter().map(|(_, pid)| Process::open(pid).unwrap()).collect())
}

#[test]
fn a_killed_rank_ends_a_job_that_waits_for_it() {
    for_each_user(|stage| {
        let (mut job, ranks) = start_waiting(stage, 3);
        ranks[1].signal(libc::SIGKILL).unwrap();
        let text = errors(&mut job);
        assert_eq!(job.wait().unwrap().code(), Some(137));
        assert!(text.contains("rank 1 on host ") && text.contains("was killed by SIGKILL"), "{text}");
        assert!(ranks.iter().all(|rank| rank.wait(Duration::ZERO)), "all ranks are gone before the command is");
    });
}

#[test]
fn a_rank_killed_among_messages_ends_the_job_and_leaves_no_domain() {
    own_stage(|stage| {
        let mut command = stage.sidelane(
            &job(stage, &["-n", "3", "--timeout", "60"], "PART=endless ring")
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let pid = lines.find_map(|line| said_in(&line)?.strip_prefix("2 ")?.parse().ok()).unwrap();
        let domains = || {
            let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
            sockets.lines().filter(|line| line.contains("sidelane-shm-") && line.contains("-mpi-")).count()
        };
        assert!(domains() >= 3);
        let before = Process::open(pid).unwrap();
        before.signal(libc::SIGKILL).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let text = errors(&mut child);
        assert_eq!(child.wait().unwrap().code(), Some(137), "{text}");
        assert!(text.contains("rank 2 on host ") && text.contains("was killed by SIGKILL"), "{text}");
    });
}

#[test]
fn an_interrupt_reaches_all_ranks_and_needs_no_words() {
    own_stage(|stage| {
        for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let (mut job, ranks) = start_waiting(stage, 3);
            signal(&job, number);
            let text = errors(&mut job);
            assert_eq!((as_a_shell_has_it(job.wait().unwrap()), text.as_str()), (Some(code), ""));
            assert!(ranks.iter().all(|rank| rank.wait(Duration::ZERO)));
        }
    });
}

/// The job's guard is the first process that it starts, and has to be there until the end.
#[test]
fn a_signal_to_its_whole_group_ends_a_job_that_has_just_begun() {
    own_stage(|stage| {
        for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)].repeat(8) {
            let mut command = stage.sidelane(&["run", "-n", "1", "sleep", "1000"]);
            let mut job = command.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
            signal_group_with_a_child(&job, number);
            let text = errors(&mut job);
            assert_eq!((as_a_shell_has_it(job.wait().unwrap()), text.as_str()), (Some(code), ""));
        }
    });
}

#[test]
fn ranks_may_end_well_after_an_interrupt() {
    own_stage(|stage| {
        let script = "trap 'exit 0' INT; echo told; while :; do sleep 0.01; done";
        let (job, text) = interrupted(stage, &["-n", "2"], script, 1);
        assert_eq!((job, text.as_str()), (Some(0), ""));
    });
}

/// One rank is ended by the signal at once; the other one has all the time that it wants, which is more than the grace of a
/// rank that is asked to end.
#[test]
fn a_rank_that_cleans_up_after_an_interrupt_outlives_those_that_do_not() {
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 0 ] && { echo told; exec sleep 1000; }
                      trap 'sleep 2.5; echo clean; exit 0' INT; echo told; while :; do sleep 0.01; done";
        let mut command = stage.sidelane(&["run", "-n", "2", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!([lines.next(), lines.next()].map(Option::unwrap), ["told", "told"]);
        signal(&child, libc::SIGINT);
        assert_eq!(lines.collect::<Vec<_>>(), ["clean"]);
        assert_eq!((errors(&mut child).as_str(), as_a_shell_has_it(child.wait().unwrap())), ("", Some(130)));
    });
}

#[test]
fn time_that_is_up_ends_ranks_that_still_clean_up() {
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 0 ] && exec sleep 1000; trap : INT; kill -INT $PPID; while :; do sleep 0.01; done";
        assert_eq!(shells(stage, &["-n", "2", "--timeout", "5"], script), (Some(130), String::new(), String::new()));
    });
}

/// The job ended well, and the process whose number is in its output goes on; it is ended here.
fn assert_it_left_its_elder(output: &Output) {
    let pid = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let before = Process::open(pid).unwrap();
    assert!(!before.wait(Duration::ZERO), "it goes on");
    before.signal(libc::SIGKILL).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A shell that became the command may have children, such as what reads its output.
#[test]
fn a_job_ends_nothing_that_was_there_before() {
    own_stage(|stage| {
        let mut command = stage.command("sh");
        command.args(["-c", "sleep 1000 >/dev/null 2>&1 & echo $!; exec \"$0\" \"$@\""]).arg(stage.program());
        assert_it_left_its_elder(&command.args(["run", "-n", "2", "true"]).output().unwrap());
    });
}

/// And nothing that such children have started, which becomes the command's own when they end.
#[test]
fn a_job_ends_no_grandchild_that_was_there_before() {
    own_stage(|stage| {
        let before = "mkfifo $1
            sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! >$0; wait' $1 &
            export BETWEEN=$!; read pid <$1; echo $pid; exec $0 run -n 1 sh -c \"$2\"";
        let ends_it = "kill $BETWEEN; while kill -0 $BETWEEN 2>/dev/null; do sleep 0.01; done";
        let mut command = stage.command("sh");
        command.args(["-c", before, &stage.program()]).arg(stage.runtime().join("fifo")).arg(ends_it);
        assert_it_left_its_elder(&command.output().unwrap());
    });
}

/// As nohup(1) has it.
#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    own_stage(|stage| {
        let script = "trap 'echo told; exit 0' USR1; kill -HUP $PPID; kill -HUP $$; kill -USR1 $PPID; while :; do sleep 0.01; done";
        let mut command = stage.command("sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(stage.program());
        let output = command.args(["run", "-n", "1", "sh", "-c", script]).output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).trim()),
            (Some(0), "told"),
            "{output:?}"
        );
    });
}

/// As some supervisors leave them to what they start.
#[test]
fn signals_that_were_blocked_before_the_command_end_the_job_all_the_same() {
    own_stage(|stage| {
        for (script, code) in [("true", 0), ("kill -TERM $PPID; sleep 60", 143)] {
            let mut command = stage.sidelane(&["run", "-n", "1", "sh", "-c", script]);
            // SAFETY: Async-signal-safe calls on a set of the closure's own.
            unsafe {
                command.pre_exec(|| {
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
                    Ok(())
                });
            }
            let mut child = command.spawn().unwrap();
            let ended = Process::open(child.id()).unwrap().wait(Duration::from_secs(30));
            if !ended {
                child.kill().unwrap();
            }
            assert_eq!((ended, child.wait().unwrap().code()), (true, Some(code)), "{script}");
        }
    });
}

/// As shells that know no jobs have it.
#[test]
fn a_stop_that_is_ignored_stays_so() {
    own_stage(|stage| {
        let mut command = stage.command("sh");
        command.args(["-c", "trap '' TSTP; exec \"$0\" \"$@\""]).arg(stage.program());
        let output = command.args(["run", "-n", "1", "sh", "-c", "grep SigIgn /proc/$PPID/status"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let ignored = u64::from_str_radix(text.trim().trim_start_matches("SigIgn:\t"), 16).unwrap();
        assert_eq!(ignored >> (libc::SIGTSTP - 1) & 1, 1, "{ignored:x}");
    });
}

/// Nobody else could end the barrier of MPI_Init.
#[test]
fn who_waits_for_a_rank_that_a_signal_has_ended_does_not_wait_on() {
    own_stage(|stage| {
        let script = format!(
            "[ $PMI_RANK = 1 ] && {{ trap 'exit 1' INT; kill -INT $PPID; while :; do sleep 0.01; done; }}; trap '' INT; \
             PART=ring exec {} --exact run::part_of_a_rank --ignored --nocapture --quiet",
            stage.test_program()
        );
        let began = Instant::now();
        let (code, _, errors) = shells(stage, &["-n", "2", "--timeout", "60"], &script);
        assert_eq!(code, Some(130), "{errors}");
        assert!(began.elapsed() < Duration::from_secs(30), "it was the time limit that ended it");
    });
}

#[test]
fn an_interrupt_reaches_a_rank_that_is_stopped() {
    own_stage(|stage| {
        for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let mut command = stage.sidelane(&["run", "-n", "1", "sh", "-c", "echo $$; exec sleep 1000"]);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let rank = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
            Process::open(rank.parse().unwrap()).unwrap().signal(libc::SIGSTOP).unwrap();
            let stat = format!("/proc/{rank}/stat");
            until("the rank is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
            signal(&child, number);
            assert_eq!(as_a_shell_has_it(ended("the job", &mut child, PATIENCE)), Some(code));
        }
    });
}

#[test]
fn what_ranks_make_of_a_users_signal_is_theirs() {
    own_stage(|stage| {
        for (number, name) in [(libc::SIGUSR1, "USR1"), (libc::SIGUSR2, "USR2")] {
            let script =
                format!("exec 2>/dev/null; trap 'echo {name}; exit 0' {name}; echo told; while :; do sleep 0.01; done");
            let mut command = stage.sidelane(&["run", "-n", "2", "sh", "-c", &script]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            assert_eq!([lines.next(), lines.next()].map(Option::unwrap), ["told", "told"]);
            signal(&child, number);
            assert_eq!(lines.collect::<Vec<_>>(), [name, name]);
            assert_eq!((errors(&mut child).as_str(), child.wait().unwrap().code()), ("", Some(0)));
        }
    });
}

/// The shell that continues the command does not reach the ranks, and the command itself continues those that it has stopped:
/// a rank that heard of both would be told twice after Ctrl-Z. Behind the second SIGUSR1 nothing that came before is still to
/// be handed on.
#[test]
fn a_continuation_that_is_the_commands_own_tells_no_rank() {
    own_stage(|stage| {
        let script = "exec 2>/dev/null; count=0; trap 'echo told' CONT; trap 'count=$((count + 1))' USR1
            await() { while [ $count -lt $1 ]; do sleep 0.01; done; }
            kill -CONT $PPID; kill -USR1 $PPID; await 1; kill -USR1 $PPID; await 2; exit 0";
        assert_eq!(shells(stage, &["-n", "1"], script), (Some(0), String::new(), String::new()));
    });
}

#[test]
fn the_second_interrupt_kills() {
    own_stage(|stage| {
        let script = "trap 'echo told' INT; echo told; while :; do sleep 0.01; done";
        let (job, text) = interrupted(stage, &["-n", "2"], script, 2);
        assert_eq!((job, text.as_str()), (Some(130), ""));
    });
}

/// Interrupts a job `times` times, each time when both of its ranks have said `told`.
fn interrupted(stage: &Stage, options: &[&str], script: &str, times: usize) -> (Option<i32>, String) {
    let mut command = stage.sidelane(&[&["run"], options, &["sh", "-c", script]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..times {
        for _ in 0..2 {
            assert_eq!(lines.next().unwrap().unwrap(), "told");
        }
        signal(&child, libc::SIGINT);
    }
    let text = errors(&mut child);
    (as_a_shell_has_it(child.wait().unwrap()), text)
}

/// As programs of another user (setuid) may not be.
#[test]
fn a_rank_that_may_not_be_ended_is_named_and_not_waited_for() {
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 0 ] || exit 3; exec sleep 1000";
        let mut command = stage.sidelane(&["run", "-n", "2", "bash", "-c", script]);
        let refused = [libc::SYS_kill, libc::SYS_pidfd_send_signal];
        refused.iter().for_each(|call| refuse(&mut command, *call, None, libc::EPERM));
        let (code, _, errors) = told(&command.output().unwrap());
        assert_eq!((code, errors.lines().count()), (Some(3), 2), "{errors}");
        assert!(errors.contains("sidelane run: cannot end rank 0: Operation not permitted"), "{errors}");
        for left in stage.processes().into_iter().filter_map(Process::open) {
            left.signal(libc::SIGKILL).unwrap();
        }
    });
}

#[test]
fn nothing_survives_a_killed_command() {
    for_each_user(|stage| {
        let (mut job, ranks) = start_waiting(stage, 3);
        job.kill().unwrap();
        job.wait().unwrap();
        assert!(ranks.iter().all(|rank| rank.wait(Duration::from_secs(30))));
        stage.assert_nothing_is_left();

        let family = "sleep 1000 & echo told $!; wait";
        let mut command = stage.sidelane(&["run", "-n", "1", "sh", "-c", family]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild = line.trim().strip_prefix("told ").unwrap().parse().unwrap();
        let grandchild = Process::open(grandchild).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(grandchild.wait(Duration::from_secs(30)), "the guard has ended what the rank had started");
    });
}
