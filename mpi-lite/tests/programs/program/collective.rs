//! Data that goes from ranks to ranks as it is, in derived datatypes, blocking or not.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::coll::{Blocks, Call};
use sidelane_mpi::comm::{Communicator, Elements};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::buffers::{Buffers, Open};
use super::layout::{Layout, pick, shuffle};
use super::members::{Members, Place};
use super::repeated::Prepared;
use super::{Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug, Clone)]
pub struct Collective {
    comm: usize,
    members: Members,
    stamp: u64,
    /// Of a call that is made again and again: the data changes, and nothing else.
    round: u64,
    what: What,
    root: Place,
    /// Units of a block where all are equal.
    units: usize,
    give: Layout,
    room: Layout,
    started: bool,
    /// What a rank gives is in its room, where that may be.
    in_place: bool,
}

/// What a call has, and where blocks are in it.
struct Memory {
    buffers: Buffers,
    give_pieces: Vec<(isize, usize)>,
    room_pieces: Vec<(isize, usize)>,
    given_lens: Vec<usize>,
    taken_lens: Vec<usize>,
    in_place: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Barrier,
    Broadcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    NeighborAllgather,
    NeighborAllgatherv,
    NeighborAlltoall,
    NeighborAlltoallv,
}

impl What {
    /// The last ones are for neighbours.
    const ALL: [Self; 14] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Gather,
        Self::Gatherv,
        Self::Scatter,
        Self::Scatterv,
        Self::Allgather,
        Self::Allgatherv,
        Self::Alltoall,
        Self::Alltoallv,
        Self::NeighborAllgather,
        Self::NeighborAllgatherv,
        Self::NeighborAlltoall,
        Self::NeighborAlltoallv,
    ];

    fn may_be_in_place(self) -> bool {
        Self::ALL[2..10].contains(&self)
    }

    fn exchanges(self) -> bool {
        matches!(self, Self::Alltoall | Self::Alltoallv)
    }

    /// Whether each block has a length of its own, and is anywhere.
    fn varies(self) -> bool {
        matches!(
            self,
            Self::Gatherv
                | Self::Scatterv
                | Self::Allgatherv
                | Self::Alltoallv
                | Self::NeighborAllgatherv
                | Self::NeighborAlltoallv
        )
    }
}

/// Blocks on one side of a call: of how many units, and their packed bytes, where there are some.
type Side = Vec<(usize, Option<Vec<u8>>)>;

impl Collective {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64, scale: Scale) -> Self {
        let around = !members.around.is_nobody() && rng.chance(0.5);
        let what = *if around { pick(rng, &What::ALL[10..]) } else { pick(rng, &What::ALL[..10]) };
        let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
        let (give, room) = (Layout::random(rng, kind), Layout::random(rng, kind));
        let unit = give.elements() * room.bytes(1);
        // All blocks together are about as long as a message.
        let many = if what == What::Broadcast { 1 } else { members.places().len() };
        let units = scale.length(rng) / unit / if rng.chance(0.5) { many } else { 1 };
        let (root, started) = (*pick(rng, &members.places()), rng.chance(0.4));
        let in_place = rng.chance(0.2) && what.may_be_in_place() && members.is_one_group();
        let members = members.clone();
        Self { comm, members, stamp, round: 0, what, root, units, give, room, started, in_place }
    }

    /// Each call, and once more only begun.
    pub fn each(rng: &mut Rng, comm: usize, members: &Members, scale: Scale) -> Vec<Self> {
        let twice = What::ALL.iter().flat_map(|what| [(*what, false), (*what, true)]);
        twice
            .map(|(what, started)| {
                let stamp = rng.next_u64();
                let any = Self::random(rng, comm, members, stamp, scale);
                Self { what, started, in_place: any.in_place && what.may_be_in_place(), ..any }
            })
            .collect()
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let mut memory = self.memory(own, rank.rng.clone());
        let (give, into) = self.elements(own, &mut memory);
        let call = self.call(&comm, own, &memory);
        // SAFETY: Both stay where they are until the call is over, and only `room` is written.
        unsafe {
            if self.started {
                let pending = comm.start_call_raw(call, give, into, None).unwrap();
                return rank.open.push(Open { pending, buffers: memory.buffers });
            }
            comm.call_raw(call, give, into, None).unwrap();
        }
        memory.buffers.check();
    }

    /// The call with its memory, to be made in each round.
    pub fn prepare(&self, comm: &Communicator, rank: &Rank, rounds: u64) -> Prepared {
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let of_round = |round| Self { round, ..self.clone() }.memory(own, rank.rng.clone());
        let mut memory = of_round(0);
        let (give, into) = self.elements(own, &mut memory);
        // SAFETY: Both stay where they are as long as the call does, and only `room` is written while it is active.
        let call = unsafe { comm.call_init_raw(self.call(comm, own, &memory), give, into, None) }.unwrap();
        Prepared::new(call, memory.buffers, (0..rounds).map(|round| of_round(round).buffers))
    }

    fn memory(&self, own: Place, mut order: Rng) -> Memory {
        let (given, taken) = self.sides(own);
        let in_place = self.in_place
            && match self.what {
                What::Gather | What::Gatherv => own == self.root,
                // Its own block stays with the others, and there is no room.
                What::Scatter | What::Scatterv => false,
                _ => true,
            };
        let gives_away = self.gives_away(own);
        let (give_units, room_units) = (self.room.elements(), self.give.elements());
        let room_units = if gives_away { give_units } else { room_units };
        let room_layout = self.room_layout(own);
        let scattered = self.what.varies();
        let give_pieces = pieces(&self.give, &given, give_units, scattered.then_some(&mut order));
        let room_pieces = pieces(room_layout, &taken, room_units, scattered.then_some(&mut order));
        let given_memory = memory(&self.give, &given, &give_pieces, 0x11);
        let expected = memory(room_layout, &taken, &room_pieces, UNTOUCHED);
        let before: Side = if in_place && self.what.exchanges() {
            given.clone()
        } else {
            let own_part = |at: usize| gives_away || in_place && at == own.1 as usize;
            let block = |(at, (units, packed)): (usize, &(usize, Option<Vec<u8>>))| {
                (*units, packed.clone().filter(|_| own_part(at)))
            };
            taken.iter().enumerate().map(block).collect()
        };
        let room = memory(room_layout, &before, &room_pieces, UNTOUCHED);
        let given_lens = given.iter().map(|(units, _)| self.len(*units)).collect();
        let taken_lens = taken.iter().map(|(units, _)| self.len(*units)).collect();
        let what = format!("{:?} at {own:?} of {:?}", self.what, self.members.groups);
        let buffers = Buffers::new(given_memory, room, expected, what);
        Memory { buffers, give_pieces, room_pieces, given_lens, taken_lens, in_place }
    }

    fn elements(&self, own: Place, memory: &mut Memory) -> (Option<Elements>, Elements) {
        let Buffers { given, room, .. } = &mut memory.buffers;
        let given = given.as_ptr().cast_mut();
        let give = (!memory.in_place).then(|| Elements::new(given, &memory.give_pieces, &self.give.datatype));
        let into = Elements::new(room.as_mut_ptr(), &memory.room_pieces, &self.room_layout(own).datatype);
        (give, into)
    }

    /// The root of a broadcast has its own datatype, and its data where others have room.
    fn gives_away(&self, own: Place) -> bool {
        self.what == What::Broadcast && own == self.root
    }

    fn room_layout(&self, own: Place) -> &Layout {
        if self.gives_away(own) { &self.give } else { &self.room }
    }

    fn call<'a>(&self, comm: &'a Communicator, own: Place, memory: &'a Memory) -> Call<'a> {
        let (equal, is_root) = (self.len(self.units), own == self.root);
        let root = self.members.root_number(self.root, own);
        let (to, from) = (Blocks::Lens(&memory.given_lens), Blocks::Lens(&memory.taken_lens));
        let blocks = Blocks::Equal(equal);
        let neighbors = || comm.around().unwrap().neighbors();
        match self.what {
            What::Barrier => Call::Barrier,
            What::Broadcast => Call::Broadcast { root },
            What::Gather => Call::Gather { root, len: equal },
            What::Gatherv => Call::Gatherv { root, blocks: is_root.then_some(from) },
            What::Scatter => Call::Scatter { root, len: equal },
            What::Scatterv => Call::Scatterv { root, blocks: is_root.then_some(to) },
            What::Allgather => Call::Allgather { len: equal },
            What::Allgatherv => Call::Allgatherv { blocks: from },
            What::Alltoall => Call::Alltoall { len: equal },
            What::Alltoallv => Call::Alltoallv { to: if memory.in_place { from } else { to }, from },
            What::NeighborAllgather => Call::NeighborAllgather { neighbors: neighbors(), from: blocks },
            What::NeighborAllgatherv => Call::NeighborAllgather { neighbors: neighbors(), from },
            What::NeighborAlltoall => Call::NeighborAlltoall { neighbors: neighbors(), to: blocks, from: blocks },
            What::NeighborAlltoallv => Call::NeighborAlltoall { neighbors: neighbors(), to, from },
        }
    }

    /// What a rank gives, and what it then has.
    fn sides(&self, own: Place) -> (Side, Side) {
        let peers = self.members.peers_of(own.0);
        let all = || self.members.places().into_iter().filter(move |place| place.0 == peers);
        let (root, is_root) = (number(self.root), own == self.root);
        // Between two groups the root's has no part in it but for the root.
        let is_other = self.members.is_one_group() || own.0 != self.root.0;
        let own_number = number(own);
        let one = |there: bool, from: u64, to: u64| if there { vec![self.block(from, to)] } else { Vec::new() };
        let from_all = |to: u64| all().map(|from| self.block(number(from), to)).collect();
        let to_all = || all().map(|to| self.block(own_number, number(to))).collect();
        match self.what {
            What::Barrier => (Vec::new(), Vec::new()),
            What::Broadcast => (Vec::new(), one(is_root || is_other, root, 0)),
            What::Gather | What::Gatherv => {
                (one(is_other, own_number, 0), if is_root { from_all(0) } else { Vec::new() })
            }
            What::Scatter | What::Scatterv => {
                let has_room = is_other && !(is_root && self.in_place);
                (if is_root { to_all() } else { Vec::new() }, one(has_room, root, own_number))
            }
            What::Allgather | What::Allgatherv => (one(true, own_number, 0), from_all(0)),
            What::Alltoall | What::Alltoallv => (to_all(), from_all(own_number)),
            What::NeighborAllgather | What::NeighborAllgatherv => {
                let come = self.members.around.sources(own_number).into_iter();
                let come = come.map(|from| from.map_or((self.units, None), |(from, _)| self.block(from, 0)));
                (one(true, own_number, 0), come.collect())
            }
            What::NeighborAlltoall | What::NeighborAlltoallv => {
                let come = self.members.around.sources(own_number).into_iter();
                let come = come.map(|from| from.map_or((self.units, None), |(from, slot)| self.block(from, slot)));
                let go = 0..self.members.around.destinations(own_number);
                (go.map(|slot| self.block(own_number, slot)).collect(), come.collect())
            }
        }
    }

    /// Packed bytes of so many units.
    fn len(&self, units: usize) -> usize {
        units * self.give.elements() * self.room.bytes(1)
    }

    fn block(&self, from: u64, to: u64) -> (usize, Option<Vec<u8>>) {
        let stamp = part(self.stamp, from, to);
        // In place two ranks have as much for each other.
        let both = self.in_place && self.what.exchanges();
        let length = if both { part(self.stamp, from.min(to), from.max(to)) } else { stamp };
        let units = if self.what.varies() { (length % 4) as usize * self.units / 2 } else { self.units };
        (units, Some(bytes(part(stamp, self.round, 0), self.len(units))))
    }
}

/// A rank of either group.
fn number((group, rank): Place) -> u64 {
    (group as u64) << 32 | u64::from(rank)
}

/// Where each block is and how many elements it has: one after another, or anywhere.
fn pieces(layout: &Layout, side: &Side, per_unit: usize, anywhere: Option<&mut Rng>) -> Vec<(isize, usize)> {
    let mut order: Vec<usize> = (0..side.len()).collect();
    let gap = if anywhere.is_some() { layout.extent() } else { 0 };
    if let Some(rng) = anywhere {
        shuffle(rng, &mut order);
    }
    let (mut pieces, mut at) = (vec![(0, 0); side.len()], 0);
    for next in order {
        let count = side[next].0 * per_unit;
        pieces[next] = (at as isize, count);
        at += count * layout.extent() + gap;
    }
    pieces
}

/// Memory in which the blocks stand.
fn memory(layout: &Layout, side: &Side, pieces: &[(isize, usize)], gaps: u8) -> Vec<u8> {
    let end = pieces.iter().map(|(at, count)| *at as usize + layout.memory(*count)).max().unwrap_or(0);
    let mut memory = vec![gaps; end];
    for ((_, packed), (at, _)) in side.iter().zip(pieces) {
        layout.put(&mut memory[*at as usize..], 0, packed.as_deref().unwrap_or_default());
    }
    memory
}
