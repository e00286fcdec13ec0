//! Begun calls that wait for nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::rng::Rng;

use super::*;
use crate::host::Host;
use crate::op::Function;

/// As [`job`], of ranks that have met once, and so have memory in common.
fn met(size: u32, each: impl Fn(&mut Device, Ranks, usize) + Sync) {
    job(size, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let rank = (size - 1 - device.own()) as usize;
        each(device, ranks, rank);
    });
}

/// Makes a call that goes by shared memory, if it can be made without waiting.
pub(super) fn call_now(
    ranks: &Ranks,
    device: &mut Device,
    call: Call,
    send: Option<&[u8]>,
    receive: &mut [u8],
) -> Option<Result<(), Error>> {
    call_now_with(compose, ranks, device, call, (send, receive))
}

fn call_now_with(
    function: Function,
    ranks: &Ranks,
    device: &mut Device,
    call: Call,
    (send, receive): (Option<&[u8]>, &mut [u8]),
) -> Option<Result<(), Error>> {
    let (queue, call) = ranks.queue_for(call, Buffers::of(send, receive))?;
    match queue.call_now(device, &call, (send, receive), Some(function)) {
        Look::Made(done) => Some(done),
        Look::NotYet | Look::Nothing => None,
    }
}

/// Some ranks make a call at once where they can, and others make it by a future.
#[test]
fn every_call_that_is_made_at_once() {
    let made_at_once = AtomicU32::new(0);
    for size in [2, 3, 5] {
        met(size, |device, mut ranks, rank| {
            let mut turn = 0;
            for len in [0, 2, 8, 1000, 20_000].repeat(20) {
                every_call(size as usize, rank, len, &mut |call, send, receive| {
                    turn += 1;
                    let tries = (turn / 3 + rank) % 3 != 1;
                    if let Some(done) = tries.then(|| call_now(&ranks, device, call, send, receive)).flatten() {
                        done.unwrap();
                        made_at_once.fetch_add(1, Ordering::Relaxed);
                    } else if let Some(mut call) = begin(&ranks, call, send, receive) {
                        finish(device, &mut call).unwrap();
                    } else {
                        ranks.call(device, call, send, receive, &mut compose).unwrap();
                    }
                });
            }
        });
    }
    // Roots of broadcasts wait for nobody, while there is room.
    assert!(made_at_once.into_inner() > 60);
}

#[test]
fn a_call_that_needs_nobody_is_behind_one_that_does() {
    let waits = std::sync::Barrier::new(2);
    met(2, |device, ranks, rank| {
        let [first, second] = [0, 1].map(|root| Call::Broadcast { root });
        let mut rooms = [[rank as u8 + 5; 8], [rank as u8 + 5; 8], [rank as u8 + 7; 8]];
        let [one, other, last] = &mut rooms;
        if rank == 1 {
            assert_eq!(call_now(&ranks, device, first, Some(&[]), one), None);
            let mut first = begin(&ranks, first, Some(&[]), one).unwrap();
            assert_eq!(first.advance(device), Ok(false));
            assert_eq!(call_now(&ranks, device, second, Some(&[]), other), None, "the root needs nobody");
            let mut second = begin(&ranks, second, Some(&[]), other).unwrap();
            assert_eq!(second.advance(device), Ok(false));
            waits.wait();
            finish(device, &mut first).unwrap();
            assert_eq!(call_now(&ranks, device, Call::Broadcast { root: 1 }, Some(&[]), last), None, "not before it");
            assert_eq!(second.advance(device), Ok(true));
            assert_eq!(call_now(&ranks, device, Call::Broadcast { root: 1 }, Some(&[]), last), Some(Ok(())));
        } else {
            waits.wait();
            assert_eq!(call_now(&ranks, device, first, Some(&[]), one), Some(Ok(())));
            let mut second = begin(&ranks, second, Some(&[]), other).unwrap();
            finish(device, &mut second).unwrap();
            let mut third = begin(&ranks, Call::Broadcast { root: 1 }, Some(&[]), last).unwrap();
            finish(device, &mut third).unwrap();
        }
        assert_eq!(rooms, [[5; 8], [6; 8], [8; 8]], "rank {rank}");
    });
}

/// Ranks come one after the other: who has to wait is not kept, and who has not is through.
#[test]
fn who_begins_a_call_is_kept_by_nobody() {
    let (reduction, blocks) = (COMPOSE, Blocks::Equal(2));
    // Who is through at once if ranks come backwards: of three those with these numbers.
    let calls: [(Call, &[usize]); 10] = [
        (Call::Barrier, &[0]),
        (Call::Allreduce { reduction }, &[0]),
        (Call::ReduceScatter { blocks, reduction }, &[0]),
        (Call::Allgather { len: 2 }, &[0]),
        (Call::Alltoall { len: 2 }, &[0]),
        (Call::Broadcast { root: 1 }, &[1, 0]),
        (Call::Scatter { root: 1, len: 2 }, &[1, 0]),
        (Call::Reduce { root: 1, reduction }, &[2, 0]),
        (Call::Gather { root: 1, len: 2 }, &[2, 0]),
        (Call::Scan { reduction }, &[0]),
    ];
    let come = AtomicU32::new(0);
    met(3, |device, ranks, rank| {
        for (turn, (call, through)) in calls.iter().enumerate() {
            let (given, mut room) = (input(rank, 6), [0; 6]);
            let (send, receive) = lens(*call, 3);
            let (given, room) = (&given[..send], &mut room[..receive]);
            while come.load(Ordering::Acquire) as usize != turn * 3 + 2 - rank {
                std::thread::yield_now();
            }
            let made = call_now(&ranks, device, *call, Some(given), room);
            assert_eq!(made, through.contains(&rank).then_some(Ok(())), "{call:?}, rank {rank}");
            let mut under_way = if made.is_none() { begin(&ranks, *call, Some(given), room) } else { None };
            if let Some(call) = &mut under_way {
                assert_eq!(call.advance(device), Ok(false));
            }
            come.fetch_add(1, Ordering::Release);
            under_way.iter_mut().for_each(|call| finish(device, call).unwrap());
        }
    });
}

/// Where all wait for all, each of two ranks with cores.
#[test]
fn whoever_looks_in_vain_keeps_nobody_waiting() {
    let mut device = Device::open(0, vec![adi::Process::here("", &[])], vec![], &Config::default()).unwrap();
    let first = Host::create(2, sidelane_nic::affinity::online()).unwrap();
    let second = Host::join(first.ticket(), 1, 2).unwrap();
    let mut members = [(0, first), (1, second)].map(|(rank, host)| Member::new(rank, 2, host, &device));
    let (reduction, blocks, has_cores) = (COMPOSE, Blocks::Equal(2), sidelane_nic::affinity::online() > 1);
    let calls = [
        Call::Barrier,
        Call::Allreduce { reduction },
        Call::ReduceScatter { blocks, reduction },
        Call::Allgather { len: 2 },
        Call::Alltoall { len: 2 },
    ];
    // By a look again, and by a future.
    for (turn, (call, turns)) in calls.into_iter().flat_map(|call| [(call, 0), (call, 1_000)]).enumerate() {
        let rooms = [0, 1].map(|offset| {
            let member = &mut members[(turn + offset) % 2];
            member.room.fill(0);
            if offset == 1 && has_cores {
                assert!(matches!(member.look(&mut device, call), Look::Made(Ok(()))), "{call:?}");
            } else {
                assert!(matches!(member.look(&mut device, call), Look::NotYet | Look::Nothing), "{call:?}");
                let mut begun = member.begin(call);
                (0..turns).for_each(|_| assert_eq!(begun.advance(&mut device), Ok(false)));
                member.under_way = Some(begun);
            }
            member.room.clone()
        });
        while members.iter_mut().any(|member| member.under_way.is_some()) {
            members.iter_mut().for_each(|member| {
                member.under_way.take_if(|call| call.advance(&mut device).unwrap());
            });
        }
        let first = &members[turn % 2].room;
        // The same for both, or each its part.
        match call {
            Call::Allreduce { .. } => {
                assert!(*first == combined(2, 4) && (!has_cores || rooms[1] == *first), "{call:?}")
            }
            Call::Allgather { .. } => assert!(!has_cores || rooms[1] == *first, "{call:?}"),
            _ => {}
        }
    }
}

/// What `may_need_nobody` says of a call, and what a rank then does that makes it: in whatever order ranks come, and however far one is ahead.
#[test]
fn calls_are_made_at_once_that_do_not_wait_and_no_others() {
    let mut device = Device::open(0, vec![adi::Process::here("", &[])], vec![], &Config::default()).unwrap();
    // Ranks that look at each other's words, and, where they are more than cores, ranks that meet at one.
    for size in [2, 3, 9] {
        let first = Host::create(size, sidelane_nic::affinity::online()).unwrap();
        let ticket = first.ticket();
        let others = (1..size).map(|me| Host::join(ticket, me, size).unwrap());
        let hosts: Vec<_> = [first].into_iter().chain(others).collect();
        let mut members: Vec<_> = (0..).zip(hosts).map(|(rank, host)| Member::new(rank, size, host, &device)).collect();
        let mut rng = Rng::new(size as u64);
        while members.iter().any(|member| member.made < CALLS) {
            let member = &mut members[rng.below(size as u64) as usize];
            let steps = rng.below(2 * AHEAD as u64);
            (0..steps).take_while(|_| member.goes_on(&mut device)).for_each(drop);
        }
    }
}

/// A rank of which a thread plays all.
struct Member {
    rank: usize,
    queue: Arc<Queue>,
    made: usize,
    under_way: Option<Queued>,
    given: Vec<u8>,
    room: Vec<u8>,
}

impl Member {
    fn new(rank: usize, size: usize, host: Host, device: &Device) -> Self {
        let queue = Arc::new(Queue::new(5, rank, vec![0; size].into(), host, -2, device.patience()));
        Self { rank, queue, made: 0, under_way: None, given: input(rank, 2 * size), room: vec![0; 2 * size] }
    }

    /// False if it waits, or has made all calls.
    fn goes_on(&mut self, device: &mut Device) -> bool {
        if let Some(call) = &mut self.under_way {
            if !call.advance(device).unwrap() {
                return false;
            }
            self.under_way = None;
        } else if self.made == CALLS {
            return false;
        } else {
            let call = self.call();
            if let Look::Made(done) = self.look(device, call) {
                done.unwrap();
            } else {
                let mut begun = self.begin(call);
                assert_eq!(begun.advance(device), Ok(false), "{call:?}, rank {}, call {}", self.rank, self.made);
                self.under_way = Some(begun);
                return false;
            }
        }
        self.made += 1;
        true
    }

    fn look(&mut self, device: &mut Device, call: Call<'static>) -> Look<Result<(), Error>> {
        let (send, receive) = lens(call, self.room.len() / 2);
        self.queue.call_now(device, &call, (Some(&self.given[..send]), &mut self.room[..receive]), Some(compose))
    }

    fn begin(&mut self, call: Call<'static>) -> Queued {
        let (send, receive) = lens(call, self.room.len() / 2);
        // SAFETY: both stay where they are, and nobody else uses them, until the call is over.
        let lent = unsafe { Lent::new(&raw const self.given[..send], &raw mut self.room[..receive]) };
        self.queue.begin(call, false, lent, KeptCombine::Function(compose))
    }

    /// The next one: each kind again and again, so that who waits for nobody gets ahead as far as there is room.
    fn call(&self) -> Call<'static> {
        let (turn, reduction) = (self.made / AHEAD, COMPOSE);
        let root = turn % (self.room.len() / 2);
        let calls = [
            Call::Barrier,
            Call::Broadcast { root },
            Call::Reduce { root, reduction },
            Call::Allreduce { reduction },
            Call::ReduceScatter { blocks: Blocks::Equal(2), reduction },
            Call::Scan { reduction },
            Call::Exscan { reduction },
            Call::Gather { root, len: 2 },
            Call::Scatter { root, len: 2 },
            Call::Allgather { len: 2 },
            Call::Alltoall { len: 2 },
        ];
        calls[turn % KINDS]
    }
}

/// Of the calls that a queue takes.
const KINDS: usize = 11;
/// More than a ring has slots.
const AHEAD: usize = 80;
/// Each kind with each root among three ranks.
const CALLS: usize = 3 * KINDS * AHEAD;

/// Bytes that a rank gives and gets in a call of blocks, or arrays, of 2 bytes for each rank.
fn lens(call: Call, size: usize) -> (usize, usize) {
    let all = 2 * size;
    match call {
        Call::Barrier => (0, 0),
        Call::Broadcast { .. } => (0, all),
        Call::Allgather { .. } | Call::Gather { .. } => (2, all),
        Call::ReduceScatter { .. } | Call::Scatter { .. } => (all, 2),
        _ => (all, all),
    }
}

/// What a rank gives is longer than what it gets.
#[test]
fn blocks_that_are_too_long_together_are_not_for_memory_that_is_not_read() {
    let device = Device::open(0, vec![adi::Process::here("", &[])], vec![], &Config::default()).unwrap();
    let Member { queue, .. } = Member::new(0, 2, Host::create(2, 2).unwrap(), &device);
    let takes = [8_192, 8_193].map(|len| {
        let call = Call::ReduceScatter { blocks: Blocks::Equal(len), reduction: COMPOSE };
        queue.takes(call, Buffers { send: 2 * len, receive: len, in_place: false }).is_some()
    });
    assert_eq!(takes, [true, false]);
}

#[test]
fn a_root_runs_ahead_without_waiting_as_far_as_there_is_room() {
    let meet = std::sync::Barrier::new(2);
    met(2, |device, mut ranks, rank| {
        let call = Call::Broadcast { root: 0 };
        // More than a ring each time, and then again what was taken meanwhile.
        let mut given = 0..;
        for _ in 0..3 {
            let mut ahead = 0u8;
            let mut next = given.start;
            if rank == 0 {
                while let Some(made) = call_now(&ranks, device, call, Some(&[]), &mut [next; 8]) {
                    made.unwrap();
                    (ahead, next) = (ahead + 1, next + 1);
                }
                assert!((32..=64).contains(&ahead), "{ahead}");
            }
            ranks.call(device, call, Some(&[]), std::slice::from_mut(&mut ahead), &mut compose).unwrap();
            for value in given.start..given.start + ahead {
                let mut room = [0; 8];
                if rank == 1 {
                    assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room), Some(Ok(())));
                    assert_eq!(room, [value; 8]);
                }
            }
            given = given.start + ahead..;
            meet.wait();
        }
    });
}

#[test]
fn who_sleeps_is_woken_by_a_call_that_is_made_at_once() {
    let sleeps = std::sync::Barrier::new(2);
    job(2, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let (call, mut room) = (Call::Broadcast { root: 0 }, [7; 8]);
        if device.own() == 1 {
            sleeps.wait();
            assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room), Some(Ok(())));
            return;
        }
        room = [0; 8];
        let mut call = begin(&ranks, call, Some(&[]), &mut room).unwrap();
        while !device.uses(5..6) {
            assert_eq!(call.advance(device), Ok(false));
        }
        while device.progress() {}
        sleeps.wait();
        // Its word, without a look at the memory.
        while !device.progress() {
            std::thread::yield_now();
        }
        finish(device, &mut call).unwrap();
        drop(call);
        assert!(room == [7; 8] && !device.uses(5..6));
    });
}

#[test]
fn a_call_made_at_once_that_does_not_fit_fails_all_behind_it() {
    let (is_shown, is_taken) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    met(2, |device, ranks, rank| {
        let (call, mut room) = (Call::Broadcast { root: 0 }, [0; 9]);
        if rank == 0 {
            assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room[..8]), Some(Ok(())));
            is_shown.wait();
            is_taken.wait();
            assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room), Some(Err(Error::Truncated)));
        } else {
            is_shown.wait();
            assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room), Some(Err(Error::Truncated)));
            is_taken.wait();
        }
        assert_eq!(call_now(&ranks, device, call, Some(&[]), &mut room), None, "it fails when it is begun");
        let mut next = begin(&ranks, call, Some(&[]), &mut room).unwrap();
        assert_eq!(next.advance(device), Err(Error::Truncated));
    });
}

#[test]
fn a_panic_in_a_call_made_at_once_fails_all_behind_it() {
    let (is_shown, has_failed) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    met(2, |device, ranks, rank| {
        let (call, given, mut room) = (Call::Scan { reduction: COMPOSE }, Some(&[1; 4][..]), [0; 4]);
        if rank == 0 {
            assert_eq!(call_now(&ranks, device, call, given, &mut room), Some(Ok(())));
            is_shown.wait();
        } else {
            is_shown.wait();
            let panics: Function = |_, _| panic!("as it is meant to");
            let made =
                catch_unwind(AssertUnwindSafe(|| call_now_with(panics, &ranks, device, call, (given, &mut room))));
            assert!(made.is_err());
        }
        has_failed.wait();
        let mut room = [0; 4];
        let mut next = begin(&ranks, call, given, &mut room).unwrap();
        assert_eq!(finish(device, &mut next), Err(Error::ProcFailed));
        // The other one may have to find out in the call.
        assert!(rank == 0 || room == [0; 4], "it was made");
    });
}

/// In place, what was combined once would be combined again.
#[test]
fn a_scan_that_finds_no_room_for_the_next_rank_has_combined_nothing() {
    let mut device = Device::open(0, vec![adi::Process::here("", &[])], vec![], &Config::default()).unwrap();
    let first = Host::create(3, sidelane_nic::affinity::online()).unwrap();
    let second = Host::join(first.ticket(), 1, 3).unwrap();
    let [first, second] = [(0, first), (1, second)].map(|(rank, host)| Member::new(rank, 3, host, &device).queue);
    let call = Call::Scan { reduction: COMPOSE };
    // The last rank takes nothing.
    for turn in 0.. {
        let given = first.call_now(&mut device, &call, (None, &mut input(0, 2)), Some(compose));
        assert!(matches!(given, Look::Made(Ok(()))), "{turn}");
        let mut room = input(1, 2);
        if !matches!(second.call_now(&mut device, &call, (None, &mut room), Some(compose)), Look::Made(Ok(()))) {
            assert!(room == input(1, 2) && turn > 0 && turn < AHEAD);
            break;
        }
        assert!(room == combined(2, 2));
    }
}

#[test]
fn who_is_told_of_a_failure_as_it_sleeps_expects_no_word_any_more() {
    let mut device = Device::open(0, vec![adi::Process::here("", &[])], vec![], &Config::default()).unwrap();
    let first = Host::create(2, 2).unwrap();
    let second = Host::join(first.ticket(), 1, 2).unwrap();
    let [mut first, mut second] = [(0, first), (1, second)].map(|(rank, host)| Member::new(rank, 2, host, &device));
    let mut waits = first.begin(Call::Barrier);
    while !device.uses(5..6) {
        assert_eq!(waits.advance(&mut device), Ok(false));
    }
    // It has no room for as much as it gives, and wakes the other one.
    second.room.clear();
    // SAFETY: both stay where they are, and nobody else uses them, until the call is over.
    let lent = unsafe { Lent::new(&raw const second.given[..], &raw mut second.room[..]) };
    let odd = Call::Allreduce { reduction: COMPOSE };
    let mut fails = second.queue.begin(odd, false, lent, KeptCombine::Function(compose));
    assert_eq!(fails.advance(&mut device), Err(Error::Truncated));
    assert_eq!(waits.advance(&mut device), Err(Error::Truncated));
    assert!(!device.uses(5..6));
}
