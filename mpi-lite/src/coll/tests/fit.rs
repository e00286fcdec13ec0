//! What fits a call can be built.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sidelane_nic::rng::Rng;

use crate::coll::neighbor::Neighbors;
use crate::coll::two_level::WithinHosts;
use crate::coll::{
    Access, Blocks, Buffers, Call, Collective, HostCall, Hosts, Memory, Reduction, Rule, Schedule, Span, Step, Table,
    Transfer,
};

/// Blocks of few bytes, now and then too few of them, or endless ones.
struct Random {
    rng: Rng,
    lens: Vec<usize>,
    starts: Vec<usize>,
}

impl Random {
    fn new(rng: &mut Rng, size: usize) -> Self {
        let mut rng = Rng::new(rng.next_u64());
        let count = size + 1 - rng.below(3) as usize;
        let mut one = |_| if rng.below(50) == 0 { usize::MAX } else { 2 * rng.below(3) as usize };
        let [lens, starts] = [0; 2].map(|_| (0..count).map(&mut one).collect());
        Self { rng, lens, starts }
    }

    fn blocks(&mut self) -> Blocks<'_> {
        match self.rng.below(4) {
            0 => Blocks::Equal(self.lens.first().copied().unwrap_or(2)),
            1 => Blocks::Lens(&self.lens),
            2 => Blocks::Counts { counts: &self.lens, element: 2 },
            _ => Blocks::At { counts: &self.lens, starts: &self.starts, element: 1 },
        }
    }
}

/// Any algorithm for each collective, and another one for where the first can't, as between and within hosts.
fn table(rng: &mut Rng) -> Table {
    let all = 0..=usize::MAX;
    let mut rule = |collective: Collective| {
        let algorithm = collective.algorithms()[rng.below(collective.algorithms().len() as u64) as usize];
        Rule { collective, ranks: all.clone(), bytes: all.clone(), algorithm }
    };
    Table::new(Collective::ALL.into_iter().chain(Collective::ALL).map(&mut rule).collect())
}

/// Whether places of its blocks are told one by one, so that they may lie over each other: an error of the program's.
fn may_clash(call: &Call) -> bool {
    matches!(
        call,
        Call::Gatherv { blocks: Some(Blocks::At { .. }), .. }
            | Call::Allgatherv { blocks: Blocks::At { .. } }
            | Call::Alltoallv { from: Blocks::At { .. }, .. }
            | Call::NeighborAllgather { from: Blocks::At { .. }, .. }
            | Call::NeighborAlltoall { from: Blocks::At { .. }, .. }
    )
}

/// Which bytes of the receive buffer a schedule writes, of a rank with this number among so many on its host.
fn written(schedule: &Schedule, on_host: (usize, usize)) -> Vec<bool> {
    let mut written = vec![false; schedule.buffer_lens().1];
    let mut write = |span: Span| {
        if span.memory() == Memory::Receive {
            written[span.start()..span.end()].fill(true);
        }
    };
    for round in schedule.rounds() {
        for transfer in round.transfers {
            if let Transfer::Receive(_, span) = transfer {
                write(*span);
            }
        }
        for step in round.steps {
            match *step {
                Step::Combine { into, from } | Step::Copy { into, from } => {
                    write(into.part(0, from.len().min(into.len())))
                }
                Step::OnHost(number) => {
                    let HostCall { call, send, receive } = schedule.call(number);
                    if call.access(on_host, receive.len(), send.is_none()) != Access::Read {
                        write(receive);
                    }
                }
            }
        }
    }
    written
}

#[test]
fn what_fits_can_be_built() {
    const KINDS: usize = 17;
    let (mut rng, mut fitted, mut accesses) = (Rng::new(1), [0; KINDS], [[0; 3]; KINDS]);
    for turn in 0..200_000 {
        let size = 1 + rng.below(5) as usize;
        let [me, root] = [0; 2].map(|_| rng.below(size as u64) as usize);
        let [send, receive] = [0; 2].map(|_| 2 * rng.below(7) as usize);
        let in_place = rng.below(4) == 0;
        let buffers = Buffers { send: if in_place { 0 } else { send }, receive, in_place };
        let len = 2 * rng.below(3) as usize;
        let reduction = Reduction { element: 2, commutative: rng.chance(0.5) };
        let (mut one, mut other) = (Random::new(&mut rng, size), Random::new(&mut rng, size));
        let ring = [Some(((me + size - 1) % size) as u32), Some(((me + 1) % size) as u32)];
        let [sources, destinations] =
            [0; 2].map(|_| (0..rng.below(4)).map(|_| Some(rng.below(size as u64) as u32)).collect::<Vec<_>>());
        let neighbors = match rng.below(3) {
            0 => Neighbors::Graph { sources: &sources, destinations: &destinations },
            _ => Neighbors::Grid(if size > 1 { &ring } else { &[] }),
        };
        let kind = turn % KINDS;
        let call = match kind {
            0 => Call::Barrier,
            1 => Call::Broadcast { root },
            2 => Call::Reduce { root, reduction },
            3 => Call::Allreduce { reduction },
            4 => Call::ReduceScatter { blocks: one.blocks(), reduction },
            5 => Call::Scan { reduction },
            6 => Call::Exscan { reduction },
            7 => Call::Gather { root, len },
            8 => Call::Gatherv { root, blocks: (rng.below(size as u64 + 1) == 0).then_some(one.blocks()) },
            9 => Call::Scatter { root, len },
            10 => Call::Scatterv { root, blocks: (rng.below(size as u64 + 1) == 0).then_some(one.blocks()) },
            11 => Call::Allgather { len },
            12 => Call::Allgatherv { blocks: one.blocks() },
            13 => Call::Alltoall { len },
            14 => Call::Alltoallv { to: one.blocks(), from: other.blocks() },
            15 => Call::NeighborAllgather { neighbors, from: one.blocks() },
            _ => Call::NeighborAlltoall { neighbors, to: one.blocks(), from: other.blocks() },
        };
        if call.fits((me, size), buffers) {
            fitted[kind] += 1;
            let hosts = Hosts::new((0..size).map(|_| rng.below(3)).collect::<Vec<_>>());
            let within = if rng.chance(0.5) { WithinHosts::Messages } else { WithinHosts::Calls };
            let (table, mut schedule) = (table(&mut rng), Schedule::new());
            let on_host = (hosts.place(me), hosts.on(hosts.of(me)).len());
            let build = AssertUnwindSafe(|| call.build(&mut schedule, me, (&hosts, within), buffers, &table));
            let built = catch_unwind(build);
            let told = || format!("turn {turn}, rank {me} of {size}, {within:?}: {call:?}, {buffers:?}, {table:?}");
            assert!(built.is_ok(), "{}", told());
            let clash = schedule.check().err().filter(|_| !may_clash(&call));
            assert!(clash.is_none(), "{clash:?}, {}", told());
            let (written, access) = (written(&schedule, on_host), call.access((me, size), receive, in_place));
            accesses[kind][access as usize] += 1;
            assert!(access != Access::Written || written.iter().all(|byte| *byte), "{}", told());
        }
    }
    assert!(fitted.iter().all(|number| *number > 100), "{fitted:?}");
    // All but a barrier, reductions to less than there is room for, an exscan and neighbours have room that is only written.
    let is_written = |kind: usize| accesses[kind][Access::Written as usize] > 0;
    assert!((0..KINDS).all(|kind| is_written(kind) != [0, 4, 6, 15, 16].contains(&kind)), "{accesses:?}");
    // A barrier and a broadcast fit always.
    assert!(fitted[2..].iter().all(|number| *number < 200_000 / KINDS), "{fitted:?}");
}
