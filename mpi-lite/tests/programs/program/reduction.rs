//! Data that is combined on its way from ranks to ranks, by operators of the standard and of the program's own.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made, and numbers are read as bytes.

use std::slice;

use sidelane_mpi::coll::{Blocks, Call, Reduction as HowReduced};
use sidelane_mpi::comm::{Communicator, Elements, Equivalence};
use sidelane_nic::rng::Rng;

use super::buffers::{Buffers, Open};
use super::layout::pick;
use super::members::{Members, Place};
use super::operators::{Kind, Operator, values};
use super::repeated::Prepared;
use super::{Rank, Scale, UNTOUCHED, part};

#[derive(Debug, Clone)]
pub struct Reduction {
    comm: usize,
    members: Members,
    stamp: u64,
    /// Of a call that is made again and again: the data changes, and nothing else.
    round: u64,
    what: What,
    root: Place,
    kind: Kind,
    op: Operator,
    /// Elements that each rank gives; of each block where there are blocks.
    count: usize,
    started: bool,
    in_place: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Reduce,
    Allreduce,
    Scan,
    Exscan,
    ReduceScatter,
    ReduceScatterBlock,
}

impl Reduction {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64, scale: Scale) -> Self {
        // Scans are for one group.
        let what = *pick(rng, if members.is_one_group() { &What::ALL } else { &What::ALL[..4] });
        let kind = *pick(rng, &Kind::ALL);
        let op = *pick(rng, kind.operators());
        // Between two groups both give as much in all, which each cuts for its own.
        let many = if what.has_blocks() { members.groups.iter().map(Vec::len).product() } else { 1 };
        let count = scale.length(rng) / kind.size() / many;
        let (root, started) = (*pick(rng, &members.places()), rng.chance(0.4));
        let in_place = rng.chance(0.2) && members.is_one_group();
        let members = members.clone();
        Self { comm, members, stamp, round: 0, what, root, kind, op, count, started, in_place }
    }

    /// Each call, and once more only begun.
    pub fn each(rng: &mut Rng, comm: usize, members: &Members, scale: Scale) -> Vec<Self> {
        let twice = What::ALL.iter().flat_map(|what| [(*what, false), (*what, true)]);
        twice
            .map(|(what, started)| {
                let stamp = rng.next_u64();
                let any = Self::random(rng, comm, members, stamp, scale);
                Self { what, started, ..any }
            })
            .collect()
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let in_place = self.is_in_place(own);
        let buffers = self.buffers(own);
        if self.started || in_place {
            return self.raw(&comm, rank, own, buffers);
        }
        match self.kind {
            Kind::I8 => self.typed::<i8>(&comm, own, buffers),
            Kind::U16 => self.typed::<u16>(&comm, own, buffers),
            Kind::I32 => self.typed::<i32>(&comm, own, buffers),
            Kind::U64 => self.typed::<u64>(&comm, own, buffers),
            Kind::F64 => self.typed::<f64>(&comm, own, buffers),
            Kind::Two => self.typed::<[u32; 2]>(&comm, own, buffers),
            // No slice of Rust's is of this type.
            Kind::Located => self.raw(&comm, rank, own, buffers),
        }
    }

    /// The call with its memory, to be made in each round.
    pub fn prepare(&self, comm: &Communicator, rank: &Rank, rounds: u64) -> Prepared {
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let of_round = |round| Self { round, ..self.clone() }.buffers(own);
        let mut buffers = of_round(0);
        let lens = self.lens(own);
        let (give, into) = self.elements(own, &mut buffers);
        let (operand, op) = (self.kind.datatype().into(), self.op.op());
        // SAFETY: Both stay where they are as long as the call does, and only `room` is written while it is active.
        let call = unsafe { comm.call_init_raw(self.call(own, &lens), give, into, Some((&operand, &op))) }.unwrap();
        Prepared::new(call, buffers, (0..rounds).map(of_round))
    }

    fn is_in_place(&self, own: Place) -> bool {
        self.in_place
            && match self.what {
                What::Reduce => own == self.root,
                _ => true,
            }
    }

    fn buffers(&self, own: Place) -> Buffers {
        // Between two groups the root's gives nothing.
        let gives = self.what != What::Reduce || self.members.is_one_group() || own.0 != self.root.0;
        let given = if gives { self.given(own) } else { Vec::new() };
        let expected = self.expected(own);
        let room = if self.is_in_place(own) { given.clone() } else { vec![UNTOUCHED; expected.len()] };
        let groups = &self.members.groups;
        let what = format!("{:?} of {:?} by {:?} at {own:?} of {groups:?}", self.what, self.kind, self.op);
        Buffers::new(given, room, expected, what)
    }

    fn elements(&self, own: Place, Buffers { given, room, .. }: &mut Buffers) -> (Option<Elements>, Elements) {
        let (datatype, size) = (self.kind.datatype(), self.kind.size());
        let give = Elements::at(given.as_ptr().cast_mut(), given.len() / size, &datatype);
        let into = Elements::at(room.as_mut_ptr(), room.len() / size, &datatype);
        ((!self.is_in_place(own)).then_some(give), into)
    }

    fn call<'a>(&self, own: Place, lens: &'a [usize]) -> Call<'a> {
        let reduction = HowReduced { element: self.kind.size(), commutative: self.op.op().is_commutative() };
        match self.what {
            What::Reduce => Call::Reduce { root: self.members.root_number(self.root, own), reduction },
            What::Allreduce => Call::Allreduce { reduction },
            What::Scan => Call::Scan { reduction },
            What::Exscan => Call::Exscan { reduction },
            What::ReduceScatter | What::ReduceScatterBlock => {
                Call::ReduceScatter { blocks: Blocks::Lens(lens), reduction }
            }
        }
    }

    /// Bytes of the block of each rank of a rank's group.
    fn lens(&self, own: Place) -> Vec<usize> {
        self.counts(own.0).into_iter().map(|count| count * self.kind.size()).collect()
    }

    /// By the calls on slices.
    fn typed<T: Equivalence>(&self, comm: &Communicator, own: Place, mut buffers: Buffers) {
        let (given, mut into): (Vec<T>, Vec<T>) = (values(&buffers.given), values(&buffers.room));
        let op = self.op.op();
        match self.what {
            What::Reduce => comm.reduce(&given, &mut into, &op, self.members.root(self.root, own)),
            What::Allreduce => comm.allreduce(&given, &mut into, &op),
            What::Scan => comm.scan(&given, &mut into, &op),
            What::Exscan => comm.exscan(&given, &mut into, &op),
            What::ReduceScatter => comm.reduce_scatter(&given, &mut into, &self.counts(own.0), &op),
            What::ReduceScatterBlock => comm.reduce_scatter_block(&given, &mut into, &op),
        }
        .unwrap();
        // SAFETY: Numbers, and arrays of them, are bytes without gaps.
        let bytes =
            |values: &[T]| unsafe { slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }.to_vec();
        (buffers.given, buffers.room) = (bytes(&given), bytes(&into));
        buffers.check();
    }

    /// By the calls on memory.
    fn raw(&self, comm: &Communicator, rank: &mut Rank, own: Place, mut buffers: Buffers) {
        let lens = self.lens(own);
        let (call, (give, into)) = (self.call(own, &lens), self.elements(own, &mut buffers));
        let (operand, op) = (self.kind.datatype().into(), self.op.op());
        let operator = Some((&operand, &op));
        // SAFETY: Both stay where they are until the call is over, and only `room` is written.
        unsafe {
            if self.started {
                let pending = comm.start_call_raw(call, give, into, operator).unwrap();
                return rank.open.push(Open { pending, buffers });
            }
            comm.call_raw(call, give, into, operator).unwrap();
        }
        buffers.check();
    }

    /// Elements of the block of each rank of a group.
    fn counts(&self, group: usize) -> Vec<usize> {
        let (size, others) =
            (self.members.groups[group].len(), self.members.groups[self.members.peers_of(group)].len());
        let one_group = self.members.is_one_group();
        let each = if one_group { self.count } else { self.count * others };
        let mut counts = vec![each; size];
        if self.what == What::ReduceScatter && one_group {
            for (rank, count) in counts.iter_mut().enumerate() {
                *count = (part(self.stamp, rank as u64, 7) % 4) as usize * self.count / 2;
            }
        } else if self.what == What::ReduceScatter {
            // Of two groups the sum is fixed: some give to others of what they have.
            for rank in 0..size {
                let part = part(self.stamp, rank as u64, 7);
                let moved = part as usize % (counts[rank] + 1);
                counts[rank] -= moved;
                counts[part as usize / 7 % size] += moved;
            }
        }
        counts
    }

    fn given(&self, own: Place) -> Vec<u8> {
        let count = if self.what.has_blocks() { self.counts(own.0).iter().sum() } else { self.count };
        self.kind.elements(part(part(self.stamp, own.0 as u64, own.1.into()), self.round, 0), count)
    }

    /// What a rank has afterwards; bytes as they were where nothing is said.
    fn expected(&self, own: Place) -> Vec<u8> {
        let from = self.members.peers_of(own.0);
        let fold = |ranks: std::ops::Range<u32>| {
            let all = ranks.map(|rank| self.given((from, rank)));
            all.reduce(|before, next| self.op.combined(self.kind, &before, &next))
        };
        let of_all = || fold(0..self.members.groups[from].len() as u32).expect("one at least");
        match self.what {
            What::Reduce if own != self.root => Vec::new(),
            What::Reduce | What::Allreduce => of_all(),
            What::Scan => fold(0..own.1 + 1).expect("one at least"),
            What::Exscan => fold(0..own.1).unwrap_or_else(|| match self.is_in_place(own) {
                true => self.given(own),
                false => vec![UNTOUCHED; self.count * self.kind.size()],
            }),
            What::ReduceScatter | What::ReduceScatterBlock => {
                let counts = self.counts(own.0);
                let start = counts[..own.1 as usize].iter().sum::<usize>() * self.kind.size();
                of_all()[start..][..counts[own.1 as usize] * self.kind.size()].to_vec()
            }
        }
    }
}

impl What {
    const ALL: [Self; 6] =
        [Self::Reduce, Self::Allreduce, Self::ReduceScatter, Self::ReduceScatterBlock, Self::Scan, Self::Exscan];

    const fn has_blocks(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::ReduceScatterBlock)
    }
}
