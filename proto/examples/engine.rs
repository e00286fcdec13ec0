//! What an engine costs: half round trips with and without one, and what it takes to wake one.
//!
//! `cargo run --release -p sidelane-proto --example engine` measures in shared memory; with two endpoints that reach each other,
//! such as `-- udp:127.0.0.1:0 udp:127.0.0.1:0`, on these (for `uring`:
//! `unshare -Urn sh -c 'ip link add va type veth peer name vb; ip link set va up; ip link set vb up; ...'`).
//!
//! Two threads on the first two cores. Without an engine each polls an endpoint. With one the second thread is that of an engine,
//! and the first has its port and, polled by itself, the other endpoint: a round trip then crosses between the cores four times
//! instead of two, and half the difference is what an engine adds to a message's way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sidelane_nic::shm::ShmNic;
use sidelane_nic::spec::Spec;
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::udp::{self, Udp};
use sidelane_nic::uring::{self, Uring};
use sidelane_nic::{LinkAddr, Nic, affinity, clock};
use sidelane_proto::engine::{Engine, Options, Port, start};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

fn main() {
    let mut specs: Vec<String> = std::env::args().skip(1).collect();
    if specs.is_empty() {
        specs = vec![format!("shm:engine-{}", std::process::id()); 2];
    }
    let specs: Vec<Spec> = specs.iter().filter_map(|spec| spec.parse().ok()).collect();
    match &specs[..] {
        [Spec::Shm { domain, .. }, Spec::Shm { .. }] => both(|_| ShmNic::open(domain, None).expect("a domain")),
        [Spec::Udp { bind }, Spec::Udp { bind: other }] => {
            both(|end| Udp::open(&udp::Config::new([*bind, *other][end])).expect("an address"))
        }
        [Spec::Uring { interface, .. }, Spec::Uring { interface: other, .. }] => both(|end| {
            let config = uring::Config::new([interface, other][end], end as u16);
            Uring::open(&config).expect("an interface")
        }),
        _ => {
            eprintln!("two drivers are wanted, of shm, udp or uring, as in shm:engine shm:engine");
            std::process::exit(2);
        }
    }
}

fn both<N: Nic + Send + 'static>(open: impl Fn(usize) -> N) {
    measure(open(0), open(1));
}

fn measure<N: Nic + Send + 'static>(a: N, b: N) {
    let cores = affinity::cores();
    affinity::pin_to(cores[0]).expect("a core for this thread");
    let core = cores[1 % cores.len()];
    let (at_b, a, mut b) = (b.caps().addr, Endpoint::new(a, Config::default()), Endpoint::new(b, Config::default()));
    let (mut a, mut without, mut with) = (Some(a), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (endpoint, returned, half) = inline(a.take().expect("given back"), b, at_b, core);
        b = returned;
        without.push(half);
        let mut port = start(endpoint, Options { core: Some(core), spin: true }).expect("an engine");
        let peer = port.connect(at_b).expect("a connection");
        with.push(hopping(&mut port, peer, &mut b));
        a = Some(port.stop().expect("the endpoint"));
    }
    println!("half round trip, 8 B: without an engine {} ns, with one {} ns", median(&mut without), median(&mut with));

    for (before, behind) in BESIDE {
        let engine = Engine::start(Options { core: Some(core), spin: false }).expect("an engine");
        // Of another driver, in most cases, and without traffic.
        let idle =
            |count: usize| -> Vec<_> { (0..count).map(|_| engine.drive(idle_endpoint()).expect("room")).collect() };
        let earlier = idle(before);
        let mut port = engine.drive(a.take().expect("given back")).expect("room");
        let later = idle(behind);
        print!("an endpoint with {before} before it and {behind} behind it on its engine: ");
        wake(&mut port, &mut b);
        drop((earlier, later));
        a = Some(port.stop().expect("the endpoint"));
    }
}

/// What nobody talks to.
fn idle_endpoint() -> Endpoint<ShmNic> {
    Endpoint::new(ShmNic::open(&format!("idle-{}", std::process::id()), None).expect("a domain"), Config::default())
}

/// How long an order takes of an engine that is awake, and of one that sleeps.
fn wake<A: Nic + Send + 'static, B: Nic>(port: &mut Port<Endpoint<A>>, b: &mut Endpoint<B>) {
    let (mut awake, mut asleep, mut waking) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..WAKES {
        // Awake still from the call before.
        awake.push(answer(port).0);
        let waits =
            |port: &mut Port<Endpoint<A>>| port.call(|endpoint| endpoint.nic().counters().waits).expect("an engine");
        let before = waits(port);
        pause(Duration::from_micros(500), b);
        let (answered, flushed) = answer(port);
        if waits(port) > before {
            asleep.push(answered);
            waking.push(flushed);
        }
    }
    println!(
        "an order is carried out after: engine awake {} ns, asleep {} ns; of these the call that wakes it {} ns ({} of {WAKES} times asleep)",
        median(&mut awake),
        median(&mut asleep),
        median(&mut waking),
        asleep.len()
    );
}

/// Half a round trip between two threads that poll an endpoint each.
fn inline<A: Nic + Send, B: Nic + Send>(
    mut a: Endpoint<A>,
    mut b: Endpoint<B>,
    at_b: LinkAddr,
    core: usize,
) -> (Endpoint<A>, Endpoint<B>, u64) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            affinity::pin_to(core).expect("a core for this thread");
            while !stop.load(Ordering::Relaxed) {
                echo_one(&mut b);
            }
            b
        });
        let peer = a.connect(at_b).expect("a connection");
        let mut play = |trips: u64| {
            for _ in 0..trips {
                a.send(peer, &[7; 8]).expect("room for one");
                a.flush();
                while a.recv(|_, _| ()).is_none() {
                    a.poll();
                    drain(|| a.poll_event());
                }
            }
        };
        play(TRIPS / 10);
        let began = clock::monotonic();
        play(TRIPS);
        let half = clock::monotonic().since(began).as_nanos() / TRIPS / 2;
        stop.store(true, Ordering::Relaxed);
        (a, echo.join().expect("the echo"), half)
    })
}

/// The same through an engine on the other core, with the other endpoint polled here.
fn hopping<A: Nic + Send + 'static, B: Nic>(port: &mut Port<Endpoint<A>>, peer: PeerId, b: &mut Endpoint<B>) -> u64 {
    let mut play = |trips: u64| {
        for _ in 0..trips {
            port.send(peer, &[7; 8]).expect("room for one");
            port.flush();
            while port.recv(|_, _| ()).is_none() {
                echo_one(b);
            }
            drain(|| port.poll_event());
        }
    };
    play(TRIPS / 10);
    let began = clock::monotonic();
    play(TRIPS);
    clock::monotonic().since(began).as_nanos() / TRIPS / 2
}

fn echo_one<N: Nic>(endpoint: &mut Endpoint<N>) {
    endpoint.poll();
    drain(|| endpoint.poll_event());
    if let Some((from, word)) = endpoint.recv(|from, message| (from, <[u8; 8]>::try_from(message).ok())) {
        endpoint.send(from, &word.expect("eight bytes")).expect("room for one");
        endpoint.flush();
    }
}

fn drain(mut event: impl FnMut() -> Option<Event>) {
    while let Some(event) = event() {
        assert!(matches!(event, Event::Connected { .. }), "{event:?}");
    }
}

/// How long it takes until the engine has carried out an order, and how long the call that wakes it.
fn answer<A: Nic + Send + 'static>(port: &mut Port<Endpoint<A>>) -> (u64, u64) {
    static DONE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    DONE.store(0, Ordering::Relaxed);
    let began = clock::monotonic();
    assert!(port.run(|_| DONE.store(clock::monotonic().as_nanos(), Ordering::Release)).is_ok(), "room for one");
    port.flush();
    let flushed = clock::monotonic();
    loop {
        match DONE.load(Ordering::Acquire) {
            0 => std::hint::spin_loop(),
            done => return (Instant::from_nanos(done).since(began).as_nanos(), flushed.since(began).as_nanos()),
        }
    }
}

/// Lets the engine fall asleep; the other endpoint goes on.
fn pause<N: Nic>(span: Duration, b: &mut Endpoint<N>) {
    let until = clock::monotonic() + span;
    while clock::monotonic() < until {
        b.poll();
        drain(|| b.poll_event());
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

const ROUNDS: usize = 15;
const TRIPS: u64 = 20_000;
const WAKES: usize = 1_000;
/// Endpoints that share an engine with the one that is measured: that came before it, and after it.
const BESIDE: [(usize, usize); 4] = [(0, 0), (0, 1), (1, 0), (3, 0)];
