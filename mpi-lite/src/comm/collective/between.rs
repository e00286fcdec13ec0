//! Collective calls from one group to another (MPI-4.1 6.2.2 and 6.2.3): both groups' processes have numbers of one row, and each
//! call is a schedule of those.
//!
//! Reductions and broadcasts are done within a group, by its algorithms, and cross over between the two first ranks; blocks go
//! straight to whom they are for. Cost of those: L + o + q (o + n/q G), for q ranks of the other group.

use crate::coll::barrier::dissemination;
use crate::coll::{
    Algorithm, Blocks, Buffers, Call, Case, Collective, Reduction, Schedule, Span, Table, Team, broadcast, reduce,
    scatter,
};

/// As the root of a call in which another process of the own group is that: nothing is done then.
pub const NOBODY: usize = usize::MAX;

/// Two groups, of whose first one we are.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    here: Vec<u32>,
    there: Vec<u32>,
    rank: usize,
}

impl Groups {
    /// Rank `rank` among the processes `here`. And all processes in the row in which both groups count them: those of the group
    /// whose first one has the lower number come first.
    pub fn new(here: &[u32], rank: usize, there: &[u32]) -> (Self, Vec<u32>) {
        let row = |first: usize, len: usize| (first as u32..(first + len) as u32).collect();
        if here[0] < there[0] {
            let groups = Self { here: row(0, here.len()), there: row(here.len(), there.len()), rank };
            (groups, [here, there].concat())
        } else {
            let groups = Self { here: row(there.len(), here.len()), there: row(0, there.len()), rank };
            (groups, [there, here].concat())
        }
    }

    /// Ours.
    pub fn number(&self) -> usize {
        self.here[self.rank] as usize
    }

    /// That of a rank of the other group.
    pub fn number_there(&self, rank: usize) -> usize {
        self.there[rank] as usize
    }

    /// As [`Call::fits`], of a call from one group to the other. What the two first ranks exchange is seen there.
    pub fn fits(&self, call: &Call, Buffers { send, receive, .. }: Buffers) -> bool {
        let (us, them) = (self.here.len(), self.there.len());
        let is_root = |root: usize| root == self.number();
        match *call {
            Call::ReduceScatter { blocks, .. } => blocks.lie_within(us, send) && blocks.len(self.rank) <= receive,
            Call::Gather { root, len } => !is_root(root) || Blocks::Equal(len).lie_within(them, receive),
            Call::Gatherv { root, blocks } => !is_root(root) || blocks.is_some_and(|all| all.lie_within(them, receive)),
            Call::Scatter { root, len } => !is_root(root) || Blocks::Equal(len).lie_within(them, send),
            Call::Scatterv { root, blocks } => !is_root(root) || blocks.is_some_and(|all| all.lie_within(them, send)),
            Call::Allgather { len } => Blocks::Equal(len).lie_within(them, receive),
            Call::Allgatherv { blocks } => blocks.lie_within(them, receive),
            Call::Alltoallv { to, from } => to.lie_within(them, send) && from.lie_within(them, receive),
            _ => true,
        }
    }

    /// What this process does in a call.
    ///
    /// # Panics
    ///
    /// Of calls that are not defined between groups.
    pub fn build(&self, call: Call, schedule: &mut Schedule, buffers: Buffers, table: &Table) {
        let (given, output) = schedule.begin(buffers.send, buffers.receive);
        let us = Team::of(&self.here, self.rank);
        let is_root = |root: usize| root == self.number();
        let other = self.there[0];
        match call {
            Call::Broadcast { root: NOBODY }
            | Call::Reduce { root: NOBODY, .. }
            | Call::Gather { root: NOBODY, .. }
            | Call::Gatherv { root: NOBODY, .. }
            | Call::Scatter { root: NOBODY, .. }
            | Call::Scatterv { root: NOBODY, .. } => {}
            Call::Barrier => {
                dissemination(schedule, us);
                if self.rank == 0 {
                    schedule.signal(other);
                    schedule.await_signal(other);
                    schedule.next_round();
                }
                // Nobody leaves before its first rank has heard of the others.
                dissemination(schedule, us);
            }
            Call::Broadcast { root } if is_root(root) => schedule.send(other, output),
            Call::Broadcast { root } => {
                if self.rank == 0 {
                    schedule.receive(root as u32, output);
                    schedule.next_round();
                }
                self.broadcast(schedule, output, table);
            }
            Call::Reduce { root, .. } if is_root(root) => schedule.receive(other, output),
            Call::Reduce { root, reduction } => {
                if let Some(value) = self.reduce(schedule, given, reduction, table) {
                    schedule.send(root as u32, value);
                }
            }
            Call::Allreduce { reduction } => {
                if let Some(value) = self.reduce(schedule, given, reduction, table) {
                    schedule.send(other, value);
                    schedule.receive(other, output);
                    schedule.next_round();
                }
                self.broadcast(schedule, output, table);
            }
            Call::ReduceScatter { blocks, reduction } => {
                let value = self.reduce(schedule, given, reduction, table);
                let theirs = value.map(|value| {
                    let theirs = schedule.scratch(value.len());
                    schedule.send(other, value);
                    schedule.receive(other, theirs);
                    schedule.next_round();
                    (theirs, blocks)
                });
                let block = output.part(0, blocks.len(self.rank));
                scatter::linear(schedule, us, 0, Some(block), theirs);
            }
            Call::Gather { root, len } if is_root(root) => self.receive_all(schedule, output, Blocks::Equal(len)),
            Call::Gatherv { root, blocks: Some(blocks) } if is_root(root) => self.receive_all(schedule, output, blocks),
            Call::Gather { root, .. } | Call::Gatherv { root, .. } => schedule.send(root as u32, given),
            Call::Scatter { root, len } if is_root(root) => self.send_all(schedule, given, Blocks::Equal(len)),
            Call::Scatterv { root, blocks: Some(blocks) } if is_root(root) => self.send_all(schedule, given, blocks),
            Call::Scatter { root, .. } | Call::Scatterv { root, .. } => schedule.receive(root as u32, output),
            Call::Allgather { len } => self.exchange(schedule, |_| given, output, Blocks::Equal(len)),
            Call::Allgatherv { blocks } => self.exchange(schedule, |_| given, output, blocks),
            Call::Alltoall { .. } => {
                // What comes may have another length than what goes.
                let [to, from] = [given, output].map(|all| Blocks::Equal(all.len() / self.there.len()));
                self.exchange(schedule, |rank| to.of(given, rank), output, from);
            }
            Call::Alltoallv { to, from } => self.exchange(schedule, |rank| to.of(given, rank), output, from),
            Call::Scan { .. }
            | Call::Exscan { .. }
            | Call::NeighborAllgather { .. }
            | Call::NeighborAlltoall { .. } => {
                panic!("{call:?} is not defined between groups")
            }
        }
        schedule.next_round();
    }

    /// From our first rank to all of ours.
    fn broadcast(&self, schedule: &mut Schedule, data: Span, table: &Table) {
        let algorithm = self.choose(table, Collective::Broadcast, data.len(), true);
        broadcast::build(algorithm, schedule, Team::of(&self.here, self.rank), 0, data);
    }

    /// What all of ours give combined: at the first one.
    fn reduce(&self, schedule: &mut Schedule, given: Span, reduction: Reduction, table: &Table) -> Option<Span> {
        let value = (self.rank == 0).then(|| schedule.scratch(given.len()));
        let algorithm = self.choose(table, Collective::Reduce, given.len(), reduction.commutative);
        reduce::build(algorithm, schedule, Team::of(&self.here, self.rank), 0, (given, value), reduction);
        schedule.next_round();
        value
    }

    fn receive_all(&self, schedule: &mut Schedule, output: Span, blocks: Blocks) {
        for (rank, number) in self.there.iter().enumerate() {
            schedule.receive(*number, blocks.of(output, rank));
        }
    }

    fn send_all(&self, schedule: &mut Schedule, input: Span, blocks: Blocks) {
        for (rank, number) in self.there.iter().enumerate() {
            schedule.send(*number, blocks.of(input, rank));
        }
    }

    /// Something to each of the others, and a block from each.
    fn exchange(&self, schedule: &mut Schedule, outgoing: impl Fn(usize) -> Span, output: Span, from: Blocks) {
        self.receive_all(schedule, output, from);
        for (rank, number) in self.there.iter().enumerate() {
            schedule.send(*number, outgoing(rank));
        }
    }

    fn choose(&self, table: &Table, collective: Collective, bytes: usize, commutative: bool) -> Algorithm {
        // As if each were on a host of its own: on one level.
        let ranks = self.here.len();
        table.choose(Case { collective, ranks, hosts: ranks, bytes, commutative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::tests::play::Play;

    #[test]
    fn a_call_fits_whose_blocks_lie_within_what_this_process_has_and_no_other() {
        let (groups, _) = Groups::new(&[0, 1], 0, &[2, 3, 4]);
        let (root, four) = (groups.number(), Blocks::Equal(4));
        let reduction = Reduction { element: 1, commutative: true };
        // And what each looks at: of two here and three there.
        let calls = [
            (Call::ReduceScatter { blocks: four, reduction }, 8, 4),
            (Call::Gather { root, len: 4 }, 0, 12),
            (Call::Gatherv { root, blocks: Some(four) }, 0, 12),
            (Call::Scatter { root, len: 4 }, 12, 0),
            (Call::Scatterv { root, blocks: Some(four) }, 12, 0),
            (Call::Allgather { len: 4 }, 0, 12),
            (Call::Allgatherv { blocks: four }, 0, 12),
            (Call::Alltoallv { to: four, from: four }, 12, 12),
        ];
        let fits = |call, send, receive| groups.fits(&call, Buffers { send, receive, in_place: false });
        for (call, send, receive) in calls {
            assert!(fits(call, send, receive), "{call:?}");
            assert!(send == 0 || !fits(call, send - 1, receive), "{call:?}");
            assert!(receive == 0 || !fits(call, send, receive - 1), "{call:?}");
        }
        assert!(
            !fits(Call::Gatherv { root, blocks: None }, 0, 12) && !fits(Call::Scatterv { root, blocks: None }, 12, 0)
        );
        assert!(
            fits(Call::Gather { root: NOBODY, len: 4 }, 0, 0) && fits(Call::Scatter { root: NOBODY, len: 4 }, 0, 0)
        );
    }

    /// What each of two groups of so many ranks has at the end of a call, by its number: `make` says what it calls, gives, and has room for.
    fn played(sizes: [usize; 2], seed: u64, make: impl Fn(usize) -> (Call<'static>, Vec<u8>, Vec<u8>)) -> Vec<Vec<u8>> {
        let all: Vec<u32> = (0..(sizes[0] + sizes[1]) as u32).collect();
        let (first, last) = all.split_at(sizes[0]);
        let of = |here: &[u32], there: &[u32]| (0..here.len()).map(|rank| Groups::new(here, rank, there).0).collect();
        let ranks: [Vec<Groups>; 2] = [of(first, last), of(last, first)];
        let ranks = ranks.iter().flatten().map(|groups| {
            let (call, send, receive) = make(groups.number());
            let mut schedule = Schedule::new();
            let buffers = Buffers { send: send.len(), receive: receive.len(), in_place: false };
            groups.build(call, &mut schedule, buffers, &Table::default());
            assert_eq!(schedule.check(), Ok(()));
            (schedule, send, receive)
        });
        Play::new(seed, ranks).run(|into, from| into.iter_mut().zip(from).for_each(|(into, from)| *into += from))
    }

    /// Also where one of them gives more than the other.
    #[test]
    fn each_group_gets_what_the_other_one_gives() {
        let reduction = Reduction { element: 1, commutative: true };
        let sizes = (1..5).flat_map(|here| (1..5).map(move |there| [here, there]));
        for (seed, [here, there]) in (0..).zip(sizes) {
            let (all, is_first) = (0..here + there, |number: usize| number < here);
            let got = played([here, there], seed, |number| match number {
                0 => (Call::Broadcast { root: 0 }, vec![], vec![7; 3]),
                _ if is_first(number) => (Call::Broadcast { root: NOBODY }, vec![], vec![]),
                _ => (Call::Broadcast { root: 0 }, vec![], vec![0; 3]),
            });
            assert!(got[here..].iter().all(|got| *got == [7; 3]), "broadcast, {here} and {there}");

            let got = played([here, there], seed, |number| {
                let len = if is_first(number) { there } else { here };
                let call = Call::ReduceScatter { blocks: Blocks::Equal(len), reduction };
                (call, vec![number as u8 + 1; here * there], vec![0; len])
            });
            let sum = |of_first: bool| -> u8 {
                all.clone().filter(|of| is_first(*of) == of_first).map(|of| of as u8 + 1).sum()
            };
            let expected = |number| vec![sum(!is_first(number)); if is_first(number) { there } else { here }];
            assert!(got.into_iter().eq(all.clone().map(expected)), "reduce-scatter, {here} and {there}");

            // The first ones give one byte to each, and the others two.
            let blocks = |from: usize, to: usize| vec![(from * 16 + to) as u8; if is_first(from) { 1 } else { 2 }];
            let others = |number| all.clone().filter(move |other| is_first(*other) != is_first(number));
            let got = played([here, there], seed, |number| {
                let given: Vec<u8> = others(number).flat_map(|other| blocks(number, other)).collect();
                let room = others(number).map(|other| blocks(other, number).len()).sum();
                (Call::Alltoall { len: given.len() / others(number).count() }, given, vec![0; room])
            });
            let expected = |number| others(number).flat_map(|other| blocks(other, number)).collect();
            assert!(
                got.into_iter().eq(all.clone().map(expected).collect::<Vec<Vec<u8>>>()),
                "alltoall, {here} and {there}"
            );
        }
    }

    /// MPI-4.1 6.3.
    #[test]
    fn nobody_leaves_a_barrier_of_two_groups_before_all_of_both_have_come() {
        let (all, table) = ([3, 5, 8, 9, 1, 0, 4], Table::default());
        for (here, there) in (1..all.len()).map(|at| all.split_at(at)) {
            let mut schedules = vec![Schedule::new(); all.len()];
            for (here, there) in [(here, there), (there, here)] {
                for rank in 0..here.len() {
                    let (groups, _) = Groups::new(here, rank, there);
                    let buffers = Buffers { send: 0, receive: 0, in_place: false };
                    groups.build(Call::Barrier, &mut schedules[groups.number()], buffers, &table);
                }
            }
            let play = Play::new(all.len() as u64, schedules.into_iter().map(|schedule| (schedule, vec![], vec![])));
            assert_eq!(play.known(), [(1 << all.len()) - 1; 7], "{here:?} and {there:?}");
            play.run(|_, _| ());
        }
    }
}
