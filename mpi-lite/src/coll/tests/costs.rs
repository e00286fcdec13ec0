use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::two_level::two_levels;
use super::{ADD, play};
use crate::coll::{
    Algorithm, Blocks, Buffers, Call, Collective, Hosts, Memory, Schedule, Span, Team, Transfer, WithinHosts,
    allgather, allreduce, alltoall, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter,
};

/// Bytes of a rank's block; of the whole array, times the ranks.
const BLOCK: usize = 16 * 9 * 4;

/// What stands in an algorithm's file: for p ranks and n bytes, how often L comes in, and how many times G.
type Formula = fn(usize, usize) -> (usize, usize);

#[test]
fn an_algorithm_costs_what_its_file_says() {
    let cases: [(&str, Build, Formula); 18] = [
        ("barrier::dissemination", |s, team, _| barrier::dissemination(s, team), |p, _| (log2(p), 0)),
        (
            "broadcast::binomial",
            |s, team, (_, data)| broadcast::binomial(s, team, 0, data),
            |p, n| (floor_log2(p), log2(p) * n),
        ),
        (
            "broadcast::scatter_allgather",
            |s, team, (_, data)| broadcast::scatter_allgather(s, team, 0, data),
            |p, n| (if p > 1 { floor_log2(p) + p - 1 } else { 0 }, 2 * (n - n / p)),
        ),
        (
            "broadcast::chain",
            |s, team, (_, data)| broadcast::chain(s, team, 0, data, BLOCK / 9),
            |p, n| (p - 1, if p > 1 { (p - 2 + n / (BLOCK / 9)) * (BLOCK / 9) } else { 0 }),
        ),
        (
            "reduce::binomial",
            |s, team, (input, output)| reduce::binomial(s, team, 0, input, (team.me == 0).then_some(output), ADD.1),
            |p, n| (floor_log2(p), log2(p) * n),
        ),
        (
            "reduce::rabenseifner",
            |s, team, (input, output)| reduce::rabenseifner(s, team, 0, input, (team.me == 0).then_some(output), ADD.1),
            |p, n| {
                if p.is_power_of_two() { (2 * log2(p), 2 * (n - n / p)) } else { (2 * floor_log2(p) + 1, 3 * n) }
            },
        ),
        (
            "allreduce::recursive_doubling",
            |s, team, (input, output)| allreduce::recursive_doubling(s, team, input, output, ADD.1),
            |p, n| {
                let messages = if p.is_power_of_two() { log2(p) } else { floor_log2(p) + 2 };
                (messages, messages * n)
            },
        ),
        (
            "allreduce::rabenseifner",
            |s, team, (input, output)| allreduce::rabenseifner(s, team, input, output, ADD.1),
            |p, n| if p.is_power_of_two() { (2 * log2(p), 2 * (n - n / p)) } else { (2 * floor_log2(p) + 2, 4 * n) },
        ),
        (
            "allreduce::ring",
            |s, team, (input, output)| allreduce::ring(s, team, input, output, ADD.1),
            |p, n| (2 * (p - 1), 2 * (n - n / p)),
        ),
        (
            "reduce_scatter::recursive_halving",
            |s, team, (input, output)| {
                let output = output.part(0, BLOCK);
                reduce_scatter::recursive_halving(s, team, input, output, Blocks::Equal(BLOCK), ADD.1);
            },
            |p, n| {
                if p.is_power_of_two() { (log2(p), n - n / p) } else { (floor_log2(p) + 2, 2 * n + n / p) }
            },
        ),
        (
            "reduce_scatter::pairwise",
            |s, team, (input, output)| {
                let output = output.part(0, BLOCK);
                reduce_scatter::pairwise(s, team, input, output, Blocks::Equal(BLOCK), ADD.1);
            },
            |p, n| (p - 1, n - n / p),
        ),
        (
            "scan::inclusive",
            |s, team, (input, output)| scan::inclusive(s, team, input, output, ADD.1),
            |p, n| (log2(p), log2(p) * n),
        ),
        (
            "gather::binomial",
            |s, team, (input, output)| {
                gather::binomial(s, team, 0, input.part(0, BLOCK), (team.me == 0).then_some(output));
            },
            |p, n| (floor_log2(p), n - n / p),
        ),
        (
            "scatter::binomial",
            |s, team, (input, output)| {
                let block = Some(output.part(0, BLOCK));
                scatter::binomial(s, team, 0, BLOCK, block, (team.me == 0).then_some(input));
            },
            |p, n| (floor_log2(p), n - n / p),
        ),
        (
            "allgather::ring",
            |s, team, (input, output)| allgather::ring(s, team, input.part(0, BLOCK), output, Blocks::Equal(BLOCK)),
            |p, n| (p - 1, n - n / p),
        ),
        (
            "allgather::bruck",
            |s, team, (input, output)| allgather::bruck(s, team, input.part(0, BLOCK), output, Blocks::Equal(BLOCK)),
            |p, n| (log2(p), n - n / p),
        ),
        (
            "alltoall::bruck",
            |s, team, (input, output)| alltoall::bruck(s, team, input, output, BLOCK),
            |p, n| (log2(p), log2(p) * n.next_multiple_of(2 * BLOCK) / 2),
        ),
        (
            "alltoall::pairwise",
            |s, team, (input, output)| {
                alltoall::pairwise(s, team, (input, Blocks::Equal(BLOCK)), (output, Blocks::Equal(BLOCK)));
            },
            |p, n| (p - 1, n - n / p),
        ),
    ];
    for (name, build, formula) in cases {
        for ranks in 1..=17 {
            let len = ranks * BLOCK;
            let (latencies, bytes) = formula(ranks, len);
            let play = play(
                ranks,
                0,
                |_| (vec![0; len], vec![0; len]),
                |schedule, team| {
                    build(schedule, team, (Span::new(Memory::Send, 0, len), Span::new(Memory::Receive, 0, len)));
                },
            );
            let schedules: Vec<_> = play.schedules().collect();
            let found = (time(&schedules, |_, _| (1, 0)), time(&schedules, |_, _| (0, 1)));
            if ranks.is_power_of_two() {
                assert_eq!(found, (latencies, bytes), "{name}: L and G of {ranks} ranks");
            } else {
                // Blocks are not all equal there, and not everybody waits for who stands aside.
                let within = found.0 <= latencies && found.1 <= bytes + len / 4;
                assert!(within, "{name}: L and G of {ranks} ranks: {found:?}, beyond {:?}", (latencies, bytes));
            }
        }
    }
}

#[test]
fn a_linear_algorithm_waits_once() {
    for ranks in 2..=17 {
        let len = ranks * BLOCK;
        let blocks = Blocks::Equal(BLOCK);
        let builds: [Build; 3] = [
            |s, team, (input, output)| {
                alltoall::linear(s, team, (input, Blocks::Equal(BLOCK)), (output, Blocks::Equal(BLOCK)))
            },
            |s, team, (input, output)| {
                let output = (team.me == 0).then_some((output, Blocks::Equal(BLOCK)));
                gather::linear(s, team, 0, input.part(0, BLOCK), output);
            },
            |s, team, (input, output)| {
                let input = (team.me == 0).then_some((input, Blocks::Equal(BLOCK)));
                scatter::linear(s, team, 0, Some(output.part(0, BLOCK)), input);
            },
        ];
        for build in builds {
            let buffers = |_| (vec![0; len], vec![0; len]);
            let play = play(ranks, 0, buffers, |schedule, team| {
                build(schedule, team, (Span::new(Memory::Send, 0, len), Span::new(Memory::Receive, 0, len)));
            });
            let schedules: Vec<_> = play.schedules().collect();
            assert_eq!((time(&schedules, |_, _| (1, 0)), time(&schedules, |_, _| (0, 1))), (1, len - blocks.len(0)));
        }
    }
}

#[test]
fn two_levels_cost_what_their_files_say() {
    /// Of h hosts, k ranks on each, and n bytes: how often L and L' come in, and how many times G and G'.
    type Formula = fn(usize, usize, usize) -> [usize; 4];
    let (root, reduction) = (0, ADD.1);
    let cases: [(Call, Formula); 9] = [
        (Call::Barrier, |h, _, _| [log2(h), 2, 0, 0]),
        (Call::Broadcast { root }, |h, k, n| [log2(h), log2(k), log2(h) * n, log2(k) * n]),
        (Call::Reduce { root, reduction }, |h, k, n| [log2(h), log2(k), log2(h) * n, log2(k) * n]),
        (Call::Allreduce { reduction }, |h, k, n| [log2(h), 2 * log2(k), log2(h) * n, 2 * log2(k) * n]),
        (Call::Gather { root, len: BLOCK }, |h, k, n| [log2(h), log2(k), n - n / h, (k - 1) * n / (h * k)]),
        (Call::Scatter { root, len: BLOCK }, |h, k, n| [log2(h), log2(k), n - n / h, (k - 1) * n / (h * k)]),
        (Call::Allgather { len: BLOCK }, |h, k, n| {
            [log2(h), 2 * log2(k), n - n / h, log2(k) * n + (k - 1) * n / (h * k)]
        }),
        (Call::Alltoall { len: BLOCK }, |h, k, n| [1, 2 * log2(k), k * (n - n / h), 2 * (k - 1) * n]),
        (Call::ReduceScatter { blocks: Blocks::Equal(BLOCK), reduction }, |h, k, n| {
            [log2(h), 2 * log2(k), n - n / h, log2(k) * n + (k - 1) * n / (h * k)]
        }),
    ];
    let table = two_levels(&[
        (Collective::ReduceScatter, Algorithm::RecursiveHalving),
        (Collective::Allgather, Algorithm::RecursiveDoubling),
        (Collective::Alltoall, Algorithm::Linear),
    ]);
    for (call, formula) in cases {
        for (h, k) in [(2, 2), (2, 4), (4, 2), (4, 4), (8, 2), (2, 8)] {
            let (ranks, n) = (h * k, h * k * BLOCK);
            let hosts = Hosts::new((0..ranks).map(|rank| rank / k));
            let (send, receive) = match call {
                Call::Gather { .. } | Call::Allgather { .. } => (BLOCK, n),
                Call::Scatter { .. } | Call::ReduceScatter { .. } => (n, BLOCK),
                _ => (n, n),
            };
            let buffers = |_| (vec![0; send], vec![0; receive]);
            let play = play(ranks, 0, buffers, |schedule, team| {
                call.build(
                    schedule,
                    team.me,
                    (&hosts, WithinHosts::Messages),
                    Buffers { send, receive, in_place: false },
                    &table,
                );
            });
            let schedules: Vec<_> = play.schedules().collect();
            let only = |within: bool, cost: (usize, usize)| {
                let link = |from, to| if (hosts.of(from) == hosts.of(to)) == within { cost } else { (0, 0) };
                time(&schedules, link)
            };
            let found = [only(false, (1, 0)), only(true, (1, 0)), only(false, (0, 1)), only(true, (0, 1))];
            assert_eq!(found, formula(h, k, n), "{call:?}: L, L', G and G' of {k} ranks on each of {h} hosts");
        }
    }
}

type Build = fn(&mut Schedule, Team, (Span, Span));

fn log2(ranks: usize) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}

fn floor_log2(ranks: usize) -> usize {
    ranks.ilog2() as usize
}

/// When the last rank ends, by LogGP without o: a message occupies its sender's port, and its receiver's port a latency later, for a
/// gap a byte, both as `link` says of the two. What takes no time a byte waits for no port.
fn time(schedules: &[&Schedule], link: impl Fn(usize, usize) -> (usize, usize)) -> usize {
    /// At a time, what happens.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        Arrive { from: usize, to: usize, bytes: usize },
        Post { rank: usize },
    }
    let mut events: BinaryHeap<_> = (0..schedules.len()).map(|rank| Reverse((0, Event::Post { rank }))).collect();
    let (mut ports_out, mut ports_in) = (vec![0; schedules.len()], vec![0; schedules.len()]);
    let mut rounds = vec![0; schedules.len()];
    let mut posted = vec![false; schedules.len()];
    // What each waits for, and the latest of what it has in this round.
    let mut waits: Vec<HashMap<usize, usize>> = vec![HashMap::new(); schedules.len()];
    let mut ready = vec![0; schedules.len()];
    let mut arrived: HashMap<(usize, usize), VecDeque<usize>> = HashMap::new();
    let mut end = 0;
    while let Some(Reverse((now, event))) = events.pop() {
        end = end.max(now);
        let rank = match event {
            Event::Post { rank } => {
                let Some(round) = schedules[rank].round(rounds[rank]) else { continue };
                posted[rank] = true;
                ready[rank] = now;
                for transfer in round.transfers {
                    match *transfer {
                        Transfer::Send(to, span) => {
                            let (latency, gap) = link(rank, to as usize);
                            let begin = if gap > 0 { ports_out[rank].max(now) } else { now };
                            ports_out[rank] = ports_out[rank].max(begin + span.len() * gap);
                            let event = Event::Arrive { from: rank, to: to as usize, bytes: span.len() };
                            events.push(Reverse((begin + latency, event)));
                            ready[rank] = ready[rank].max(begin + span.len() * gap);
                        }
                        Transfer::Receive(from, _) => *waits[rank].entry(from as usize).or_default() += 1,
                    }
                }
                rank
            }
            Event::Arrive { from, to, bytes } => {
                let gap = link(from, to).1;
                let end = if gap > 0 { ports_in[to].max(now) + bytes * gap } else { now };
                ports_in[to] = ports_in[to].max(end);
                arrived.entry((from, to)).or_default().push_back(end);
                to
            }
        };
        if !posted[rank] {
            continue;
        }
        for (from, count) in &mut waits[rank] {
            let arrived = arrived.entry((*from, rank)).or_default();
            while *count > 0
                && let Some(at) = arrived.pop_front()
            {
                *count -= 1;
                ready[rank] = ready[rank].max(at);
            }
        }
        if waits[rank].values().all(|&count| count == 0) {
            waits[rank].clear();
            posted[rank] = false;
            rounds[rank] += 1;
            events.push(Reverse((ready[rank], Event::Post { rank })));
        }
    }
    end
}
