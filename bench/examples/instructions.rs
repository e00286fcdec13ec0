//! Instructions per 8-byte message, counted by callgrind: the regression check that no noise disturbs.
//!
//! `cargo run --release -p sidelane-bench --example instructions` runs itself under valgrind twice for each figure, with
//! different numbers of messages; the difference is free of everything that happens once.

use std::process::{Command, ExitCode};

use sidelane_nic::dpdk;
use sidelane_nic::mem::{self, Fabric};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Nic, TxSlot};
use sidelane_proto::am::{ActiveMessages, ReplyRoom};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => table(),
        [study, messages] => {
            let messages = messages.parse().expect("a number of messages");
            let study = STUDIES.iter().find(|(name, _)| name == study).expect("the name of a study");
            study.1(messages);
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

/// What runs under callgrind, and how it is called.
type Study = (&'static str, fn(u64));

const STUDIES: [Study; 16] = [
    ("mem raw ping-pong", |messages| raw_ping_pong(on_fabric(), messages)),
    ("mem proto ping-pong", |messages| proto_ping_pong(on_fabric(), messages)),
    ("mem proto flood", |messages| proto_flood(on_fabric(), messages)),
    ("mem am ping-pong", |messages| am_ping_pong(on_fabric(), messages)),
    ("mem am flood", |messages| am_flood(on_fabric(), messages)),
    ("shm raw ping-pong", |messages| raw_ping_pong(on_shared_memory(), messages)),
    ("shm proto ping-pong", |messages| proto_ping_pong(on_shared_memory(), messages)),
    ("shm proto flood", |messages| proto_flood(on_shared_memory(), messages)),
    ("shm am ping-pong", |messages| am_ping_pong(on_shared_memory(), messages)),
    ("shm am flood", |messages| am_flood(on_shared_memory(), messages)),
    ("shm mpi ping-pong", |messages| mpi::ping_pong(on_shared_memory(), messages)),
    ("shm mpi flood", |messages| mpi::flood(on_shared_memory(), messages)),
    ("memif raw ping-pong", |messages| raw_ping_pong(on_pair("memif:"), messages)),
    ("memif proto ping-pong", |messages| proto_ping_pong(on_pair("memif:"), messages)),
    ("vhost raw ping-pong", |messages| raw_ping_pong(on_pair("vhost:/tmp/"), messages)),
    ("vhost proto ping-pong", |messages| proto_ping_pong(on_pair("vhost:/tmp/"), messages)),
];

fn table() -> ExitCode {
    println!("{:<22}{:>10}{:>10}", "8 B", "send", "receive");
    let dpdk = dpdk::try_start().inspect_err(|lacks| eprintln!("memif and vhost are left out: {lacks}"));
    for (study, _) in STUDIES {
        if (study.starts_with("memif") || study.starts_with("vhost")) && dpdk.is_err() {
            continue;
        }
        let Some((send, receive)) = per_message(study, "send_side").zip(per_message(study, "receive_side")) else {
            eprintln!("valgrind counted nothing; is it there? (Debian: apt install valgrind)");
            return ExitCode::FAILURE;
        };
        println!("{study:<22}{send:>10.1}{receive:>10.1}");
    }
    ExitCode::SUCCESS
}

/// Instructions within functions of this name, per message.
fn per_message(study: &str, function: &str) -> Option<f64> {
    const FEW: u64 = 300 * BURST;
    const MANY: u64 = 2 * FEW;
    let counted = |messages| collected(study, function, messages);
    Some((counted(MANY)? - counted(FEW)?) as f64 / (MANY - FEW) as f64)
}

fn collected(study: &str, function: &str, messages: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        // Threads take turns: whoever spins keeps none of DPDK's from running.
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=yes"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(std::env::current_exe().ok()?)
        .args([study, &messages.to_string()])
        .output()
        .ok()?;
    let said = String::from_utf8(output.stderr).ok()?;
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// Frames back and forth: what the driver costs.
fn raw_ping_pong<N: Nic>((mut a, mut b): (N, N), messages: u64) {
    let to_b = a.link(b.caps().addr).expect("both are on one path");
    let to_a = b.link(a.caps().addr).expect("both are on one path");
    // The first frame also waits for the path to be there.
    while a.tx_slot(to_b, MESSAGE.len()).is_none() || b.tx_slot(to_a, MESSAGE.len()).is_none() {
        a.rx_burst(0, |_, _| {});
        b.rx_burst(0, |_, _| {});
        std::thread::yield_now();
    }
    for _ in 0..messages / 2 {
        raw::send_side(&mut a, to_b);
        assert_eq!(raw::receive_side(&mut b), 1);
        raw::send_side(&mut b, to_a);
        assert_eq!(raw::receive_side(&mut a), 1);
    }
}

mod raw {
    use sidelane_nic::Link;

    use super::{MESSAGE, Nic, TxSlot};

    #[inline(never)]
    pub fn send_side<N: Nic>(nic: &mut N, link: Link) {
        let mut slot = nic.tx_slot(link, MESSAGE.len()).expect("one frame is always free");
        slot.copy_from_slice(&MESSAGE);
        slot.commit();
        nic.flush();
    }

    #[inline(never)]
    pub fn receive_side<N: Nic>(nic: &mut N) -> usize {
        nic.rx_burst(1, |frame, _| assert_eq!(frame, MESSAGE))
    }
}

/// Messages back and forth: every frame acknowledges the one before it.
fn proto_ping_pong<N: Nic>(nics: (N, N), messages: u64) {
    let ((mut a, to_b), (mut b, to_a)) = connected(nics);
    for _ in 0..messages / 2 {
        send_side(&mut a, to_b, 1);
        assert_eq!(receive_side(&mut b), 1);
        send_side(&mut b, to_a, 1);
        assert_eq!(receive_side(&mut a), 1);
    }
}

/// Messages one way, 64 between two flushes. The polls that take acknowledgements count as the sender's.
fn proto_flood<N: Nic>(nics: (N, N), messages: u64) {
    let ((mut a, to_b), (mut b, _)) = connected(nics);
    for _ in 0..bursts(messages) {
        send_side(&mut a, to_b, BURST);
        let mut received = 0;
        while received < BURST {
            received += receive_side(&mut b);
        }
        poll_in_send_side(&mut a);
    }
}

/// Bursts of so many messages.
fn bursts(messages: u64) -> u64 {
    assert!(messages.is_multiple_of(BURST), "messages that fill no burst would be counted and not sent");
    messages / BURST
}

#[inline(never)]
fn send_side<N: Nic>(endpoint: &mut Endpoint<N>, peer: PeerId, messages: u64) {
    for _ in 0..messages {
        endpoint.send(peer, &MESSAGE).expect("the FIFO has room");
    }
    endpoint.flush();
}

#[inline(never)]
fn receive_side<N: Nic>(endpoint: &mut Endpoint<N>) -> u64 {
    endpoint.poll();
    let messages = endpoint.recv_each(|_, message| {
        assert_eq!(message, MESSAGE);
        true
    });
    messages as u64
}

#[inline(never)]
fn poll_in_send_side<N: Nic>(endpoint: &mut Endpoint<N>) {
    endpoint.poll();
}

/// Requests with one word and their replies. The reply is sent where its request is received, so only the sum of both columns
/// can be held against that of messages.
fn am_ping_pong<N: Nic>(nics: (N, N), messages: u64) {
    let ((mut a, to_b), (mut b, _)) = connected_am(nics);
    let mut words = 0;
    for _ in 0..messages / 2 {
        am::send_side(&mut a, to_b, 1, ReplyRoom::SHORT);
        assert_eq!(am::receive_side(&mut b, &mut words), 1);
        assert_eq!(am::receive_side(&mut a, &mut words), 1);
    }
    assert_eq!(words, messages);
}

/// Requests without a reply, 64 between two flushes.
fn am_flood<N: Nic>(nics: (N, N), messages: u64) {
    let ((mut a, to_b), (mut b, _)) = connected_am(nics);
    let mut words = 0;
    for _ in 0..bursts(messages) {
        am::send_side(&mut a, to_b, BURST, ReplyRoom::NONE);
        let mut received = 0;
        while received < BURST {
            received += am::receive_side(&mut b, &mut words);
        }
        am::poll_in_send_side(&mut a, &mut words);
    }
}

mod am {
    use sidelane_nic::Nic;
    use sidelane_proto::PeerId;
    use sidelane_proto::am::{ActiveMessages, Handlers, Replier, ReplyRoom};

    use super::MESSAGE;

    /// Counts what came.
    pub type Am<N> = ActiveMessages<N, u64>;

    /// Of requests that are replied to, and of those that are not.
    const REPLIED: u8 = 0;
    const SILENT: u8 = 1;

    pub fn handlers() -> Handlers<u64> {
        Handlers::new()
            .request(REPLIED, |words: &mut u64, replier: Replier<'_>, args, _| {
                *words += u64::from(args.get(0) == Some(WORD));
                replier.reply_m(REPLIED, [WORD]).expect("a reply finds room");
            })
            .request(SILENT, |words: &mut u64, _, args, _| *words += u64::from(args.get(0) == Some(WORD)))
            .reply(REPLIED, |words: &mut u64, _, args, _| *words += u64::from(args.get(0) == Some(WORD)))
    }

    #[inline(never)]
    pub fn send_side<N: Nic>(am: &mut Am<N>, peer: PeerId, messages: u64, reply: ReplyRoom) {
        let handler = if reply == ReplyRoom::NONE { SILENT } else { REPLIED };
        for _ in 0..messages {
            am.request(peer, handler, &[WORD], &[], reply).expect("the FIFO has room");
        }
        am.flush();
    }

    #[inline(never)]
    pub fn receive_side<N: Nic>(am: &mut Am<N>, words: &mut u64) -> u64 {
        am.poll(words) as u64
    }

    #[inline(never)]
    pub fn poll_in_send_side<N: Nic>(am: &mut Am<N>, words: &mut u64) {
        am.poll(words);
    }

    const WORD: u64 = u64::from_le_bytes(MESSAGE);
}

mod mpi {
    use sidelane_mpi::adi::{
        Config, Device, Envelope, Incoming, Mode, Outgoing, Pattern, Port, Process, Request, Source, host_identity,
    };
    use sidelane_nic::Nic;

    use super::{BURST, MESSAGE, bursts};

    /// Messages back and forth, each into a receive that waits.
    pub fn ping_pong<N: Nic + 'static>(nics: (N, N), messages: u64) {
        let (mut a, mut b) = devices(nics);
        let mut rooms = [[0; 8]; 2];
        for _ in 0..messages / 2 {
            for (from, to) in [(0, 1), (1, 0)] {
                let [sender, receiver] = if from == 0 { [&mut a, &mut b] } else { [&mut b, &mut a] };
                let room = &mut rooms[to];
                let receive = post(receiver, room, from);
                send_side(sender, to as u32, 1);
                while !receive_side(receiver, receive) {}
                assert_eq!(*room, MESSAGE);
            }
        }
    }

    /// Messages one way, 64 between two flushes. The turns that take credit count as the sender's.
    pub fn flood<N: Nic + 'static>(nics: (N, N), messages: u64) {
        let (mut a, mut b) = devices(nics);
        let mut rooms = [[0; 8]; BURST as usize];
        for _ in 0..bursts(messages) {
            let receives = rooms.each_mut().map(|room| post(&mut b, room, 0));
            send_side(&mut a, 1, BURST);
            receives.into_iter().for_each(|receive| while !receive_side(&mut b, receive) {});
            turn_of_send_side(&mut a);
        }
    }

    #[inline(never)]
    fn send_side(device: &mut Device, to: u32, messages: u64) {
        for _ in 0..messages {
            let envelope = Envelope::new(1, device.own(), 1);
            // SAFETY: a constant.
            let bytes = unsafe { Outgoing::lend(&raw const MESSAGE_AT) };
            let send = device.send(to, envelope, bytes, Mode::Standard);
            assert!(device.poll(send).is_some(), "it goes at once");
        }
        device.flush();
    }

    #[inline(never)]
    fn turn_of_send_side(device: &mut Device) {
        device.progress();
    }

    /// True when the receive is over.
    #[inline(never)]
    fn receive_side(device: &mut Device, receive: Request) -> bool {
        let status = device.poll(receive).or_else(|| {
            device.progress();
            device.poll(receive)
        });
        status.is_some()
    }

    /// Not counted in either column.
    #[inline(never)]
    fn post(device: &mut Device, room: &mut [u8; 8], from: u32) -> Request {
        // SAFETY: the room outlives the exchange, which ends when the receive is over.
        let room = unsafe { Incoming::lend(room) };
        device.recv(Pattern { context: 1, source: Some(Source { rank: from, process: from }), tag: Some(1) }, room)
    }

    fn devices<N: Nic + 'static>((a, b): (N, N)) -> (Device, Device) {
        let config = Config::default();
        let port = |nic| vec![Port::new(nic, &config).expect("it runs on this driver")];
        let (port_a, port_b) = (port(a), port(b));
        let host = host_identity();
        let processes = vec![Process::here(&host, &port_a), Process::here(&host, &port_b)];
        let open = |own, ports| Device::open(own, processes.clone(), ports, &config).expect("both reach each other");
        let (mut a, mut b) = (open(0, port_a), open(1, port_b));
        // The first message also waits for the connection.
        let mut room = [0; 8];
        let receive = post(&mut b, &mut room, 0);
        // SAFETY: a constant.
        let bytes = unsafe { Outgoing::lend(&raw const MESSAGE_AT) };
        let send = a.send(1, Envelope::new(1, 0, 1), bytes, Mode::Standard);
        a.free(send);
        while b.poll(receive).is_none() {
            a.progress();
            b.progress();
            std::thread::yield_now();
        }
        (a, b)
    }

    static MESSAGE_AT: [u8; 8] = MESSAGE;
}

fn on_fabric() -> (mem::MemNic, mem::MemNic) {
    let fabric = Fabric::new(0);
    (fabric.nic(mem::Config::default()), fabric.nic(mem::Config::default()))
}

fn on_shared_memory() -> (ShmNic, ShmNic) {
    let domain = format!("instructions-{}", std::process::id());
    let open = |endpoint| ShmNic::open(&domain, Some(endpoint)).expect("a domain of our own");
    (open(0), open(1))
}

/// `place`: what stands before a name.
fn on_pair(place: &str) -> (dpdk::Pair, dpdk::Pair) {
    let name = format!("{place}instructions-{}", std::process::id());
    let open = |device| dpdk::Pair::open(&dpdk::Config::new(device)).expect("DPDK was there before");
    (open(format!("{name},server")), open(name))
}

/// An endpoint and its peer.
type End<N> = (Endpoint<N>, PeerId);

fn connected<N: Nic>((a, b): (N, N)) -> (End<N>, End<N>) {
    let at_b = b.caps().addr;
    let (mut a, mut b) =
        (Endpoint::new(a, Config::default()), Endpoint::new(b, Config { seed: Some(1), ..Config::default() }));
    let to_b = a.connect(at_b).expect("both are on one path");
    loop {
        a.poll();
        b.poll();
        // Virtual time passes on the fabric, and the threads of shared memory make their connection.
        a.wait(Some(a.nic().now() + Duration::from_micros(10))).expect("a wait for a moment");
        if let Some(Event::Connected { peer: to_a, .. }) = b.poll_event() {
            // What is left of the handshake.
            while a.poll() + b.poll() > 0 {}
            return ((a, to_b), (b, to_a));
        }
    }
}

fn connected_am<N: Nic>((a, b): (N, N)) -> ((am::Am<N>, PeerId), (am::Am<N>, PeerId)) {
    let at_b = b.caps().addr;
    let end = |nic, seed| {
        ActiveMessages::new(Endpoint::new(nic, Config { seed: Some(seed), ..Config::default() }), am::handlers())
    };
    let (mut a, mut b) = (end(a, 0), end(b, 1));
    let to_b = a.connect(at_b).expect("both are on one path");
    let (mut to_a, mut none) = (None, 0);
    loop {
        a.poll(&mut none);
        b.poll(&mut none);
        a.wait(Some(a.endpoint().nic().now() + Duration::from_micros(10))).expect("a wait for a moment");
        if let Some(Event::Connected { peer, .. }) = b.poll_event() {
            to_a = Some(peer);
        }
        while a.poll_event().is_some() {}
        if let Some(to_a) = to_a.filter(|to_a| a.room_max(to_b).min(b.room_max(*to_a)) > ReplyRoom::NONE) {
            // What is left of the handshake.
            for _ in 0..8 {
                a.poll(&mut none);
                b.poll(&mut none);
            }
            return ((a, to_b), (b, to_a));
        }
    }
}

const MESSAGE: [u8; 8] = *b"8 bytes.";
/// Messages of a flood between two flushes. Floods are of whole bursts.
const BURST: u64 = 64;
