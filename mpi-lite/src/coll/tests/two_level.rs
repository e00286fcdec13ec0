use super::collectives::{Inputs, each_case, spans};
use super::{ADD, play};
use crate::coll::two_level::{Hosts, allreduce, barrier, broadcast, reduce};
use crate::coll::{Schedule, Transfer};

/// Hosts of a few ranks each, in no order.
fn hosts(ranks: usize, seed: u64) -> Vec<usize> {
    (0..ranks).map(|rank| (rank * 5 + seed as usize) % 7 / 2).collect()
}

#[test]
fn two_levels_do_what_one_does() {
    let (operator, reduction) = ADD;
    each_case(
        |ranks| ranks,
        |ranks, count, root, seed| {
            let what = format!("{count} numbers, {ranks} ranks, root {root}, seed {seed}");
            let (hosts, inputs) = (hosts(ranks, seed), Inputs::new(ranks, count * 4, seed));
            let in_place = seed % 2 == 0;
            let expected = inputs.combined(0, ranks, operator);

            let outputs = play(
                ranks,
                seed,
                |rank| inputs.buffers(rank, in_place, true),
                |schedule, team| {
                    let (input, output) = spans(schedule);
                    let hosts = Hosts::new(team.me, &hosts, None);
                    allreduce(schedule, &hosts, if in_place { output } else { input }, output, reduction);
                },
            );
            assert_eq!(outputs.run(operator), vec![expected.clone(); ranks], "allreduce: {what}");

            let outputs = play(
                ranks,
                seed,
                |rank| inputs.buffers(rank, in_place && rank == root, rank == root),
                |schedule, team| {
                    let (input, output) = spans(schedule);
                    let is_root = team.me == root;
                    let hosts = Hosts::new(team.me, &hosts, Some(root));
                    let input = if is_root && in_place { output } else { input };
                    reduce(schedule, &hosts, input, is_root.then_some(output), reduction);
                },
            );
            assert_eq!(outputs.run(operator)[root], expected, "reduce: {what}");

            let data = inputs.of(root).to_vec();
            let outputs = play(
                ranks,
                seed,
                |rank| (vec![], if rank == root { data.clone() } else { vec![0; data.len()] }),
                |schedule, team| {
                    let output = spans(schedule).1;
                    broadcast(schedule, &Hosts::new(team.me, &hosts, Some(root)), output);
                },
            );
            assert_eq!(outputs.run(operator), vec![data; ranks], "broadcast: {what}");
        },
    );
}

#[test]
fn between_hosts_goes_what_must() {
    let (ranks, hosts) = (12, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    let crossing = |build: fn(&mut Schedule, &Hosts)| {
        let play = play(
            ranks,
            1,
            |_| (vec![], vec![0; 8]),
            |schedule, team| {
                build(schedule, &Hosts::new(team.me, &hosts, Some(4)));
            },
        );
        let crossing = play.schedules().enumerate().map(|(rank, schedule)| {
            let transfers = schedule.rounds().flat_map(|round| round.transfers.to_vec());
            transfers
                .filter(|transfer| matches!(transfer, Transfer::Send(to, _) if hosts[*to as usize] != hosts[rank]))
                .count()
        });
        crossing.sum::<usize>()
    };
    assert_eq!(
        crossing(|schedule, hosts| {
            let data = spans(schedule).1;
            broadcast(schedule, hosts, data);
        }),
        3
    );
    // Four leaders tell two others each.
    assert_eq!(crossing(barrier), 8);
}

#[test]
fn nobody_leaves_a_barrier_of_two_levels_alone() {
    for ranks in 1..=17 {
        let play = play(
            ranks,
            3,
            |_| (vec![], vec![]),
            |schedule, team| {
                barrier(schedule, &Hosts::new(team.me, &hosts(ranks, 3), None));
            },
        );
        play.run(|_, _| ());
    }
}
