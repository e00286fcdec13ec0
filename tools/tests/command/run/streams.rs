//! What goes into a job and comes out of it.

use std::io::{Read, Write};
use std::process::{Child, Stdio};

use super::{own_stage, shells, told};
use crate::stage::{Stage, signal};

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

/// A job whose output, of both kinds, goes into one pipe that nobody reads on from: it is full, or soon will be.
fn unread(stage: &Stage, options: &[&str], program: &[&str]) -> (Child, std::io::PipeReader) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = stage.sidelane(&[&["run"], options, program].concat());
    let child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    // What follows is much more than a pipe holds.
    reader.read_exact(&mut [0; 100]).unwrap();
    (child, reader)
}

#[test]
fn a_reader_that_stalls_keeps_no_signal_and_no_time_from_ending_the_job() {
    own_stage(|stage| {
        for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let (mut job, _reader) = unread(stage, &["-n", "2"], &["yes"]);
            signal(&job, number);
            assert_eq!(job.wait().unwrap().code(), Some(128 + number));
        }
        let (mut job, _reader) = unread(stage, &["-n", "2", "--timeout", "0.3"], &["yes"]);
        assert_eq!(job.wait().unwrap().code(), Some(124));
    });
}

#[test]
fn words_that_nobody_reads_keep_no_signal_from_ending_the_job() {
    own_stage(|stage| {
        // Rank 1 fails, which is said of it into the full pipe; the other one, if it goes on, says when that is known.
        let script = "[ $PMI_RANK = 0 ] || { seq 100000 & exit 3; }; sleep 1000";
        for options in [&["-n", "2"][..], &["-n", "2", "--keep-going"]] {
            let (mut job, _reader) = unread(stage, options, &["sh", "-c", script]);
            signal(&job, libc::SIGTERM);
            let code = job.wait().unwrap().code();
            assert!(matches!(code, Some(3 | 143)), "{options:?}: {code:?}");
        }
        // Ranks that ended well leave a pipe that is full; time and signals still end the wait for its reader.
        let (mut job, _reader) = unread(stage, &["-n", "1", "--timeout", "0.3"], &["seq", "20000"]);
        assert_eq!(job.wait().unwrap().code(), Some(124));
        let (mut job, _reader) = unread(stage, &["-n", "1"], &["seq", "20000"]);
        signal(&job, libc::SIGTERM);
        assert_eq!(job.wait().unwrap().code(), Some(143));
        let at_term = ["sh", "-c", "trap 'seq 20000; exit 0' TERM; seq 50; while :; do sleep 0.01; done"];
        let (mut job, _reader) = unread(stage, &["-n", "1"], &at_term);
        signal(&job, libc::SIGTERM);
        assert_eq!(job.wait().unwrap().code(), Some(143));
    });
}
