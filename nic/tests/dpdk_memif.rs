//! memif between two processes of which one goes while the other is in the middle of a burst. DPDK takes the shared
//! memory down on a thread of its own; large frames keep bursts in it most of the time, so that one burst that is not
//! kept out of it crashes this test. Where there is no libdpdk, each test says so and passes.
#![allow(unsafe_code)] // Sockets of DPDK's, by their numbers.

mod libdpdk;
mod patience;

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sidelane_nic::dpdk::{Config, Dpdk};
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, Nic, TxSlot, clock};

/// What the other process opens.
const DEVICE: &str = "SIDELANE_TEST_DEVICE";
/// How many times it opens that.
const TIMES: &str = "SIDELANE_TEST_TIMES";
/// How it ends each time: `close`, or `break` the control channel first, at which both sides take the memory down.
const END: &str = "SIDELANE_TEST_END";

#[test]
#[ignore = "the other side of a test"]
fn other_side() {
    let device = std::env::var(DEVICE).unwrap();
    let (mut done, times) = (0, std::env::var(TIMES).unwrap().parse::<usize>().unwrap());
    while done < times {
        let mut nic = open(&device, THERE).unwrap();
        let link = nic.link(HERE.parse().unwrap()).unwrap();
        let give_up = nic.now() + PATIENCE;
        let (life, mut frames, mut is_known) = (done as u8, 0, false);
        while (frames < FRAMES || !is_known) && !nic.is_gone(link) {
            assert!(nic.now() < give_up, "only {frames} frames came");
            frames += turn_saying(life, &mut nic, link, |met| is_known |= met == life);
        }
        // Else it has met who was about to close.
        done += usize::from(is_known);
        if std::env::var(END).unwrap() == "break" {
            // By another thread, since this one stays at its bursts.
            let breaker = std::thread::spawn(break_control_channels);
            while !nic.is_gone(link) {
                assert!(nic.now() < give_up, "the end was not noticed");
                turn_saying(life, &mut nic, link, |_| {});
            }
            breaker.join().unwrap();
        }
    }
}

#[test]
fn a_client_that_is_killed_in_the_middle_of_a_burst_harms_no_server() {
    killed("killed-client", ",server", "");
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_burst_harms_no_client() {
    killed("killed-server", "", ",server");
}

#[test]
fn a_client_that_closes_harms_no_server() {
    ended("closed-client", ",server", "", "close");
}

#[test]
fn a_server_that_closes_harms_no_client() {
    ended("closed-server", "", ",server", "close");
}

#[test]
fn a_control_channel_that_breaks_in_the_middle_of_a_burst_harms_neither_side() {
    ended("broken", ",server", "", "break");
}

#[test]
fn a_client_s_end_is_known_to_a_server_that_asks_only_afterwards() {
    asked_late("late-server", ",server", "");
}

#[test]
fn a_server_s_end_is_known_to_a_client_that_asks_only_afterwards() {
    asked_late("late-client", "", ",server");
}

/// The other side comes and goes before this one asks about it for the first time.
fn asked_late(name: &str, here: &str, there: &str) {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for name in devices(name) {
        let mut other = start(&format!("{name}{there}"), 1, "close");
        let mut nic = open(&format!("{name}{here}"), HERE).unwrap();
        let link = nic.link(THERE.parse().unwrap()).unwrap();
        let (mut frames, mut met, give_up) = (0, Met::default(), nic.now() + PATIENCE);
        while other.try_wait().unwrap().is_none() {
            assert!(nic.now() < give_up, "the other side does not end");
            frames += turn(&mut nic, link, &mut met);
        }
        assert!(frames > 0);
        let give_up = nic.now() + PATIENCE;
        while !nic.is_gone(link) {
            assert!(nic.now() < give_up, "its end was not noticed");
            turn(&mut nic, link, &mut met);
        }
    }
}

fn killed(name: &str, here: &str, there: &str) {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for name in devices(name) {
        for _ in 0..4 {
            let mut other = start(&format!("{name}{there}"), 1_000_000, "close");
            let mut nic = open(&format!("{name}{here}"), HERE).unwrap();
            let link = nic.link(THERE.parse().unwrap()).unwrap();
            let give_up = nic.now() + PATIENCE;
            let (mut frames, mut met) = (0, Met::default());
            while frames < FRAMES / 2 {
                assert!(nic.now() < give_up, "only {frames} frames came");
                frames += turn(&mut nic, link, &mut met);
            }
            // By another thread, since this one stays at its bursts.
            let killer = std::thread::spawn(move || {
                other.kill().unwrap();
                other.wait().unwrap();
            });
            let give_up = nic.now() + PATIENCE;
            while !nic.is_gone(link) {
                turn(&mut nic, link, &mut met);
                assert!(nic.now() < give_up, "its end was not noticed");
            }
            for _ in 0..1_000 {
                turn(&mut nic, link, &mut met);
            }
            killer.join().unwrap();
        }
    }
}

fn ended(name: &str, here: &str, there: &str, end: &str) {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    for name in devices(name) {
        let mut other = start(&format!("{name}{there}"), TURNS, end);
        // Not how often an end was seen: a server that was not scheduled meanwhile finds the next client in the place of the last one.
        let (mut met, mut last_met) = (Met::default(), clock::monotonic());
        while other.try_wait().unwrap().is_none() {
            // A client finds nobody when the other side is done.
            let Ok(mut nic) = open(&format!("{name}{here}"), HERE) else {
                assert!(clock::monotonic() < last_met + PATIENCE, "the other side neither comes nor ends");
                continue;
            };
            last_met = nic.now();
            let link = nic.link(THERE.parse().unwrap()).unwrap();
            let give_up = nic.now() + PATIENCE;
            while !nic.is_gone(link) && other.try_wait().unwrap().is_none() {
                assert!(nic.now() < give_up, "its end was not noticed");
                for _ in 0..100 {
                    turn(&mut nic, link, &mut met);
                }
            }
        }
        assert!(other.wait().unwrap().success());
        assert_eq!(met.lives.len(), TURNS, "{:?}", met.lives);
    }
}

/// A place where two of ours meet: of a client that copies frames, and of one that lends them. To a server that says nothing.
fn devices(name: &str) -> [String; 2] {
    ["no", "yes"].map(|lends| format!("memif:sidelane-{name}-{},zero-copy={lends}", std::process::id()))
}

/// The other side's lives of which frames have come, by their numbers.
#[derive(Default)]
struct Met {
    lives: HashSet<u8>,
    newest: Option<u8>,
}

/// Sends while there is room, and receives what there is: how many frames. Frames say which life of the other side's was met last.
fn turn(nic: &mut Dpdk, link: Link, met: &mut Met) -> usize {
    turn_saying(met.newest.unwrap_or(u8::MAX), nic, link, |life| {
        met.lives.insert(life);
        met.newest = Some(life);
    })
}

/// A turn whose frames say a number; `each` is shown that of every frame that came.
fn turn_saying(number: u8, nic: &mut Dpdk, link: Link, mut each: impl FnMut(u8)) -> usize {
    let (mtu, burst) = (nic.caps().mtu, nic.caps().burst);
    for _ in 0..burst {
        let Some(mut slot) = nic.tx_slot(link, mtu) else { break };
        slot[0] = number;
        slot.commit();
    }
    nic.flush();
    nic.rx_burst(burst, |frame, _| each(frame[0]))
}

fn open(device: &str, own: &str) -> Result<Dpdk, String> {
    let mac = own.split('/').next().unwrap();
    let device = format!("{device},mac={mac}");
    Dpdk::open(&Config { mtu: Some(60_000), ..Config::new(device) }).map_err(|error| error.to_string())
}

fn start(device: &str, times: usize, end: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "other_side", "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.env(DEVICE, device).env(TIMES, times.to_string()).env(END, end).spawn().unwrap()
}

/// Shuts down what memif's two sides notice each other's end by. Of this process's sockets only those keep packets apart.
fn break_control_channels() {
    for fd in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let fd: i32 = fd.file_name().into_string().unwrap().parse().unwrap();
        let option = |name| {
            let (mut value, mut len) = (0i32, size_of::<i32>() as u32);
            // SAFETY: `value` is a place of `len` bytes; whether the number is still that of a socket the kernel checks.
            unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len) };
            value
        };
        if option(libc::SO_TYPE) == libc::SOCK_SEQPACKET && option(libc::SO_ACCEPTCONN) == 0 {
            // SAFETY: takes two numbers, which the kernel checks.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

/// One test at a time: each has two processes that poll.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const HERE: &str = "02:00:00:00:00:01/0";
const THERE: &str = "02:00:00:00:00:02/0";
/// Frames that one side gets before it closes.
const FRAMES: usize = 500;
const TURNS: usize = 20;
/// Longer than a loaded machine takes for one life of a pair.
const PATIENCE: Duration = Duration::from_millis(10_000);
