//! Partitioned messages: cut differently on both sides, made ready in any order, and looked at as parts arrive.
#![allow(unsafe_code)] // Buffers are lent to messages that are under way.

use sidelane_mpi::comm::{Arrivals, Communicator, Partitions, Persistent};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::buffers::unwritten;
use super::layout::{Layout, pick, shuffle};
use super::members::{Members, Place};
use super::{Differ, Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Parts {
    comm: usize,
    members: Members,
    stamp: u64,
    rounds: u64,
    messages: Vec<Message>,
}

#[derive(Debug)]
struct Message {
    from: Place,
    to: Place,
    tag: i32,
    give: Side,
    room: Side,
}

/// How one side cuts a message.
#[derive(Debug)]
struct Side {
    layout: Layout,
    partitions: usize,
    /// Elements of the layout in a partition.
    count: usize,
}

/// A message that is sent or received, with its memory.
struct Own<T> {
    /// It is dropped first.
    call: Persistent,
    parts: T,
    number: usize,
    memory: Vec<u8>,
}

impl Parts {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, step: u64, stamp: u64, scale: Scale) -> Self {
        let places = members.places();
        let message = |rng: &mut Rng| {
            let from = *pick(rng, &places);
            let group = members.peers_of(from.0);
            let to = (group, rng.below(members.groups[group].len() as u64) as u32);
            let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
            let [mut give, mut room] = [(); 2].map(|()| {
                let (layout, partitions) = (Layout::random(rng, kind), 1 + rng.below(6) as usize);
                Side { layout, partitions, count: 0 }
            });
            let unit = give.partitions * give.layout.elements() * room.partitions * room.layout.bytes(1);
            let units = (scale.length(rng) / unit).max(rng.chance(0.9).into());
            give.count = units * room.partitions * room.layout.elements();
            room.count = units * give.partitions * give.layout.elements();
            // Those of one tag are matched in their order.
            Message { from, to, tag: step as i32 * 2 + rng.below(2) as i32, give, room }
        };
        let count = 1 + rng.below(places.len() as u64 + 2);
        let messages = (0..count).map(|_| message(rng)).collect();
        Self { comm, members: members.clone(), stamp, rounds: 1 + rng.below(3), messages }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (number, message) in self.messages.iter().enumerate() {
            sent.extend((message.from == own).then(|| message.send(&comm, number)));
            received.extend((message.to == own).then(|| message.receive(&comm, number)));
        }
        for round in 0..self.rounds {
            self.round(round, &mut sent, &mut received, rank);
        }
    }

    fn round(&self, round: u64, sent: &mut [Own<Partitions>], received: &mut [Own<Arrivals>], rank: &mut Rank) {
        for own in &mut *received {
            assert_eq!(own.parts.arrived(0), Ok(true), "it is inactive");
            own.memory.fill(UNTOUCHED);
            own.call.start().unwrap();
        }
        for own in &mut *sent {
            own.call.start().unwrap();
        }
        let mut unready: Vec<(usize, usize)> = (0..sent.len())
            .flat_map(|at| (0..self.messages[sent[at].number].give.partitions).map(move |next| (at, next)))
            .collect();
        shuffle(&mut rank.rng, &mut unready);
        while let Some((at, partition)) = unready.pop() {
            // What is written only now is sent, so it was not sent before.
            let mut ready = vec![partition];
            if rank.rng.chance(0.3) {
                ready.extend(unready.extract_if(.., |(other, _)| *other == at).map(|(_, partition)| partition));
            }
            let own = &mut sent[at];
            for partition in &ready {
                let (start, packed) = self.partition(own.number, round, *partition, |message| &message.give);
                self.messages[own.number].give.layout.put(&mut own.memory, start, &packed);
            }
            own.parts.ready_list(ready).unwrap();
            if let Some(own) = received.first() {
                self.look(round, own, rank);
            }
        }
        for own in &*received {
            while !self.look(round, own, rank) && rank.rng.chance(0.9) {
                (rank.rest)();
            }
        }
        for own in &mut *sent {
            assert_eq!(own.call.wait().unwrap().error, None, "message {}, round {round}", own.number);
            let Side { layout, partitions, count } = &self.messages[own.number].give;
            let lent = layout.memory_of(partitions * count, &self.packed(own.number, round), 0x11);
            unwritten(&format!("message {} in partitions, round {round}", own.number), &own.memory, &lent);
        }
        for own in received {
            let status = own.call.wait().unwrap();
            let Message { from, tag, room: Side { layout, partitions, count }, .. } = &self.messages[own.number];
            let packed = self.packed(own.number, round);
            let told = (status.error, status.source, status.tag, status.bytes);
            assert_eq!(told, (None, Some(from.1), Some(*tag), packed.len()), "message {}, round {round}", own.number);
            let expected = layout.memory_of(partitions * count, &packed, UNTOUCHED);
            let what = format!("message {} in partitions, round {round}", own.number);
            assert!(own.memory == expected[..], "{}", Differ(&what, &own.memory, &expected));
        }
    }

    /// Looks whether any partition has come, and then at its data. True if it has.
    fn look(&self, round: u64, own: &Own<Arrivals>, rank: &mut Rank) -> bool {
        let room = &self.messages[own.number].room;
        let partition = rank.rng.below(room.partitions as u64) as usize;
        if !own.parts.arrived(partition).unwrap() {
            return false;
        }
        let (start, packed) = self.partition(own.number, round, partition, |message| &message.room);
        let is_here = room.layout.holds(&own.memory, start, &packed);
        assert!(is_here, "partition {partition} of message {}, round {round}, has arrived", own.number);
        true
    }

    fn packed(&self, number: usize, round: u64) -> Vec<u8> {
        let Side { layout, partitions, count } = &self.messages[number].give;
        bytes(part(self.stamp, number as u64, round), layout.bytes(partitions * count))
    }

    /// A partition of one side: its first element, and its data.
    fn partition(&self, number: usize, round: u64, at: usize, side: impl Fn(&Message) -> &Side) -> (usize, Vec<u8>) {
        let Side { layout, count, .. } = side(&self.messages[number]);
        let len = layout.bytes(*count);
        (at * count * layout.elements(), self.packed(number, round)[at * len..][..len].to_vec())
    }
}

impl Message {
    fn send(&self, comm: &Communicator, number: usize) -> Own<Partitions> {
        let Side { layout, partitions, count } = &self.give;
        let memory = vec![0x11; layout.memory(partitions * count)];
        let to = self.to.1.into();
        // SAFETY: The memory stays where it is, and that of a partition is not written from when it is ready until all are gone.
        let made = unsafe { comm.psend_init(memory.as_ptr(), *partitions, *count, &layout.datatype, to, self.tag) };
        let (call, parts) = made.unwrap();
        Own { call, parts, number, memory }
    }

    fn receive(&self, comm: &Communicator, number: usize) -> Own<Arrivals> {
        let Side { layout, partitions, count } = &self.room;
        let mut memory = vec![UNTOUCHED; layout.memory(partitions * count)];
        let (room, from) = (memory.as_mut_ptr(), self.from.1);
        // SAFETY: The room stays where it is, and of what is under way only what has arrived is looked at.
        let made = unsafe { comm.precv_init(room, *partitions, *count, &layout.datatype, from, self.tag) };
        let (call, parts) = made.unwrap();
        Own { call, parts, number, memory }
    }
}
