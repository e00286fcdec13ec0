//! Jobs in which several threads of each rank communicate at the same time.

use sidelane_mpi::comm::Communicator;
use sidelane_mpi::op::Op;
use sidelane_mpi::world;

use crate::run::{job_of, own_stage, said, told};
use crate::stage::{Stage, for_each_user};

const THREADS: u32 = 3;
const ROUNDS: u32 = 50;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let sum: u32 = world::run_with_threads(|comm| {
        let own: Vec<Communicator> = (0..THREADS).map(|_| comm.dup().unwrap()).collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).zip(&own).map(|(thread, own)| scope.spawn(move || go_round(comm, own, thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    })
    .unwrap();
    println!("\ntold: {sum}");
}

/// Messages round the ring of all ranks with a tag of the thread's, short and long, and sums on its own communicator.
fn go_round(comm: &Communicator, own: &Communicator, thread: u32) -> u32 {
    let (rank, size, tag) = (comm.rank(), comm.size(), thread as i32);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut total = 0;
    for round in 0..ROUNDS {
        let len = if round % 10 == thread { 20_000 } else { 2 };
        let (sent, mut got) = (vec![rank + round + thread; len], vec![0; len]);
        comm.sendrecv(&sent, next, tag, &mut got, before, tag).unwrap();
        assert!(got.iter().all(|word| *word == before + round + thread), "round {round} of thread {thread}");
        let mut sum = [rank];
        own.allreduce_in_place(&mut sum, &Op::Sum).unwrap();
        total += sum[0];
    }
    total
}

fn run(stage: &Stage, ranks: u32, options: &[&str]) {
    let ranks_text = ranks.to_string();
    let ours = ["-n", &ranks_text, "--timeout", "60"];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "threads::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, lines, errors) = told(&output);
    let sum = (THREADS * ROUNDS * ranks * (ranks - 1) / 2).to_string();
    assert_eq!((code, said(&output)), (Some(0), vec![sum; ranks as usize]), "{options:?}: {lines}{errors}");
}

#[test]
fn threads_of_all_ranks_communicate_at_once_on_one_host() {
    own_stage(|stage| [1, 2, 4].into_iter().for_each(|ranks| run(stage, ranks, &[])));
}

#[test]
fn threads_of_all_ranks_communicate_at_once_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        for driver in ["uring", "udp"] {
            run(stage, 2, &["--hosts", "lab", "--nic", driver]);
            run(stage, 4, &["--hosts", "lab", "--nic", driver]);
        }
        stage.text(&["lab", "down"]);
    });
}
