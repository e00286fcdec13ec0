//! What ranks are started with.

use super::{own_stage, shells, told};
use crate::stage::Stage;

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
        let (code, bound, errors) = shells(stage, &["-n", "2", "--bind", "core"], cores);
        if errors.contains("2 ranks do not get a core each") {
            println!("skipped: two cores of their own, which this machine does not have");
        } else {
            let bound: Vec<&str> = bound.lines().collect();
            assert!(code == Some(0) && bound.len() == 2 && bound[0] != bound[1], "{bound:?} {errors}");
        }
        let text = String::from_utf8(stage.output(&["run", "-n", "1000", "--bind", "core", "true"]).stderr).unwrap();
        assert!(text.contains("1000 ranks do not get a core each"), "{text}");
        let text = String::from_utf8(stage.output(&["run", "-n", "2", "--nic", "tcp", "true"]).stderr).unwrap();
        assert!(text.contains("there is no driver `tcp`"), "{text}");
    });
}

#[test]
fn a_job_has_more_ranks_than_a_low_limit_of_descriptors_has_room_for() {
    own_stage(|stage| {
        // All of them are there at a time: none ends before the last one has begun.
        let rank = "ulimit -Sn; [ $PMI_RANK != 39 ] || echo >$0; while [ ! -e $0 ]; do sleep 0.01; done";
        let low = "ulimit -Sn 64; exec $0 run -n 40 --timeout 60 sh -c \"$1\" $2";
        let last = stage.runtime().join("last").to_str().unwrap().to_owned();
        let output = stage.command("sh").args(["-c", low, &stage.program(), rank, &last]).output().unwrap();
        let (code, lines, errors) = told(&output);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert_eq!(lines, "64\n".repeat(40), "ranks have the limit that there was");
    });
}

#[test]
fn a_start_for_which_descriptors_run_out_leaves_nothing() {
    own_stage(|stage| {
        let low = "ulimit -n 64; exec $0 run -n 40 --timeout 60 bash -c 'setsid sleep 1000 & exec sleep 1000'";
        let output = stage.command("sh").args(["-c", low, &stage.program()]).output().unwrap();
        let left = stage.processes();
        let (code, _, errors) = told(&output);
        assert!(code == Some(126) && errors.contains("`ulimit -Hn` says how many"), "{code:?} {errors}");
        assert_eq!(left, Vec::<u32>::new());
    });
}

/// A fork copies what the launcher has mapped, and each thread has a stack there: with those of the ranks before it, each rank
/// would take longer to start than the last one.
#[test]
fn a_rank_is_started_before_others_have_threads() {
    own_stage(|stage| {
        // All of them are there at a time: none ends, and its threads, before the last one has begun.
        let last = stage.runtime().join("last");
        let script = format!(
            "count=$(sed -n s/^Threads:[[:space:]]*//p /proc/$PPID/status)
            echo $PMI_RANK $count
            [ $PMI_RANK != 63 ] || echo >{0}; while [ ! -e {0} ]; do sleep 0.01; done",
            last.display()
        );
        let (code, lines, _) = shells(stage, &["-n", "64", "--timeout", "60"], &script);
        let told = lines.lines().map(|line| line.split_once(' ').unwrap());
        let told: Vec<(usize, usize)> =
            told.map(|(rank, count)| (rank.parse().unwrap(), count.parse().unwrap())).collect();
        assert_eq!((code, told.len()), (Some(0), 64));
        assert!(told.iter().any(|(rank, threads)| *rank >= 10 && *threads < 10), "{told:?}");
    });
}

/// What others type for other launchers is understood, or answered with what to type.
#[test]
fn command_lines_of_mpiexec_are_understood_or_answered() {
    own_stage(|stage| {
        let print = ["sh", "-c", "echo $PMI_SIZE $@", "sh", "-np", "7"];
        let lines = stage.text(&[&["run", "-l", "-np", "2"][..], &print].concat());
        let mut lines: Vec<&str> = lines.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["[0] 2 -np 7", "[1] 2 -np 7"]);
        let refused = |arguments: &[&str]| {
            let output = stage.output(&[&["run", "-n", "1"], arguments].concat());
            assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let text = refused(&["echo", "master", ":", "-n", "3", "echo", "worker"]);
        assert!(text.contains("a job is of one program"), "{text}");
        assert!(stage.output(&["run", "-n", "1", "sh", "-c", ":"]).status.success());
        assert_eq!(stage.text(&["run", "-n", "1", "--", "echo", "1", ":", "-n", "3"]), "1 : -n 3\n");
        for machines in ["node1,node2", "node1", "node1.example.org", "10.0.0.1"] {
            let text = refused(&["--hosts", machines, "true"]);
            assert!(text.contains("other machines are reached with `mpiexec.hydra` or `srun`"), "{text}");
        }
        let text = refused(&["--hosts", "A,B,A", "true"]);
        assert!(text.contains("`A` is named twice"), "{text}");
    });
}

#[test]
fn help_teaches() {
    let help = Stage::own_user().text(&["run", "--help"]);
    for word in [
        "-n",
        "--hosts",
        "--nic",
        "--bind",
        "--protect",
        "--label",
        "--timeout",
        "--env",
        "Examples:",
        "mpiexec.hydra",
        "srun",
    ] {
        assert!(help.contains(word), "`{word}` is missing in:\n{help}");
    }
}
