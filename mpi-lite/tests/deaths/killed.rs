//! Rank 2 of four is killed. It had connections to ranks 0 and 3, which wait for rank 1 and so have no reason to say anything; rank 1 has
//! none and waits for rank 2.
#![allow(unsafe_code)] // kill(2), a persistent call.

use std::time::{Duration, Instant};

use sidelane_mpi::comm::{Communicator, ErrorClass, Piece};
use sidelane_mpi::datatype::Predefined;
use sidelane_mpi::op::Op;
use sidelane_mpi::world;

use crate::launcher;

const RANKS: usize = 4;
const VICTIM: u32 = 2;
/// Has never spoken with it.
const STRANGER: u32 = 1;
/// Rounds that all go through before.
const ROUNDS: usize = 3;

/// From when the others wait: twice 0.4 s until it is known, a tenth to wake up, and a busy machine.
const BOUND: Duration = Duration::from_secs(5);

/// What is called when one has died.
type Round = fn(&Communicator) -> Result<(), ErrorClass>;

/// By shared memory, and all members wait, or the stranger alone.
const COLLECTIVE: [(&str, Round); 12] = [
    ("barrier", |world| world.barrier()),
    ("allreduce", |world| world.allreduce(&[1u64], &mut [0], &Op::Sum)),
    ("long allreduce", |world| world.allreduce_in_place(&mut vec![1u64; 100_000], &Op::Sum)),
    ("broadcast", |world| world.broadcast(&mut [1u64], VICTIM)),
    ("long broadcast", |world| world.broadcast(&mut vec![1u64; 100_000], VICTIM)),
    ("reduce", |world| world.reduce(&[1u64], &mut [0], &Op::Sum, STRANGER)),
    ("gather", |world| world.gather(&[1u64], &mut [0; RANKS], STRANGER)),
    ("exchange of pieces", |world| {
        let pieces: Vec<Piece> = (0..RANKS).map(|at| Piece::new(at as isize, 1, &Predefined::Byte.into())).collect();
        world.alltoall_pieces(&[1u8; RANKS], &mut [0; RANKS], &pieces, &pieces)
    }),
    ("scan", |world| world.scan(&[1u64], &mut [0], &Op::Sum)),
    ("begun barrier", |world| world.scope(|scope| scope.barrier()?.wait().map(drop))),
    ("tested reduce", |world| {
        let mut sum = [0];
        world.scope(|scope| {
            let mut call = scope.reduce(&[1u64], &mut sum, &Op::Sum, STRANGER)?;
            while call.test()?.is_none() {}
            Ok(())
        })
    }),
    ("split", |world| world.split(Some(0), 0).map(drop)),
];

/// By messages, of the stranger and the one.
const DIRECT: [(&str, Round); 6] = [
    ("receive", |world| give(world).unwrap_or_else(|| world.recv(&mut [0u8], VICTIM, 1).map(drop))),
    ("send", |world| match world.rank() {
        VICTIM => world.recv(&mut vec![0u8; 100_000], STRANGER, 1).map(drop),
        STRANGER => world.ssend(&vec![1u8; 100_000], VICTIM, 1),
        _ => Ok(()),
    }),
    ("tested receive", |world| {
        give(world).unwrap_or_else(|| {
            let mut room = [0u8];
            world.scope(|scope| {
                let mut call = scope.recv(&mut room, VICTIM, 1)?;
                while call.test()?.is_none() {}
                Ok(())
            })
        })
    }),
    ("probe", |world| {
        give(world).unwrap_or_else(|| world.probe(VICTIM, 1).and_then(|_| world.recv(&mut [0u8], VICTIM, 1)).map(drop))
    }),
    ("tested probe", |world| {
        give(world).unwrap_or_else(|| {
            while world.iprobe(VICTIM, 1)?.is_none() {}
            world.recv(&mut [0u8], VICTIM, 1).map(drop)
        })
    }),
    ("receive from anybody", |world| {
        let any = sidelane_mpi::comm::Source::Any;
        give(world).unwrap_or_else(|| world.recv(&mut [0u8], any, 1).map(drop))
    }),
];

/// What the one does for the stranger, which goes on.
fn give(world: &Communicator) -> Option<Result<(), ErrorClass>> {
    match world.rank() {
        VICTIM => Some(world.send(&[1u8], STRANGER, 1)),
        STRANGER => None,
        _ => Some(Ok(())),
    }
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let what = std::env::var("WHAT").unwrap();
    let all = COLLECTIVE.into_iter().chain(DIRECT);
    let (_, round) = all.into_iter().find(|(name, _)| *name == what).expect("one of those");
    let is_collective = COLLECTIVE.iter().any(|(name, _)| *name == what);
    let rounds = if is_collective { ROUNDS } else { 0 };
    world::run(|world| {
        // Makes the memory that all share, and some connections.
        world.barrier().unwrap();
        (0..rounds).for_each(|_| round(world).unwrap());
        let rank = world.rank();
        if rank == VICTIM {
            die();
        }
        if rank != STRANGER {
            world.recv(&mut [0u8], STRANGER, 7).unwrap();
        }
        let (begun, worked) = (Instant::now(), processor_time());
        let mut ended = Ok(());
        // Who only gives may be some calls ahead.
        for _ in 0..if is_collective || rank == STRANGER { 1_000 } else { 0 } {
            ended = ended.and_then(|()| round(world));
        }
        let (took, worked) = (begun.elapsed(), processor_time() - worked);
        if rank == STRANGER {
            [0, 3].into_iter().for_each(|other| world.send(&[1u8], other, 7).unwrap());
        }
        let ended = ended.map_or_else(|class| class.to_string(), |()| "well".to_owned());
        println!("\ntold: {} {} {ended}", took.as_millis(), worked.as_millis());
    })
    .unwrap();
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank_that_is_silent() {
    let is = |what: &str| std::env::var("WHAT").is_ok_and(|is| is == what);
    world::run(|world| {
        if world.rank() == 1 {
            // Calls nothing of ours ten times as long as others on another host would wait for an answer. It leaves the core to
            // other tests: whether it is used makes no difference to those who wait.
            std::thread::sleep(Duration::from_secs(5));
        }
        let other = 1 - world.rank();
        let ended = match world.rank() {
            0 if is("send") => world.send(&[1u8], other, 1).and_then(|()| world.recv(&mut [0u8], other, 2)).map(drop),
            0 => world.recv(&mut [0u8], other, 2).and_then(|_| world.send(&[1u8], other, 1)),
            _ if is("send") => world.recv(&mut [0u8], other, 1).and_then(|_| world.send(&[1u8], other, 2)),
            _ => world.send(&[1u8], other, 2).and_then(|()| world.recv(&mut [0u8], other, 1).map(drop)),
        };
        println!("\ntold: {}", ended.map_or_else(|class| class.to_string(), |()| "well".to_owned()));
    })
    .unwrap();
}

pub fn die() {
    // SAFETY: takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    std::thread::park();
}

/// Of this process so far.
fn processor_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spent` is a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut spent) };
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// What the ranks said: how long each took, of which it had the processor so long, and the error.
fn job(what: &str, reaps: bool) -> Vec<Option<(Duration, Duration, String)>> {
    let said = launcher::run(RANKS, "killed::part_of_a_rank", &[("WHAT", what)], reaps);
    let read = |line: String| {
        let mut words = line.splitn(3, ' ');
        let mut ms = || words.next().unwrap().parse().map(Duration::from_millis).unwrap();
        Some((ms(), ms(), words.next().unwrap().to_owned()))
    };
    said.into_iter().map(|line| line.and_then(read)).collect()
}

fn all_are_told(what: &str, is_collective: bool, reaps: bool) {
    let said = job(what, reaps);
    for (rank, said) in said.into_iter().enumerate() {
        let Some((took, worked, error)) = said else {
            assert_eq!(rank, VICTIM as usize, "{what}: rank {rank} said nothing");
            continue;
        };
        println!("{what}: rank {rank}: {error} after {took:?}, {worked:?} of processor");
        let waited = is_collective || rank == STRANGER as usize;
        assert_eq!(
            error,
            if waited { ErrorClass::ProcFailed.to_string() } else { "well".to_owned() },
            "{what}: rank {rank}"
        );
        assert!(took < BOUND, "{what}: rank {rank} was told after {took:?}");
        let spins = what.starts_with("tested");
        assert!(
            spins || worked < Duration::from_millis(300),
            "{what}: rank {rank} had the processor for {worked:?} of {took:?}"
        );
    }
}

#[test]
fn whoever_waits_in_shared_memory_for_a_rank_that_was_killed_is_told() {
    COLLECTIVE.iter().for_each(|(what, _)| all_are_told(what, true, true));
}

#[test]
fn whoever_waits_for_a_rank_that_nobody_has_waited_for_is_told() {
    ["barrier", "reduce", "tested reduce"].into_iter().for_each(|what| all_are_told(what, true, false));
}

#[test]
fn whoever_waits_for_a_message_of_a_rank_that_was_killed_is_told() {
    DIRECT.iter().for_each(|(what, _)| all_are_told(what, false, true));
}

#[test]
fn a_rank_that_is_silent_before_it_speaks_is_not_taken_for_dead() {
    for what in ["send", "receive"] {
        let variables = [("WHAT", what), ("SIDELANE_SILENCE", "0.1")];
        let said = launcher::run(2, "killed::part_of_a_rank_that_is_silent", &variables, true);
        assert_eq!(said, [(); 2].map(|()| Some("well".to_owned())), "{what}");
    }
}
