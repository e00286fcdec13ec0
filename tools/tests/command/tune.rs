//! What `sidelane tune` measures is what jobs go by, all ranks alike.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sidelane::lab::process::Process;
use sidelane_bench::tune::collectives::Decision;
use sidelane_mpi::coll::{Algorithm, Case, Collective, Table};
use sidelane_mpi::world::tuning::Tuning;

use crate::filter::refuse;
use crate::stage::{Stage, as_a_shell_has_it, signal};

/// A job of two ranks with `tuning` as rank 0 finds it, and `other` as rank 1 does.
fn job(stage: &Stage, tuning: &str, other: &str) -> (bool, String) {
    let script = "[ $PMI_RANK = 0 ] || export SIDELANE_TUNING=\"$OTHER\"; exec \"$0\" \"$@\"";
    let program = stage.test_program();
    let other = format!("OTHER={other}");
    let mut command =
        stage.sidelane(&["run", "-n", "2", "--timeout", "60", "-x", "PART=ring", "-x", &other, "sh", "-c"]);
    command.args([script, &program, "--exact", "run::part_of_a_rank", "--ignored", "--nocapture", "--quiet"]);
    let output = command.env("SIDELANE_TUNING", tuning).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_was_measured_is_what_ranks_go_by() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let at = |name: &str| stage.runtime().join(name).to_str().unwrap().to_owned();
    let file = at("tuned/tuning.json");
    fs::create_dir(at("tuned")).unwrap();
    let ours =
        ["tune", "--quick", "--nic", "shm,shm", "--ranks", "2", "--two-level", "2x2", "--json", "--output", &file];
    let figures = stage.text(&ours);
    let figures: Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["schema"], "sidelane-tune/1");
    assert_eq!(figures["drivers"].as_array().unwrap().len(), 1, "named twice, measured once");
    let tuning = Tuning::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(tuning.limits["shm"]).unwrap(), figures["drivers"][0]["chosen"]);
    for gain in figures["collectives"].as_array().unwrap() {
        let [least, mean, most] = ["least", "mean", "most"].map(|what| gain[what].as_f64().unwrap());
        assert!(0.0 < least && least <= mean * 1.001 && mean <= most * 1.001, "{gain}");
    }
    assert!(tuning.collectives.iter().any(|rule| rule.starts_with("allreduce ")), "{tuning:?}");
    check_levels(&figures, &tuning.table());
    assert_eq!(fs::read_dir(stage.runtime().join("tuned")).unwrap().count(), 1, "nothing but the file");

    let alike = at("alike.json");
    fs::copy(&file, &alike).unwrap();
    for other in ["", &alike] {
        let (ended_well, errors) = job(&stage, &file, other);
        assert!(ended_well && errors.is_empty(), "{errors}");
    }
    let mut verbose = stage.sidelane(&["run", "-n", "2", "-x", "PART=ring", "-x", "SIDELANE_VERBOSE=1"]);
    verbose.args([&stage.test_program(), "--exact", "run::part_of_a_rank", "--ignored", "--nocapture", "--quiet"]);
    let verbose = verbose.env("SIDELANE_TUNING", &file).output().unwrap();
    let said = String::from_utf8(verbose.stderr).unwrap();
    assert!(said.contains(&format!("rank 1: limits and collectives as tuned on {}", tuning.machine)), "{said}");
    let another = at("another.json");
    let differs = Tuning { machine: "another".to_owned(), ..tuning };
    fs::write(&another, differs.to_text()).unwrap();
    let (ended_well, errors) = job(&stage, &file, &another);
    assert!(!ended_well && errors.contains("rank 1 was told of another tuning file than rank 0"), "{errors}");

    fs::write(&another, "{}").unwrap();
    let (ended_well, errors) = job(&stage, &another, "");
    assert!(!ended_well && errors.contains("another.json makes no sense: missing field `schema`"), "{errors}");
    stage.assert_nothing_is_left();
}

/// What was decided is what the table says, and follows from what was measured.
fn check_levels(figures: &Value, table: &Table) {
    let decisions: Vec<Decision> = serde_json::from_value(figures["two_levels"].clone()).unwrap();
    let collectives = Collective::ALL.into_iter().filter(|collective| collective.has(Algorithm::TwoLevel));
    for collective in collectives {
        let of = || decisions.iter().filter(|decision| decision.collective == collective.name());
        assert!(of().count() > 0, "{collective} was not measured");
        for decision in of() {
            let Decision { hosts, ranks, bytes, ratio, least, most, levels, is_clear, .. } = *decision;
            assert_eq!((hosts, ranks), (2, 4), "{decision:?}");
            assert!(0.0 < least && least <= ratio && ratio <= most, "{decision:?}");
            assert!(!is_clear || (ratio > 1.1) == (levels == 2), "{decision:?}");
            assert!(is_clear || !decision.is_changed(), "{decision:?}");
            let case = Case { collective, ranks, hosts, bytes, commutative: true };
            assert_eq!(table.choose(case) == Algorithm::TwoLevel, levels == 2, "{decision:?}");
        }
    }
}

#[test]
fn levels_that_cannot_be_compared_lose_nothing_else_unless_they_were_asked_for() {
    let stage = Stage::own_user();
    if !stage.has_labs() {
        return;
    }
    let (left_out, asked_for) = (["--ranks", "2"], ["--ranks", "0", "--two-level", "2x4"]);
    for (asked, is_left_out) in [(&left_out[..], true), (&asked_for, false)] {
        let mut tool = stage.sidelane(&[&["tune", "--quick", "--nic", "0", "--output", "-"], asked].concat());
        let mut tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("one level and two, ")), "it compares");
        // Of the second host: nobody here is told that it has died.
        let is_sixth_rank = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("\0tune-rank\x005\x008\0")
        };
        let sixth_rank = loop {
            assert!(tool.try_wait().unwrap().is_none(), "it ended before a rank was seen");
            if let Some(pid) = stage.processes().into_iter().find(is_sixth_rank) {
                break pid;
            }
        };
        let begun = Instant::now();
        Process::open(sixth_rank).unwrap().signal(libc::SIGKILL).unwrap();
        let errors: Vec<String> = lines.collect();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let why = "collectives of 2 hosts with 4 ranks each: rank 5 ended with signal: 9";
        assert!(
            errors.iter().any(|line| line.contains(why) && line.contains("left out: ") == is_left_out),
            "{errors:?}"
        );
        let output = tool.wait_with_output().unwrap();
        assert_eq!(output.status.success(), is_left_out, "{errors:?}");
        let written = String::from_utf8(output.stdout).unwrap();
        if is_left_out {
            // The tables are elsewhere.
            let tuning = Tuning::parse(&written).unwrap();
            assert!(tuning.limits.is_empty(), "{tuning:?}");
            assert!(tuning.collectives.iter().any(|rule| rule.starts_with("allreduce ")), "{tuning:?}");
            assert!(errors.iter().any(|line| line.contains("Collectives by messages")), "{errors:?}");
        } else {
            assert_eq!(written, "");
        }
        stage.assert_nothing_is_left();
    }
}

#[test]
fn an_interrupted_tune_leaves_what_was_there() {
    let stage = Stage::own_user();
    let folder = stage.runtime().join("kept");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("tuning.json");
    fs::write(&file, "former").unwrap();
    for (by, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let arguments = ["tune", "--nic", "shm", "--ranks", "0", "--output", file.to_str().unwrap()];
        let mut tool = stage.sidelane(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("shm: ")), "it measures");
        signal(&tool, by);
        assert_eq!(as_a_shell_has_it(tool.wait().unwrap()), Some(code));
        assert_eq!(fs::read_to_string(&file).unwrap(), "former");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing but the file");
        stage.assert_nothing_is_left();
    }
}

#[test]
fn numbers_of_ranks_that_no_lab_can_measure_are_refused_at_once() {
    let stage = Stage::own_user();
    for bad in ["2,32", "1", "2,1"] {
        let output = stage.output(&["tune", "--ranks", bad]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains("2 to 26, the most hosts of a lab, or 0"), "{errors}");
    }
    for bad in ["mem", "dpdk"] {
        assert!(!stage.output(&["tune", "--nic", bad]).status.success(), "no machine alone can tell of its pairs");
    }
    for bad in ["4", "27x2", "1x4", "4x1", "2x17", "2x9223372036854775808"] {
        let output = stage.output(&["tune", "--two-level", bad]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains("HOSTSxRANKS such as 4x2"), "{errors}");
    }
}

#[test]
fn where_everything_is_left_out_that_is_told() {
    let stage = Stage::own_user();
    let output = stage.output(&["tune", "--nic", "0", "--ranks", "0", "--two-level", "0"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("nothing is left to measure"), "{errors}");
}

#[test]
fn where_nothing_could_be_measured_the_file_is_as_it_was() {
    let stage = Stage::own_user();
    let file = stage.runtime().join("tuning.json");
    fs::write(&file, "former").unwrap();
    let (told, asked_for) = ("nothing could be measured", "collectives are measured between hosts of a lab");
    for (asked, why) in [(&[][..], told), (&["--two-level", "2x4"], asked_for), (&["--ranks", "2"], asked_for)] {
        let mut tool = stage.sidelane(&[&["tune", "--nic", "0", "--output", file.to_str().unwrap()], asked].concat());
        no_lab(&mut tool);
        let output = tool.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(why), "{errors}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "former");
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::read_dir(stage.runtime()).unwrap().count(), 0, "nothing but the file");
    stage.assert_nothing_is_left();
}

/// What ranks of one host take to each other says nothing of hosts.
#[test]
fn without_a_lab_collectives_go_as_built_in() {
    let stage = Stage::own_user();
    let mut tool = stage.sidelane(&["tune", "--quick", "--nic", "shm", "--output", "-"]);
    no_lab(&mut tool);
    let output = tool.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.contains("collectives go as built in"), "{errors}");
    let tuning = Tuning::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert!(tuning.collectives.is_empty() && tuning.limits.contains_key("shm"), "{tuning:?}");
}

/// No lab can be made.
fn no_lab(tool: &mut Command) {
    refuse(tool, libc::SYS_unshare, None, libc::EPERM);
}

#[test]
fn where_nothing_can_be_written_nothing_is_measured() {
    let stage = Stage::own_user();
    let slip = stage.runtime().join("slip/of/fingers.json");
    for file in [slip.to_str().unwrap(), "/proc/no/such/place.json"] {
        let output = stage.output(&["tune", "--nic", "shm", "--ranks", "0", "--output", file]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.starts_with(&format!("error: cannot write {file}: ")), "{errors}");
    }
    assert_eq!(fs::read_dir(stage.runtime()).unwrap().count(), 0, "no folder was made");
    // That of all jobs is.
    let home = stage.runtime().join("home");
    fs::write(&home, "").unwrap();
    let mut tool = stage.sidelane(&["tune", "--nic", "shm", "--ranks", "0"]);
    let output = tool.env("XDG_CONFIG_HOME", &home).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains(&format!("cannot make {}", home.display())), "{errors}");
    // A folder that is relative is none: whose directory would it be in?
    let mut tool = stage.sidelane(&["tune", "--nic", "shm", "--ranks", "0"]);
    let output = tool.env("XDG_CONFIG_HOME", "somewhere").env_remove("HOME").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("neither XDG_CONFIG_HOME nor HOME is set"), "{errors}");
}
