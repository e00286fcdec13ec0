//! The device: the calls, each of which finds who knows.

use std::ops::Range;

use sidelane_nic::affinity;
use sidelane_nic::time::Duration;
use sidelane_proto::{RemoteKey, RmaError};

use super::config::{Config, Patience};
use super::counters::Counters;
use super::credit::Credit;
use super::engine::Engine;
use super::idle::Idle;
use super::lists::{ANY_TAG, Key};
use super::memory::{Incoming, Outgoing};
use super::one_sided::{Change, Window};
use super::peer::{Peer, Pull, Way};
use super::port::Port;
use super::process::Process;
use super::pull::pull;
use super::request::{Error, NOBODY, Request, State, Status};
use super::unexpected::Found;

/// Messages between the processes of a job, matched by MPI's rules. Used by one thread at a time.
///
/// Nothing blocks but [`Device::wait`] and [`Device::idle`]. Messages move while [`Device::progress`] is called, which
/// `test` and `wait` do.
pub struct Device {
    ports: Vec<Port>,
    engine: Engine,
    patience: Patience,
    /// Sends that were handed to a port since anything was flushed.
    unflushed: u32,
    services: Vec<(u32, Box<dyn Service>)>,
    watch: Option<Box<dyn Service>>,
}

/// What this process does for others whenever its device is used: answers to messages of a context that is for that.
pub trait Service: Send {
    /// Part of a turn of the device. True if there was something to do.
    fn turn(&mut self, device: &mut Device) -> bool;
}

/// What a message is matched by (MPI-4.1 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Of the communicator.
    pub context: u32,
    /// Rank of the sender in it.
    pub source: u32,
    /// Any but `i32::MIN`.
    pub tag: i32,
}

/// What a receive or probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Of the communicator.
    pub context: u32,
    /// `None`: from anybody.
    pub source: Option<Source>,
    /// `None`: with any tag.
    pub tag: Option<i32>,
}

/// A sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Which process of the job that is.
    pub process: u32,
}

/// How a send completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// When its bytes may be overwritten. Ready sends are these, too.
    Standard,
    /// When a receive has matched it.
    Synchronous,
}

/// A message that a matched probe has found, and that only [`Device::recv_matched`] can receive.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Message(Found);

/// Why a device cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The job has no such process.
    #[error("process {own} is none of the job's {size}")]
    NoSuchProcess {
        /// What was said to be this process's number.
        own: u32,
        /// Processes of the job.
        size: usize,
    },
    /// None of the ports reaches a process.
    #[error("no port of this process reaches process {process} ({description})")]
    NoWay {
        /// Which.
        process: u32,
        /// How it describes itself.
        description: String,
    },
}

impl Device {
    /// Process `own` of a job of `processes`, which it reaches by `ports`; on its own host by one that is for that, if there is one.
    /// Connections are made when they are needed.
    pub fn open(own: u32, processes: Vec<Process>, mut ports: Vec<Port>, config: &Config) -> Result<Self, OpenError> {
        let size = processes.len();
        let host = processes.get(own as usize).map(|process| process.host.clone());
        let host = host.ok_or(OpenError::NoSuchProcess { own, size })?;
        let neighbours = processes.iter().filter(|process| process.host == host).count();
        let is_crowded = neighbours > affinity::online();
        let peers = processes.iter().zip(0u32..).map(|(process, number)| {
            let way = if number == own { Way::Own } else { way(process, &host, &ports) };
            if way == Way::None {
                return Err(OpenError::NoWay { process: number, description: process.to_string() });
            }
            let on_host = matches!(way, Way::Own) || matches!(way, Way::Port { port, .. } if ports[port].is_on_host());
            Ok(Peer {
                way,
                id: None,
                gone: false,
                limits: if on_host { config.on_host } else { config.off_host },
                credit: Credit::new(config.credit),
                waiting: Default::default(),
                stirred: false,
                pull: Pull::Untried,
            })
        });
        let peers = peers.collect::<Result<Vec<Peer>, _>>()?;
        for (at, port) in ports.iter_mut().enumerate() {
            let of_this_port = |peer: &Peer| match peer.way {
                Way::Port { port, addr } if port == at => Some(addr),
                _ => None,
            };
            port.expect_only(peers.iter().filter_map(of_this_port));
        }
        let engine = Engine::new(own, processes, peers, ports.len(), config.single_copy);
        let patience = if is_crowded { config.patience_crowded } else { config.patience };
        Ok(Self { ports, engine, patience, unflushed: 0, services: Vec::new(), watch: None })
    }

    /// Number of this process.
    pub fn own(&self) -> u32 {
        self.engine.own
    }

    /// The job's processes.
    pub fn processes(&self) -> &[Process] {
        &self.engine.processes
    }

    /// True of processes that share this one's host.
    pub fn is_on_host(&self, process: u32) -> bool {
        let own = &self.engine.processes[self.engine.own as usize];
        self.engine.processes.get(process as usize).is_some_and(|process| process.host == own.host)
    }

    /// Begins a send to process `to`. Its bytes may go out later, with those of further sends: [`Device::flush`].
    #[inline]
    pub fn send(&mut self, to: u32, envelope: Envelope, bytes: Outgoing, mode: Mode) -> Request {
        let Envelope { context, source, tag } = envelope;
        debug_assert!(tag != ANY_TAG && source != u32::MAX, "these stand for wildcards");
        let key = Key { context, source, tag };
        let sync = mode == Mode::Synchronous;
        if to == self.engine.own {
            return self.engine.send_own(key, bytes, sync);
        }
        let request = self.engine.send(&mut self.ports, to, key, bytes, sync);
        self.unflushed += 1;
        // The first one since the last turn goes at once, for who sends it and computes on; the next ones share frames.
        if self.unflushed % TOGETHER == 1 {
            self.flush_ports();
        }
        request
    }

    /// Posts a receive.
    #[inline]
    pub fn recv(&mut self, pattern: Pattern, room: Incoming) -> Request {
        let (key, class) = Key::of_receive(pattern.context, pattern.source.map(|source| source.rank), pattern.tag);
        let process = pattern.source.map_or(NOBODY, |source| source.process);
        let request = self.engine.requests.begin(process, key, Outgoing::EMPTY, room);
        match self.engine.matching.post(key, class, request.index) {
            None => {
                self.engine.requests.at(request.index).state = State::Posted { class };
                self.check_posted(request, process, key.context);
            }
            Some(found) => self.match_found(request, found),
        }
        request
    }

    /// The oldest message that has come and that a receive with `pattern` would take: a status with its length.
    pub fn probe(&mut self, pattern: Pattern) -> Option<Status> {
        self.find(pattern).map(|(_, status)| status)
    }

    /// As [`Self::probe`], and takes the message for [`Self::recv_matched`].
    pub fn matched_probe(&mut self, pattern: Pattern) -> Option<(Message, Status)> {
        let (found, status) = self.find(pattern)?;
        self.engine.matching.unexpected.set_aside(found);
        Some((Message(found), status))
    }

    /// Receives a message that a matched probe has taken.
    pub fn recv_matched(&mut self, message: Message, room: Incoming) -> Request {
        let key = self.engine.matching.unexpected.get(message.0).map(|(key, _)| key);
        let key = key.unwrap_or(Key { context: 0, source: 0, tag: 0 });
        let request = self.engine.requests.begin(NOBODY, key, Outgoing::EMPTY, room);
        self.match_found(request, message.0);
        request
    }

    /// One turn of every port. True if anything came.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.unflushed = 0;
        let mut moved = false;
        for at in 0..self.ports.len() {
            moved |= self.engine.turn(&mut self.ports, at);
        }
        if !self.services.is_empty() {
            moved |= self.serve();
        }
        if self.engine.called {
            moved |= self.turn_watch();
        }
        moved
    }

    /// Answers questions whether this process lives, and takes in what came, but does nothing with it: for another thread than
    /// the one whose calls use the device, between those.
    pub fn stay_alive(&mut self) {
        for port in self.ports.iter_mut().filter(|port| !port.is_on_host()) {
            port.poll();
            port.flush();
        }
    }

    /// From now on a service has its part in every turn, under the number of its context.
    pub fn begin_service(&mut self, context: u32, service: Box<dyn Service>) {
        self.services.push((context, service));
    }

    /// Ends the service of a context. Not to be called by a service.
    pub fn end_service(&mut self, context: u32) -> Option<Box<dyn Service>> {
        let at = self.services.iter().position(|(other, _)| *other == context)?;
        Some(self.services.swap_remove(at).1)
    }

    /// A service that has its part only in a turn in which a message of its context came that no receive waits for, or a process
    /// was lost, or [`Self::call_watch`] was called before. There is one, from the beginning to the end.
    pub fn watch(&mut self, context: u32, watch: Box<dyn Service>) {
        self.engine.watched = context;
        self.watch = Some(watch);
    }

    /// The watch has its part in the next turn.
    pub fn call_watch(&mut self) {
        self.engine.called = true;
    }

    /// Puts on the wire what was sent.
    #[inline]
    pub fn flush(&mut self) {
        if self.unflushed > 0 {
            self.unflushed = 0;
            self.flush_ports();
        }
    }

    /// How a request ended; it is freed. `None` while it is under way.
    #[inline]
    pub fn poll(&mut self, request: Request) -> Option<Status> {
        if request == Request::SENT {
            return Some(Status::SENT);
        }
        let Some(slot) = self.engine.requests.get(request) else {
            debug_assert!(false, "a request is freed once");
            return Some(Status::SENT);
        };
        if slot.state != State::Complete {
            return None;
        }
        let status = slot.status;
        self.engine.requests.release(request.index);
        Some(status)
    }

    /// True once a request is over. It is not freed.
    #[inline]
    pub fn is_complete(&mut self, request: Request) -> bool {
        request == Request::SENT || self.engine.requests.get(request).is_none_or(|slot| slot.state == State::Complete)
    }

    /// As [`Self::poll`], after a turn if need be.
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Status> {
        self.flush();
        self.poll(request).or_else(|| {
            self.progress();
            self.poll(request)
        })
    }

    /// Waits until a request is over, and frees it.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Status {
        self.flush();
        let mut idle = Idle::new();
        loop {
            if let Some(status) = self.poll(request) {
                return status;
            }
            if !self.progress() {
                self.idle(&mut idle);
            }
        }
    }

    /// What a loop does whose last turn brought nothing: spins, then lets others run, then sleeps until there may be news, for
    /// a tenth of a second at most.
    #[inline]
    pub fn idle(&mut self, idle: &mut Idle) {
        if idle.is_tired(self.patience) {
            self.engine.reach_awaited(&mut self.ports);
        }
        idle.pass(self.patience, &mut self.ports);
    }

    /// Forgets a request: it is freed when it is over.
    pub fn free(&mut self, request: Request) {
        if self.engine.requests.get(request).is_some_and(|slot| slot.state != State::Complete) {
            self.engine.requests.at(request.index).orphan = true;
        } else if request != Request::SENT {
            self.poll(request);
        }
    }

    /// Asks for a request to be cancelled. It is over either way: cancelled, or as if nobody had asked.
    pub fn cancel(&mut self, request: Request) {
        let Some(slot) = self.engine.requests.get(request) else { return };
        let (process, key) = (slot.process, slot.key);
        match &mut slot.state {
            State::Posted { class } => {
                let class = *class;
                self.engine.matching.posted.remove(key, class, request.index);
            }
            State::Announced { .. } => {
                self.engine.cancel_announced(request.index);
                return self.engine.settle(&mut self.ports);
            }
            State::Own => {
                let own = self
                    .engine
                    .matching
                    .unexpected
                    .filter(|_, m| m.process == process && m.send == Some(request.to_bits()));
                // One that a matched probe has taken will be received.
                let Some(found) = own.first() else { return };
                self.engine.matching.unexpected.take(*found);
            }
            State::Queued { .. } => {}
            _ => return,
        }
        self.engine.requests.complete(request.index, Status { cancelled: true, ..Status::SENT });
    }

    /// Ends everything under way in a context with [`Error::Revoked`], and whatever will be begun in it. A send that is
    /// announced ends when its receiver has answered or is gone: until then that may read its bytes, and take it.
    pub fn revoke(&mut self, context: u32) {
        self.engine.revoke(&mut self.ports, context);
    }

    /// Whether [`Self::revoke`] was called for a context.
    pub fn is_revoked(&self, context: u32) -> bool {
        !self.engine.revoked.is_empty() && self.engine.revoked.contains(&context)
    }

    /// Whether a message of one of these contexts is under way. For what seldom happens: looks at all.
    pub fn uses(&self, contexts: Range<u32>) -> bool {
        !self.engine.requests.filter(|slot| contexts.contains(&slot.key.context)).is_empty()
    }

    /// Processes that are gone, in the order in which it was noticed. Receives from anybody wait on in spite of them.
    pub fn gone(&self) -> &[u32] {
        &self.engine.gone
    }

    /// Ends all connections, once what was sent has arrived, or after `limit`.
    pub fn close(&mut self, limit: Duration) {
        let ends: Vec<_> = self.ports.iter().map(|port| port.now() + limit).collect();
        let expired = |ports: &[Port]| ports.iter().zip(&ends).any(|(port, end)| port.now() >= *end);
        let mut idle = Idle::new();
        while self.engine.has_unsaid() && !expired(&self.ports) {
            if !self.progress() {
                self.idle(&mut idle);
            }
        }
        for peer in &self.engine.peers {
            if let (Way::Port { port, .. }, Some(id)) = (peer.way, peer.id) {
                self.ports[port].close(id);
            }
        }
        while self.engine.peers.iter().any(|peer| peer.id.is_some()) && !expired(&self.ports) {
            if !self.progress() {
                self.idle(&mut idle);
            }
        }
    }

    /// Fills `into` from `address` on in the memory of a process on this host, which has lent it. False where that cannot be
    /// done, or shall not ([`Config::single_copy`]).
    pub fn read_memory(&mut self, process: u32, address: u64, into: &mut [u8]) -> bool {
        let engine = &mut self.engine;
        let state = &mut engine.peers[process as usize].pull;
        engine.single_copy && pull(state, &engine.processes[process as usize], address, into)
    }

    /// Lets other processes reach `memory` by keys, until [`Self::unregister`]. It stays lent so long; its owner may read and
    /// write it between two calls.
    pub fn register(&mut self, memory: Incoming) -> Window {
        Window::open(&mut self.ports, memory)
    }

    /// The key by which `process` reaches a window of ours, for a message. `None` for this process itself, which needs none.
    pub fn key(&self, window: &Window, process: u32) -> Option<RemoteKey> {
        window.key(self.engine.peers[process as usize].way)
    }

    /// Ends a window.
    pub fn unregister(&mut self, window: Window) {
        window.close(&mut self.ports);
    }

    /// Writes `bytes` at `offset` of a window of process `to`. Over when they are there. Operations and messages to one process:
    /// see [`sidelane_proto::Endpoint`]; a message comes after the puts before it.
    pub fn put(&mut self, to: u32, key: &RemoteKey, offset: u64, bytes: Outgoing) -> Result<Request, RmaError> {
        self.engine.put_window(&mut self.ports, to, key, offset, bytes)
    }

    /// Reads as many bytes as `room` has from `offset` of a window of process `from`.
    pub fn get(&mut self, from: u32, key: &RemoteKey, offset: u64, room: Incoming) -> Result<Request, RmaError> {
        self.engine.get_window(&mut self.ports, from, key, offset, room)
    }

    /// Adds to the 64-bit word at `offset`, which is a multiple of 8; what it was before goes to `room`, little-endian.
    pub fn fetch_add(
        &mut self,
        to: u32,
        key: &RemoteKey,
        offset: u64,
        value: u64,
        room: Incoming,
    ) -> Result<Request, RmaError> {
        self.engine.change_window(&mut self.ports, to, key, offset, Change::Add(value), room)
    }

    /// As [`Self::fetch_add`]: writes `new` if the word is `expected`.
    pub fn compare_swap(
        &mut self,
        to: u32,
        key: &RemoteKey,
        offset: u64,
        (expected, new): (u64, u64),
        room: Incoming,
    ) -> Result<Request, RmaError> {
        self.engine.change_window(&mut self.ports, to, key, offset, Change::Swap { expected, new }, room)
    }

    /// What was counted since the device was opened.
    pub fn counters(&self) -> &Counters {
        &self.engine.counters
    }

    /// The ports below.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    #[cold]
    fn serve(&mut self) -> bool {
        let mut moved = false;
        let mut services = std::mem::take(&mut self.services);
        for (_, service) in &mut services {
            moved |= service.turn(self);
        }
        self.services = services;
        self.flush();
        moved
    }

    #[cold]
    fn turn_watch(&mut self) -> bool {
        self.engine.called = false;
        let Some(mut watch) = self.watch.take() else { return false };
        let moved = watch.turn(self);
        self.watch = Some(watch);
        self.flush();
        moved
    }

    fn flush_ports(&mut self) {
        for port in &mut self.ports {
            port.flush();
        }
    }

    fn find(&mut self, pattern: Pattern) -> Option<(Found, Status)> {
        let (key, class) = Key::of_receive(pattern.context, pattern.source.map(|source| source.rank), pattern.tag);
        let unexpected = &mut self.engine.matching.unexpected;
        let found = unexpected.find(key, class)?;
        let (key, message) = unexpected.get(found)?;
        Some((found, Status { source: key.source, tag: key.tag, bytes: message.len, cancelled: false, error: None }))
    }

    fn match_found(&mut self, request: Request, found: Found) {
        match self.engine.matching.unexpected.take(found) {
            Some((key, message)) => self.engine.match_kept(request.index, key, message),
            // It had been set aside when its context was revoked.
            None => self.engine.requests.complete(request.index, Status::failed(Error::Revoked)),
        }
        self.engine.settle(&mut self.ports);
    }

    /// A receive of which nothing can come ends at once.
    #[inline]
    fn check_posted(&mut self, request: Request, process: u32, context: u32) {
        let engine = &mut self.engine;
        if !engine.gone.is_empty() && process != NOBODY && engine.peers[process as usize].gone {
            engine.fail(&mut self.ports, request.index, Error::ProcFailed);
        } else if !engine.revoked.is_empty() && engine.revoked.contains(&context) {
            engine.fail(&mut self.ports, request.index, Error::Revoked);
        }
    }
}

/// How `process` is reached from `host`.
fn way(process: &Process, host: &str, ports: &[Port]) -> Way {
    let by = |on_host: bool| {
        let mut ways = ports.iter().enumerate().filter(|(_, port)| port.is_on_host() == on_host);
        ways.find_map(|(port, by)| {
            let addr = *process.links.iter().find(|link| by.reaches(**link))?;
            Some(Way::Port { port, addr })
        })
    };
    let on_host = if process.host == host { by(true) } else { None };
    on_host.or_else(|| by(false)).unwrap_or(Way::None)
}

/// Sends that wait for a flush together: the window of the usual message-rate tests.
const TOGETHER: u32 = 64;
