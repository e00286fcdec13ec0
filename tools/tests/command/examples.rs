//! The examples of MPI in Rust do what they say, on any number of ranks: the programs are `mpi-lite/examples`.

use sidelane_mpi::world;

use crate::run::{job_of, own_stage, told};
use crate::stage::{Stage, for_each_user};

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/heat.rs"]
mod heat;
#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/histogram.rs"]
mod histogram;
#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/n_body.rs"]
mod n_body;
#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/ring.rs"]
mod ring;
#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../../mpi-lite/examples/work_queue.rs"]
mod work_queue;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let program = match &*std::env::var("EXAMPLE").unwrap() {
        "heat" => heat::heat,
        "histogram" => histogram::histogram,
        "n_body" => n_body::n_body,
        "ring" => ring::ring,
        "work_queue" => work_queue::work_queue,
        other => panic!("there is no example `{other}`"),
    };
    world::run(program).unwrap().unwrap();
}

/// What is behind `mark` in the line that an example prints on so many ranks.
fn printed(stage: &Stage, example: &str, ranks: u32, options: &[&str], mark: &str) -> String {
    let (ranks_text, example_set) = (ranks.to_string(), format!("EXAMPLE={example}"));
    let ours = ["-n", &ranks_text, "--timeout", "60", "-x", &example_set];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "examples::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, lines, errors) = told(&output);
    assert_eq!(code, Some(0), "{example} on {ranks} ranks: {lines}{errors}");
    let mut found = lines.lines().filter_map(|line| line.split_once(mark));
    let (_, rest) = found.next().unwrap_or_else(|| panic!("{example} on {ranks} ranks: {lines}"));
    assert!(found.next().is_none(), "{example}: one rank prints it: {lines}");
    rest.to_owned()
}

/// The results are checked by the examples themselves where there is a formula; else by that of one rank.
fn come_to_the_same(stage: &Stage, many: &[u32], options: &[&str]) {
    for (example, mark) in [("heat", "ranks: "), ("histogram", "come to "), ("n_body", "kinetic energy ")] {
        let alone = printed(stage, example, 1, &[], mark);
        for ranks in many {
            assert_eq!(printed(stage, example, *ranks, options, mark), alone, "{example} on {ranks} ranks");
        }
    }
    for ranks in many {
        let sum = 1_000 * ranks * (ranks - 1) / 2;
        assert_eq!(printed(stage, "ring", *ranks, options, "ranks: "), sum.to_string());
        let tasks = printed(stage, "work_queue", *ranks, options, "78498 primes below 1000000; tasks by rank: [");
        let done: Vec<u32> = tasks.trim_end_matches(']').split(", ").map(|count| count.parse().unwrap()).collect();
        assert_eq!((done.len() as u32, done.iter().sum::<u32>()), (*ranks, 100), "{done:?}");
    }
}

#[test]
fn examples_come_to_the_same_on_any_number_of_ranks() {
    own_stage(|stage| come_to_the_same(stage, &[2, 3, 6], &[]));
}

#[test]
fn examples_come_to_the_same_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        come_to_the_same(stage, &[4], &["--hosts", "lab"]);
        stage.text(&["lab", "down"]);
    });
}
