//! A block for each rank or neighbour, in a datatype of its own on each side.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::coll::{Blocks, Call};
use sidelane_mpi::comm::{Communicator, Elements, Piece};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::around::Around;
use super::buffers::{Buffers, Open};
use super::layout::{Layout, pick, shuffle};
use super::members::Members;
use super::{Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Pieces {
    comm: usize,
    stamp: u64,
    what: What,
    /// Bytes of a block, about.
    len: usize,
    started: bool,
    around: Around,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Alltoall,
    /// What two ranks have for each other is then of one length and kind.
    InPlace,
    NeighborAlltoall,
}

impl What {
    /// The last one is for neighbours.
    const ALL: [Self; 3] = [Self::Alltoall, Self::InPlace, Self::NeighborAlltoall];
}

/// A block on one side.
struct Block {
    layout: Layout,
    count: usize,
    /// `None` where there is nobody that it is from.
    packed: Option<Vec<u8>>,
}

impl Pieces {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64, scale: Scale) -> Self {
        let around = !members.around.is_nobody() && rng.chance(0.5);
        let what = if around { What::NeighborAlltoall } else { *pick(rng, &What::ALL[..2]) };
        let many = if rng.chance(0.5) { members.size() as usize } else { 1 };
        let (len, started) = (scale.length(rng) / many, rng.chance(0.4));
        Self { comm, stamp, what, len, started, around: members.around.clone() }
    }

    /// Each call, and once more only begun.
    pub fn each(rng: &mut Rng, comm: usize, members: &Members, scale: Scale) -> Vec<Self> {
        let twice = What::ALL.iter().flat_map(|what| [(*what, false), (*what, true)]);
        twice
            .map(|(what, started)| {
                let stamp = rng.next_u64();
                Self { what, started, ..Self::random(rng, comm, members, stamp, scale) }
            })
            .collect()
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let (own, size) = (u64::from(comm.rank()), u64::from(comm.size()));
        let (gives, takes) = self.sides(own, size);
        let mut order = rank.rng.clone();
        let (to, from) = (pieces(&gives, &mut order), pieces(&takes, &mut order));
        let expected = memory(&takes, &from, UNTOUCHED);
        let in_place = self.what == What::InPlace;
        // What is given stands where what comes will.
        let given = if in_place { Vec::new() } else { memory(&gives, &to, 0x11) };
        let room = if in_place { memory(&gives, &from, UNTOUCHED) } else { vec![UNTOUCHED; expected.len()] };
        let what = format!("{:?} of pieces at rank {own} of {size}", self.what);
        let mut buffers = Buffers::new(given, room, expected, what);
        let Buffers { given, room, .. } = &mut buffers;
        if self.started {
            let [to_lens, from_lens] = [&to, &from].map(|pieces| Piece::lens(pieces).unwrap());
            let around = (self.what == What::NeighborAlltoall).then(|| comm.around().unwrap());
            let (to_blocks, from_blocks) = (Blocks::Lens(&to_lens), Blocks::Lens(&from_lens));
            let call = match around {
                None => Call::Alltoallv { to: if in_place { from_blocks } else { to_blocks }, from: from_blocks },
                Some(around) => {
                    Call::NeighborAlltoall { neighbors: around.neighbors(), to: to_blocks, from: from_blocks }
                }
            };
            let give = (!in_place).then(|| Elements::each(given.as_ptr().cast_mut(), &to));
            let into = Elements::each(room.as_mut_ptr(), &from);
            // SAFETY: Both stay where they are until the call is over, and only `room` is written.
            let pending = unsafe { comm.start_call_raw(call, give, into, None) }.unwrap();
            return rank.open.push(Open { pending, buffers });
        }
        self.wait(&comm, given, room, &to, &from);
        buffers.check();
    }

    fn wait(&self, comm: &Communicator, given: &[u8], room: &mut [u8], to: &[Piece], from: &[Piece]) {
        match self.what {
            What::Alltoall => comm.alltoall_pieces(given, room, to, from),
            What::InPlace => comm.alltoall_pieces_in_place(room, from),
            What::NeighborAlltoall => comm.neighbor_alltoall_pieces(given, room, to, from),
        }
        .unwrap();
    }

    /// What a rank gives, and what it then has.
    fn sides(&self, own: u64, size: u64) -> (Vec<Block>, Vec<Block>) {
        match self.what {
            What::Alltoall | What::InPlace => (
                (0..size).map(|to| self.block(own, to, true)).collect(),
                (0..size).map(|from| self.block(from, own, false)).collect(),
            ),
            What::NeighborAlltoall => {
                let come = self.around.sources(own).into_iter().zip(0u64..);
                let come = come.map(|(from, slot)| match from {
                    Some((from, at)) => self.block(from, at, false),
                    None => Block { packed: None, ..self.block(own, slot, false) },
                });
                let go = (0..self.around.destinations(own)).map(|slot| self.block(own, slot, true));
                (go.collect(), come.collect())
            }
        }
    }

    /// What goes from one to another, or to a neighbour: as its owner has it, or as it is taken.
    fn block(&self, from: u64, to: u64, given: bool) -> Block {
        let stamp = part(self.stamp, from, to);
        // In place both have the same layouts, of which the lower one's comes first.
        let in_place = self.what == What::InPlace;
        let shared = if in_place { part(self.stamp, from.min(to), from.max(to)) } else { stamp };
        let rng = &mut Rng::new(shared);
        let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
        let [first, second] = [Layout::random(rng, kind), Layout::random(rng, kind)];
        let unit = first.elements() * second.bytes(1);
        let units = rng.below(4) as usize * self.len / 2 / unit;
        let packed = Some(bytes(stamp, units * unit));
        // The owner of what is given is `from`, and of the room `to`.
        let is_first = if !in_place {
            given
        } else if given {
            from <= to
        } else {
            to <= from
        };
        if is_first {
            Block { count: units * second.elements(), layout: first, packed }
        } else {
            Block { count: units * first.elements(), layout: second, packed }
        }
    }
}

/// Where each block is: anywhere, without overlaps.
fn pieces(side: &[Block], rng: &mut Rng) -> Vec<Piece> {
    let mut order: Vec<usize> = (0..side.len()).collect();
    shuffle(rng, &mut order);
    let (mut pieces, mut at) = (vec![Piece::none(); side.len()], 0);
    for next in order {
        let Block { layout, count, .. } = &side[next];
        pieces[next] = Piece::new(at as isize, *count, &layout.datatype);
        at += layout.memory(*count) + rng.below(20) as usize;
    }
    pieces
}

/// Memory in which the blocks stand.
fn memory(side: &[Block], pieces: &[Piece], gaps: u8) -> Vec<u8> {
    let both = || side.iter().zip(pieces);
    let end = both().map(|(block, piece)| piece.at as usize + block.layout.memory(piece.count)).max().unwrap_or(0);
    let mut memory = vec![gaps; end];
    for (block, piece) in both() {
        block.layout.put(&mut memory[piece.at as usize..], 0, block.packed.as_deref().unwrap_or_default());
    }
    memory
}
