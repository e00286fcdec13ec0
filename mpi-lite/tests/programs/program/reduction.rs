//! Data that is combined on its way from ranks to ranks, by operators of the standard and of the program's own.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made, and bytes are read as numbers.

use sidelane_mpi::coll::{Blocks, Call, Reduction as HowReduced};
use sidelane_mpi::comm::{Communicator, Elements, Equivalence};
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::{Op, UserOp};
use sidelane_nic::rng::Rng;

use super::family::{Members, Place};
use super::layout::pick;
use super::repeated::Prepared;
use super::{Differ, Open, Rank, Scale, UNTOUCHED, bytes, part};

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

/// What a call has, what it is to bring, and which it is.
struct Buffers {
    given: Vec<u8>,
    room: Vec<u8>,
    expected: Vec<u8>,
    what: String,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    I8,
    U16,
    I32,
    U64,
    /// Small whole numbers, of which sums and products are exact in any order.
    F64,
    /// A value and its place.
    Located,
    /// Two numbers that only the program's own operators know.
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    /// `(a, b)` and `(c, d)` are `(ac, ad + bc)`: the order is free, and halves can't be combined by themselves.
    Dual,
    /// `(a, b)` and `(c, d)` are `(ac, bc + d)`: first the one map, then the other. The order is not free.
    Affine,
}

impl Reduction {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64, scale: Scale) -> Self {
        use Operator::*;
        // Scans are for one group.
        let what = *pick(rng, if members.is_one_group() { &What::ALL } else { &What::ALL[..4] });
        let kind = *pick(rng, &[Kind::I8, Kind::U16, Kind::I32, Kind::U64, Kind::F64, Kind::Located, Kind::Two]);
        let op = *match kind {
            Kind::F64 => pick(rng, &[Sum, Prod, Min, Max]),
            Kind::Located => pick(rng, &[Minloc, Maxloc]),
            Kind::Two => pick(rng, &[Dual, Affine]),
            _ => pick(rng, &[Sum, Prod, Min, Max, Band, Bor, Bxor, Land, Lor, Lxor]),
        };
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
        let Buffers { given, room, expected, what } = &buffers;
        let came = match self.kind {
            Kind::I8 => self.typed::<i8>(&comm, own, given, room),
            Kind::U16 => self.typed::<u16>(&comm, own, given, room),
            Kind::I32 => self.typed::<i32>(&comm, own, given, room),
            Kind::U64 => self.typed::<u64>(&comm, own, given, room),
            Kind::F64 => self.typed::<f64>(&comm, own, given, room),
            Kind::Two => self.typed::<[u32; 2]>(&comm, own, given, room),
            // No slice of Rust's is of this type.
            Kind::Located => return self.raw(&comm, rank, own, buffers),
        };
        assert!(came == *expected, "{}", Differ(what, &came, expected));
    }

    /// The call with its memory, to be made in each round.
    pub fn prepare(&self, comm: &Communicator, rank: &Rank, rounds: u64) -> Prepared {
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let of_round = |round| Self { round, ..self.clone() }.buffers(own);
        let Buffers { given, mut room, what, .. } = of_round(0);
        let lens = self.lens(own);
        let (give, into) = self.elements(own, &given, &mut room);
        let (operand, op) = (self.kind.datatype().into(), self.op.op());
        // SAFETY: Both stay where they are as long as the call does, and only `room` is written while it is active.
        let call = unsafe { comm.call_init_raw(self.call(own, &lens), give, into, Some((&operand, &op))) }.unwrap();
        let rounds = (0..rounds).map(of_round).map(|it| [it.given, it.room, it.expected]).collect();
        Prepared { call, given, room, rounds, what: format!("persistent {what}") }
    }

    fn is_in_place(&self, own: Place) -> bool {
        self.in_place
            && match self.what {
                What::Allreduce | What::Scan => true,
                What::Reduce => own == self.root,
                _ => false,
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
        Buffers { given, room, expected, what }
    }

    fn elements(&self, own: Place, given: &[u8], room: &mut [u8]) -> (Option<Elements>, Elements) {
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

    /// By the calls on slices; what they brought.
    fn typed<T: Equivalence>(&self, comm: &Communicator, own: Place, given: &[u8], room: &[u8]) -> Vec<u8> {
        let (given, mut into): (Vec<T>, Vec<T>) = (values(given), values(room));
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
        unsafe { std::slice::from_raw_parts(into.as_ptr().cast::<u8>(), size_of_val(&into[..])) }.to_vec()
    }

    /// By the calls on memory.
    fn raw(&self, comm: &Communicator, rank: &mut Rank, own: Place, buffers: Buffers) {
        let Buffers { given, mut room, expected, what } = buffers;
        let lens = self.lens(own);
        let (call, (give, into)) = (self.call(own, &lens), self.elements(own, &given, &mut room));
        let (operand, op) = (self.kind.datatype().into(), self.op.op());
        let operator = Some((&operand, &op));
        // SAFETY: Both stay where they are until the call is over, and only `room` is written.
        unsafe {
            if self.started {
                let pending = comm.start_call_raw(call, give, into, operator).unwrap();
                rank.open.push(Open { pending, given, room, expected, what });
                return;
            }
            comm.call_raw(call, give, into, operator).unwrap();
        }
        assert!(room == expected, "{}", Differ(&what, &room, &expected));
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
        let stamp = part(part(self.stamp, own.0 as u64, own.1.into()), self.round, 0);
        let mut given = bytes(stamp, count * self.kind.size());
        if self.kind == Kind::F64 {
            for (at, element) in given.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let small = [1.0, 2.0, -1.0, 0.0, -2.0][element[0] as usize % 5];
                // A product of many stays far from where numbers get rough.
                *element = f64::to_le_bytes(if at % 3 == 0 { small } else { small + 1.0 });
            }
        }
        if self.kind == Kind::Located {
            // Few values, so that places decide often.
            given
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .for_each(|element| (element[0], element[1], element[2], element[3]) = (element[0] % 3, 0, 0, 0));
        }
        given
    }

    /// What a rank has afterwards; bytes as they were where nothing is said.
    fn expected(&self, own: Place) -> Vec<u8> {
        let from = self.members.peers_of(own.0);
        let fold = |ranks: std::ops::Range<u32>| {
            let all = ranks.map(|rank| self.given((from, rank)));
            all.reduce(|before, next| self.combined(&before, &next))
        };
        let of_all = || fold(0..self.members.groups[from].len() as u32).expect("one at least");
        match self.what {
            What::Reduce if own != self.root => Vec::new(),
            What::Reduce | What::Allreduce => of_all(),
            What::Scan => fold(0..own.1 + 1).expect("one at least"),
            What::Exscan => fold(0..own.1).unwrap_or_else(|| vec![UNTOUCHED; self.count * self.kind.size()]),
            What::ReduceScatter | What::ReduceScatterBlock => {
                let counts = self.counts(own.0);
                let start = counts[..own.1 as usize].iter().sum::<usize>() * self.kind.size();
                of_all()[start..][..counts[own.1 as usize] * self.kind.size()].to_vec()
            }
        }
    }

    /// What a lower rank has and what the next one has.
    fn combined(&self, before: &[u8], next: &[u8]) -> Vec<u8> {
        let size = self.kind.size();
        let both = before.chunks(size).zip(next.chunks(size));
        both.flat_map(|(before, next)| self.one(before, next)).collect()
    }

    fn one(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        match self.kind {
            Kind::F64 => {
                let [a, b] = [a, b].map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
                let result = match self.op {
                    Operator::Sum => a + b,
                    Operator::Prod => a * b,
                    Operator::Min => a.min(b),
                    _ => a.max(b),
                };
                result.to_le_bytes().to_vec()
            }
            Kind::Located => {
                let of = |bytes: &[u8]| values::<[i32; 2]>(bytes)[0];
                let (low, high) = (of(a).min(of(b)), [of(a), of(b)]);
                let [[a, at], [b, bt]] = high;
                let best = match (self.op, a.cmp(&b)) {
                    (_, std::cmp::Ordering::Equal) => [a, at.min(bt)],
                    (Operator::Minloc, _) => low,
                    _ => [[a, at], [b, bt]][usize::from(b > a)],
                };
                best.iter().flat_map(|part| part.to_le_bytes()).collect()
            }
            Kind::Two => {
                let of = |bytes: &[u8]| values::<[u32; 2]>(bytes)[0];
                let ([a, b], [c, d]) = (of(a), of(b));
                self.op.two([a, b], [c, d]).iter().flat_map(|part| part.to_le_bytes()).collect()
            }
            Kind::I8 | Kind::I32 => {
                let of = |bytes: &[u8]| match bytes {
                    [byte] => i64::from(byte.cast_signed()),
                    _ => i64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes"))),
                };
                self.whole(of(a), of(b)).to_le_bytes()[..a.len()].to_vec()
            }
            Kind::U16 | Kind::U64 => {
                let of = |bytes: &[u8]| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                };
                let (a, b, len) = (of(a), of(b), a.len());
                let result = match self.op {
                    Operator::Min => a.min(b),
                    Operator::Max => a.max(b),
                    _ => self.whole(a.cast_signed(), b.cast_signed()).cast_unsigned(),
                };
                result.to_le_bytes()[..len].to_vec()
            }
        }
    }

    /// Of integers: the front of the result is that of shorter ones.
    fn whole(&self, a: i64, b: i64) -> i64 {
        match self.op {
            Operator::Sum => a.wrapping_add(b),
            Operator::Prod => a.wrapping_mul(b),
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
            Operator::Band => a & b,
            Operator::Bor => a | b,
            Operator::Bxor => a ^ b,
            Operator::Land => i64::from(a != 0 && b != 0),
            Operator::Lor => i64::from(a != 0 || b != 0),
            Operator::Lxor => i64::from((a != 0) != (b != 0)),
            other => unreachable!("{other:?} is for pairs"),
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

impl Kind {
    const fn size(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::U16 => 2,
            Self::I32 => 4,
            Self::U64 | Self::F64 | Self::Located | Self::Two => 8,
        }
    }

    fn datatype(self) -> Datatype {
        match self {
            Self::I8 => Predefined::Int8.into(),
            Self::U16 => Predefined::Uint16.into(),
            Self::I32 => Predefined::Int32.into(),
            Self::U64 => Predefined::Uint64.into(),
            Self::F64 => Predefined::Double.into(),
            Self::Located => Predefined::TwoInt.into(),
            Self::Two => <[u32; 2]>::datatype(),
        }
    }
}

impl Operator {
    fn op(self) -> Op {
        match self {
            Self::Sum => Op::Sum,
            Self::Prod => Op::Prod,
            Self::Min => Op::Min,
            Self::Max => Op::Max,
            Self::Band => Op::Band,
            Self::Bor => Op::Bor,
            Self::Bxor => Op::Bxor,
            Self::Land => Op::Land,
            Self::Lor => Op::Lor,
            Self::Lxor => Op::Lxor,
            Self::Minloc => Op::Minloc,
            Self::Maxloc => Op::Maxloc,
            Self::Dual | Self::Affine => {
                let combine = move |_: &Datatype, count: usize, into: &mut [u8], from: &[u8]| {
                    assert_eq!((into.len(), from.len()), (count * 8, count * 8), "whole elements are combined");
                    for (into, from) in into.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
                        let result = self.two(values(from)[0], values(into)[0]);
                        into[..4].copy_from_slice(&result[0].to_le_bytes());
                        into[4..].copy_from_slice(&result[1].to_le_bytes());
                    }
                };
                Op::User(UserOp::new(self == Self::Dual, combine))
            }
        }
    }

    const fn two(self, [a, b]: [u32; 2], [c, d]: [u32; 2]) -> [u32; 2] {
        let second = match self {
            Self::Dual => a.wrapping_mul(d).wrapping_add(b.wrapping_mul(c)),
            _ => b.wrapping_mul(c).wrapping_add(d),
        };
        [a.wrapping_mul(c), second]
    }
}

fn values<T: Equivalence>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len() / size_of::<T>();
    // SAFETY: The bytes are there, and any bytes are a value.
    (0..count).map(|at| unsafe { bytes.as_ptr().cast::<T>().add(at).read_unaligned() }).collect()
}
