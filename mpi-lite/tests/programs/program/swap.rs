//! Messages that are sent and received in one call, each with a datatype of its own on both sides, or in one and the same memory.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::comm::{Communicator, Destination, ErrorClass, Source, Status};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::buffers::{holds, unwritten};
use super::exchange::TAGS;
use super::layout::{Layout, pick, shuffle};
use super::members::{Members, Place};
use super::{Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Swap {
    comm: usize,
    members: Members,
    stamp: u64,
    tag: i32,
    calls: Vec<Call>,
}

/// One rank's part.
#[derive(Debug)]
struct Call {
    at: Place,
    /// The null process where there is nobody.
    to: Option<Place>,
    from: Option<Place>,
    named: Named,
    started: bool,
    give: (Layout, usize),
    /// `None`: what comes takes the place of what goes.
    room: Option<(Layout, usize)>,
}

/// What a receive says of what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Both,
    Source,
    Tag,
}

impl Swap {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, step: u64, stamp: u64, scale: Scale) -> Self {
        let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
        // Of all that swap in one memory, where what comes from one of them has to fit; nobody sends more.
        let shared = Layout::random(rng, kind);
        let count = scale.length(rng) / shared.bytes(1);
        let most = count * shared.elements();
        let pairs = pairs(rng, members);
        let calls = members.places().into_iter().map(|at| {
            let own = Layout::random(rng, kind);
            let given = rng.below((most / own.elements()) as u64 + 1) as usize;
            let room = Layout::random(rng, kind);
            let taken = room.count_for(most) + rng.below(2) as usize;
            let replaces = rng.chance(0.4);
            Call {
                at,
                to: pairs.iter().find(|(from, _)| *from == at).map(|(_, to)| *to),
                from: pairs.iter().find(|(_, to)| *to == at).map(|(from, _)| *from),
                named: *pick(rng, &[Named::Both, Named::Source, Named::Tag]),
                started: rng.chance(0.4),
                give: if replaces { (shared.clone(), count) } else { (own, given) },
                room: (!replaces).then_some((room, taken)),
            }
        });
        Self { comm, members: members.clone(), stamp, tag: step as i32 * TAGS, calls: calls.collect() }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let at = self.members.place(rank.process).expect("who has the communicator is in it");
        let call = self.of(at);
        let given = call.give.0.memory_of(call.give.1, &self.packed(at), UNTOUCHED);
        let coming = call.from.map(|from| self.packed(from)).unwrap_or_default();
        let (layout, count) = call.into();
        let mut room = if call.room.is_some() { vec![UNTOUCHED; layout.memory(*count)] } else { given.clone() };
        let mut expected = room.clone();
        layout.put(&mut expected, 0, &coming);
        let lent = given.clone();
        let status = self.exchange(call, &comm, rank, &given, &mut room);
        let what = format!("{call:?} of {:?}", self.members.groups);
        let source = call.from.map(|(_, rank)| rank);
        let told = Status { source, tag: source.map(|_| self.tag), bytes: coming.len(), ..Status::EMPTY };
        assert_eq!(status, Ok(told), "{what}");
        holds(&what, &room, &expected);
        unwritten(&what, &given, &lent);
    }

    fn exchange(
        &self,
        call: &Call,
        comm: &Communicator,
        rank: &mut Rank,
        given: &[u8],
        room: &mut [u8],
    ) -> Result<Status, ErrorClass> {
        let ((give, count), (into, most)) = (&call.give, call.into());
        let (give, into, memory, room) = (&give.datatype, &into.datatype, given.as_ptr(), room.as_mut_ptr());
        let to = Destination::from(call.to.map(|(_, rank)| rank));
        let from = match call.from {
            Some(_) if call.named == Named::Tag => Source::Any,
            from => Source::from(from.map(|(_, rank)| rank)),
        };
        let (count, most, tag, from_tag) = (*count, *most, self.tag, (call.named != Named::Source).then_some(self.tag));
        // SAFETY: Both stay where they are until the call is over, and only `room` is written.
        unsafe {
            if !call.started {
                return match call.room {
                    Some(_) => comm.sendrecv_raw(memory, count, give, to, tag, room, most, into, from, from_tag),
                    None => comm.sendrecv_replace_raw(room, count, give, to, tag, from, from_tag),
                };
            }
            let mut pending = match call.room {
                Some(_) => comm.start_sendrecv(memory, count, give, to, tag, room, most, into, from, from_tag),
                None => comm.start_sendrecv_replace(room, count, give, to, tag, from, from_tag),
            }?;
            while rank.rng.chance(0.5) {
                if let Some(status) = comm.local().test(&mut pending) {
                    return Ok(status);
                }
                (rank.rest)();
            }
            Ok(comm.local().wait(&mut pending))
        }
    }

    fn of(&self, at: Place) -> &Call {
        self.calls.iter().find(|call| call.at == at).expect("each member has a part")
    }

    /// What a rank sends.
    fn packed(&self, from: Place) -> Vec<u8> {
        let (layout, count) = &self.of(from).give;
        bytes(part(self.stamp, from.0 as u64, from.1.into()), layout.bytes(*count))
    }
}

impl Call {
    fn into(&self) -> &(Layout, usize) {
        self.room.as_ref().unwrap_or(&self.give)
    }
}

/// Who sends to whom: each at most one message, and each gets at most one.
fn pairs(rng: &mut Rng, members: &Members) -> Vec<(Place, Place)> {
    let mut pairs = Vec::new();
    for group in 0..members.groups.len() {
        let of = |wanted: usize| members.places().into_iter().filter(move |place| place.0 == wanted);
        let (mut from, mut to): (Vec<Place>, Vec<Place>) = (of(group).collect(), of(members.peers_of(group)).collect());
        shuffle(rng, &mut from);
        shuffle(rng, &mut to);
        pairs.extend(from.into_iter().zip(to).filter(|_| rng.chance(0.9)));
    }
    pairs
}
