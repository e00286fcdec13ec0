//! What an endpoint and a port have in common, so that a story can be told of either.

use std::any::Any;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::udp::{self, Udp};
use sidelane_nic::{LinkAddr, Nic, clock};
use sidelane_proto::engine::{Engine, Options, Port, start};
use sidelane_proto::{
    Config, Endpoint, Event, Op, PeerId, PutHow, Refused, Region, RemoteKey, Rights, RmaError, SendError,
};

use crate::patience::{SUITE_PATIENCE, watch};

/// Tells each story of whoever may drive an endpoint, on both drivers.
macro_rules! stories {
    ($($story:ident)*) => {
        stories!(@ by_its_user ItsUser $($story)*);
        stories!(@ by_an_engine AnEngine $($story)*);
        stories!(@ by_one_engine OneEngine $($story)*);
    };
    (@ $module:ident $by:ident $($story:ident)*) => {
        mod $module {
            use crate::face::{self, By};
            $(
                mod $story {
                    use super::*;
                    #[test]
                    fn on_shm() {
                        super::super::$story(&face::on_shm(By::$by));
                    }
                    #[test]
                    fn on_udp() {
                        super::super::$story(&face::on_udp(By::$by));
                    }
                }
            )*
        }
    };
}

/// Never generic, so that a story is compiled once for whoever drives and for each driver.
pub trait Face {
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

    // Of the endpoint itself, between two turns.
    fn addr(&mut self) -> LinkAddr;
    fn register(&mut self, memory: Vec<u8>) -> Region;
    fn publish(&mut self, region: Region, rights: Rights) -> RemoteKey;
    fn unpublish(&mut self, region: Region);
    fn bytes(&mut self, region: Region) -> Vec<u8>;
    fn signals(&mut self, region: Region) -> Option<u64>;

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
}

pub trait Until: Face {
    /// Turns, sleeping in between, until `done` gives something.
    fn until<R>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<R>) -> R {
        let give_up = clock::monotonic() + PATIENCE;
        loop {
            self.turn();
            if let Some(result) = done(self) {
                return result;
            }
            self.nap(what, give_up);
        }
    }

    fn nap(&mut self, what: &str, give_up: Instant) {
        let now = clock::monotonic();
        assert!(now < give_up, "{what}: nothing came of it");
        // Not longer: the other side of a story is polled by the same thread.
        self.wait(now + Duration::from_micros(200));
    }
}

impl<F: Face + ?Sized> Until for F {}

fn here<N: Nic, R>(endpoint: &mut Endpoint<N>, work: impl FnOnce(&mut Endpoint<N>) -> R) -> R {
    work(endpoint)
}

fn on_engine<N: Nic + Send + 'static, R: Send + 'static>(
    port: &mut Port<Endpoint<N>>,
    work: impl FnOnce(&mut Endpoint<N>) -> R + Send + 'static,
) -> R {
    port.call(work).unwrap()
}

/// The calls that are the same of both. `$at` does something with the endpoint itself.
macro_rules! calls {
    ($at:ident) => {
        fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
            self.send(peer, message)
        }
        fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
            self.send_owned(peer, buffer)
        }
        fn connect(&mut self, to: LinkAddr) -> PeerId {
            self.connect(to).unwrap()
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
        fn wait(&mut self, deadline: Instant) {
            self.wait(Some(deadline)).unwrap();
        }
        fn addr(&mut self) -> LinkAddr {
            $at(self, |endpoint| endpoint.nic().caps().addr)
        }
        fn register(&mut self, memory: Vec<u8>) -> Region {
            $at(self, move |endpoint| endpoint.register(memory))
        }
        fn publish(&mut self, region: Region, rights: Rights) -> RemoteKey {
            $at(self, move |endpoint| endpoint.publish(region, rights, None).unwrap())
        }
        fn unpublish(&mut self, region: Region) {
            $at(self, move |endpoint| endpoint.unpublish(region).unwrap());
        }
        fn bytes(&mut self, region: Region) -> Vec<u8> {
            $at(self, move |endpoint| endpoint.region(region).unwrap().to_vec())
        }
        fn signals(&mut self, region: Region) -> Option<u64> {
            // By its name: the method that takes `&mut self` is this one.
            $at(self, move |endpoint| Endpoint::signals(endpoint, region))
        }
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
    calls!(here);
    fn turn(&mut self) {
        self.poll();
    }
    fn is_settled(&mut self, peer: PeerId) -> bool {
        self.is_settled(peer)
    }
    fn is_done(&mut self, op: Op) -> bool {
        self.is_done(op)
    }
}

impl<N: Nic + Send + 'static> Face for Port<Endpoint<N>> {
    calls!(on_engine);
    fn turn(&mut self) {
        self.flush();
    }
    fn is_settled(&mut self, peer: PeerId) -> bool {
        self.is_settled(peer).unwrap()
    }
    fn is_done(&mut self, op: Op) -> bool {
        self.is_done(op).unwrap()
    }
}

/// Who drives the endpoints.
pub enum By {
    ItsUser,
    AnEngine,
    /// All by the same, which drives another driver's endpoint too.
    OneEngine,
}

/// What sleeps beside stories, until the process ends.
static BESIDE: Mutex<Vec<Port<Endpoint<ShmNic>>>> = Mutex::new(Vec::new());

/// Where a story plays: who drives, and on which driver.
pub trait Stage {
    /// Endpoints that reach one another, one for each of `configs`.
    fn endpoints(&self, configs: &[Config]) -> Vec<Box<dyn Face>>;
    /// A driver that nobody polls, there as long as it is held; and its address.
    fn absent(&self) -> (Box<dyn Any>, LinkAddr);
}

impl<N: Nic + Send + 'static, F: Fn() -> N> Stage for (By, F) {
    fn endpoints(&self, configs: &[Config]) -> Vec<Box<dyn Face>> {
        let (by, open) = self;
        let endpoints = configs.iter().map(|&config| Endpoint::new(open(), config));
        match by {
            By::ItsUser => endpoints.map(|endpoint| Box::new(endpoint) as Box<dyn Face>).collect(),
            By::AnEngine => endpoints
                .map(|endpoint| Box::new(start(endpoint, Options::default()).unwrap()) as Box<dyn Face>)
                .collect(),
            By::OneEngine => {
                let engine = Engine::start(Options::default()).unwrap();
                // Ends with the story's first turns, or sleeps beside it.
                engine.drive(Endpoint::new(udp(), config())).unwrap();
                let ports =
                    endpoints.map(|endpoint| Box::new(engine.drive(endpoint).unwrap()) as Box<dyn Face>).collect();
                BESIDE.lock().unwrap().push(engine.drive(Endpoint::new(Domain::new().open(), config())).unwrap());
                ports
            }
        }
    }

    fn absent(&self) -> (Box<dyn Any>, LinkAddr) {
        let nic = self.1();
        let addr = nic.caps().addr;
        (Box::new(nic), addr)
    }
}

/// Not a closure in each story: what it is part of would be compiled for each.
pub fn on_shm(by: By) -> impl Stage {
    let domain = Domain::new();
    (by, move || domain.open())
}

pub fn on_udp(by: By) -> impl Stage {
    (by, udp)
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
pub fn pair(stage: &dyn Stage) -> [Box<dyn Face>; 2] {
    driven(stage, [config(), config()])
}

/// Endpoints of these settings, whoever drives them.
pub fn driven<const C: usize>(stage: &dyn Stage, configs: [Config; C]) -> [Box<dyn Face>; C] {
    stage.endpoints(&configs).try_into().unwrap_or_else(|_| unreachable!("one for each"))
}

/// Both sides' peers.
pub fn join(a: &mut dyn Face, b: &mut dyn Face) -> (PeerId, PeerId) {
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
pub fn send(a: &mut dyn Face, peer: PeerId, message: &[u8], mut other: impl FnMut()) {
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
