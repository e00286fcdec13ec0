//! Data that goes from ranks to ranks as it is, in derived datatypes, blocking or not.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::coll::{Blocks, Call};
use sidelane_mpi::comm::Elements;
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::family::Members;
use super::layout::{Layout, pick, shuffle};
use super::{Differ, Open, Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Collective {
    comm: usize,
    stamp: u64,
    what: What,
    root: u32,
    /// Units of a block where all are equal.
    units: usize,
    give: Layout,
    room: Layout,
    started: bool,
    /// What a rank gives is in its room, where that may be.
    in_place: bool,
    grid: Vec<(u32, bool)>,
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
    /// The last ones are for grids.
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
        let around = !members.grid.is_empty() && rng.chance(0.5);
        let what = *if around { pick(rng, &What::ALL[10..]) } else { pick(rng, &What::ALL[..10]) };
        let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
        let (give, room) = (Layout::random(rng, kind), Layout::random(rng, kind));
        let unit = give.elements() * room.bytes(1);
        // All blocks together are about as long as a message.
        let many = if what == What::Broadcast { 1 } else { members.size() as usize };
        let units = scale.length(rng) / unit / if rng.chance(0.5) { many } else { 1 };
        let (root, started) = (rng.below(members.size().into()) as u32, rng.chance(0.4));
        let in_place = rng.chance(0.2) && matches!(what, What::Gather | What::Allgather | What::Allgatherv);
        Self { comm, stamp, what, root, units, give, room, started, in_place, grid: members.grid.clone() }
    }

    /// Each call, and once more only begun.
    pub fn each(rng: &mut Rng, comm: usize, members: &Members, scale: Scale) -> Vec<Self> {
        let twice = What::ALL.iter().flat_map(|what| [(*what, false), (*what, true)]);
        twice
            .map(|(what, started)| {
                let stamp = rng.next_u64();
                let any = Self::random(rng, comm, members, stamp, scale);
                Self { what, started, in_place: false, ..any }
            })
            .collect()
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let (own, size) = (comm.rank(), comm.size());
        let (given, taken) = self.sides(own, size);
        let in_place = self.in_place && (self.what != What::Gather || own == self.root);
        let broadcasts = self.what == What::Broadcast;
        // The root of a broadcast has its own datatype.
        let room_layout = if broadcasts && own == self.root { &self.give } else { &self.room };
        let (give_units, room_units) = (self.room.elements(), self.give.elements());
        let room_units = if broadcasts && own == self.root { give_units } else { room_units };
        let scattered = self.what.varies();
        let mut order = rank.rng.clone();
        let give_pieces = pieces(&self.give, &given, give_units, scattered.then_some(&mut order));
        let room_pieces = pieces(room_layout, &taken, room_units, scattered.then_some(&mut order));
        let given_memory = memory(&self.give, &given, &give_pieces, 0x11);
        let expected = memory(room_layout, &taken, &room_pieces, UNTOUCHED);
        let before: Side = taken
            .iter()
            .enumerate()
            .map(|(at, (units, packed))| {
                let own_part = broadcasts && own == self.root || in_place && at == own as usize;
                (*units, packed.clone().filter(|_| own_part))
            })
            .collect();
        let mut room = memory(room_layout, &before, &room_pieces, UNTOUCHED);

        let len = |units: &usize| units * self.give.elements() * self.room.bytes(1);
        let given_lens: Vec<usize> = given.iter().map(|(units, _)| len(units)).collect();
        let taken_lens: Vec<usize> = taken.iter().map(|(units, _)| len(units)).collect();
        let (equal, root, is_root) = (len(&self.units), self.root as usize, own == self.root);
        let around = (!self.grid.is_empty()).then(|| comm.around().unwrap());
        let blocks = Blocks::Equal(equal);
        let call = match self.what {
            What::Barrier => Call::Barrier,
            What::Broadcast => Call::Broadcast { root },
            What::Gather => Call::Gather { root, len: equal },
            What::Gatherv => Call::Gatherv { root, blocks: is_root.then_some(Blocks::Lens(&taken_lens)) },
            What::Scatter => Call::Scatter { root, len: equal },
            What::Scatterv => Call::Scatterv { root, blocks: is_root.then_some(Blocks::Lens(&given_lens)) },
            What::Allgather => Call::Allgather { len: equal },
            What::Allgatherv => Call::Allgatherv { blocks: Blocks::Lens(&taken_lens) },
            What::Alltoall => Call::Alltoall { len: equal },
            What::Alltoallv => Call::Alltoallv { to: Blocks::Lens(&given_lens), from: Blocks::Lens(&taken_lens) },
            What::NeighborAllgather => {
                Call::NeighborAllgather { neighbors: around.as_ref().expect("a grid").neighbors(), from: blocks }
            }
            What::NeighborAllgatherv => {
                let neighbors = around.as_ref().expect("a grid").neighbors();
                Call::NeighborAllgather { neighbors, from: Blocks::Lens(&taken_lens) }
            }
            What::NeighborAlltoall => {
                let neighbors = around.as_ref().expect("a grid").neighbors();
                Call::NeighborAlltoall { neighbors, to: blocks, from: blocks }
            }
            What::NeighborAlltoallv => {
                let neighbors = around.as_ref().expect("a grid").neighbors();
                let (to, from) = (Blocks::Lens(&given_lens), Blocks::Lens(&taken_lens));
                Call::NeighborAlltoall { neighbors, to, from }
            }
        };
        let give =
            (!in_place).then(|| Elements::new(given_memory.as_ptr().cast_mut(), &give_pieces, &self.give.datatype));
        let into = Elements::new(room.as_mut_ptr(), &room_pieces, &room_layout.datatype);
        let what = format!("{:?} at rank {own} of {size}", self.what);
        // SAFETY: Both stay where they are until the call is over, and only `room` is written.
        unsafe {
            if self.started {
                let pending = comm.start_call_raw(call, give, into, None).unwrap();
                rank.open.push(Open { pending, given: given_memory, room, expected, what });
                return;
            }
            comm.call_raw(call, give, into, None).unwrap();
        }
        assert!(room == expected, "{}", Differ(&what, &room, &expected));
    }

    /// What a rank gives, and what it then has.
    fn sides(&self, own: u32, size: u32) -> (Side, Side) {
        let all = || 0..u64::from(size);
        let (own, root) = (u64::from(own), u64::from(self.root));
        let is_root = own == root;
        let one = |from: u64, to: u64| vec![self.block(from, to)];
        match self.what {
            What::Barrier => (Vec::new(), Vec::new()),
            What::Broadcast => (Vec::new(), one(root, 0)),
            What::Gather | What::Gatherv => {
                (one(own, 0), if is_root { all().map(|from| self.block(from, 0)).collect() } else { Vec::new() })
            }
            What::Scatter | What::Scatterv => {
                (if is_root { all().map(|to| self.block(root, to)).collect() } else { Vec::new() }, one(root, own))
            }
            What::Allgather | What::Allgatherv => (one(own, 0), all().map(|from| self.block(from, 0)).collect()),
            What::Alltoall | What::Alltoallv => {
                (all().map(|to| self.block(own, to)).collect(), all().map(|from| self.block(from, own)).collect())
            }
            What::NeighborAllgather | What::NeighborAllgatherv => {
                let come = neighbors(&self.grid, own).into_iter();
                (one(own, 0), come.map(|from| from.map_or((self.units, None), |from| self.block(from, 0))).collect())
            }
            What::NeighborAlltoall | What::NeighborAlltoallv => {
                // What comes from below was sent upwards.
                let come = neighbors(&self.grid, own).into_iter().zip(0u64..);
                let come = come.map(|(from, slot)| from.map_or((self.units, None), |from| self.block(from, slot ^ 1)));
                ((0..2 * self.grid.len() as u64).map(|slot| self.block(own, slot)).collect(), come.collect())
            }
        }
    }

    fn block(&self, from: u64, to: u64) -> (usize, Option<Vec<u8>>) {
        let stamp = part(self.stamp, from, to);
        let units = if self.what.varies() { (stamp % 4) as usize * self.units / 2 } else { self.units };
        (units, Some(bytes(stamp, units * self.give.elements() * self.room.bytes(1))))
    }
}

/// Below and above in each dimension, row-major (MPI-4.1 8.6).
pub fn neighbors(grid: &[(u32, bool)], rank: u64) -> Vec<Option<u64>> {
    let strides: Vec<u64> =
        (0..grid.len()).map(|at| grid[at + 1..].iter().map(|(size, _)| u64::from(*size)).product()).collect();
    let sides = grid.iter().zip(strides);
    sides
        .flat_map(|((size, periodic), stride)| {
            let (size, at) = (u64::from(*size), rank / stride % u64::from(*size));
            let next = |to: Option<u64>| to.map(|to| rank - at * stride + to * stride);
            let below = if at > 0 { Some(at - 1) } else { periodic.then_some(size - 1) };
            let above = if at + 1 < size { Some(at + 1) } else { periodic.then_some(0) };
            [next(below), next(above)]
        })
        .collect()
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
