//! Threads as ranks: the memory between them is mapped once for each.

mod blocks;
mod failures;
mod few;
mod reductions;
mod shared_copy;
mod sleep;
mod waits;

use std::cell::Cell;
use std::sync::{Barrier, Mutex};

use super::*;
use crate::coll::tests::composed::{COMPOSE, combined, compose, input};
use crate::coll::{Blocks, Reduction};
pub(super) use waits::Bereft;

/// A rank that reads its own process's memory.
pub(super) struct Thread;

impl Peers for Thread {
    type Error = NonZeroU32;

    const WAITS: bool = true;

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        Ok(false)
    }

    fn sleep(&mut self) {
        std::thread::park();
    }

    fn may_sleep(&self) -> bool {
        false
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, member: usize) {
        SLEEPERS.lock().unwrap().iter().filter(|(known, _)| *known == member).for_each(|(_, thread)| thread.unpark());
    }

    fn read(&mut self, _: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        // As between processes: the kernel copies, so that no reference is made to what another thread has.
        let file = std::fs::File::open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, into, address).unwrap();
        READS.set(READS.get() + 1);
        Ok(())
    }

    fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
        Ok(())
    }

    fn write(&mut self, _: usize, address: u64, bytes: &[u8]) -> Result<(), NonZeroU32> {
        let file = std::fs::File::options().write(true).open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, address).unwrap();
        Ok(())
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

std::thread_local! {
    /// What this thread has read out of others' memory.
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// Of all tests that run: a rank of another's is woken in vain.
static SLEEPERS: Mutex<Vec<(usize, std::thread::Thread)>> = Mutex::new(Vec::new());

/// Every rank's answer.
pub(super) fn run<T: Send>(size: usize, rank: impl Fn(usize, &mut Host) -> T + Sync) -> Vec<T> {
    run_all((size, sidelane_nic::affinity::online()), &rank)
}

/// The same of ranks that take themselves to have so many cores.
fn run_on<T: Send>(case: (usize, usize), rank: impl Fn(usize, &mut Host) -> T + Sync) -> Vec<T> {
    run_all(case, &rank)
}

/// One function for all that answer the same: what starts threads is a lot of code.
fn run_all<T: Send>((size, cores): (usize, usize), rank: &(dyn Fn(usize, &mut Host) -> T + Sync)) -> Vec<T> {
    crate::patience::watch(&format!("a run of {size}"), crate::patience::SUITE_PATIENCE);
    let first = Host::create(size, cores).unwrap();
    let (ticket, all_have_joined) = (first.ticket(), Barrier::new(size));
    let mut first = Some(first);
    std::thread::scope(|scope| {
        let all_have_joined = &all_have_joined;
        let threads: Vec<_> = (0..size)
            .map(|me| {
                let first = first.take();
                scope.spawn(move || {
                    let mut host = first.unwrap_or_else(|| Host::join(ticket, me, size).unwrap());
                    SLEEPERS.lock().unwrap().push((me, std::thread::current()));
                    all_have_joined.wait();
                    at_once(host.allow_reads(true, &mut Thread)).unwrap();
                    rank(me, &mut host)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Ranks, and how many cores they take themselves to have: with fewer they meet at one word, with enough each looks at all others'.
const CASES: [(usize, usize); 7] = [(1, 2), (2, 2), (2, 1), (3, 2), (3, 3), (5, 5), (16, 2)];
/// Short and long ones, also where a slot takes a block for each, and one that is short where five ranks or more read it on two cores.
const LENS: [usize; 7] = [0, 2, 1000, SHORT, SHORT + 2, 3 * COMMON - 2, PIECE + 10];

#[test]
fn a_root_that_runs_ahead_overwrites_nothing_that_is_not_read() {
    run(5, |me, host| {
        for len in [host.short_common(), SHORT_ALL, FEW] {
            for call in 0..100 {
                let mut data = vec![if me == 0 { call } else { 0xee }; len];
                at_once(host.broadcast(0, &mut data, &mut Thread)).unwrap();
                assert!(data.iter().all(|byte| *byte == call), "{len} bytes, call {call} at {me}");
            }
        }
    });
}

#[test]
fn long_arrays_are_left_to_others_where_one_member_cannot_read() {
    let takes = run(3, |me, host| {
        at_once(host.allow_reads(me != 1, &mut Thread)).unwrap();
        (host.limits().take(SHORT_ALL), host.limits().take(SHORT_ALL + 1))
    });
    assert_eq!(takes, [(true, false); 3]);
}
