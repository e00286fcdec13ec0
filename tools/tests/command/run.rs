//! Jobs of real processes: what they hear, what they say, how they end, and that nothing of them is left.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sidelane::lab::process::Process;
use sidelane_mpi::adi::{Envelope, Incoming, Mode, Outgoing, Pattern, Source};
use sidelane_mpi::launch::Launch;
use sidelane_mpi::world::World;

use crate::stage::{Stage, for_each_user, signal};

/// The command that runs `part_of_a_rank` with `PART=part` on several ranks.
fn job<'a>(stage: &'a Stage, options: &'a [&'a str], part: &'a str) -> Vec<String> {
    job_of(stage, &[&["-x", part], options].concat(), "run::part_of_a_rank")
}

/// The command that runs a test of this program, that others ignore, as several ranks.
pub fn job_of(stage: &Stage, options: &[&str], test: &str) -> Vec<String> {
    let ours = ["run"].into_iter().chain(options.iter().copied()).map(str::to_owned);
    let rank = ["--exact", test, "--ignored", "--nocapture", "--quiet"].map(str::to_owned);
    ours.chain([stage.test_program()]).chain(rank).collect()
}

fn output(stage: &Stage, options: &[&str], part: &str) -> Output {
    let arguments = job(stage, options, part);
    stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a job of shells did.
fn shells(stage: &Stage, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    told(&stage.output(&[&["run"], options, &["sh", "-c", script]].concat()))
}

/// Exit code, output, errors.
pub fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Lines that begin with `told:`, which a rank's test harness does not print.
pub fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(|line| line.split_once("told: ").map(|(_, rest)| rest.to_owned())).collect()
}

/// Runs `case` as this user, and looks for leftovers after it.
pub fn own_stage(case: impl Fn(&Stage)) {
    let stage = Stage::own_user();
    case(&stage);
    stage.assert_nothing_is_left();
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let part = std::env::var("PART").unwrap();
    if let "ring" | "endless ring" = part.as_str() {
        return part_of_a_ring(part == "endless ring");
    }
    if part == "absent" && std::env::var("PMI_RANK").is_ok_and(|rank| rank == "1") {
        return;
    }
    let mut launch = Launch::find().unwrap();
    let (rank, size) = (launch.rank(), launch.size());
    match part.as_str() {
        "exchange" => {
            let host = std::env::var("SIDELANE_HOST").unwrap_or_default();
            let texts = launch.exchange(&format!("{rank}{host}")).unwrap();
            let again = launch.exchange(&"long ".repeat(2000)).unwrap();
            assert!(again.len() == size && again.iter().all(|text| text.len() == 10_000));
            println!("\ntold: {rank}/{size} {}", texts.join(","));
            launch.finalize().unwrap();
        }
        "abort" => {
            if rank == 2 {
                launch.abort(7, "lost my way");
                std::process::exit(3);
            }
            let _ = launch.barrier();
        }
        "early" | "absent" => {
            if rank == 1 {
                std::process::exit(0);
            }
            let _ = launch.barrier();
        }
        "wait" => {
            println!("\ntold: {rank} {}", std::process::id());
            std::io::stdout().flush().unwrap();
            if rank != 0 {
                let _ = launch.barrier();
            }
            std::thread::park();
        }
        other => panic!("there is no part `{other}`"),
    }
}

/// Passes messages from rank to rank until each is back where it began.
fn part_of_a_ring(endless: bool) {
    let mut world = World::init().unwrap_or_else(|error| panic!("{error}"));
    let (rank, size) = (world.rank(), world.size());
    loop {
        for len in [0, 8, 5_000, 300_000] {
            let message: Vec<u8> = (0..len).map(|at| (at * 7 + rank) as u8).collect();
            let back = (0..size).fold(message.clone(), |message, _| pass(&mut world, &message));
            assert_eq!(back, message);
        }
        if !endless {
            break;
        }
        println!("\ntold: {rank} {}", std::process::id());
    }
    println!("\ntold: {rank}/{size} round");
    world.finalize().unwrap();
}

/// Sends `message` to the next rank, and returns what comes from the one before.
fn pass(world: &mut World, message: &[u8]) -> Vec<u8> {
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut room = vec![0; message.len()];
    // SAFETY: Both are waited for before this returns, and `room` is not touched until then.
    let (out, into) = unsafe { (Outgoing::lend(message), Incoming::lend(&raw mut *room)) };
    let source = Some(Source { rank: from, process: from });
    let device = world.device();
    let receive = device.recv(Pattern { context: 0, source, tag: Some(0) }, into);
    let send = device.send(to, Envelope { context: 0, source: rank, tag: 0 }, out, Mode::Standard);
    assert_eq!(device.wait(send).error, None);
    assert_eq!(device.wait(receive).error, None);
    room
}

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
        let (_, _, errors) = told(&output(stage, &["-n", "2", "--hosts", "lab", "--nic", "mem:"], "PART=ring"));
        assert!(errors.contains("SIDELANE_NIC=mem: reaches no other host"), "{errors}");
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
        let pid = lines.find_map(|line| line.strip_prefix("told: 2 ").and_then(|pid| pid.parse().ok())).unwrap();
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
        let (code, _, errors) = shells(stage, &["-n", "2", "--hosts", "A,Z"], "true");
        assert!(code == Some(1) && errors.contains("no host `Z`"), "{errors}");
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
fn an_abort_ends_all_with_its_code() {
    own_stage(|stage| {
        let (code, _, errors) = told(&output(stage, &["-n", "4"], "PART=abort"));
        assert_eq!(code, Some(7));
        assert!(errors.contains("rank 2 ") && errors.contains("aborted the job with code 7: lost_my_way"), "{errors}");
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
    });
}

#[test]
fn rank_0_reads_the_input_and_the_others_nothing() {
    own_stage(|stage| {
        let mut command = stage.sidelane(&["run", "-n", "3", "-l", "sh", "-c", "cat; echo end"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let mut to = child.stdin.take().unwrap();
        to.write_all(text.as_bytes()).unwrap();
        drop(to);
        let output = child.wait_with_output().unwrap();
        let (code, lines, _) = told(&output);
        assert_eq!(code, Some(0));
        let echoed: String =
            lines.lines().filter_map(|line| line.strip_prefix("[0] ")).map(|line| line.to_owned() + "\n").collect();
        assert_eq!(echoed, text + "end\n");
        assert_eq!(lines.lines().filter(|line| !line.starts_with("[0] ")).count(), 2);
    });
}

#[test]
fn much_output_arrives_whole_and_labelled() {
    own_stage(|stage| {
        // 8 ranks with 20,000 lines of both streams each; the last one ends without a newline.
        let script = "seq -f \"$PMI_RANK.%g.abcdefghijklmnopqrstuvwxyz\" 20000; \
                      seq -f \"$PMI_RANK.%g.abcdefghijklmnopqrstuvwxyz\" 20000 >&2; printf end";
        let (code, lines, errors) = shells(stage, &["-n", "8", "--label"], script);
        assert_eq!(code, Some(0));
        for (text, extra) in [(lines, 1), (errors, 0)] {
            let mut next = [1; 8];
            let mut ends = 0;
            for line in text.lines() {
                let (label, rest) = line.split_once("] ").unwrap();
                let rank: usize = label[1..].parse().unwrap();
                if rest == "end" {
                    ends += 1;
                    continue;
                }
                assert_eq!(rest, format!("{rank}.{}.abcdefghijklmnopqrstuvwxyz", next[rank]));
                next[rank] += 1;
            }
            assert_eq!((next, ends), ([20_001; 8], 8 * extra));
        }
    });
}

#[test]
fn one_rank_without_label_changes_no_byte() {
    own_stage(|stage| {
        let script = "head -c 300000 /dev/zero; printf '\\377\\n\\n'; printf end";
        let output = stage.output(&["run", "-n", "1", "sh", "-c", script]);
        assert_eq!(output.stdout.len(), 300_006);
        assert!(output.stdout.ends_with(b"\xff\n\nend"));
    });
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_job_quietly() {
    own_stage(|stage| {
        let mut command = stage.sidelane(&["run", "-n", "2", "yes"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 100]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
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
fn what_ranks_leave_in_the_background_ends_with_the_job() {
    own_stage(|stage| {
        let script = "sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 & (setsid sleep 1000 &) ; exit 0";
        assert_eq!(shells(stage, &["-n", "2"], script).0, Some(0));
        assert!(stage.processes().is_empty());
    });
}

#[test]
fn variables_and_cores_are_set_as_asked() {
    own_stage(|stage| {
        let print = "echo $GREETING $SIDELANE_NIC $MPI_LOCALRANKID/$MPI_LOCALNRANKS";
        let (_, lines, _) = shells(stage, &["-n", "1", "-x", "GREETING=a b", "--env", "PATH", "--nic", "udp"], print);
        assert_eq!(lines, "a b udp 0/1\n");
        let cores = "grep Cpus_allowed_list /proc/self/status";
        let allowed = std::fs::read_to_string("/proc/self/status").unwrap();
        let all = allowed.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
        let (_, free, _) = shells(stage, &["-n", "1", "--bind", "none"], cores);
        assert_eq!(free.trim_end(), all);
        let (_, bound, _) = shells(stage, &["-n", "1"], cores);
        assert!(!bound.contains(['-', ',']), "{bound}");
        let text = String::from_utf8(stage.output(&["run", "-n", "1000", "--bind", "core", "true"]).stderr).unwrap();
        assert!(text.contains("1000 ranks do not get a core each"), "{text}");
        let text = String::from_utf8(stage.output(&["run", "-n", "2", "--nic", "tcp", "true"]).stderr).unwrap();
        assert!(text.contains("there is no driver `tcp`"), "{text}");
    });
}

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
        if let Some((rank, pid)) = line.strip_prefix("told: ").and_then(|rest| rest.split_once(' ')) {
            found.push((rank.parse().unwrap(), pid.parse().unwrap()));
        }
    }
    found.sort_unstable();
    // Goes on reading, so that the job never meets a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (child, found.into_iter().map(|(_, pid)| Process::open(pid).unwrap()).collect())
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
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
fn an_interrupt_reaches_all_ranks_and_needs_no_words() {
    own_stage(|stage| {
        for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let (mut job, ranks) = start_waiting(stage, 3);
            signal(&job, number);
            let text = errors(&mut job);
            assert_eq!((job.wait().unwrap().code(), text.as_str()), (Some(code), ""));
            assert!(ranks.iter().all(|rank| rank.wait(Duration::ZERO)));
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
    (child.wait().unwrap().code(), text)
}

#[test]
fn nothing_survives_a_killed_command() {
    for_each_user(|stage| {
        let (mut job, ranks) = start_waiting(stage, 3);
        job.kill().unwrap();
        job.wait().unwrap();
        assert!(ranks.iter().all(|rank| rank.wait(Duration::from_secs(5))));
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
        assert!(grandchild.wait(Duration::from_secs(5)), "the guard has ended what the rank had started");
    });
}

/// The other way round than in `mpi-lite/tests/launchers`: our launcher, and ranks that others have made.
#[test]
fn programs_of_mpich_run() {
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    if !std::path::Path::new(library).exists() {
        println!("skipped: MPICH is not installed (Debian: libmpich12)");
        return;
    }
    own_stage(|stage| {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("sum.c"), folder.path().join("sum"));
        std::fs::write(&source, SUM).unwrap();
        assert!(Command::new("cc").arg("-o").args([&program, &source]).arg(library).status().unwrap().success());
        let output = stage.output(&["run", "-n", "4", "--timeout", "60", program.to_str().unwrap()]);
        let (code, lines, errors) = told(&output);
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert_eq!(lines, ["0/4 sum 10", "1/4 sum 10", "2/4 sum 10", "3/4 sum 10"]);
    });
}

/// Without MPICH's header: MPI_COMM_WORLD, MPI_INT and MPI_SUM are these numbers in its ABI.
const SUM: &str = r#"
#include <stdio.h>
int MPI_Init(int *, char ***), MPI_Comm_rank(int, int *), MPI_Comm_size(int, int *), MPI_Finalize(void);
int MPI_Allreduce(const void *, void *, int, int, int, int);
int main(void) {
    int rank, size, one, sum = 0;
    MPI_Init(0, 0);
    MPI_Comm_rank(0x44000000, &rank);
    MPI_Comm_size(0x44000000, &size);
    one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, 0x4c000405, 0x58000003, 0x44000000);
    printf("%d/%d sum %d\n", rank, size, sum);
    return MPI_Finalize();
}
"#;

#[test]
fn help_teaches() {
    let help = Stage::own_user().text(&["run", "--help"]);
    for word in
        ["-n", "--hosts", "--nic", "--bind", "--label", "--timeout", "--env", "Examples:", "mpiexec.hydra", "srun"]
    {
        assert!(help.contains(word), "`{word}` is missing in:\n{help}");
    }
}
