//! What goes into a job and comes out of it.

use std::ffi::c_int;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{own_stage, shells, told};
use crate::patience::{PATIENCE, until, watch};
use crate::stage::{Stage, as_a_shell_has_it, signal, write_program};

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
fn each_rank_has_files_of_its_own() {
    own_stage(|stage| {
        let logs = stage.runtime().join("case/logs");
        let read = |file: &str| fs::read_to_string(logs.join(file)).unwrap();
        let options = ["-n", "2", "--output", logs.to_str().unwrap()];
        for said in ["at first", "then"] {
            let script = format!("echo {said} $PMI_RANK; echo errors of $PMI_RANK >&2");
            assert_eq!(shells(stage, &options, &script), (Some(0), String::new(), String::new()));
            for rank in 0..2 {
                assert_eq!(read(&format!("{rank}.out")), format!("{said} {rank}\n"));
                assert_eq!(read(&format!("{rank}.err")), format!("errors of {rank}\n"));
            }
        }
        let (code, _, errors) = shells(stage, &["-n", "2", "--output", "/proc/self/mem"], "true");
        assert!(code == Some(1) && errors.contains("cannot use /proc/self/mem: "), "{errors}");
    });
}

#[test]
fn ranks_begin_where_they_are_told_to() {
    own_stage(|stage| {
        let folder = stage.runtime().join("case");
        fs::create_dir(&folder).unwrap();
        write_program(&folder.join("program"), "#!/bin/sh\npwd\n");
        let wdir = |folder: &str| told(&stage.output(&["run", "-n", "2", "--wdir", folder, "./program"]));
        let (code, lines, errors) = wdir(folder.to_str().unwrap());
        assert_eq!((code, lines), (Some(0), format!("{0}\n{0}\n", folder.display())), "{errors}");
        // There, and not here.
        write_program(&folder.join("program"), "#!/no/such\n");
        let (code, _, errors) = wdir(folder.to_str().unwrap());
        assert!(code == Some(127) && errors.contains("its first line names `/no/such`, which is not"), "{errors}");
        let (code, _, errors) = wdir("/no/such");
        assert!(code == Some(1) && errors.contains("cannot use /no/such: No such file"), "{errors}");
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

/// As at a terminal, and with `2>&1`.
#[test]
fn lines_stay_apart_where_both_streams_lead_to_one_place() {
    own_stage(|stage| {
        let merged = |line: &str| {
            let line = format!("exec \"$0\" run {line} 2>&1");
            let output = stage.command("sh").args(["-c", &line, &stage.program()]).output().unwrap();
            told(&output).1
        };
        let text = merged("-n 1 sh -c 'printf partial; exit 3'");
        assert!(text.starts_with("partial\nsidelane run: rank 0 "), "{text}");
        let text = merged("-n 1 -l sh -c 'printf out; printf err >&2'");
        assert!(["[0] out\n[0] err", "[0] err\n[0] out"].contains(&&*text), "{text}");
        let text = merged("-n 1 sh -c 'printf \"what? \" >&2; exec 2>&-; printf so'");
        assert!(["what? so", "sowhat? "].contains(&&*text), "a lone rank's bytes are as they were: {text}");
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
fn why_a_job_ended_is_told_before_somebody_reads_its_output() {
    watch("a job whose output nobody reads", PATIENCE);
    own_stage(|stage| {
        let script = "[ $PMI_RANK = 1 ] && exec yes; read line <$0; exit 5";
        let gate = stage.runtime().join("gate").to_str().unwrap().to_owned();
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        let mut command = stage.sidelane(&["run", "-n", "2", "sh", "-c", script, &gate]);
        let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = job.stdout.take().unwrap();
        // More than it holds comes behind.
        out.read_exact(&mut [0; 100_000]).unwrap();
        fs::write(gate, "\n").unwrap();
        let mut line = String::new();
        BufReader::new(job.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("rank 0 ") && line.ends_with("ended with exit code 5; the job is ended\n"), "{line}");
        out.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(job.wait().unwrap().code(), Some(5));
    });
}

/// A job whose output, of both kinds, goes into one pipe that nobody reads on from.
struct Unread {
    job: Child,
    /// Both ends: the pipe never breaks, and shows when it is full.
    _reader: PipeReader,
    writer: PipeWriter,
}

impl Unread {
    /// Starts it; returns when it has written something.
    fn start(stage: &Stage, options: &[&str], program: &[&str]) -> Self {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = stage.sidelane(&[&["run"], options, program].concat());
        let output = || writer.try_clone().unwrap();
        let job = command.stdout(output()).stderr(output()).spawn().unwrap();
        // Not by a read, which would last for ever: the pipe's other end is ours too.
        let waiting = || {
            let mut bytes: c_int = 0;
            // SAFETY: `bytes` is a place for the answer.
            assert_eq!(unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
            bytes
        };
        until("the job has written something", || waiting() >= 100);
        reader.read_exact(&mut [0; 100]).unwrap();
        Self { job, _reader: reader, writer }
    }

    /// Starts it; returns when the pipe is full, as it then stays: whatever the job writes from now on waits.
    fn start_full(stage: &Stage, options: &[&str], program: &[&str]) -> Self {
        let this = Self::start(stage, options, program);
        let mut poll = libc::pollfd { fd: this.writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: One pollfd, alive during the call.
        until("the pipe is full", || unsafe { libc::poll(&raw mut poll, 1, 0) } == 0);
        // A few words may still find room behind the last that was written.
        let own = format!("/proc/self/fd/{}", this.writer.as_raw_fd());
        let mut own = fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(own).unwrap();
        while own.write(b"\n").is_ok() {}
        this
    }

    /// Returns when the job has a thread of that name.
    fn await_thread(&self, name: &str) {
        let names = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.job.id())).unwrap().flatten();
            tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect::<Vec<_>>()
        };
        until("its thread is there", || names().iter().any(|other| other.trim_end() == name));
    }

    /// Signals it, if with anything, and returns its exit code.
    fn end(mut self, number: Option<i32>) -> Option<i32> {
        number.inspect(|number| signal(&self.job, *number));
        as_a_shell_has_it(self.job.wait().unwrap())
    }
}

/// Seconds: enough for a job to fill a pipe on a busy machine, too.
const TIME_TO_FILL: &str = "1";

#[test]
fn a_reader_that_stalls_keeps_no_signal_and_no_time_from_ending_the_job() {
    own_stage(|stage| {
        for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let job = Unread::start_full(stage, &["-n", "2"], &["yes"]);
            assert_eq!(job.end(Some(number)), Some(128 + number));
        }
        let job = Unread::start_full(stage, &["-n", "2", "--timeout", TIME_TO_FILL], &["yes"]);
        assert_eq!(job.end(None), Some(124));
    });
}

#[test]
fn words_that_nobody_reads_keep_no_signal_from_ending_the_job() {
    own_stage(|stage| {
        // Of the job only the command and its guard are left.
        let only_output_is_left = || until("the ranks have ended", || stage.processes().len() == 2);
        // Rank 1 fails once the pipe is full, which is said of it: at the end of the job, or when the other one goes on.
        let full = PathBuf::from(stage.program()).with_file_name("full");
        let script = format!(
            "[ $PMI_RANK = 0 ] || {{ seq 100000 & until [ -e {} ]; do sleep 0.01; done; exit 3; }}; sleep 1000",
            full.display()
        );
        let fails = ["sh", "-c", script.as_str()];
        let start_failing = |options: &[&str]| {
            let job = Unread::start_full(stage, options, &fails);
            fs::write(&full, "").unwrap();
            job
        };
        let job = start_failing(&["-n", "2"]);
        only_output_is_left();
        assert_eq!(job.end(Some(libc::SIGTERM)), Some(3));
        fs::remove_file(&full).unwrap();
        let job = start_failing(&["-n", "2", "--keep-going"]);
        job.await_thread("own-words");
        assert_eq!(job.end(Some(libc::SIGTERM)), Some(143));
        fs::remove_file(&full).unwrap();
        // Ranks that ended well leave a pipe that is full; time and signals still end the wait for its reader.
        let job = Unread::start_full(stage, &["-n", "1", "--timeout", TIME_TO_FILL], &["seq", "20000"]);
        assert_eq!(job.end(None), Some(124));
        let job = Unread::start_full(stage, &["-n", "1"], &["seq", "20000"]);
        only_output_is_left();
        assert_eq!(job.end(Some(libc::SIGTERM)), Some(143));
        // What they write at a signal fills it.
        let at_term = ["sh", "-c", "trap 'seq 20000; exit 0' TERM; seq 50; while :; do sleep 0.01; done"];
        let job = Unread::start(stage, &["-n", "1"], &at_term);
        assert_eq!(job.end(Some(libc::SIGTERM)), Some(143));
    });
}
