//! The thread that makes and ends connections, so that the datapath never waits for one.
//!
//! It sleeps in poll(2). For each peer it is in one of these states:
//!
//! ```text
//!            link              answered by the listener            answer
//!   unknown ------> Waiting --------------------------> Asked --------------> Connected
//!      |               ^                                  |                       |
//!      |               +------- closed, after a pause ----+                       |
//!      |                                                                          |
//!      +--------------- greeting received, answered ----------------------------->+--- closed ---> unknown
//! ```
//!
//! When two endpoints dial each other at once, the call of the lower one stands: it refuses the other's greeting, and
//! the higher one drops its own call when it gets the lower's.
//!
//! Where the system forbids the call (a security policy), it is over, and the datapath is told.
//!
//! A process that has no descriptor left lets nobody in: callers stay in the listener's queue, which is looked at now and
//! then until one comes free. Its connections go on.
//!
//! Nor does an endpoint let callers in beyond the peers that it may have. Connections that the datapath has not heard of, or
//! has not let go of yet, count too: so what a process that calls again and again leaves with one that takes no turn is
//! bounded. Who is turned away calls again.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use super::doorbell;
use super::handshake::{self, Asked, Shared};
use super::mapping::Bell;
use super::open::socket_name;
use super::sys::{self, Socket};
use crate::event::Event;

/// What the datapath wants.
pub(super) enum Command {
    /// A connection to this endpoint, whenever it is there.
    Dial(u16),
    /// No connection to it, if there is none yet.
    Forget(u16),
    /// The end of this connection: the peer has broken the rules.
    HangUp(u64),
    /// The end.
    Stop,
}

/// What the steward tells the datapath.
pub(super) enum News {
    /// A connection, and its number. It counts as held until `held` is dropped.
    Up { endpoint: u16, connection: u64, shared: Shared, held: Arc<()> },
    /// The system forbids to call this endpoint, which is not tried again.
    Forbidden { endpoint: u16 },
    /// The process at the other end of this connection is gone, or has another one.
    Down { connection: u64 },
}

/// The datapath's end of both.
pub(super) struct Line {
    commands: mpsc::Sender<Command>,
    pub(super) news: mpsc::Receiver<News>,
    /// News sent so far: one load tells the datapath that there is none.
    pub(super) news_sent: Arc<AtomicU32>,
    /// Times that callers began to wait for want of a descriptor.
    put_off: Arc<AtomicU64>,
    /// Callers that were turned away for want of a place.
    refused: Arc<AtomicU64>,
    /// Raised after a command.
    event: Arc<Event>,
}

pub(super) struct Steward {
    domain: String,
    own: u16,
    listener: Socket,
    bell: Bell,
    bell_memory: OwnedFd,
    commands: mpsc::Receiver<Command>,
    event: Arc<Event>,
    news: mpsc::Sender<News>,
    news_sent: Arc<AtomicU32>,
    put_off: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    peers_max: usize,
    /// Shared with every connection that is in the news, or with the datapath.
    held: Arc<()>,
    /// Nobody can be let in: milliseconds until it is tried again.
    full: Option<i32>,
    /// Accepted, and the greeting is not there yet.
    callers: Vec<Socket>,
    calls: HashMap<u16, Call>,
    connected: HashMap<u16, Connection>,
    connections: u64,
    /// Milliseconds until waiting calls are tried again.
    pause_ms: i32,
}

/// A peer that is to be connected to.
enum Call {
    Waiting,
    Asked(Asked),
}

struct Connection {
    number: u64,
    socket: Socket,
}

impl Line {
    pub(super) fn command(&self, command: Command) {
        // A steward that is gone ended with everything that it could be told to end.
        let _ = self.commands.send(command);
        self.event.raise();
    }

    pub(super) fn put_off(&self) -> u64 {
        self.put_off.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Steward {
    pub(super) fn new(
        (domain, own): (String, u16),
        listener: Socket,
        (bell, bell_memory): (Bell, OwnedFd),
        peers_max: usize,
    ) -> std::io::Result<(Self, Line)> {
        let (commands, received_commands) = mpsc::channel();
        let (news, received_news) = mpsc::channel();
        let (event, news_sent) = (Arc::new(Event::new()?), Arc::new(AtomicU32::new(0)));
        let [put_off, refused] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let line = Line {
            commands,
            news: received_news,
            news_sent: Arc::clone(&news_sent),
            put_off: Arc::clone(&put_off),
            refused: Arc::clone(&refused),
            event: Arc::clone(&event),
        };
        let steward = Self {
            domain,
            own,
            listener,
            bell,
            bell_memory,
            commands: received_commands,
            event,
            news,
            news_sent,
            put_off,
            refused,
            peers_max,
            held: Arc::new(()),
            full: None,
            callers: Vec::new(),
            calls: HashMap::new(),
            connected: HashMap::new(),
            connections: 0,
            pause_ms: PAUSE_MIN_MS,
        };
        Ok((steward, line))
    }

    /// Works until it is told to stop, or the datapath is gone.
    pub(super) fn run(mut self) {
        while self.obey() {
            self.dial_waiting();
            let ready = self.sleep();
            self.hear_connected(&ready);
            self.hear_answers(&ready);
            self.hear_callers(&ready);
            if self.full.is_some() || ready.contains(&self.listener.as_raw_fd()) {
                self.accept();
            }
        }
        sys::stop_listening(&self.listener);
    }

    /// Takes the datapath's commands. False: the end.
    fn obey(&mut self) -> bool {
        self.event.lower();
        loop {
            match self.commands.try_recv() {
                Ok(Command::Dial(peer)) => {
                    if !self.connected.contains_key(&peer) {
                        self.calls.entry(peer).or_insert(Call::Waiting);
                        self.pause_ms = PAUSE_MIN_MS;
                    }
                }
                Ok(Command::Forget(peer)) => drop(self.calls.remove(&peer)),
                Ok(Command::HangUp(number)) => {
                    let peer = self.connected.iter().find(|(_, connection)| connection.number == number);
                    if let Some((&endpoint, _)) = peer {
                        self.disconnect(endpoint);
                    }
                }
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Err(mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    /// Tries the calls that nobody has answered yet.
    fn dial_waiting(&mut self) {
        let mut forbidden = Vec::new();
        for (&peer, call) in &mut self.calls {
            if let Call::Waiting = call {
                match handshake::dial(&socket_name(&self.domain, peer), self.own, &self.bell_memory) {
                    Ok(asked) => *call = Call::Asked(asked),
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => forbidden.push((peer, error)),
                    // Absent or busy.
                    Err(_) => {}
                }
            }
        }
        for (endpoint, error) in forbidden {
            let domain = &self.domain;
            tracing::warn!(
                target: "shm",
                "endpoint {endpoint} of domain `{domain}` may not be called: {error}. A security policy (SELinux, AppArmor, Landlock) keeps \
                 processes from one another: have it allow abstract unix sockets between them, or use another driver"
            );
            self.calls.remove(&endpoint);
            self.tell(News::Forbidden { endpoint });
        }
    }

    /// Until something happens on a socket, or it is time to dial again. Returns the sockets that have something.
    fn sleep(&mut self) -> HashSet<RawFd> {
        let waiting = self.calls.values().any(|call| matches!(call, Call::Waiting));
        let asked = self.calls.values().filter_map(|call| match call {
            Call::Asked(asked) => Some(asked.socket.as_raw_fd()),
            Call::Waiting => None,
        });
        let mut fds = vec![self.event.as_fd().as_raw_fd()];
        // While it is full, callers that nobody can let in would wake us without end.
        fds.extend(self.full.is_none().then_some(self.listener.as_raw_fd()));
        fds.extend(self.callers.iter().map(AsRawFd::as_raw_fd));
        fds.extend(asked);
        fds.extend(self.connected.values().map(|connection| connection.socket.as_raw_fd()));
        let pauses = [waiting.then_some(self.pause_ms), self.full];
        let ready = sys::poll(&fds, pauses.into_iter().flatten().min());
        if waiting {
            self.pause_ms = (self.pause_ms * 2).min(PAUSE_MAX_MS);
        }
        fds.into_iter().zip(ready).filter_map(|(fd, ready)| ready.then_some(fd)).collect()
    }

    /// A connected peer has nothing to say: whatever is heard is the end.
    fn hear_connected(&mut self, ready: &HashSet<RawFd>) {
        let heard = |socket: &Socket| ready.contains(&socket.as_raw_fd());
        let ended: Vec<u16> =
            self.connected.iter().filter(|(_, peer)| heard(&peer.socket)).map(|(&endpoint, _)| endpoint).collect();
        for endpoint in ended {
            self.disconnect(endpoint);
        }
    }

    fn hear_answers(&mut self, ready: &HashSet<RawFd>) {
        let answered: Vec<u16> = self
            .calls
            .iter()
            .filter(|(_, call)| matches!(call, Call::Asked(asked) if ready.contains(&asked.socket.as_raw_fd())))
            .map(|(&peer, _)| peer)
            .collect();
        for peer in answered {
            let Some(Call::Asked(asked)) = self.calls.insert(peer, Call::Waiting) else { continue };
            // Refused or closed: dialled again after a pause, unless the peer's own call comes first.
            if let Ok(shared) = asked.conclude(peer) {
                self.connect(peer, asked.socket, shared);
            }
        }
    }

    fn hear_callers(&mut self, ready: &HashSet<RawFd>) {
        for socket in std::mem::take(&mut self.callers) {
            if ready.contains(&socket.as_raw_fd()) {
                self.hear_caller(socket);
            } else {
                self.callers.push(socket);
            }
        }
    }

    fn hear_caller(&mut self, socket: Socket) {
        let Ok(greeting) = handshake::greeting(&socket) else { return };
        let peer = greeting.endpoint;
        let ours_stands = self.own < peer && matches!(self.calls.get(&peer), Some(Call::Asked(_)));
        if peer == self.own || ours_stands {
            return;
        }
        // Whom we call has a place already.
        if !self.calls.contains_key(&peer) && self.places_taken() >= self.peers_max {
            return self.refuse(peer);
        }
        // Our own call ends before the answer leaves: otherwise the peer, connected by then, could take our greeting for
        // that of a successor of ours.
        let called = self.calls.remove(&peer).is_some();
        if let Ok(shared) = greeting.answer(&socket, self.own, &self.bell_memory) {
            self.connect(peer, socket, shared);
        } else if called {
            self.calls.insert(peer, Call::Waiting);
        }
    }

    fn accept(&mut self) {
        loop {
            let socket = match sys::accept(&self.listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => return self.full = None,
                Err(error) => return self.put_off(&error),
            };
            if handshake::same_user(&socket).is_ok() {
                self.callers.push(socket);
            }
            if self.callers.len() > CALLERS_MAX {
                self.callers.remove(0);
            }
        }
    }

    /// Leaves callers where they are for a while.
    fn put_off(&mut self, error: &std::io::Error) {
        if self.full.is_none() {
            self.put_off.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(target: "shm", "nobody can be let in: {error}; the limit is that of `ulimit -n`");
        }
        self.full = Some(self.full.map_or(PAUSE_MIN_MS, |pause_ms| (pause_ms * 2).min(PAUSE_MAX_MS)));
    }

    /// Connections that exist here in any way, and those that are called.
    fn places_taken(&self) -> usize {
        // One is the steward's own.
        Arc::strong_count(&self.held) - 1 + self.calls.len()
    }

    fn refuse(&self, peer: u16) {
        if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            let peers_max = self.peers_max;
            tracing::warn!(target: "shm", "endpoint {peer} is not let in: this one has the {peers_max} peers that it holds");
        }
    }

    fn connect(&mut self, endpoint: u16, socket: Socket, shared: Shared) {
        // Only one process can have the endpoint's name: an older connection is one with its predecessor.
        self.disconnect(endpoint);
        self.calls.remove(&endpoint);
        self.connections += 1;
        self.connected.insert(endpoint, Connection { number: self.connections, socket });
        let held = Arc::clone(&self.held);
        self.tell(News::Up { endpoint, connection: self.connections, shared, held });
    }

    fn disconnect(&mut self, endpoint: u16) {
        if let Some(Connection { number, .. }) = self.connected.remove(&endpoint) {
            self.tell(News::Down { connection: number });
        }
    }

    /// Wakes the datapath if it sleeps: a sender waits for a connection, a receiver may have to hear of an end. Of one that came
    /// while the peer was about to wake it, too.
    fn tell(&mut self, news: News) {
        // Without a receiver the end is near anyway.
        let _ = self.news.send(news);
        // Pairs with the Acquire in the datapath: who sees the count finds the news.
        self.news_sent.fetch_add(1, Ordering::Release);
        doorbell::published();
        doorbell::ring_all_the_same(self.bell.word(), || sys::futex_wake(self.bell.word()));
    }
}

/// Pauses between two tries of a call, and of letting somebody in: short while a job starts, then long enough to cost nothing.
const PAUSE_MIN_MS: i32 = 1;
const PAUSE_MAX_MS: i32 = 50;

/// Connections that may be silent at once; beyond it the oldest is closed. A peer greets within microseconds.
const CALLERS_MAX: usize = 256;
