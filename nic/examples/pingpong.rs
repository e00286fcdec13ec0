//! Raw frames between two processes: half round trip, frame rate and bandwidth of a driver by itself.
//!
//! Without arguments it says which it takes. Both ends spin on a core of their own (CPU 1 the far end, CPU 0 the near). For two ends of a veth pair:
//!
//! ```text
//! ip netns exec B pingpong uring:vB echo &
//! ip netns exec A pingpong uring:vA ping 02:00:00:00:0b:01/0 8
//! ```

use std::fmt::Display;

use sidelane_nic::mem::MemNic;
use sidelane_nic::spec::{NicUser, Spec};
use sidelane_nic::time::Instant;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot, affinity, clock};

/// First byte of a frame: what the far end does with it. Second byte: how many frames it confirms at a time.
const PING: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// Most frames in flight while flooding; half of what the far end's ring holds if that is less.
const WINDOW_MAX: u64 = 256;
/// As many large frames as stay in the cache.
const WINDOW_LARGE: u64 = 16;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((nic, rest)) = args.split_first() else { usage() };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let spec: Spec = nic.parse().unwrap_or_else(|error| {
        eprintln!("{error}");
        usage()
    });
    spec.open(PingPong(&rest)).unwrap_or_else(|error| fail(error));
}

/// Says what it wants to be told, and ends.
fn usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}

/// Says what cannot be, and ends.
fn fail(error: impl Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}

const USAGE: &str = "\
usage: pingpong NIC echo                                the far end: answers until its peer says stop
       pingpong NIC ping|flood PEER SIZE|mtu [COUNT]
NIC:   as `sidelane nic test` takes it, such as uring:INTERFACE, xdp:INTERFACE,native, udp:IP:PORT, shm:DOMAIN or dpdk:DEVICE
       (dpdk:memif:NAME,server at the far end)
PEER:  what the far end says to be at";

/// What is to be done, behind the driver's name.
struct PingPong<'a>(&'a [&'a str]);

impl NicUser for PingPong<'_> {
    type Out = ();

    fn run<N: Nic + 'static>(self, mut nic: N) {
        match self.0 {
            ["echo"] => {
                let _ = affinity::pin_to(1);
                println!("at {}", nic.caps().addr);
                echo(&mut nic);
            }
            [pattern, peer, size, count @ ..] => {
                let measure = match *pattern {
                    "ping" => ping,
                    "flood" => flood,
                    _ => usage(),
                };
                let _ = affinity::pin_to(0);
                let link = nic.link(peer.parse().unwrap_or_else(|_| usage())).unwrap_or_else(|error| fail(error));
                nic.confirm(link);
                let size = if *size == "mtu" { nic.caps().mtu } else { size.parse().unwrap_or_else(|_| usage()) };
                let count = count.first().map_or(200_000, |count| count.parse().unwrap_or_else(|_| usage()));
                measure(&mut nic, link, size, count);
                send(&mut nic, link, [STOP, 0], 2);
                nic.flush();
            }
            _ => usage(),
        }
        eprintln!("{:?}", nic.counters());
    }

    fn run_mem(self, _: MemNic) {
        eprintln!("the simulated driver reaches no other process");
        usage()
    }
}

fn echo(nic: &mut impl Nic) {
    let mut sink = vec![0; 1 << 16];
    let (mut seen, mut stop) = (0, false);
    let mut peer: Option<(LinkAddr, Link)> = None;
    let mut idle = 0u32;
    while !stop {
        let (mut reply, mut pings) = (None, 0);
        let got = nic.rx_burst(32, |frame, from| {
            match frame[0] {
                PING => pings += 1,
                COUNT => seen += 1,
                _ => stop = true,
            }
            sink[..frame.len()].copy_from_slice(frame);
            reply = Some((from, frame.len(), frame[0], frame[1]));
        });
        match reply {
            Some((from, len, PING, _)) => {
                let link = link_to(nic, &mut peer, from);
                for _ in 0..pings {
                    send(nic, link, [PING, 0], len);
                }
                nic.flush();
            }
            Some((from, _, COUNT, step)) if seen >= u64::from(step) => {
                let link = link_to(nic, &mut peer, from);
                for _ in 0..seen / u64::from(step) {
                    send(nic, link, [COUNT, step], 2);
                }
                seen %= u64::from(step);
                nic.flush();
            }
            _ => {}
        }
        if got == 0 {
            std::hint::spin_loop();
            idle = idle.wrapping_add(1);
            // A driver that knows when its peer is gone may lose the peer's last word.
            stop |= idle.is_multiple_of(1 << 16) && peer.is_some_and(|(_, link)| nic.is_gone(link));
        }
    }
}

/// The link to whoever asks, looked up when it is another one than the last.
fn link_to(nic: &mut impl Nic, peer: &mut Option<(LinkAddr, Link)>, from: LinkAddr) -> Link {
    match *peer {
        Some((last, link)) if last == from => link,
        _ => {
            let link = nic.link(from).unwrap();
            nic.confirm(link);
            *peer = Some((from, link));
            link
        }
    }
}

fn ping(nic: &mut impl Nic, link: Link, size: usize, count: usize) {
    let mut half_trips = Vec::with_capacity(count);
    let mut lost = 0;
    for _ in 0..count {
        let start = clock::monotonic();
        send(nic, link, [PING, 0], size);
        nic.flush();
        let mut polls = 0u32;
        while nic.rx_burst(1, |_, _| {}) == 0 {
            std::hint::spin_loop();
            polls += 1;
            if polls.is_multiple_of(1024) && clock::monotonic().since(start).as_nanos() > 100_000_000 {
                lost += 1;
                // A late answer is not the next one's.
                std::thread::sleep(std::time::Duration::from_millis(50));
                while nic.rx_burst(32, |_, _| {}) > 0 {}
                break;
            }
        }
        half_trips.push(clock::monotonic().since(start).as_nanos() / 2);
    }
    let kept = &mut half_trips[count / 10..];
    kept.sort_unstable();
    let at = |share: f64| kept[((kept.len() - 1) as f64 * share) as usize];
    println!(
        "ping {size} B: half round trip ns min {} p50 {} p99 {} p99.9 {}, lost {lost}",
        at(0.0),
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

fn flood(nic: &mut impl Nic, link: Link, size: usize, count: usize) {
    let (mut sent, mut confirmed) = (0u64, 0u64);
    let window = if size > 9000 { WINDOW_LARGE } else { (nic.caps().rx_frames as u64 / 2).min(WINDOW_MAX) };
    let step = window / 4;
    let start = clock::monotonic();
    let mut last = start;
    while sent < count as u64 {
        let room = (confirmed + window).saturating_sub(sent);
        for _ in 0..room.min(nic.caps().burst as u64) {
            if !send(nic, link, [COUNT, step as u8], size) {
                break;
            }
            sent += 1;
        }
        nic.flush();
        if nic.rx_burst(32, |_, _| confirmed += step) > 0 {
            last = clock::monotonic();
        } else {
            std::hint::spin_loop();
            if seconds(last) > 0.5 {
                println!("stalled at {sent} sent, {confirmed} confirmed: frames were lost");
                break;
            }
        }
    }
    let elapsed = seconds(start);
    println!(
        "flood {size} B: {:.3} M frames/s, {:.2} Gbit/s",
        sent as f64 / elapsed / 1e6,
        (sent * size as u64) as f64 * 8.0 / elapsed / 1e9
    );
}

fn seconds(since: Instant) -> f64 {
    clock::monotonic().since(since).as_nanos() as f64 / 1e9
}

fn send(nic: &mut impl Nic, link: Link, kind_and_step: [u8; 2], len: usize) -> bool {
    let Some(mut slot) = nic.tx_slot(link, len.max(2)) else { return false };
    slot[..2].copy_from_slice(&kind_and_step);
    slot.commit();
    true
}
