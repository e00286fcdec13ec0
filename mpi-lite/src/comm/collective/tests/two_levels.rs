//! Calls of ranks on several hosts, as far as they know, of which those on one share memory.

use super::*;
use crate::coll::{Algorithm, Collective, Hosts, Rule};

/// Runs `each` as every rank of those on these hosts.
fn on_hosts(hosts: &[usize], each: impl Fn(&mut Device, Ranks, usize) + Sync) {
    let size = hosts.len() as u32;
    in_job(size, |device| {
        let rank = (size - 1 - device.own()) as usize;
        let table = Arc::new(two_levels());
        let ranks = Ranks::on_hosts(device, 5, rank, (0..size).rev().collect(), Hosts::new(hosts), table);
        each(device, ranks, rank);
    });
}

/// Two levels for all calls that have them.
fn two_levels() -> Table {
    let both = Collective::ALL.into_iter().filter(|collective| collective.has(Algorithm::TwoLevel));
    let all = 0..=usize::MAX;
    let rule = |collective| Rule { collective, ranks: all.clone(), bytes: all.clone(), algorithm: Algorithm::TwoLevel };
    Table::new(both.map(rule).collect())
}

/// In order, dealt out in turn, and otherwise; alone on a host, and not.
const LAYOUTS: [&[usize]; 6] =
    [&[0, 0, 1], &[0, 0, 1, 1], &[0, 1, 0, 1], &[1, 0, 0, 0, 1], &[0, 0, 0, 1, 2, 2], &[2, 0, 1, 2, 0, 2, 1]];

#[test]
fn every_call_by_the_memory_of_each_host() {
    for hosts in LAYOUTS {
        on_hosts(hosts, |device, mut ranks, rank| {
            for len in [0, 2, 1000, 20_000, 100_000] {
                every_call(hosts.len(), rank, len, &mut |call, send, receive| {
                    ranks.call(device, call, send, receive, &mut compose).unwrap();
                });
            }
            let alone = hosts.iter().filter(|host| **host == hosts[rank]).count() == 1;
            assert_eq!(ranks.share_on_host(), !alone, "rank {rank} of {hosts:?}");
        });
    }
}

fn add(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = into.wrapping_add(*from));
}

const ADD: Reduction = Reduction { element: 1, commutative: true };

/// What all ranks have given, added up.
fn sum(size: usize, len: usize) -> Vec<u8> {
    let mut sum = vec![0; len];
    (0..size).for_each(|rank| add(&mut sum, &input(rank, len)));
    sum
}

/// Those of [`every_call`] have an order of ranks, and so are on one level.
#[test]
fn every_reduction_by_the_memory_of_each_host() {
    for hosts in LAYOUTS {
        let size = hosts.len();
        on_hosts(hosts, |device, mut ranks, rank| {
            for (len, root) in [(0, 0), (1, 1), (999, 2), (20_000, size - 1), (100_000, 0)] {
                let what = format!("rank {rank} on {hosts:?}, {len} bytes, root {root}");
                let (own, all) = (input(rank, len), sum(size, len));
                let mut call = |call: Call, send: Option<&[u8]>, receive: &mut [u8]| {
                    ranks.call(device, call, send, receive, &mut add).unwrap();
                };
                for in_place in [false, true] {
                    let mut output = if in_place { own.clone() } else { vec![0; len] };
                    call(Call::Allreduce { reduction: ADD }, (!in_place).then_some(&own[..]), &mut output);
                    assert!(output == all, "allreduce: {what}");

                    let in_place_here = in_place && rank == root;
                    let mut output =
                        if in_place_here { own.clone() } else { vec![0; if rank == root { len } else { 0 }] };
                    call(Call::Reduce { root, reduction: ADD }, (!in_place_here).then_some(&own[..]), &mut output);
                    assert!(rank != root || output == all, "reduce: {what}");

                    let lens: Vec<_> = (0..size).map(|rank| len / size + usize::from(rank < len % size)).collect();
                    let blocks = Blocks::Lens(&lens);
                    let mut output = if in_place { own.clone() } else { vec![0; lens[rank]] };
                    let call_it = Call::ReduceScatter { blocks, reduction: ADD };
                    call(call_it, (!in_place).then_some(&own[..]), &mut output);
                    let expected = &all[blocks.start(rank)..][..lens[rank]];
                    assert!(output[..lens[rank]] == *expected, "reduce-scatter: {what}");
                }
                let block = len / size;
                let (given, all) = (&own[..block * size], &all[..block * size]);
                let mut output = vec![0; block];
                call(Call::ReduceScatter { blocks: Blocks::Equal(block), reduction: ADD }, Some(given), &mut output);
                assert!(output == all[rank * block..][..block], "reduce-scatter of equal blocks: {what}");
            }
        });
    }
}

/// Members of a host wait for its leader, who waits for the other host.
#[test]
fn a_rank_of_another_host_that_is_gone_ends_a_call_for_all() {
    for hosts in [[0, 0, 0, 1], [0, 1, 0, 0]] {
        let lost = hosts.iter().position(|host| *host == 1).unwrap();
        on_hosts(&hosts, |device, mut ranks, rank| {
            ranks.call(device, Call::Barrier, None, &mut [], &mut add).unwrap();
            if rank == lost {
                std::mem::replace(device, alone()).close(Duration::from_millis(2_000));
                return;
            }
            for _ in 0..2 {
                let ended = ranks.call(device, Call::Barrier, None, &mut [], &mut add);
                assert_eq!(ended, Err(Error::ProcFailed), "rank {rank}, without {lost}");
            }
        });
    }
}

/// In a call before, perhaps, in which nobody has waited for us.
#[test]
fn who_waits_for_one_of_its_host_that_has_given_up_because_of_another_host_is_told() {
    for have_met in [false, true] {
        let met = AtomicU32::new(0);
        on_hosts(&[0, 0, 1], |device, mut ranks, rank| {
            // By messages among all: who has none with another one does not notice its end.
            ranks.call(device, Call::Scan { reduction: COMPOSE }, Some(&[1; 2]), &mut [0; 2], &mut compose).unwrap();
            if have_met {
                ranks.call(device, Call::Barrier, None, &mut [], &mut add).unwrap();
            }
            met.fetch_add(1, Ordering::Relaxed);
            device.wait_until(|_| (met.load(Ordering::Relaxed) == 3).then_some(()));
            match rank {
                0 => {}
                1 => {
                    device.wait_until(|device| device.gone().contains(&0).then_some(()));
                    let ended = ranks.call(device, Call::Barrier, None, &mut [], &mut add);
                    assert_eq!(ended, Err(Error::ProcFailed));
                }
                _ => std::mem::replace(device, alone()).close(Duration::from_millis(2_000)),
            }
        });
    }
}

#[test]
fn a_message_between_hosts_is_not_one_of_those_by_which_ranks_of_a_host_meet() {
    let has_come = std::sync::Barrier::new(2);
    on_hosts(&[1, 0, 1], |device, mut ranks, rank| {
        // On one level.
        ranks.call(device, Call::Scan { reduction: COMPOSE }, Some(&[]), &mut [], &mut compose).unwrap();
        match rank {
            0 => {
                let pattern = adi::Pattern { context: 5, source: None, tag: None };
                device.wait_until(|device| device.probe(pattern).map(drop));
                has_come.wait();
            }
            1 => {}
            _ => _ = has_come.wait(),
        }
        let mut room = if rank == 1 { [7; 8] } else { [0; 8] };
        ranks.call(device, Call::Broadcast { root: 1 }, None, &mut room, &mut add).unwrap();
        assert_eq!(room, [7; 8], "rank {rank}");
    });
}

/// The device of a job of its own.
pub(super) fn alone() -> Device {
    Device::open(0, vec![adi::Process::here("alone", &[])], vec![], &Config::default()).unwrap()
}

#[test]
fn a_part_that_does_not_fit_fails_for_its_host() {
    let fitting = std::sync::Barrier::new(4);
    on_hosts(&[0, 0, 1, 1], |device, mut ranks, rank| {
        let met = ranks.call(device, Call::Barrier, None, &mut [], &mut add);
        let mut room = vec![0; if rank == 3 { 9 } else { 8 }];
        let ended = met.and_then(|()| ranks.call(device, Call::Broadcast { root: 0 }, None, &mut room, &mut add));
        // Whoever has shown what it gives is through, and whoever is not through the call before has failed too.
        assert!(
            if rank == 3 { ended == Err(Error::Truncated) } else { rank == 2 || ended == Ok(()) },
            "rank {rank}: {ended:?}"
        );
        // Its host knows, and others may wait for it in a call on one level.
        assert!(rank != 3 || ranks.has_left_others());
        fitting.wait();
        if rank >= 2 {
            let ended = ranks.call(device, Call::Barrier, None, &mut [], &mut add);
            assert_eq!(ended, Err(Error::Truncated), "rank {rank}");
        }
    });
}

/// Only the leader sees the message from the other host.
#[test]
fn what_fails_between_hosts_fails_for_who_waits_for_its_leader() {
    for hosts in [[0, 0, 0, 1], [1, 0, 0, 0]] {
        let root = hosts.iter().position(|host| *host == 1).unwrap();
        on_hosts(&hosts, |device, mut ranks, rank| {
            let met = ranks.call(device, Call::Barrier, None, &mut [], &mut add);
            let mut room = vec![0; if rank == root { 9 } else { 8 }];
            // Whoever is still there when the leader has failed in the next call has failed too.
            let ended = met.and_then(|()| ranks.call(device, Call::Broadcast { root }, None, &mut room, &mut add));
            assert_eq!(ended, if rank == root { Ok(()) } else { Err(Error::Truncated) }, "rank {rank}, from {root}");
        });
    }
}
