use super::cases::{Inputs, each_case, scattered};
use super::play::{GARBAGE, Operator};
use super::{ADD, COMPOSE, play};
use crate::coll::{
    Algorithm, Blocks, Buffers, Call, Case, Collective, Hosts, Rule, Schedule, Table, Transfer, WithinHosts,
};
use sidelane_nic::rng::Rng;

/// Ranks on hosts, and by what they go.
struct Job {
    ranks: usize,
    hosts: Hosts,
    table: Table,
    seed: u64,
}

impl Job {
    fn any(ranks: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (most, turn) = (1 + rng.below(6) as usize, rng.below(7) as usize);
        let hosts: Vec<usize> = match rng.below(4) {
            // In no order, some with more than others.
            0 => (0..ranks).map(|rank| (rank * 5 + turn) % 7 / 2).collect(),
            1 => (0..ranks).map(|_| rng.below(most as u64) as usize).collect(),
            2 => (0..ranks).map(|rank| rank / most).collect(),
            _ => (0..ranks).map(|rank| rank % most).collect(),
        };
        let within = rng.below(3) as usize;
        Self { ranks, hosts: Hosts::new(hosts), table: two_levels(&WITHIN[within]), seed }
    }

    /// Everybody's receive buffer after a call with these.
    fn run<'a>(
        &self,
        operator: Operator,
        buffers: impl Fn(usize) -> (Vec<u8>, Vec<u8>),
        in_place: impl Fn(usize) -> bool,
        call: impl Fn(usize) -> Call<'a>,
    ) -> Vec<Vec<u8>> {
        let play = play(self.ranks, self.seed, buffers, |schedule, team| {
            self.build(schedule, team.me, in_place(team.me), call(team.me));
        });
        let speak = play.schedules().enumerate().filter(|(rank, schedule)| crossing(&self.hosts, *rank, schedule) > 0);
        let (speak, hosts) = (speak.count(), self.hosts.count());
        assert!(hosts == self.ranks || speak <= hosts, "{speak} ranks speak to other hosts of {hosts}: {:?}", call(0));
        play.run(operator)
    }

    fn build(&self, schedule: &mut Schedule, me: usize, in_place: bool, call: Call) {
        let (send, receive) = schedule.buffer_lens();
        call.build(
            schedule,
            me,
            (&self.hosts, WithinHosts::Messages),
            Buffers { send, receive, in_place },
            &self.table,
        );
    }
}

/// Messages that a rank sends to other hosts.
fn crossing(hosts: &Hosts, rank: usize, schedule: &Schedule) -> usize {
    let sent = schedule.rounds().flat_map(|round| round.transfers);
    let crosses =
        |transfer: &&Transfer| matches!(transfer, Transfer::Send(to, _) if hosts.of(*to as usize) != hosts.of(rank));
    sent.filter(crosses).count()
}

/// Two levels for all, and within them `algorithms`.
pub(super) fn two_levels(algorithms: &[(Collective, Algorithm)]) -> Table {
    let both = Collective::ALL.map(|collective| (collective, Algorithm::TwoLevel));
    let both = both.iter().filter(|(collective, algorithm)| collective.has(*algorithm)).chain(algorithms);
    let all = 0..=usize::MAX;
    let rule = |&(collective, algorithm)| Rule { collective, ranks: all.clone(), bytes: all.clone(), algorithm };
    Table::new(both.map(rule).collect())
}

/// Every algorithm comes to be one within levels; without a word of it, a collective's first.
const WITHIN: [[(Collective, Algorithm); 8]; 3] = {
    use Algorithm::*;
    use Collective::*;
    [
        [
            (Broadcast, Binomial),
            (Reduce, Binomial),
            (Allreduce, RecursiveDoubling),
            (ReduceScatter, RecursiveHalving),
            (Gather, Binomial),
            (Scatter, Binomial),
            (Allgather, RecursiveDoubling),
            (Alltoall, Linear),
        ],
        [
            (Broadcast, ScatterAllgather),
            (Reduce, Rabenseifner),
            (Allreduce, Ring),
            (ReduceScatter, Pairwise),
            (Gather, Linear),
            (Scatter, Linear),
            (Allgather, Bruck),
            (Alltoall, Bruck),
        ],
        [
            (Broadcast, Chain { segment: 7 }),
            (Reduce, Rabenseifner),
            (Allreduce, Rabenseifner),
            (ReduceScatter, RecursiveHalving),
            (Gather, Binomial),
            (Scatter, Linear),
            (Allgather, Ring),
            (Alltoall, Pairwise),
        ],
    ]
};

#[test]
fn reductions_on_two_levels_do_what_they_do_on_one() {
    let (operator, reduction) = ADD;
    each_case(
        |ranks| ranks,
        |ranks, count, root, seed| {
            let what = format!("{count} numbers, {ranks} ranks, root {root}, seed {seed}");
            let (job, inputs) = (Job::any(ranks, seed), Inputs::new(ranks, count * 4, seed));
            let in_place = seed % 2 == 0;
            let expected = inputs.combined(0, ranks, operator);

            let buffers = |rank| inputs.buffers(rank, in_place, true);
            let outputs = job.run(operator, buffers, |_| in_place, |_| Call::Allreduce { reduction });
            assert_eq!(outputs, vec![expected.clone(); ranks], "allreduce: {what}");

            let buffers = |rank| inputs.buffers(rank, in_place && rank == root, rank == root);
            let at_root = |rank| in_place && rank == root;
            let outputs = job.run(operator, buffers, at_root, |_| Call::Reduce { root, reduction });
            assert_eq!(outputs[root], expected, "reduce: {what}");

            // Equal blocks, and some without order.
            let lens: Vec<_> =
                (0..ranks).map(|rank| count * if root % 2 == 0 { 1 } else { rank * 7 % 13 } * 4).collect();
            let blocks = if root % 2 == 0 { Blocks::Equal(count * 4) } else { Blocks::Lens(&lens) };
            let inputs = Inputs::new(ranks, lens.iter().sum(), seed);
            let buffers = |rank: usize| match in_place {
                true => inputs.buffers(rank, true, true),
                false => (inputs.of(rank).to_vec(), vec![GARBAGE; lens[rank]]),
            };
            let outputs = job.run(operator, buffers, |_| in_place, |_| Call::ReduceScatter { blocks, reduction });
            let expected = inputs.combined(0, ranks, operator);
            for (rank, output) in outputs.iter().enumerate() {
                let block = &expected[blocks.start(rank)..][..lens[rank]];
                assert_eq!(&output[..lens[rank]], block, "reduce-scatter, rank {rank}: {what}");
            }
        },
    );
}

#[test]
fn rooted_calls_on_two_levels_do_what_they_do_on_one() {
    each_case(
        |ranks| ranks,
        |ranks, len, root, seed| {
            let what = format!("{len} bytes, {ranks} ranks, root {root}, seed {seed}");
            let (job, inputs) = (Job::any(ranks, seed), Inputs::new(ranks, len * ranks, seed));
            let in_place = |rank| seed % 2 == 0 && rank == root;
            let nothing: Operator = |_, _| ();

            let data = inputs.of(root).to_vec();
            let buffers = |rank| (vec![], if rank == root { data.clone() } else { vec![GARBAGE; data.len()] });
            let outputs = job.run(nothing, buffers, |_| true, |_| Call::Broadcast { root });
            assert_eq!(outputs, vec![data.clone(); ranks], "broadcast: {what}");

            let block = |rank: usize| inputs.of(rank)[..len].to_vec();
            let buffers = |rank: usize| {
                let mut output = vec![GARBAGE; if rank == root { ranks * len } else { 0 }];
                if in_place(rank) {
                    output[rank * len..][..len].copy_from_slice(&block(rank));
                    return (vec![], output);
                }
                (block(rank), output)
            };
            let outputs = job.run(nothing, buffers, in_place, |_| Call::Gather { root, len });
            assert_eq!(outputs[root], (0..ranks).flat_map(block).collect::<Vec<_>>(), "gather: {what}");

            let buffers = |rank: usize| {
                let input = if rank == root { data.clone() } else { vec![] };
                (input, vec![GARBAGE; if in_place(rank) { 0 } else { len }])
            };
            let outputs = job.run(nothing, buffers, |_| false, |_| Call::Scatter { root, len });
            for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| !in_place(*rank)) {
                assert_eq!(*output, data[rank * len..][..len], "scatter, rank {rank}: {what}");
            }
        },
    );
}

#[test]
fn blocks_for_all_on_two_levels_are_what_they_are_on_one() {
    each_case(
        |_| 4,
        |ranks, len, variant, seed| {
            let what = format!("{len} bytes, {ranks} ranks, variant {variant}, seed {seed}");
            let (job, inputs) = (Job::any(ranks, seed), Inputs::new(ranks, len * ranks.max(13), seed));
            let in_place = variant % 2 == 1;
            let nothing: Operator = |_, _| ();

            let lens: Vec<_> = (0..ranks).map(|rank| if variant < 2 { len } else { len * rank * 7 % 13 }).collect();
            let block = |rank: usize| inputs.of(rank)[..lens[rank]].to_vec();
            // Each puts the blocks where it wants to have them.
            let (starts, total) = scattered(&lens);
            let in_a_row: Vec<_> = (0..ranks).map(|rank| Blocks::Lens(&lens).start(rank)).collect();
            let places = |rank: usize| {
                let starts = if (rank + variant).is_multiple_of(2) { &starts } else { &in_a_row };
                Blocks::At { counts: &lens, starts, element: 1 }
            };
            let buffers = |blocks: Blocks, rank: usize| {
                let mut output = vec![GARBAGE; total];
                if in_place {
                    output[blocks.start(rank)..][..lens[rank]].copy_from_slice(&block(rank));
                }
                (if in_place { vec![] } else { block(rank) }, output)
            };
            let call = |rank| Call::Allgatherv { blocks: places(rank) };
            let outputs = job.run(nothing, |rank| buffers(places(rank), rank), |_| in_place, call);
            for (rank, output) in outputs.iter().enumerate() {
                let mut expected = vec![GARBAGE; total];
                (0..ranks).for_each(|of| expected[places(rank).start(of)..][..lens[of]].copy_from_slice(&block(of)));
                assert_eq!(*output, expected, "allgatherv, rank {rank}: {what}");
            }
            if variant < 2 {
                let equal = |rank| {
                    let (send, mut output) = buffers(Blocks::Equal(len), rank);
                    output.truncate(ranks * len);
                    (send, output)
                };
                let outputs = job.run(nothing, equal, |_| in_place, |_| Call::Allgather { len });
                let expected: Vec<u8> = (0..ranks).flat_map(block).collect();
                assert_eq!(outputs, vec![expected; ranks], "allgather: {what}");
            }

            let given = |rank: usize| inputs.of(rank)[..ranks * len].to_vec();
            let buffers = |rank| {
                if in_place { (vec![], given(rank)) } else { (given(rank), vec![GARBAGE; ranks * len]) }
            };
            let outputs = job.run(nothing, buffers, |_| in_place, |_| Call::Alltoall { len });
            for (rank, output) in outputs.iter().enumerate() {
                let expected: Vec<u8> = (0..ranks).flat_map(|from| given(from)[rank * len..][..len].to_vec()).collect();
                assert_eq!(*output, expected, "alltoall, rank {rank}: {what}");
            }
        },
    );
}

/// As the collectives' files say, of trees and hypercubes, and `WITHIN`'s first ones.
#[test]
fn between_hosts_goes_what_must() {
    let (ranks, len, root, reduction) = (12, 8, 4, ADD.1);
    let lens = [len; 12];
    let each = Blocks::Lens(&lens);
    let whole = ranks * len;
    let cases: [(Call, usize, usize, usize); 10] = [
        (Call::Barrier, 0, 0, 8),
        (Call::Broadcast { root }, 0, len, 3),
        (Call::Reduce { root, reduction }, len, len, 3),
        (Call::Allreduce { reduction }, len, len, 8),
        (Call::ReduceScatter { blocks: each, reduction }, whole, len, 8),
        (Call::Gather { root, len }, len, whole, 3),
        (Call::Scatter { root, len }, whole, len, 3),
        (Call::Allgather { len }, len, whole, 8),
        (Call::Allgatherv { blocks: each }, len, whole, 8),
        (Call::Alltoall { len }, whole, whole, 12),
    ];
    for place in [|rank| rank / 3, |rank| rank % 4, |rank| rank * 5 % 12 / 3] {
        let hosts = Hosts::new((0..ranks).map(place));
        let job = Job { ranks, hosts, table: two_levels(&WITHIN[0]), seed: 1 };
        for (call, send, receive, expected) in cases {
            let buffers = |_| (vec![0; send], vec![0; receive]);
            let play = play(ranks, 1, buffers, |schedule, team| job.build(schedule, team.me, false, call));
            let found: usize = play.schedules().enumerate().map(|(rank, one)| crossing(&job.hosts, rank, one)).sum();
            assert_eq!(found, expected, "{call:?} on {:?}", job.hosts);
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_of_two_levels_before_all_have_come() {
    for ranks in 1..=17 {
        for seed in 0..20 {
            let job = Job::any(ranks, seed);
            let play = play(
                ranks,
                seed,
                |_| (vec![], vec![]),
                |schedule, team| {
                    job.build(schedule, team.me, false, Call::Barrier);
                },
            );
            assert!(play.known().iter().all(|&known| known == (1 << ranks) - 1), "{ranks} ranks, seed {seed}");
            play.run(|_, _| ());
        }
    }
}

#[test]
fn two_levels_are_chosen_where_hosts_differ_from_ranks() {
    let table = Table::default();
    for collective in Collective::ALL.into_iter().filter(|collective| collective.has(Algorithm::TwoLevel)) {
        let choose = |hosts, bytes, commutative| {
            table.choose(Case { collective, ranks: 8, hosts, bytes, commutative }) == Algorithm::TwoLevel
        };
        // Of these only where a tuning file says so: they gain nothing.
        let gains = !matches!(collective, Collective::Gather | Collective::Scatter);
        assert_eq!([1, 2, 7, 8].map(|hosts| choose(hosts, 8, true)), [false, gains, gains, false], "{collective}");
        assert!(!choose(2, 8, false), "{collective}: hosts are in no order of ranks");
    }
    assert!(!Collective::Scan.has(Algorithm::TwoLevel));
}

#[test]
fn an_operator_whose_order_matters_stays_on_one_level() {
    let (operator, reduction) = COMPOSE;
    let job = Job { ranks: 6, hosts: Hosts::new([0, 1, 0, 1, 0, 1]), table: two_levels(&WITHIN[0]), seed: 3 };
    let inputs = Inputs::new(6, 8, 3);
    let play = play(
        6,
        3,
        |rank| inputs.buffers(rank, false, true),
        |schedule, team| {
            job.build(schedule, team.me, false, Call::Allreduce { reduction });
        },
    );
    assert_eq!(play.run(operator), vec![inputs.combined(0, 6, operator); 6]);
}
