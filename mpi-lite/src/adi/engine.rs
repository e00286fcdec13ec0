//! What is under way, and the turns that move it on: all of a device but its ports.
//!
//! What comes in is taken by `handle_*`, which send nothing: what they provoke is appended to the peer's `waiting` items and
//! goes out at the end of the turn, as far as the ports take it.

use std::collections::{HashMap, HashSet, VecDeque};

use sidelane_proto::{Event, GoneReason, PeerId, Region, SendError};

use super::buffers::Buffers;
use super::counters::Counters;
use super::matching::Matching;
use super::peer::{Item, Peer, Way};
use super::port::{Port, Taker};
use super::process::Process;
use super::record::{self, Note, Record, Unasked};
use super::rendezvous::Message;
use super::request::{Error, NOBODY, Requests, State, Status};
use super::shared_copy::SharedCopies;

/// State of all that is under way.
pub(super) struct Engine {
    pub own: u32,
    pub single_copy: bool,
    pub processes: Vec<Process>,
    pub peers: Vec<Peer>,
    pub requests: Requests,
    pub matching: Matching<Message>,
    pub buffers: Buffers,
    pub copies: SharedCopies,
    pub counters: Counters,
    /// Which process a peer of each port's endpoint is, by [`PeerId::index`].
    by_peer: Vec<Vec<u32>>,
    /// Processes with items that wait.
    stirred: VecDeque<u32>,
    /// Sends whose bytes leave by a region.
    pub putting: HashMap<(usize, Region), u32>,
    /// Receives into whose room nothing is put any more: all is there.
    pub closing: Vec<u32>,
    pub revoked: HashSet<u32>,
    /// Processes that are gone, in the order in which it was noticed.
    pub gone: Vec<u32>,
    /// From whom a message was looked for last that was not there.
    pub probed: u32,
    /// The context of the watch.
    pub watched: u32,
    /// There is something for the watch to do.
    pub called: bool,
    /// Whom to tell of the first process on another host that has never answered.
    pub on_no_answer: Option<Box<dyn FnOnce(u32) + Send>>,
}

/// Takes in what comes by one port in a turn.
struct Arrivals<'a> {
    engine: &'a mut Engine,
    port: usize,
    /// Records that put nothing into the unexpected queue.
    expected: u32,
}

impl Taker for Arrivals<'_> {
    #[inline]
    fn take(&mut self, peer: PeerId, message: &[u8]) -> bool {
        let waiting = self.engine.matching.unexpected.len();
        self.engine.handle_message(self.port, peer, message);
        if self.engine.matching.unexpected.len() > waiting {
            return self.expected < EXPECTED_MANY;
        }
        self.expected += 1;
        true
    }

    #[inline]
    fn offer(&mut self, peer: PeerId, message: &[u8]) -> bool {
        self.engine.handle_offer(self.port, peer, message)
    }
}

/// After so many messages that receives waited for, the first one without a receive ends the turn: who hears of those will post more, and
/// what comes unexpected costs twice as much (`bench/NOTES.md`, 70).
const EXPECTED_MANY: u32 = 16;

/// Why an item could not be sent.
pub(super) enum Stuck {
    /// Not now.
    Full,
    /// The peer is gone, or will turn out to be.
    Gone,
}

impl Engine {
    pub fn new(own: u32, processes: Vec<Process>, peers: Vec<Peer>, ports: usize, single_copy: bool) -> Self {
        Self {
            own,
            single_copy,
            processes,
            peers,
            requests: Requests::default(),
            matching: Matching::default(),
            buffers: Buffers::default(),
            copies: SharedCopies::default(),
            counters: Counters::default(),
            by_peer: vec![Vec::new(); ports],
            stirred: VecDeque::new(),
            putting: HashMap::new(),
            closing: Vec::new(),
            revoked: HashSet::new(),
            gone: Vec::new(),
            probed: NOBODY,
            watched: u32::MAX,
            called: false,
            on_no_answer: None,
        }
    }

    /// One turn of one port: takes in what came, and sends what that provoked. True if anything came, or went on.
    #[inline]
    pub fn turn(&mut self, ports: &mut [Port], at: usize) -> bool {
        let (mut moved, has_events) = ports[at].turn(&mut Arrivals { engine: self, port: at, expected: 0 });
        if has_events {
            moved = true;
            self.turn_with_events(ports, at);
        }
        if !self.closing.is_empty() || !self.stirred.is_empty() {
            moved |= self.settle(ports);
        }
        if self.copies.are_under_way() {
            // What they provoke was said before: a sender writes while we read. And what ends is told at once.
            moved |= self.copy_pieces();
            self.settle(ports);
        }
        moved
    }

    /// A turn of a port in which events may wait: they come before the messages, and ends behind.
    #[cold]
    pub fn turn_with_events(&mut self, ports: &mut [Port], at: usize) {
        let ended = self.take_events(&mut ports[at], at);
        self.take_all(ports, at);
        for peer in ended {
            self.handle_end(ports, at, peer);
        }
    }

    /// Takes in all that has come by a port, whatever it ends: what has come as a whole stays so.
    fn take_all(&mut self, ports: &mut [Port], at: usize) {
        ports[at].recv_all(|peer, message| self.handle_message(at, peer, message));
        self.end_receives(ports);
    }

    /// Appends something to what is to be said to a process.
    pub fn say(&mut self, to: u32, item: Item) {
        let peer = &mut self.peers[to as usize];
        if peer.gone {
            return;
        }
        peer.waiting.push_back(item);
        if !std::mem::replace(&mut peer.stirred, true) {
            self.stirred.push_back(to);
        }
    }

    /// Ends receives into whose room nothing is put any more, and says what waits to be said, as far as it goes. True if anything ended or
    /// was said.
    pub fn settle(&mut self, ports: &mut [Port]) -> bool {
        let mut moved = !self.closing.is_empty();
        self.end_receives(ports);
        for _ in 0..self.stirred.len() {
            let Some(process) = self.stirred.pop_front() else { break };
            let said = self.say_waiting(ports, process);
            moved |= said;
            let peer = &mut self.peers[process as usize];
            if peer.waiting.is_empty() {
                peer.stirred = false;
            } else {
                self.stirred.push_back(process);
            }
            if let (true, Way::Port { port, .. }) = (said, peer.way) {
                ports[port].flush();
            }
        }
        moved
    }

    fn end_receives(&mut self, ports: &mut [Port]) {
        while let Some(request) = self.closing.pop() {
            // A note that came twice, or the peer's end, may have ended it already.
            let slot = self.requests.at(request);
            if matches!(slot.state, State::Receiving { .. }) {
                let status = slot.status;
                self.close_room(ports, request);
                self.requests.complete(request, status);
            }
        }
    }

    /// True if anything was said.
    fn say_waiting(&mut self, ports: &mut [Port], process: u32) -> bool {
        let mut said = false;
        while let Some(item) = self.peers[process as usize].waiting.pop_front() {
            match self.perform(ports, process, item) {
                Ok(()) => said = true,
                Err((Stuck::Full, item)) => {
                    self.peers[process as usize].waiting.push_front(item);
                    return said;
                }
                // Its end follows, and takes all that waits along.
                Err((Stuck::Gone, _)) => {}
            }
        }
        said
    }

    fn perform(&mut self, ports: &mut [Port], process: u32, item: Item) -> Result<(), (Stuck, Item)> {
        match item {
            Item::Send(request) => self.begin_send(ports, request),
            Item::Parts(request) => self.send_parts(ports, request),
            Item::Accept { receive, send } => self.accept(ports, process, receive, send),
            Item::Share(share) => self.ask_to_share(ports, process, share),
            Item::Stream(request) => self.stream(ports, request),
            Item::Put { send, receive, at, len, key } => self.put(ports, send, receive, at..at + len, &key),
            Item::Note { note, request } => {
                self.emit(ports, process, |credit| record::note(credit, note, request), &[])
            }
            Item::Credit if !self.peers[process as usize].credit.is_urgent() => Ok(()),
            Item::Credit => self.emit(ports, process, record::credit, &[]),
        }
        .map_err(|stuck| (stuck, item))
    }

    /// Sends one record, with the credit that is due on it.
    #[inline]
    pub fn emit<const L: usize>(
        &mut self,
        ports: &mut [Port],
        process: u32,
        front: impl FnOnce(u16) -> [u8; L],
        rest: &[u8],
    ) -> Result<(), Stuck> {
        let peer = &mut self.peers[process as usize];
        let Way::Port { port, .. } = peer.way else { return Err(Stuck::Gone) };
        let Some(id) = peer.id else { return self.emit_first(ports, process, front, rest) };
        let due = peer.credit.due();
        match ports[port].send(id, &front(due), rest) {
            Ok(()) => {
                peer.credit.paid(due);
                Ok(())
            }
            Err(SendError::Full) => Err(Stuck::Full),
            Err(SendError::NoPeer) => Err(Stuck::Gone),
            Err(SendError::TooLong) => {
                tracing::warn!(process, "another process takes only shorter messages than this job's do");
                self.lose(ports, process);
                Err(Stuck::Gone)
            }
        }
    }

    #[cold]
    fn emit_first<const L: usize>(
        &mut self,
        ports: &mut [Port],
        process: u32,
        front: impl FnOnce(u16) -> [u8; L],
        rest: &[u8],
    ) -> Result<(), Stuck> {
        self.connect(ports, process)?;
        self.emit(ports, process, front, rest)
    }

    /// Connects to a process with which there is no connection.
    pub fn connect(&mut self, ports: &mut [Port], process: u32) -> Result<(), Stuck> {
        let peer = &mut self.peers[process as usize];
        let Way::Port { port, addr } = peer.way else { return Err(Stuck::Gone) };
        if peer.gone {
            return Err(Stuck::Gone);
        }
        match ports[port].connect(addr) {
            Ok(id) => {
                self.note_peer(port, id, process);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(process, %error, "no way to another process");
                self.lose(ports, process);
                Err(Stuck::Gone)
            }
        }
    }

    /// Connects to processes that receives or a probe wait for and that have never spoken: only by a connection their end is noticed.
    #[cold]
    pub fn reach_awaited(&mut self, ports: &mut [Port]) {
        let posted = self.requests.filter(|slot| matches!(slot.state, State::Posted { .. }));
        let awaited: Vec<u32> = posted.into_iter().map(|request| self.requests.at(request).process).collect();
        let probed = std::mem::replace(&mut self.probed, NOBODY);
        for process in awaited.into_iter().chain([probed]).filter(|process| *process != NOBODY) {
            let peer = &self.peers[process as usize];
            if peer.id.is_none() && matches!(peer.way, Way::Port { .. }) {
                // Who cannot be reached is lost, which ends the receive.
                let _ = self.connect(ports, process);
            }
        }
    }

    /// Of those whose numbers tell nothing here, the ones that were called, have not answered, and are not where they were when they
    /// told of it.
    pub fn absent(&self, ports: &mut [Port]) -> Vec<u32> {
        let own = &self.processes[self.own as usize];
        let mut is_absent = |peer: &Peer, process: &Process| match (peer.way, peer.id) {
            (Way::Port { port, addr }, Some(id)) => !own.sees(process) && ports[port].is_absent(id, addr),
            _ => false,
        };
        let all = (0u32..).zip(self.peers.iter().zip(&self.processes));
        all.filter_map(|(number, (peer, process))| is_absent(peer, process).then_some(number)).collect()
    }

    fn note_peer(&mut self, port: usize, id: PeerId, process: u32) {
        let known = &mut self.by_peer[port];
        if known.len() <= id.index() {
            known.resize(id.index() + 1, NOBODY);
        }
        known[id.index()] = process;
        self.peers[process as usize].id = Some(id);
    }

    /// The peers of which events say that they are gone: to be believed once their last messages are taken.
    #[cold]
    fn take_events(&mut self, port: &mut Port, at: usize) -> Vec<PeerId> {
        let mut ended = Vec::new();
        while let Some(event) = port.poll_event() {
            ended.extend(self.handle_event(port, at, event));
        }
        ended
    }

    /// The peer that the event says is gone.
    fn handle_event(&mut self, port: &mut Port, at: usize, event: Event) -> Option<PeerId> {
        match event {
            Event::Connected { peer, addr } => {
                let process = self.peers.iter().position(|p| p.way == Way::Port { port: at, addr } && !p.gone);
                match process {
                    Some(process) => self.note_peer(at, peer, process as u32),
                    // A process that counts as gone.
                    None => {
                        self.counters.strangers += 1;
                        port.close(peer);
                    }
                }
                None
            }
            Event::Unregistered { region, .. } => {
                if let Some(request) = self.putting.remove(&(at, region)) {
                    let slot = self.requests.at(request);
                    let mut status = slot.status;
                    if self.peers[slot.process as usize].gone && status.error.is_none() {
                        status = Status::failed(Error::ProcFailed);
                    }
                    self.requests.complete(request, status);
                }
                None
            }
            Event::Gone { peer, reason: GoneReason::NoAnswer } => {
                if !port.is_on_host()
                    && let Some(tell) = self.on_no_answer.take()
                {
                    tell(self.by_peer[at][peer.index()]);
                }
                Some(peer)
            }
            Event::Gone { peer, .. } | Event::Closed { peer } => Some(peer),
            // Puts are the only operations; whether one is in place says a note behind it, and a peer's end ends it.
            Event::Sent { .. }
            | Event::Unsent { .. }
            | Event::Got { .. }
            | Event::Fetched { .. }
            | Event::OpFailed { .. } => None,
        }
    }

    /// Takes in one record. One that makes no sense is counted and ignored.
    // Eager messages, which most are, have a way of their own: 35 instructions less of 308 that a message of a flood took (`shm mpi flood`
    // of `bench/examples/instructions.rs`).
    #[inline]
    fn handle_message(&mut self, port: usize, peer: PeerId, message: &[u8]) {
        let process = self.by_peer[port].get(peer.index()).copied().unwrap_or(NOBODY);
        if process != NOBODY
            && let Some((credit, key, bytes)) = record::parse_eager(message)
        {
            self.earn(process, credit);
            return self.handle_eager(process, key, bytes);
        }
        self.handle_record(process, message);
    }

    #[inline(never)]
    fn handle_record(&mut self, process: u32, message: &[u8]) {
        let Some((credit, record)) = record::parse(message).filter(|_| process != NOBODY) else {
            self.counters.malformed += 1;
            return;
        };
        self.earn(process, credit);
        match record {
            Record::Unasked(unasked) => self.handle_unasked(process, unasked),
            Record::Announce { key, announce, bytes } => self.handle_announce(process, key, announce, bytes),
            Record::Accept(accept) => self.handle_accept(process, accept),
            Record::Share(share, board) => self.handle_share(process, share, board),
            Record::Data { receive, at, bytes } => self.handle_data(process, receive, at, bytes),
            Record::Note { note: Note::Cancel, request } => self.handle_cancel(process, request),
            Record::Note { note, request } => self.handle_note(process, note, request),
            Record::Credit => {}
        }
    }

    /// Takes in what is sent unasked from where its driver received it. All else is left to [`Self::handle_message`].
    #[inline(never)]
    fn handle_offer(&mut self, port: usize, peer: PeerId, message: &[u8]) -> bool {
        let process = self.by_peer[port].get(peer.index()).copied().unwrap_or(NOBODY);
        let Some((credit, unasked)) = record::parse_shared(message).filter(|_| process != NOBODY) else { return false };
        self.earn(process, credit);
        self.handle_unasked(process, unasked);
        true
    }

    #[inline]
    fn earn(&mut self, process: u32, credit: u16) {
        if credit != 0 {
            self.peers[process as usize].credit.earn(credit);
        }
    }

    /// Takes in what is sent unasked.
    // Few instructions between the first look at a message and its copy, and the processor begins that while the first line is on its way:
    // 512 B on `shm` 440 to 470 ns, with a call here 540 (bench/NOTES.md 66).
    #[inline(always)]
    pub fn handle_unasked(&mut self, process: u32, unasked: Unasked<'_>) {
        match unasked {
            Unasked::Eager { key, bytes } => self.handle_eager(process, key, bytes),
            Unasked::Begin { key, len, bytes } => self.handle_begin(process, key, len, bytes),
            Unasked::Part { at, bytes } => self.handle_part(process, at, bytes),
        }
    }

    #[cold]
    fn handle_end(&mut self, ports: &mut [Port], port: usize, peer: PeerId) {
        // Its place may be another one's already, and else is nobody's, also of a process that was lost before or has connected anew.
        let Some(place) = self.by_peer[port].get_mut(peer.index()) else { return };
        let has_it = |id: PeerId| id != peer && id.index() == peer.index();
        if *place != NOBODY && !self.peers[*place as usize].id.is_some_and(has_it) {
            *place = NOBODY;
        }
        let is_it = |p: &Peer| p.id == Some(peer) && matches!(p.way, Way::Port { port: by, .. } if by == port);
        if let Some(process) = self.peers.iter().position(is_it) {
            self.lose(ports, process as u32);
        }
    }

    /// True while something waits to be said.
    pub fn has_unsaid(&self) -> bool {
        !self.stirred.is_empty()
    }
}
