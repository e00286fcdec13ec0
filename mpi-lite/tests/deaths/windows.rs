//! Rank 2 of four is killed while the stranger, or all, need it for a window: what is called then fails in bounded time, and what
//! does not need it goes on. Puts and gets are not among the calls: on one host they ask nobody.

use std::time::{Duration, Instant};

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::op::Op;
use sidelane_mpi::window::{Lock, Window};
use sidelane_mpi::world;

use crate::launcher;

const RANKS: usize = 4;
const VICTIM: u32 = 2;
const STRANGER: u32 = 1;

/// As where no window is: twice 0.4 s until it is known, a tenth to wake up, and a busy machine.
const BOUND: Duration = Duration::from_secs(5);

/// What no part uses.
const LAST: usize = 999;

/// What each rank does; `go` returns at once, and nowhere in the one, which is dead from then on.
type Part = fn(&mut Window<u64>, &Communicator, go: &dyn Fn()) -> Result<(), ErrorClass>;

/// Who is to be told.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    All,
    Stranger,
    Nobody,
}

const PARTS: [(&str, Told, Part); 12] = [
    ("fence", Told::All, |window, _, go| {
        let epoch = window.fence()?;
        go();
        epoch.put(&[1], 0, 0)?;
        epoch.end()
    }),
    ("start", Told::Stranger, |window, comm, go| {
        go();
        if comm.rank() == STRANGER { window.start(&[VICTIM])?.end() } else { Ok(()) }
    }),
    ("access after start", Told::Stranger, |window, comm, go| match comm.rank() {
        STRANGER => {
            let epoch = window.start(&[VICTIM])?;
            go();
            again_and_again(|| epoch.fetch_and_op(1, VICTIM, 0, &Op::Sum).map(drop))
        }
        VICTIM => {
            let _posted = window.post(&[STRANGER])?;
            go();
            Ok(())
        }
        _ => {
            go();
            Ok(())
        }
    }),
    ("wait after post", Told::Stranger, |window, comm, go| {
        if comm.rank() == STRANGER {
            let posted = window.post(&[VICTIM])?;
            go();
            return posted.wait();
        }
        go();
        Ok(())
    }),
    ("test after post", Told::Stranger, |window, comm, go| {
        if comm.rank() == STRANGER {
            let mut posted = Some(window.post(&[VICTIM])?);
            go();
            while let Some(again) = posted {
                posted = again.test()?;
            }
            return Ok(());
        }
        go();
        Ok(())
    }),
    ("lock", Told::Stranger, |window, comm, go| {
        go();
        if comm.rank() == STRANGER { again_and_again(|| window.lock(VICTIM, Lock::Exclusive)?.end()) } else { Ok(()) }
    }),
    ("lock of all", Told::Stranger, |window, comm, go| {
        go();
        if comm.rank() == STRANGER { again_and_again(|| window.lock_all()?.end()) } else { Ok(()) }
    }),
    ("lock that it has", Told::Nobody, |window, comm, go| {
        let held = (comm.rank() == VICTIM).then(|| window.lock(0, Lock::Exclusive)).transpose()?;
        go();
        drop(held);
        if comm.rank() == STRANGER { window.lock(0, Lock::Exclusive)?.end() } else { Ok(()) }
    }),
    ("accumulate", Told::Stranger, |window, comm, go| {
        let epoch = window.lock_all()?;
        go();
        stranger(comm, || epoch.accumulate(&[1; 1_000], VICTIM, 0, &Op::Sum).and_then(|()| epoch.flush(VICTIM)))
    }),
    ("fetch", Told::Stranger, |window, comm, go| {
        let epoch = window.lock_all()?;
        go();
        stranger(comm, || epoch.fetch_and_op(1, VICTIM, 0, &Op::Sum).map(drop))
    }),
    ("compare", Told::Stranger, |window, comm, go| {
        let epoch = window.lock_all()?;
        go();
        stranger(comm, || epoch.compare_and_swap(0, 1, VICTIM, 0).map(drop))
    }),
    ("begun fetches", Told::Stranger, |window, comm, go| {
        let epoch = window.lock_all()?;
        go();
        let mut before = vec![0; 8 * 500];
        stranger(comm, || {
            epoch.scope(|scope| {
                for part in before.chunks_mut(500) {
                    scope.get_accumulate(&[1; 500], part, VICTIM, 0, &Op::Sum)?;
                }
                Ok(())
            })
        })
    }),
];

fn stranger(comm: &Communicator, call: impl FnMut() -> Result<(), ErrorClass>) -> Result<(), ErrorClass> {
    if comm.rank() == STRANGER { again_and_again(call) } else { Ok(()) }
}

/// Until it fails, which it may do only some calls after the one has died.
fn again_and_again(mut call: impl FnMut() -> Result<(), ErrorClass>) -> Result<(), ErrorClass> {
    let begun = Instant::now();
    while begun.elapsed() < 2 * BOUND {
        call()?;
    }
    Ok(())
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let what = std::env::var("WHAT").unwrap();
    let (_, _, part) = PARTS.into_iter().find(|(name, ..)| *name == what).expect("one of those");
    world::run(|world| {
        let mut window = world.window(1_000).unwrap();
        // What the one says to the others before it dies.
        let go = || {
            world.barrier().unwrap();
            if world.rank() == VICTIM {
                crate::killed::die();
            }
        };
        let begun = Instant::now();
        let ended = part(&mut window, world, &go);
        let took = begun.elapsed();
        // The window is as good as before for those who are left.
        let left = world.shrink().unwrap();
        left.barrier().unwrap();
        let counted =
            window.lock(0, Lock::Exclusive).and_then(|epoch| epoch.fetch_and_op(1, 0, LAST, &Op::Sum)).map(drop);
        left.barrier().unwrap();
        assert!(world.rank() != 0 || window.read(LAST..LAST + 1).unwrap() == [u64::from(left.size())]);
        println!(
            "\ntold: {} {}",
            took.as_millis(),
            ended.and(counted).map_or_else(|class| class.to_string(), |()| "well".to_owned())
        );
    })
    .unwrap();
}

#[test]
fn whoever_needs_a_rank_that_was_killed_for_a_window_is_told() {
    for (what, told, _) in PARTS {
        let said = launcher::run(RANKS, "windows::part_of_a_rank", &[("WHAT", what)], true);
        for (rank, said) in (0..).zip(said) {
            let Some(said) = said else {
                assert_eq!(rank, VICTIM, "{what}: rank {rank} said nothing");
                continue;
            };
            let (took, ended) = said.split_once(' ').unwrap();
            let took = Duration::from_millis(took.parse().unwrap());
            println!("{what}: rank {rank}: {ended} after {took:?}");
            let is_told = told == Told::All || told == Told::Stranger && rank == STRANGER;
            let expected = if is_told { ErrorClass::ProcFailed.to_string() } else { "well".to_owned() };
            assert_eq!(ended, expected, "{what}: rank {rank}");
            assert!(took < BOUND, "{what}: rank {rank} was told after {took:?}");
        }
    }
}
