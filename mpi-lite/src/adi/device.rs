//! The device: the calls, each of which finds who knows.

use std::io;
use std::ops::Range;
use std::task::Waker;

use sidelane_nic::time::{Duration, Instant};

use super::config::Patience;
use super::counters::Counters;
use super::engine::Engine;
use super::envelope::{Envelope, Message, Mode, Pattern};
use super::idle::{Idle, SELDOM};
use super::living::Living;
use super::memory::{Incoming, Outgoing};
use super::peer::Way;
use super::port::Port;
use super::process::Process;
use super::pull::{may_push, pull, push};
use super::request::{Error, NOBODY, Request, State, Status};
use super::service::Service;
use super::turns::Turns;
use super::unexpected::Found;

/// Messages between the processes of a job, matched by MPI's rules. Used by one thread at a time.
///
/// Nothing blocks but [`Device::wait`] and [`Device::idle`]. Messages move while [`Device::progress`] is called, which
/// `test` and `wait` do.
pub struct Device {
    pub(super) ports: Vec<Port>,
    pub(super) engine: Engine,
    pub(super) patience: Patience,
    /// Sends since the last turn or flush, of which some may wait for one.
    pub(super) sends: u32,
    pub(super) services: Vec<(u32, Box<dyn Service>)>,
    pub(super) watch: Option<Box<dyn Service>>,
    /// Who else knows of processes that are gone.
    pub(super) informant: Option<Informant>,
    pub(super) living: Living,
    /// Calls that did not wait and found nothing.
    pub(super) passes: u32,
}

impl Device {
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

    /// Whether this process would notice the end of another one of its host also without a connection to it.
    pub fn sees(&self, process: u32) -> bool {
        let processes = &self.engine.processes;
        processes[self.engine.own as usize].sees(&processes[process as usize])
    }

    /// Begins a send to process `to`. Its bytes may go out later, with those of further sends: [`Device::flush`].
    #[inline]
    pub fn send(&mut self, to: u32, envelope: Envelope, bytes: Outgoing, mode: Mode) -> Request {
        debug_assert!(!envelope.has_wildcard(), "only receives have wildcards");
        let sync = mode == Mode::Synchronous;
        if to == self.engine.own {
            return self.engine.send_own(envelope, bytes, sync);
        }
        let request = self.engine.send(&mut self.ports, to, envelope, bytes, sync);
        self.sends += 1;
        // The first one since the last turn goes at once, for who sends it and computes on; the next ones share frames.
        if self.last_goes_at_once() {
            self.flush_ports();
        }
        request
    }

    /// Posts a receive.
    #[inline]
    pub fn recv(&mut self, pattern: Pattern, room: Incoming) -> Request {
        let (key, class) = Envelope::of_receive(pattern.context, pattern.source.map(|source| source.rank), pattern.tag);
        let process = pattern.source.map_or(NOBODY, |source| source.process);
        let request = self.engine.requests.begin(process, key, Outgoing::EMPTY, room);
        match self.engine.matching.post(key, class, request.index) {
            None => {
                self.engine.requests.at(request.index).state = State::Posted { class };
                self.check_posted(request, process, key.context());
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
        let key = key.unwrap_or(Envelope::new(0, 0, 0));
        let request = self.engine.requests.begin(NOBODY, key, Outgoing::EMPTY, room);
        self.match_found(request, message.0);
        request
    }

    /// One turn of every port. True if anything came, or went on.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.sends = 0;
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

    /// Puts on the wire what was sent.
    #[inline]
    pub fn flush(&mut self) {
        if self.sends > 0 {
            let has_gone = self.last_goes_at_once();
            self.sends = 0;
            if !has_gone {
                self.flush_ports();
            }
        }
    }

    /// True of a send that waits for no other.
    #[inline]
    const fn last_goes_at_once(&self) -> bool {
        self.sends % TOGETHER == 1
    }

    /// How a request ended; it is freed. `None` while it is under way. One that is freed already, or another device's, ends the process:
    /// nobody knows to whom its memory is lent.
    #[inline]
    pub fn poll(&mut self, request: Request) -> Option<Status> {
        if request == Request::SENT {
            return Some(Status::SENT);
        }
        let Some(slot) = self.engine.requests.get(request) else {
            unknown();
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
            let status = self.poll(request);
            if status.is_none() {
                self.pass_by();
            }
            status
        })
    }

    /// Waits until a request is over, and frees it.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Status {
        self.wait_for(request)
    }

    /// What ends [`Self::idle`]'s sleep from other threads: all of these together ([`sidelane_nic::Nic::waker`]).
    pub fn wakers(&mut self) -> io::Result<Vec<Waker>> {
        self.ports.iter_mut().map(Port::waker).collect()
    }

    /// How long [`Self::idle`] keeps the core before it sleeps.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// What a loop does whose last turn brought something, but not what it waits for.
    #[inline]
    pub fn go_on(&mut self, idle: &mut Idle) {
        if idle.reset() {
            // Others may bring something for ever.
            self.look_around();
        }
    }

    /// What a call does that does not wait, whose turn has brought nothing: its caller may come again and again.
    #[inline]
    pub fn pass_by(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(SELDOM) && self.look_around() {
            self.engine.reach_awaited(&mut self.ports);
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
        if idle.has_slept(self.patience) {
            self.look_around();
        }
    }

    /// What a loop does whose last turn brought nothing, and that does not sleep: after a while it asks who is gone, as
    /// [`Self::idle`] does.
    pub fn stay_awake(&mut self, idle: &mut Idle) {
        idle.count(self.patience);
        if idle.is_tired(self.patience) {
            self.engine.reach_awaited(&mut self.ports);
        }
        if idle.is_due(self.patience) {
            self.look_around();
        }
    }

    /// From now on, while it waits for long, this asks `informant` for processes that are gone, of which it need not know from
    /// the network.
    pub fn on_idle_ask(&mut self, informant: Informant) {
        self.informant = Some(informant);
    }

    /// `tell` is called with the first process of another host that is gone without ever having answered: most likely there is no way there.
    pub fn on_no_answer(&mut self, tell: Box<dyn FnOnce(u32) + Send>) {
        self.engine.on_no_answer = Some(tell);
    }

    /// Who is gone of whom nothing need come by the network. True once in a while, when this host's processes were looked at.
    #[cold]
    fn look_around(&mut self) -> bool {
        while let Some(gone) = self.informant.as_mut().and_then(|ask| ask()) {
            if (gone as usize) < self.engine.processes.len() && gone != self.engine.own {
                self.engine.lose_behind_what_came(&mut self.ports, gone);
            }
        }
        let now = self.now();
        let Some(gone) = self.living.look(now, &self.engine.processes) else { return false };
        gone.into_iter().for_each(|process| self.engine.lose_behind_what_came(&mut self.ports, process));
        for process in self.engine.absent(&mut self.ports) {
            self.living.note_ended(process, now);
        }
        true
    }

    /// A process is gone: others say so. One that lives all the same is told that it is not counted on here any more.
    pub(crate) fn lose(&mut self, process: u32) {
        let peer = &self.engine.peers[process as usize];
        if process == self.engine.own || peer.gone {
            return;
        }
        let connection = match peer.way {
            Way::Port { port, .. } => peer.id.map(|id| (port, id)),
            _ => None,
        };
        self.engine.lose_behind_what_came(&mut self.ports, process);
        if let Some((port, id)) = connection {
            self.ports[port].close(id);
        }
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
                self.engine.settle(&mut self.ports);
                return;
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

    /// Whether a message of one of these contexts is under way, or a service has one of them. For what seldom happens: looks at all.
    pub fn uses(&self, contexts: Range<u32>) -> bool {
        let is_served = self.services.iter().any(|(context, _)| contexts.contains(context));
        is_served || !self.engine.requests.filter(|slot| contexts.contains(&slot.key.context())).is_empty()
    }

    /// Refuses messages of these contexts that have come and that nobody will receive: who waits for that is told that the context was
    /// revoked. True if there were any.
    pub fn refuse_unreceived(&mut self, contexts: Range<u32>) -> bool {
        self.engine.refuse_unreceived(&mut self.ports, contexts)
    }

    /// Processes that are gone, in the order in which it was noticed. Receives from anybody wait on in spite of them.
    pub fn gone(&self) -> &[u32] {
        &self.engine.gone
    }

    /// The time on its first port: virtual on a simulated network. Zero for a process that is alone.
    pub fn now(&self) -> Instant {
        self.ports.first().map_or(Instant::ZERO, Port::now)
    }

    /// Answers questions whether this process lives, and takes in what came, but does nothing with it: for another thread than
    /// the one whose calls use the device, between those.
    pub fn stay_alive(&mut self) {
        for port in self.ports.iter_mut().filter(|port| !port.is_on_host()) {
            port.poll();
            port.flush();
        }
    }

    /// Ends all connections, once what was sent has arrived, or after `limit`.
    pub fn close(&mut self, limit: Duration) {
        let ends: Vec<_> = self.ports.iter().map(|port| port.now() + limit).collect();
        let expired = |ports: &[Port]| ports.iter().zip(&ends).any(|(port, end)| port.now() >= *end);
        let mut idle = Idle::new();
        while !self.engine.end_copies() && !expired(&self.ports) {}
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

    /// Fills `into` from `address` on in the memory of a process on this host, which has lent it. `NoAccess` where that cannot be
    /// done, or shall not ([`Config::single_copy`](super::Config::single_copy)); `ProcFailed` where the process's memory is gone.
    pub fn read_memory(&mut self, process: u32, address: u64, into: &mut [u8]) -> Result<(), Error> {
        let engine = &mut self.engine;
        if !engine.single_copy {
            return Err(Error::NoAccess);
        }
        let state = &mut engine.peers[process as usize].pull;
        pull(state, &engine.processes[process as usize], address, into)
    }

    /// Asked before the first [`Self::write_memory`] of a call: whether the process's memory is still there.
    pub fn may_write_memory(&self, process: u32) -> Result<(), Error> {
        if self.engine.single_copy { may_push(&self.engine.processes[process as usize]) } else { Err(Error::NoAccess) }
    }

    /// Writes `bytes` to `address` in such a process's memory, which waits for them there. As [`Self::read_memory`].
    pub fn write_memory(&self, process: u32, address: u64, bytes: &[u8]) -> Result<(), Error> {
        push(&self.engine.processes[process as usize], address, bytes)
    }

    /// What was counted since the device was opened.
    pub fn counters(&self) -> &Counters {
        &self.engine.counters
    }

    /// The ports below.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    fn flush_ports(&mut self) {
        for port in &mut self.ports {
            port.flush();
        }
    }

    fn find(&mut self, pattern: Pattern) -> Option<(Found, Status)> {
        let (key, class) = Envelope::of_receive(pattern.context, pattern.source.map(|source| source.rank), pattern.tag);
        let unexpected = &mut self.engine.matching.unexpected;
        let Some(found) = unexpected.find(key, class) else {
            self.engine.probed = pattern.source.map_or(NOBODY, |source| source.process);
            return None;
        };
        let (key, message) = unexpected.get(found)?;
        Some((
            found,
            Status { source: key.source(), tag: key.tag(), bytes: message.len, cancelled: false, error: None },
        ))
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

/// Ends the process for a request of which nobody knows whose memory it has.
#[cold]
pub(crate) fn unknown() -> ! {
    eprintln!(
        "a request is asked about that is another process's, or of a job that is over; whose memory it has is not known"
    );
    std::process::abort()
}

/// Says who is gone that it has not said before, if anybody is.
pub type Informant = Box<dyn FnMut() -> Option<u32> + Send>;

/// Sends that wait for a flush together: the window of the usual message-rate tests.
const TOGETHER: u32 = 64;
