//! Messages between members of a communicator: every mode, with derived datatypes on both sides, received by name or wildcard,
//! before or after they came, whole or too short.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::comm::{Communicator, ErrorClass, Found, Mode, Pending, Persistent, Source, Status};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::buffers::unwritten;
use super::layout::{Layout, pick, shuffle};
use super::members::{Members, Place};
use super::{Differ, Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Exchange {
    comm: usize,
    /// The members.
    groups: Vec<Vec<u32>>,
    stamp: u64,
    messages: Vec<Message>,
    receivers: Vec<Receiver>,
    /// A receive that nothing comes for, and that is cancelled: its tag.
    decoy: Option<i32>,
    /// Nobody goes on before all have received: a wildcard would take what comes of the next step.
    meet: bool,
}

#[derive(Debug)]
struct Message {
    from: Place,
    to: Place,
    tag: i32,
    layout: Layout,
    count: usize,
    mode: Mode,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Blocking,
    Started,
    Persistent,
}

/// What one rank receives, in this order.
#[derive(Debug)]
struct Receiver {
    at: Place,
    slots: Vec<Slot>,
    when: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before anything is sent.
    Early,
    /// When all own messages have been begun: one after the other.
    Late(Way),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Recv,
    Probe,
    Iprobe,
    Mprobe,
    Improbe,
}

#[derive(Debug)]
struct Slot {
    from: Option<u32>,
    tag: Option<i32>,
    layout: Layout,
    count: usize,
    how: How,
    /// It is too short for what comes.
    truncates: bool,
}

/// A receive that is over: what it said, where that is known, and what it brought.
struct Got {
    status: Result<Status, ErrorClass>,
    memory: Vec<u8>,
}

impl Exchange {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, step: u64, stamp: u64, scale: Scale) -> Self {
        let places = members.places();
        let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double, Predefined::Short]);
        let first_tag = step as i32 * TAGS;
        let whens: Vec<When> = places.iter().map(|_| random_when(rng)).collect();
        let count = 1 + rng.below(3 * places.len() as u64);
        let messages: Vec<Message> = (0..count)
            .map(|_| {
                let from = *pick(rng, &places);
                let peers = members.groups[members.peers_of(from.0)].len() as u64;
                let to = (members.peers_of(from.0), rng.below(peers) as u32);
                let layout = Layout::random(rng, kind);
                let count = scale.length(rng) / layout.bytes(1);
                let mode =
                    *pick(rng, &[Mode::Standard, Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready]);
                let late = places.iter().zip(&whens).any(|(place, when)| *place == to && *when != When::Early);
                // Who blocks could wait for one who blocks until it has received.
                let how = *pick(rng, if late { &[How::Started, How::Persistent] } else { ALL_WAYS });
                Message { from, to, tag: first_tag + rng.below(3) as i32, layout, count, mode, how }
            })
            .collect();
        let mut meet = false;
        let receivers = places.iter().zip(whens).map(|(at, when)| {
            let (slots, open) = slots(rng, &messages, *at, kind, members.is_one_group());
            meet |= open;
            Receiver { at: *at, slots, when }
        });
        let receivers = receivers.collect();
        let decoy = rng.chance(0.2).then_some(first_tag + TAGS - 1);
        Self { comm, groups: members.groups.clone(), stamp, messages, receivers, decoy, meet }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let at = self.place_of(rank.process);
        let receiver = self.receivers.iter().find(|receiver| receiver.at == at).expect("each member receives");
        let mut decoy_room = [0u8; 8];
        let decoy = self.decoy.map(|tag| {
            // SAFETY: The room stays until the receive is over, below.
            unsafe { comm.start_recv(decoy_room.as_mut_ptr(), 8, &Predefined::Byte.into(), Source::Any, Some(tag)) }
                .unwrap()
        });
        let mut early = Early::new(&comm, if receiver.when == When::Early { &receiver.slots } else { &[] });
        let mut sends = Sends::default();
        for (number, message) in self.messages.iter().enumerate().filter(|(_, message)| message.from == at) {
            sends.send(&comm, message, self.packed(number));
        }
        let mut got: Vec<Got> = match receiver.when {
            When::Early => early.wait(&comm, rank),
            When::Late(way) => receiver.slots.iter().map(|slot| slot.receive(&comm, way, rank.rest)).collect(),
        };
        sends.wait(&comm, rank);
        if let Some(mut decoy) = decoy {
            comm.local().cancel(&decoy).unwrap();
            assert!(comm.local().wait(&mut decoy).cancelled, "nothing came for it");
        }
        self.check(at, receiver, &mut got);
        if self.meet {
            comm.barrier().unwrap();
        }
    }

    fn place_of(&self, process: u32) -> Place {
        let of = |(group, all): (usize, &Vec<u32>)| Some((group, all.iter().position(|each| *each == process)? as u32));
        self.groups.iter().enumerate().find_map(of).expect("who has the communicator is in it")
    }

    fn packed(&self, number: usize) -> Vec<u8> {
        let message = &self.messages[number];
        bytes(part(self.stamp, number as u64, 0), message.layout.bytes(message.count))
    }

    /// Receives were made in this order, so each got the first message that it could take, of whomever it got it.
    fn check(&self, at: Place, receiver: &Receiver, got: &mut [Got]) {
        let mut left: Vec<usize> = (0..self.messages.len()).filter(|number| self.messages[*number].to == at).collect();
        for (slot, got) in receiver.slots.iter().zip(got) {
            let (source, tag) = match got.status {
                Ok(status) => (status.source, status.tag),
                // Only what is received by name is too short.
                Err(_) => (slot.from, slot.tag),
            };
            let fits = |number: &usize| {
                let message = &self.messages[*number];
                Some(message.from.1) == source && slot.tag.is_none_or(|tag| tag == message.tag)
            };
            let found = left.iter().position(fits).expect("nothing comes that was not sent");
            let number = left.remove(found);
            let message = &self.messages[number];
            assert_eq!(Some(message.tag), tag, "message {number} at {at:?}");
            assert!(slot.from.is_none_or(|from| from == message.from.1), "message {number} at {at:?}");
            let mut packed = self.packed(number);
            let room = slot.layout.bytes(slot.count);
            let error = match got.status {
                Ok(status) => status.error,
                Err(class) => Some(class),
            };
            assert_eq!(error, slot.truncates.then_some(ErrorClass::Truncate), "message {number} at {at:?}");
            if let Ok(status) = got.status
                && !slot.truncates
            {
                assert_eq!(status.bytes, packed.len(), "message {number} at {at:?}");
            }
            packed.truncate(room);
            let expected = slot.layout.memory_of(slot.count, &packed, UNTOUCHED);
            let what = format!("message {number} of {:?} at {at:?}", message.from);
            assert!(got.memory == expected, "{}", Differ(&what, &got.memory, &expected));
        }
        assert!(left.is_empty(), "all messages to {at:?} are received");
    }
}

impl Slot {
    /// Receives at once, in one of the ways that wait.
    fn receive(&self, comm: &Communicator, way: Way, rest: &dyn Fn()) -> Got {
        let mut memory = vec![UNTOUCHED; self.layout.memory(self.count)];
        let (from, tag, room) = (self.source(), self.tag, memory.as_mut_ptr());
        let recv = |from: Source, tag: Option<i32>| {
            // SAFETY: This waits until it is over.
            unsafe { comm.recv_raw(room, self.count, &self.layout.datatype, from, tag) }
        };
        let take = |found: Found| {
            // SAFETY: As above.
            let pending = unsafe { comm.start_recv_found(found, room, self.count, &self.layout.datatype) };
            Ok(comm.local().wait(&mut pending.unwrap()))
        };
        let exactly = |seen: Status| {
            let status = recv(seen.source.map_or(Source::Null, Source::Rank), seen.tag);
            assert!(status.is_err() || status == Ok(seen), "what was probed is received");
            status
        };
        let status = match way {
            Way::Recv => recv(from, tag),
            Way::Probe => exactly(comm.probe(from, tag).unwrap()),
            Way::Iprobe => exactly(asked(rest, || comm.iprobe(from, tag).unwrap())),
            Way::Mprobe => take(comm.mprobe(from, tag).unwrap().0),
            Way::Improbe => take(asked(rest, || comm.improbe(from, tag).unwrap()).0),
        };
        Got { status, memory }
    }

    fn source(&self) -> Source {
        self.from.map_or(Source::Any, Source::Rank)
    }
}

/// Asks until there is an answer.
fn asked<T>(rest: &dyn Fn(), mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        rest();
    }
}

/// Receives that were begun before anything was sent.
struct Early {
    pending: Vec<Pending>,
    persistent: Vec<Option<Persistent>>,
    rooms: Vec<Vec<u8>>,
}

impl Early {
    fn new(comm: &Communicator, slots: &[Slot]) -> Self {
        let (mut pending, mut persistent, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
        for slot in slots {
            let mut room = vec![UNTOUCHED; slot.layout.memory(slot.count)];
            let (at, count, datatype) = (room.as_mut_ptr(), slot.count, &slot.layout.datatype);
            rooms.push(room);
            // SAFETY: The room's memory stays where it is, and is looked at when the receive is over.
            unsafe {
                if slot.how == How::Persistent {
                    let mut again = comm.recv_init_raw(at, count, datatype, slot.source(), slot.tag);
                    again.start().unwrap();
                    persistent.push(Some(again));
                    pending.push(Pending::Null);
                } else {
                    persistent.push(None);
                    pending.push(comm.start_recv(at, count, datatype, slot.source(), slot.tag).unwrap());
                }
            }
        }
        Self { pending, persistent, rooms }
    }

    fn wait(&mut self, comm: &Communicator, rank: &mut Rank) -> Vec<Got> {
        let mut statuses: Vec<Option<Result<Status, ErrorClass>>> = vec![None; self.rooms.len()];
        for (at, status) in wait_somehow(comm, &mut self.pending, rank) {
            statuses[at] = Some(Ok(status));
        }
        for (again, status) in self.persistent.iter_mut().zip(&mut statuses) {
            if let Some(again) = again {
                *status = Some(again.wait());
            }
        }
        let rooms = std::mem::take(&mut self.rooms).into_iter();
        rooms.zip(statuses).map(|(memory, status)| Got { status: status.expect("waited for"), memory }).collect()
    }
}

/// Messages that were begun, with their memory and a copy of it.
#[derive(Default)]
struct Sends {
    pending: Vec<Pending>,
    persistent: Vec<Persistent>,
    memory: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Sends {
    fn send(&mut self, comm: &Communicator, message: &Message, packed: Vec<u8>) {
        let Message { layout, count, mode, tag, to, how, .. } = message;
        let memory = layout.memory_of(*count, &packed, 0x11);
        let (at, to) = (memory.as_ptr(), to.1.into());
        self.memory.push((memory.clone(), memory));
        // SAFETY: The memory stays where it is, and is not written, until the sends are over.
        unsafe {
            match how {
                How::Blocking => comm.send_raw(*mode, at, *count, &layout.datatype, to, *tag).unwrap(),
                How::Started => {
                    self.pending.push(comm.start_send(*mode, at, *count, &layout.datatype, to, *tag).unwrap())
                }
                How::Persistent => {
                    let mut again = comm.send_init_raw(*mode, at, *count, &layout.datatype, to, *tag);
                    again.start().unwrap();
                    self.persistent.push(again);
                }
            }
        }
    }

    fn wait(mut self, comm: &Communicator, rank: &mut Rank) {
        for (_, status) in wait_somehow(comm, &mut self.pending, rank) {
            assert_eq!(status.error, None);
        }
        for again in &mut self.persistent {
            again.wait().unwrap();
        }
        for (lent, memory) in &self.memory {
            unwritten("a message", memory, lent);
        }
    }
}

/// Waits for all that is not null, in one of the many ways; how each has ended.
fn wait_somehow(comm: &Communicator, pending: &mut [Pending], rank: &mut Rank) -> Vec<(usize, Status)> {
    let (local, mut over) = (comm.local(), Vec::new());
    let begun: Vec<usize> = (0..pending.len()).filter(|at| !matches!(pending[*at], Pending::Null)).collect();
    let way = rank.rng.below(6);
    while pending.iter().any(|each| !matches!(each, Pending::Null)) {
        match way {
            0 => over.extend(local.wait_any(pending)),
            1 => over.extend(local.wait_some(pending).expect("some are left")),
            2 => match local.test_any(pending) {
                Some(found) => over.extend(found),
                None => (rank.rest)(),
            },
            3 => match local.test_some(pending).expect("some are left") {
                some if some.is_empty() => (rank.rest)(),
                some => over.extend(some),
            },
            4 => {
                let all = asked(rank.rest, || local.test_all(pending));
                return begun.iter().map(|at| (*at, all[*at])).collect();
            }
            _ => {
                let all = local.wait_all(pending);
                return begun.iter().map(|at| (*at, all[*at])).collect();
            }
        }
    }
    over
}

fn random_when(rng: &mut Rng) -> When {
    if rng.chance(0.5) {
        return When::Early;
    }
    When::Late(*pick(rng, &[Way::Recv, Way::Probe, Way::Iprobe, Way::Mprobe, Way::Improbe]))
}

/// What `at` receives: all by name, or all by one kind of wildcard, so that no receive takes what another one needs. And
/// whether that would take everybody's messages.
fn slots(rng: &mut Rng, messages: &[Message], at: Place, kind: Predefined, may_be_open: bool) -> (Vec<Slot>, bool) {
    let coming: Vec<&Message> = messages.iter().filter(|message| message.to == at).collect();
    let longest = coming.iter().map(|message| message.layout.elements() * message.count).max().unwrap_or(0);
    let class = rng.below(if may_be_open { 6 } else { 5 });
    let mut order: Vec<usize> = (0..coming.len()).collect();
    shuffle(rng, &mut order);
    let mut left = coming.clone();
    let slots = order.into_iter().map(|next| {
        let message = coming[next];
        let (from, tag) = (Some(message.from.1), Some(message.tag));
        let (from, tag) = match class {
            0..3 => (from, tag),
            3 => (None, tag),
            4 => (from, None),
            _ => (None, None),
        };
        let mut elements = longest;
        let mut truncates = false;
        if class < 3 {
            // The first one by that name is what comes.
            let first = left.iter().position(|m| Some(m.from.1) == from && Some(m.tag) == tag).expect("one for each");
            let coming = left.remove(first);
            elements = coming.layout.elements() * coming.count;
            truncates = elements > 1 && rng.chance(0.1);
        }
        let how = *pick(rng, &[How::Started, How::Started, How::Persistent]);
        if truncates {
            return Slot { from, tag, layout: Layout::plain(kind), count: elements / 2, how, truncates };
        }
        let layout = Layout::random(rng, kind);
        let count = layout.count_for(elements) + rng.below(2) as usize;
        Slot { from, tag, layout, count, how, truncates }
    });
    (slots.collect(), class == 5)
}

const ALL_WAYS: &[How] = &[How::Blocking, How::Started, How::Persistent];

/// For each step; the last one is that of nobody.
pub const TAGS: i32 = 4;
