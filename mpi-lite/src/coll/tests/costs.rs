use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::{ADD, play};
use crate::coll::{
    Blocks, Memory, Schedule, Span, Team, Transfer, allgather, allreduce, alltoall, barrier, broadcast, gather, reduce,
    reduce_scatter, scan, scatter,
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
            let found = (time(&schedules, 1, 0), time(&schedules, 0, 1));
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
            assert_eq!((time(&schedules, 1, 0), time(&schedules, 0, 1)), (1, len - blocks.len(0)));
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

/// When the last rank ends, by LogGP without o: a message occupies its sender's port, and its receiver's port `latency`
/// later, for `gap` a byte.
fn time(schedules: &[&Schedule], latency: usize, gap: usize) -> usize {
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
                            let begin = ports_out[rank].max(now);
                            ports_out[rank] = begin + span.len() * gap;
                            let event = Event::Arrive { from: rank, to: to as usize, bytes: span.len() };
                            events.push(Reverse((begin + latency, event)));
                            ready[rank] = ready[rank].max(ports_out[rank]);
                        }
                        Transfer::Receive(from, _) => *waits[rank].entry(from as usize).or_default() += 1,
                    }
                }
                rank
            }
            Event::Arrive { from, to, bytes } => {
                ports_in[to] = ports_in[to].max(now) + bytes * gap;
                arrived.entry((from, to)).or_default().push_back(ports_in[to]);
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
