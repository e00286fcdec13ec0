//! What an endpoint and a port have in common, so that a story can be told of either.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::udp::{self, Udp};
use sidelane_nic::{LinkAddr, Nic, clock};
use sidelane_proto::engine::{Engine, Options, Port, start};
use sidelane_proto::{Config, Endpoint, Event, Op, PeerId, PutHow, Refused, Region, RemoteKey, RmaError, SendError};

use crate::patience::{SUITE_PATIENCE, watch};

/// Tells each story of whoever may drive an endpoint, on both drivers.
macro_rules! stories {
    ($($story:ident)*) => {
        stories!(@ by_its_user ByItsUser $($story)*);
        stories!(@ by_an_engine ByAnEngine $($story)*);
        stories!(@ by_one_engine ByOneEngine $($story)*);
    };
    (@ $module:ident $drive:ident $($story:ident)*) => {
        mod $module {
            use super::*;
            $(
                mod $story {
                    use super::*;
                    #[test]
                    fn on_shm() {
                        let domain = Domain::new();
                        super::super::$story::<$drive, _>(|| domain.open());
                    }
                    #[test]
                    fn on_udp() {
                        super::super::$story::<$drive, _>(udp);
                    }
                }
            )*
        }
    };
}

pub trait Face {
    type Nic: Nic + Send;
    fn connect(&mut self, to: LinkAddr) -> PeerId;
    fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError>;
    fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused>;
    /// A turn, where it is the user who takes it.
    fn turn(&mut self);
    fn recv(&mut self) -> Option<(PeerId, Vec<u8>)>;
    fn poll_event(&mut self) -> Option<Event>;
    fn close(&mut self, peer: PeerId);
    fn is_settled(&mut self, peer: PeerId) -> bool;
    fn wait(&mut self, deadline: Instant);
    fn addr(&mut self) -> LinkAddr;
    /// Does something with the endpoint itself, between two turns.
    fn at_endpoint<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Endpoint<Self::Nic>) -> R + Send + 'static,
    ) -> R;

    fn put(&mut self, to: PeerId, key: &RemoteKey, at: u64, bytes: &[u8], how: PutHow) -> Result<Op, RmaError>;
    fn put_from(
        &mut self,
        to: PeerId,
        key: &RemoteKey,
        at: u64,
        from: (Region, Range<usize>),
        how: PutHow,
    ) -> Result<Op, RmaError>;
    fn signal(&mut self, to: PeerId, key: &RemoteKey) -> Result<Op, RmaError>;
    fn get(&mut self, of: PeerId, key: &RemoteKey, at: u64, into: (Region, Range<usize>)) -> Result<Op, RmaError>;
    fn fetch_add(&mut self, to: PeerId, key: &RemoteKey, at: u64, value: u64) -> Result<Op, RmaError>;
    fn compare_swap(&mut self, to: PeerId, key: &RemoteKey, at: u64, expected: u64, new: u64) -> Result<Op, RmaError>;
    fn fence(&mut self, to: PeerId);
    fn is_done(&mut self, op: Op) -> bool;

    /// Turns, sleeping in between, until `done` gives something.
    fn until<R>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<R>) -> R
    where
        Self: Sized,
    {
        let give_up = clock::monotonic() + PATIENCE;
        loop {
            self.turn();
            if let Some(result) = done(self) {
                return result;
            }
            let now = clock::monotonic();
            assert!(now < give_up, "{what}: nothing came of it");
            // Not longer: the other side of a story is polled by the same thread.
            self.wait(now + Duration::from_micros(200));
        }
    }
}

/// The calls that are the same of both.
macro_rules! one_sided_calls {
    () => {
        fn put(&mut self, to: PeerId, key: &RemoteKey, at: u64, bytes: &[u8], how: PutHow) -> Result<Op, RmaError> {
            self.put(to, key, at, bytes, how)
        }
        fn put_from(
            &mut self,
            to: PeerId,
            key: &RemoteKey,
            at: u64,
            (region, range): (Region, Range<usize>),
            how: PutHow,
        ) -> Result<Op, RmaError> {
            self.put_from(to, key, at, region, range, how)
        }
        fn signal(&mut self, to: PeerId, key: &RemoteKey) -> Result<Op, RmaError> {
            self.signal(to, key)
        }
        fn get(
            &mut self,
            of: PeerId,
            key: &RemoteKey,
            at: u64,
            (region, range): (Region, Range<usize>),
        ) -> Result<Op, RmaError> {
            self.get(of, key, at, region, range)
        }
        fn fetch_add(&mut self, to: PeerId, key: &RemoteKey, at: u64, value: u64) -> Result<Op, RmaError> {
            self.fetch_add(to, key, at, value)
        }
        fn compare_swap(
            &mut self,
            to: PeerId,
            key: &RemoteKey,
            at: u64,
            expected: u64,
            new: u64,
        ) -> Result<Op, RmaError> {
            self.compare_swap(to, key, at, expected, new)
        }
        fn fence(&mut self, to: PeerId) {
            self.fence(to);
        }
    };
}

impl<N: Nic + Send + 'static> Face for Endpoint<N> {
    type Nic = N;
    fn connect(&mut self, to: LinkAddr) -> PeerId {
        self.connect(to).unwrap()
    }
    fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        self.send(peer, message)
    }
    fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        self.send_owned(peer, buffer)
    }
    fn turn(&mut self) {
        self.poll();
    }
    fn recv(&mut self) -> Option<(PeerId, Vec<u8>)> {
        self.recv(|peer, message| (peer, message.to_vec()))
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }
    fn close(&mut self, peer: PeerId) {
        self.close(peer);
    }
    fn is_settled(&mut self, peer: PeerId) -> bool {
        self.is_settled(peer)
    }
    fn wait(&mut self, deadline: Instant) {
        self.wait(Some(deadline)).unwrap();
    }
    fn addr(&mut self) -> LinkAddr {
        self.nic().caps().addr
    }
    fn at_endpoint<R: Send + 'static>(&mut self, work: impl FnOnce(&mut Endpoint<N>) -> R + Send + 'static) -> R {
        work(self)
    }
    one_sided_calls!();
    fn is_done(&mut self, op: Op) -> bool {
        self.is_done(op)
    }
}

impl<N: Nic + Send + 'static> Face for Port<Endpoint<N>> {
    type Nic = N;
    fn connect(&mut self, to: LinkAddr) -> PeerId {
        self.connect(to).unwrap()
    }
    fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        self.send(peer, message)
    }
    fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        self.send_owned(peer, buffer)
    }
    fn turn(&mut self) {
        self.flush();
    }
    fn recv(&mut self) -> Option<(PeerId, Vec<u8>)> {
        self.recv(|peer, message| (peer, message.to_vec()))
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }
    fn close(&mut self, peer: PeerId) {
        self.close(peer);
    }
    fn is_settled(&mut self, peer: PeerId) -> bool {
        self.is_settled(peer).unwrap()
    }
    fn wait(&mut self, deadline: Instant) {
        self.wait(Some(deadline)).unwrap();
    }
    fn addr(&mut self) -> LinkAddr {
        self.call(|endpoint| endpoint.nic().caps().addr).unwrap()
    }
    fn at_endpoint<R: Send + 'static>(&mut self, work: impl FnOnce(&mut Endpoint<N>) -> R + Send + 'static) -> R {
        self.call(work).unwrap()
    }
    one_sided_calls!();
    fn is_done(&mut self, op: Op) -> bool {
        self.is_done(op).unwrap()
    }
}

/// Who drives the endpoints.
pub trait Drive {
    type Face<N: Nic + Send + 'static>: Face<Nic = N>;
    fn drive<N: Nic + Send + 'static, const C: usize>(endpoints: [Endpoint<N>; C]) -> [Self::Face<N>; C];
}

pub struct ByItsUser;

impl Drive for ByItsUser {
    type Face<N: Nic + Send + 'static> = Endpoint<N>;
    fn drive<N: Nic + Send + 'static, const C: usize>(endpoints: [Endpoint<N>; C]) -> [Endpoint<N>; C] {
        endpoints
    }
}

pub struct ByAnEngine;

impl Drive for ByAnEngine {
    type Face<N: Nic + Send + 'static> = Port<Endpoint<N>>;
    fn drive<N: Nic + Send + 'static, const C: usize>(endpoints: [Endpoint<N>; C]) -> [Port<Endpoint<N>>; C] {
        endpoints.map(|endpoint| start(endpoint, Options::default()).unwrap())
    }
}

/// All by the same, which drives another driver's endpoint too.
pub struct ByOneEngine;

/// What sleeps beside stories, until the process ends.
static BESIDE: Mutex<Vec<Port<Endpoint<ShmNic>>>> = Mutex::new(Vec::new());

impl Drive for ByOneEngine {
    type Face<N: Nic + Send + 'static> = Port<Endpoint<N>>;
    fn drive<N: Nic + Send + 'static, const C: usize>(endpoints: [Endpoint<N>; C]) -> [Port<Endpoint<N>>; C] {
        let engine = Engine::start(Options::default()).unwrap();
        // Ends with the story's first turns, or sleeps beside it.
        engine.drive(Endpoint::new(udp(), config())).unwrap();
        let ports = endpoints.map(|endpoint| engine.drive(endpoint).unwrap());
        BESIDE.lock().unwrap().push(engine.drive(Endpoint::new(Domain::new().open(), config())).unwrap());
        ports
    }
}

pub fn udp() -> Udp {
    watch_engines();
    Udp::open(&udp::Config::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

/// Opens endpoints that reach one another.
pub struct Domain(String);

impl Domain {
    pub fn new() -> Self {
        watch_engines();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(format!("engine-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn open(&self) -> ShmNic {
        ShmNic::open(&self.0, None).unwrap()
    }
}

/// Few bytes, so that FIFOs are full soon.
pub fn config() -> Config {
    Config { send_fifo: 16 << 10, recv_fifo: 64 << 10, display: false, ..Config::default() }
}

/// Two endpoints, whoever drives them.
pub fn pair<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) -> (D::Face<N>, D::Face<N>) {
    let [a, b] = D::drive([(); 2].map(|()| Endpoint::new(open(), config())));
    (a, b)
}

/// Both sides' peers.
pub fn join<A: Face, B: Face>(a: &mut A, b: &mut B) -> (PeerId, PeerId) {
    let at_b = b.addr();
    let to_b = a.connect(at_b);
    let connected = |event| match event {
        Event::Connected { peer, .. } => peer,
        other => panic!("{other:?} before the connection"),
    };
    let seen = a.until("connecting", |a| {
        b.turn();
        a.poll_event().map(connected)
    });
    assert_eq!(seen, to_b);
    (to_b, b.until("being connected", |b| b.poll_event().map(connected)))
}

/// Sends, taking turns on both sides while that is `Full`.
pub fn send<A: Face>(a: &mut A, peer: PeerId, message: &[u8], mut other: impl FnMut()) {
    a.until("sending", |a| {
        other();
        match a.send(peer, message) {
            Ok(()) => Some(()),
            Err(SendError::Full) => None,
            Err(error) => panic!("{error}"),
        }
    });
}

/// A call of an engine, and the end of one, last as long as its thread takes.
fn watch_engines() {
    watch("an engine", SUITE_PATIENCE);
}

/// Above any stall of a loaded machine.
pub const PATIENCE: Duration = Duration::from_millis(20_000);
