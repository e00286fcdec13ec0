//! What a process does about failures besides its calls: hears of revoked communicators, and has its part in agreements, also in
//! those that it has left and others have not.
#![allow(unsafe_code)] // What is sent and received lives here, and is lent to the device.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::adi::{Device, Envelope, Incoming, Mode, Outgoing, Pattern, Request, Service, lock};

use super::agreement::{Agreement, Out, Verdict};
use super::ranks::Ranks;
use super::record::{Name, Record};

/// What a process knows of the failures in its communicators. Shared by those and the device's watch.
#[derive(Debug)]
pub struct Failures {
    /// This process.
    own: u32,
    /// Of the messages about failures.
    context: u32,
    circles: HashMap<Name, Circle>,
    /// Those that this process has left and others may not have, oldest first.
    left: VecDeque<Name>,
    /// What was said of communicators that are not known here yet, by which process.
    early: VecDeque<(Name, u32, Box<[u8]>)>,
    /// Of the processes that the device says are gone, how many all circles know of.
    seen: usize,
    /// What waits to be said, to which process.
    unsaid: Vec<(u32, Box<[u8]>)>,
    sends: Vec<(Request, Box<[u8]>)>,
    receives: Vec<(Request, u32, Box<[u8]>)>,
}

/// A communicator's members: both groups of an intercommunicator.
#[derive(Debug)]
struct Circle {
    /// In the order of their numbers.
    processes: Box<[u32]>,
    own: usize,
    /// What its messages are told from others by.
    contexts: Range<u32>,
    /// Of an intercommunicator, what our side is called: what calls do within it ends with the whole.
    side: Option<Name>,
    revoked: bool,
    /// How many agreements this process has come to.
    begun: u32,
    /// The last one that is over here, in which others may still be, and those after it.
    agreements: BTreeMap<u32, Agreement>,
}

/// The device's part.
#[derive(Debug)]
pub struct Watch(pub Arc<Mutex<Failures>>);

impl Failures {
    /// For process `own`, by messages of this context.
    pub fn new(own: u32, context: u32) -> Self {
        Self {
            own,
            context,
            circles: HashMap::new(),
            left: VecDeque::new(),
            early: VecDeque::new(),
            seen: 0,
            unsaid: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
        }
    }

    /// There is a communicator of these processes, which has these contexts; if it is one between two groups, with this one of our side.
    pub fn add(
        &mut self,
        device: &mut Device,
        name: Name,
        processes: Box<[u32]>,
        contexts: Range<u32>,
        side: Option<Name>,
    ) {
        let own = processes.iter().position(|process| *process == self.own).expect("we are in it");
        let agreements = BTreeMap::new();
        let circle = Circle { processes, own, contexts, side, revoked: false, begun: 0, agreements };
        self.circles.entry(name).or_insert(circle);
        if self.early.iter().any(|(early, ..)| *early == name) {
            let (now, later) = std::mem::take(&mut self.early).into_iter().partition(|(early, ..)| *early == name);
            self.early = later;
            let now: VecDeque<_> = now;
            now.into_iter().for_each(|(_, process, bytes)| self.hear(device, process, bytes));
            device.call_watch();
        }
    }

    /// This process has no use for a communicator any more. False if others may have, and its id is not to be used again.
    pub fn forget(&mut self, name: Name) -> bool {
        let unused = self.circles.get(&name).is_none_or(|circle| !circle.revoked && circle.agreements.is_empty());
        if unused {
            self.circles.remove(&name);
            return true;
        }
        self.left.push_back(name);
        if self.left.len() > LEFT_MAX
            && let Some(oldest) = self.left.pop_front()
        {
            self.circles.remove(&oldest);
        }
        false
    }

    /// Begins the next agreement of a communicator, with what this process offers.
    pub fn begin(&mut self, device: &mut Device, name: Name, value: Vec<u64>) -> u32 {
        let circle = self.circles.get_mut(&name).expect("a communicator is known as long as it is there");
        circle.begun += 1;
        let (number, mut out) = (circle.begun, Out::new());
        circle.at(number, device).offer(value, &mut out);
        self.say(name, number, out);
        device.call_watch();
        number
    }

    /// What was agreed, once it was.
    pub fn poll(&mut self, name: Name, number: u32) -> Option<Verdict> {
        let circle = self.circles.get_mut(&name)?;
        let verdict = circle.agreements.get(&number)?.verdict()?.clone();
        // All that are alive have come to this one, and so have left those before it.
        circle.agreements.retain(|other, _| *other >= number);
        Some(verdict)
    }

    /// Ends everything in a communicator, in all its processes.
    pub fn revoke(&mut self, device: &mut Device, name: Name) {
        let Some(circle) = self.circles.get_mut(&name) else { return };
        if std::mem::replace(&mut circle.revoked, true) {
            return;
        }
        circle.contexts.clone().for_each(|context| device.revoke(context));
        // Everybody tells everybody: whoever revoked it may be gone before all know.
        let others = circle.processes.iter().filter(|process| **process != self.own);
        let record = Record::Revoke.write(name);
        self.unsaid.extend(others.map(|process| (*process, record.clone())));
        if let Some(side) = circle.side {
            self.revoke(device, side);
        }
        // Now: the program may be long in coming back.
        self.say_all(device);
        device.flush();
        device.call_watch();
    }

    fn turn(&mut self, device: &mut Device) -> bool {
        let mut moved = self.take_in(device);
        while let Some(process) = device.gone().get(self.seen) {
            self.seen += 1;
            self.lose(*process);
        }
        moved |= self.say_all(device);
        self.sends.retain(|(request, _)| device.poll(*request).is_none());
        if !self.sends.is_empty() || !self.receives.is_empty() {
            device.call_watch();
        }
        moved
    }

    /// Sends what waits to be said. True if there was something.
    fn say_all(&mut self, device: &mut Device) -> bool {
        let unsaid = std::mem::take(&mut self.unsaid);
        let moved = !unsaid.is_empty();
        for (process, bytes) in unsaid {
            let envelope = Envelope::new(self.context, self.own, 0);
            // SAFETY: the bytes stay in `sends` until the send is over, and nobody writes them. Whoever drops this before has
            // dropped the device, which it is part of.
            let request = device.send(process, envelope, unsafe { Outgoing::lend(&raw const *bytes) }, Mode::Standard);
            self.sends.push((request, bytes));
        }
        moved
    }

    /// Takes in what came.
    fn take_in(&mut self, device: &mut Device) -> bool {
        let all = Pattern { context: self.context, source: None, tag: None };
        while let Some((message, status)) = device.matched_probe(all) {
            let mut room = vec![0; status.bytes.min(RECORD_MAX)].into_boxed_slice();
            // SAFETY: the room stays in `receives` until the receive is over, and is read only then.
            let request = device.recv_matched(message, unsafe { Incoming::lend(&raw mut *room) });
            self.receives.push((request, status.source, room));
        }
        let mut moved = false;
        for (request, process, room) in std::mem::take(&mut self.receives) {
            match device.poll(request) {
                None => self.receives.push((request, process, room)),
                Some(status) => {
                    moved = true;
                    if status.error.is_none() {
                        self.hear(device, process, room);
                    }
                }
            }
        }
        moved
    }

    fn hear(&mut self, device: &mut Device, process: u32, bytes: Box<[u8]>) {
        let Some(name) = Name::read(&bytes) else { return };
        let Some(circle) = self.circles.get_mut(&name) else {
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            return self.early.push_back((name, process, bytes));
        };
        let Ok(from) = circle.processes.binary_search(&process) else { return };
        match Record::read(&bytes, circle.processes.len()) {
            None => {}
            Some(Record::Revoke) => self.revoke(device, name),
            Some(Record::Word { number, alive, word }) => {
                let oldest = circle.agreements.keys().next().copied().unwrap_or(1);
                // Nobody is further than one ahead of us, nor further behind than what is kept: see `poll`.
                if number < oldest || number > circle.begun + 1 {
                    return;
                }
                let mut out = Out::new();
                circle.at(number, device).handle(from, &alive, word, &mut out);
                self.say(name, number, out);
            }
        }
    }

    fn lose(&mut self, process: u32) {
        let mut said = Vec::new();
        for (name, circle) in &mut self.circles {
            let Ok(rank) = circle.processes.binary_search(&process) else { continue };
            for (number, agreement) in &mut circle.agreements {
                let mut out = Out::new();
                agreement.lose(rank, &mut out);
                said.push((*name, *number, out));
            }
        }
        said.into_iter().for_each(|(name, number, out)| self.say(name, number, out));
    }

    fn say(&mut self, name: Name, number: u32, out: Out) {
        let circle = &self.circles[&name];
        let alive = circle.agreements[&number].alive();
        for (to, word) in out {
            let record = Record::Word { number, alive: alive.clone(), word };
            self.unsaid.push((circle.processes[to], record.write(name)));
        }
    }
}

impl Circle {
    /// The agreement of this number, among those that are alive.
    fn at(&mut self, number: u32, device: &Device) -> &mut Agreement {
        self.agreements.entry(number).or_insert_with(|| {
            let mut alive = Ranks::all(self.processes.len());
            let gone = device.gone().iter().filter_map(|process| self.processes.binary_search(process).ok());
            gone.for_each(|rank| alive.remove(rank));
            Agreement::new(self.own, self.processes.len(), alive)
        })
    }
}

impl Service for Watch {
    fn turn(&mut self, device: &mut Device) -> bool {
        lock(&self.0).turn(device)
    }
}

/// More than any record has: a mask of context ids and two sets of a million ranks.
const RECORD_MAX: usize = 1 << 20;
/// Communicators whose agreements others may still ask for: as many as a process can be in at a time. Who is so far behind has been
/// in an agreement while all others have left thousands.
const LEFT_MAX: usize = 4096;
/// What is kept of communicators that are being made. A process says a word of one agreement, and Revoke, before all have it: a thousand
/// processes in the worst case that anybody has seen; the oldest are of communicators that are no more.
const EARLY_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::{Config, Process};

    /// A process on a device of its own, which sends nothing before a turn.
    fn alone() -> (Device, Failures) {
        let device = Device::open(0, vec![Process::here("", &[])], Vec::new(), &Config::default()).unwrap();
        (device, Failures::new(0, 99))
    }

    fn add(failures: &mut Failures, device: &mut Device, id: u32, processes: &[u32]) -> Name {
        let name = Name::of(id, processes);
        failures.add(device, name, processes.into(), 4 * id..4 * id + 4, None);
        name
    }

    #[test]
    fn of_agreements_that_all_have_left_none_is_kept() {
        let (mut device, mut failures) = alone();
        let name = add(&mut failures, &mut device, 2, &[0]);
        for _ in 0..3 {
            let number = failures.begin(&mut device, name, vec![1]);
            assert!(failures.poll(name, number).is_some());
            assert_eq!(failures.circles[&name].agreements.len(), 1);
        }
    }

    #[test]
    fn a_communicator_in_whose_agreement_others_may_be_is_kept_when_it_is_left() {
        let (mut device, mut failures) = alone();
        let name = add(&mut failures, &mut device, 2, &[0, 1]);
        failures.begin(&mut device, name, vec![1]);
        assert!(!failures.forget(name) && failures.circles.contains_key(&name));
        let unused = add(&mut failures, &mut device, 3, &[0, 1]);
        assert!(failures.forget(unused) && !failures.circles.contains_key(&unused));
    }

    #[test]
    fn of_communicators_that_are_left_so_many_are_kept_and_the_newest() {
        let (mut device, mut failures) = alone();
        let left = LEFT_MAX as u32 + 3;
        for id in 0..left {
            let name = add(&mut failures, &mut device, id, &[0]);
            failures.revoke(&mut device, name);
            assert!(!failures.forget(name));
        }
        assert_eq!((failures.circles.len(), failures.left.len()), (LEFT_MAX, LEFT_MAX));
        let is_kept = |id| failures.circles.contains_key(&Name::of(id, &[0]));
        assert_eq!([2, 3, left - 1].map(is_kept), [false, true, true]);
    }

    #[test]
    fn of_what_is_said_early_so_much_is_kept_and_the_newest() {
        let (mut device, mut failures) = alone();
        for id in 0..EARLY_MAX as u32 + 3 {
            failures.hear(&mut device, 0, Record::Revoke.write(Name::of(id, &[0])));
        }
        assert_eq!(failures.early.len(), EARLY_MAX);
        let revoked = [2, 3].map(|id| {
            add(&mut failures, &mut device, id, &[0]);
            device.is_revoked(4 * id)
        });
        assert_eq!((revoked, failures.early.len()), ([false, true], EARLY_MAX - 1));
    }
}
