//! What makes a pair of the `dpdk` driver reliable, where a memif by itself is not: two processes, of which one ends. Where
//! there is no libdpdk, each test says so and passes.
#![allow(unsafe_code)] // Sockets, and another user's thread.

mod libdpdk;
mod other;
mod patience;

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use other::Other;
use patience::until;
use sidelane_nic::dpdk::{Config, Dpdk, OpenError, Pair};
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, Nic, TxSlot};

/// What the other process opens.
const DEVICE: &str = "SIDELANE_TEST_DEVICE";
/// How many frames it sends.
const FRAMES: &str = "SIDELANE_TEST_FRAMES";

#[test]
#[ignore = "the other side of a test"]
fn other_side() {
    let (mut pair, link) = open(&std::env::var(DEVICE).unwrap(), THERE, HERE);
    println!("\nopen");
    let frames: u32 = std::env::var(FRAMES).unwrap().parse().unwrap();
    for number in 0..frames {
        send(&mut pair, link, number);
    }
    pair.flush();
    println!("\nflushed");
    std::io::stdout().flush().unwrap();
    // Until it is told to close, or is killed.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line == "listen\n" {
        println!("\nheard {:?}", receive(&mut pair));
    }
    drop(pair);
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    for (name, here, there) in [("closing-client", ",server", ""), ("closing-server", "", ",server")] {
        // As many as the ring takes, of which none was received.
        let Some(mut stage) = Stage::new(name, here, there, RING) else { return };
        stage.other.say("close");
        stage.other.ended();
        stage.expect_all(RING);
    }
}

#[test]
fn what_a_full_ring_did_not_take_before_a_close_arrives() {
    for (name, here, there) in [("full-client", ",server", ""), ("full-server", "", ",server")] {
        let Some(mut stage) = Stage::new(name, here, there, RING + 30) else { return };
        stage.other.say("close");
        stage.expect_all(RING + 30);
        stage.other.ended();
    }
}

#[test]
fn what_was_sent_before_a_kill_arrives() {
    for (name, here, there) in [("killed-client", ",server", ""), ("killed-server", "", ",server")] {
        let Some(mut stage) = Stage::new(name, here, there, RING) else { return };
        stage.other.kill();
        stage.expect_all(RING);
    }
}

/// Both lives have the same address, and this side looks only when the second one is there.
#[test]
fn a_successor_is_not_taken_for_the_one_that_was_killed() {
    let Some(mut stage) = Stage::new("successor", ",server", "", 3) else { return };
    for _ in 0..5 {
        stage.pair.tx_slot(stage.link, 8).unwrap().commit();
    }
    stage.other.kill();
    let mut successor = start(&stage.device, 2);
    successor.heard("flushed");
    // Its frames are the second life's, and those that were committed were for the first.
    stage.pair.flush();
    let all = [receive(&mut stage.pair), receive(&mut stage.pair), receive(&mut stage.pair)];
    assert_eq!(all, [0, 1, 2]);
    let next = [receive(&mut stage.pair), receive(&mut stage.pair)];
    assert_eq!(next, [0, 1]);
    stage.wait_until_gone();
    assert_eq!(stage.pair.counters().tx_failed, 5);
    assert!(stage.pair.link_is_up());
    assert!(stage.pair.tx_slot(stage.link, 8).is_none(), "a link to the dead lends slots");
    let to_successor = stage.pair.link(THERE.parse().unwrap()).unwrap();
    assert!(to_successor != stage.link && !stage.pair.is_gone(to_successor));
    send(&mut stage.pair, to_successor, 77);
    stage.pair.flush();
    stage.pair.unlink(stage.link);
    successor.say("listen");
    successor.heard("heard 77");
    successor.ended();
}

/// Killed in the middle of a burst, at which it writes into the ring that is being emptied here.
#[test]
fn what_comes_of_one_that_is_killed_while_it_sends_has_no_gap() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let device = device("flooding");
    let (mut pair, mut link) = open(&format!("{device},server"), HERE, THERE);
    for round in 1..=8 {
        let mut other = start(&device, u32::MAX);
        other.heard("open");
        for number in 0..round * 700 {
            assert_eq!(receive(&mut pair), number, "round {round}");
        }
        other.kill();
        let give_up = pair.now() + PATIENCE;
        let mut next = round * 700;
        while !pair.is_gone(link) {
            assert!(pair.now() < give_up, "its end was not told");
            if pair.rx_burst(7, |frame, _| {
                let number = frame.first_chunk().map(|number| u32::from_le_bytes(*number));
                assert!(number == Some(next) && frame[4..].iter().all(|byte| *byte == 0), "{number:?} for {next}");
                next += 1;
            }) == 0
            {
                pair.wait(Some(give_up)).unwrap();
            }
        }
        assert_eq!(pair.rx_burst(7, |_, _| ()), 0);
        pair.unlink(link);
        link = pair.link(THERE.parse().unwrap()).unwrap();
    }
}

/// Whoever hears of a peer by its frames, and makes a link only then.
#[test]
fn a_link_that_is_made_for_what_a_killed_one_left_is_gone() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let device = device("heard-late");
    let mut pair =
        Pair::open(&Config::new(format!("{device},server,mac={}", HERE.split('/').next().unwrap()))).unwrap();
    let mut other = start(&device, 3);
    other.heard("open");
    other.heard("flushed");
    other.kill();
    let give_up = pair.now() + Duration::from_millis(1_000);
    while pair.link_is_up() {
        assert!(pair.now() < give_up, "its end is not noticed");
        std::thread::yield_now();
    }
    let mut links = Vec::new();
    for _ in 0..3 {
        let mut sender = None;
        assert_eq!(pair.rx_burst(1, |_, from| sender = Some(from)), 1);
        links.push(pair.link(sender.unwrap()).unwrap());
    }
    assert!(links.iter().all(|link| *link == links[0]));
    while !pair.is_gone(links[0]) {
        assert!(pair.now() < give_up, "its link is taken for its successor's");
        pair.wait(Some(give_up)).unwrap();
    }
}

#[test]
fn what_would_make_a_pair_lossy_is_refused() {
    if libdpdk::is_missing() {
        return;
    }
    for option in ["zero-copy=yes", "bsize=512", "rsize=10", "id=5"] {
        let error = Pair::open(&Config::new(format!("{},server,{option}", device("options")))).map(drop).unwrap_err();
        assert!(error.to_string().contains(option) && error.to_string().contains("lossy"), "{error}");
    }
}

#[test]
fn ends_that_are_not_opened_alike_do_not_find_each_other() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let device = device("alike");
    let server = Config::new(format!("{device},server"));
    let client = Config::new(device.clone());
    let nobody = |opened: Result<(), OpenError>| {
        let error = opened.unwrap_err();
        assert!(matches!(error, OpenError::NobodyThere(_)), "{error}");
        assert!(error.to_string().contains("`lossy` as here"), "{error}");
    };
    let other_mtu = Config { mtu: Some(9000), ..client.clone() };
    let shared = Config { shared: true, ..client.clone() };
    {
        let mut here = Pair::open(&server).unwrap();
        nobody(Dpdk::open(&client).map(drop));
        nobody(Dpdk::open(&shared).map(drop));
        nobody(Pair::open(&other_mtu).map(drop));
        // Nothing of that disturbs whoever comes then.
        let mut there = Pair::open(&client).unwrap();
        let link = there.link(here.caps().addr).unwrap();
        send(&mut there, link, 5);
        there.flush();
        assert_eq!(receive(&mut here), 5);
    }
    let _here = Dpdk::open(&server).unwrap();
    nobody(Pair::open(&client).map(drop));
    assert!(matches!(Pair::open(&shared), Err(OpenError::NoPair(_))));
    assert!(matches!(Pair::open(&Config::new("net_null0")), Err(OpenError::NoPair(_))));
}

/// Only root can be somebody else for a moment.
#[test]
fn a_process_of_another_user_is_turned_away_before_a_word_is_said() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("sidelane-user-{}", std::process::id());
    let device = format!("memif:{name}");
    {
        let _pair = Pair::open(&Config::new(format!("{device},server"))).unwrap();
        assert!(is_greeted(&name, None).unwrap(), "our own user is not let in");
        let Some(greeted) = is_greeted(&name, Some(NOBODY)) else {
            println!("skipped: only root can try");
            return;
        };
        assert!(!greeted, "another user is let in");
    }
    let _lossy = Dpdk::open(&Config::new(format!("{device},server"))).unwrap();
    assert!(is_greeted(&name, Some(NOBODY)).unwrap(), "a switch of another user is not let in");
}

/// Whether memif's server at this abstract socket says Hello to a process of that user. `None`: we can't be that.
fn is_greeted(name: &str, user: Option<libc::uid_t>) -> Option<bool> {
    let name = name.to_owned();
    // The call behind libc's own: of this thread alone.
    let thread = std::thread::spawn(move || {
        if let Some(user) = user {
            // SAFETY: they take numbers, and give one.
            if unsafe { libc::geteuid() == user || libc::syscall(libc::SYS_setresuid, -1, user, -1) != 0 } {
                return None;
            }
        }
        Some(hears_a_word(&dial(&name)))
    });
    thread.join().unwrap()
}

/// Who has come to memif's server at this abstract socket.
fn dial(name: &str) -> OwnedFd {
    let (at, short) = abstract_address(name);
    let socket = seqpacket();
    // DPDK 22.11 gives the whole place as the name.
    let lens = [size_of_val(&at) as u32, short];
    // SAFETY: addresses of the lengths given.
    let is_connected = |len| unsafe { libc::connect(socket.as_raw_fd(), (&raw const at).cast(), len) == 0 };
    assert!(lens.into_iter().any(is_connected), "{}", std::io::Error::last_os_error());
    socket
}

fn seqpacket() -> OwnedFd {
    // SAFETY: takes numbers, and gives one that is ours.
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) }
}

/// Waits for memif's Hello; false when it hangs up instead.
fn hears_a_word(socket: &OwnedFd) -> bool {
    let mut word = [0u8; 256];
    // SAFETY: a buffer of its own length.
    unsafe { libc::recv(socket.as_raw_fd(), word.as_mut_ptr().cast(), word.len(), 0) > 0 }
}

/// As when a port's end closes a socket, and its number is given again, between its news and memif's handler.
#[test]
fn a_handler_never_waits_in_a_socket_that_has_no_news() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("sidelane-renumbered-{}", std::process::id());
    let _pair = Pair::open(&Config::new(format!("memif:{name},server"))).unwrap();
    let interrupts = interrupt_thread();
    // From then on it watches the server's socket, whatever number that has.
    until("the interrupt thread sleeps", || interrupts().0 == "S");
    let (number, quiet) = (listener(&name), seqpacket());
    // SAFETY: takes numbers, and gives one that is ours.
    let listener = unsafe { OwnedFd::from_raw_fd(libc::dup(number)) };
    // SAFETY: an address of no name, for which the kernel makes one; else numbers.
    unsafe {
        let (at, _) = abstract_address("");
        assert_eq!(libc::bind(quiet.as_raw_fd(), (&raw const at).cast(), size_of::<libc::sa_family_t>() as u32), 0);
        assert_eq!(libc::listen(quiet.as_raw_fd(), 1), 0);
        assert_eq!(libc::dup2(quiet.as_raw_fd(), number), number);
    }
    let begun = interrupts().1;
    let client = dial(&name);
    // Who waits in a handler has no processor.
    until("the interrupt thread goes from its news to the handler and back", || interrupts().1 > begun + 2);
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::dup2(listener.as_raw_fd(), number) }, number);
    assert!(hears_a_word(&client), "who has come meanwhile is not let in");
}

/// DPDK's thread on which handlers run: its state, and the ticks of processor that it has had.
fn interrupt_thread() -> impl Fn() -> (String, u64) {
    let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_it = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap().contains("intr");
    let stat = tasks.find(is_it).expect("DPDK has begun").join("stat");
    move || {
        // proc(5): behind the name the state, and the 11th and 12th field after it.
        let text = std::fs::read_to_string(&stat).unwrap();
        let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap());
        (fields[0].to_owned(), ticks.sum())
    }
}

/// The number of this process's socket of that abstract name.
fn listener(name: &str) -> RawFd {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut numbers = numbers.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap());
    let (wanted, len) = abstract_address(name);
    let is_it = |number: &RawFd| {
        let (mut at, _) = abstract_address("");
        let mut room = size_of_val(&at) as u32;
        // SAFETY: `at` is a place of `room` bytes; whether the number is still that of a socket the kernel checks.
        let is_socket = unsafe { libc::getsockname(*number, (&raw mut at).cast(), &raw mut room) == 0 };
        let len = len as usize - size_of::<libc::sa_family_t>();
        is_socket && at.sun_family == wanted.sun_family && at.sun_path[..len] == wanted.sun_path[..len]
    };
    numbers.find(is_it).expect("its server listens")
}

/// As a client does that is killed while it opens.
#[test]
fn those_who_dial_and_go_at_once_harm_no_server() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("sidelane-hasty-{}", std::process::id());
    let _pair = Pair::open(&Config::new(format!("memif:{name},server"))).unwrap();
    let (at, short) = abstract_address(&name);
    for _ in 0..300 {
        dial_and_go(&at, short);
    }
    assert!(is_greeted(&name, None).unwrap(), "whoever comes after them is not let in");
}

/// A client lends its server slots by its first burst, which finds memif's handler at work for somebody else here.
#[test]
fn a_servers_first_frame_goes_at_once_whatever_else_memif_does() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("sidelane-besieged-{}", std::process::id());
    let _besieged = Pair::open(&Config::new(format!("memif:{name},server"))).unwrap();
    let (at, short) = abstract_address(&name);
    let siege = Arc::new(());
    let lasts = Arc::downgrade(&siege);
    std::thread::scope(|scope| {
        // Ends when a round fails, too.
        let _siege = siege;
        scope.spawn(move || {
            while lasts.strong_count() > 0 {
                dial_and_go(&at, short);
            }
        });
        for round in 0..60 {
            let device = device("first");
            let (mut here, to_there) = open(&format!("{device},server"), HERE, THERE);
            let (mut there, _) = open(&device, THERE, HERE);
            send(&mut here, to_there, round);
            here.flush();
            assert_eq!(receive(&mut there), round);
        }
    });
}

fn dial_and_go(at: &libc::sockaddr_un, len: u32) {
    // SAFETY: an address of that length, and a socket that is closed once.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::connect(socket, (&raw const *at).cast(), len), 0, "{}", std::io::Error::last_os_error());
        libc::close(socket);
    }
}

/// The address of that name, and its length without what follows the name.
fn abstract_address(name: &str) -> (libc::sockaddr_un, u32) {
    // SAFETY: all zeroes is an address of no family.
    let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    at.sun_family = libc::AF_UNIX as u16;
    for (place, byte) in at.sun_path[1..].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    (at, (size_of::<libc::sa_family_t>() + 1 + name.len()) as u32)
}

/// Who waits for the other end, 2.5 s, is in the way of nobody else, and does not come twice to a server that has not answered.
#[test]
fn a_thread_that_waits_for_the_other_end_keeps_no_other_from_opening() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("sidelane-mute-{}", std::process::id());
    let (at, short) = abstract_address(&name);
    // SAFETY: an address of that length, and sockets that end with the process.
    let listener = unsafe {
        let listener = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::bind(listener, (&raw const at).cast(), short), 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::listen(listener, 64), 0);
        listener
    };
    let waiting = std::thread::spawn(move || Pair::open(&Config::new(format!("memif:{name}"))).map(drop));
    // SAFETY: no address is asked for.
    let accept = || unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) };
    assert!(accept() >= 0);
    let _other = Pair::open(&Config::new(format!("{},server", device("beside")))).unwrap();
    assert!(!waiting.is_finished(), "opened only when the other had given up");
    assert!(matches!(waiting.join().unwrap(), Err(OpenError::NobodyThere(_))));
    // SAFETY: a number of our own.
    assert_eq!(unsafe { libc::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    assert_eq!(accept(), -1, "it came a second time");
}

/// This side's end, and the process at the other.
struct Stage {
    pair: Pair,
    link: Link,
    other: Other,
    /// The other end's.
    device: String,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// The other side has flushed so many frames, and nobody has received any. `None` without DPDK.
    fn new(name: &str, here: &str, there: &str, frames: u32) -> Option<Self> {
        let turn = alone();
        if libdpdk::is_missing() {
            return None;
        }
        let name = device(name);
        let device = format!("{name}{there}");
        // The server's end first: a client does not wait long for it.
        let early = (!here.is_empty()).then(|| open(&format!("{name}{here}"), HERE, THERE));
        let mut other = start(&device, frames);
        other.heard("open");
        let (pair, link) = early.unwrap_or_else(|| open(&name, HERE, THERE));
        other.heard("flushed");
        Some(Self { pair, link, other, device, _turn: turn })
    }

    /// All frames of the other side come, and its end is told only then.
    fn expect_all(&mut self, frames: u32) {
        for number in 0..frames {
            assert!(!self.pair.is_gone(self.link), "gone before frame {number}");
            assert_eq!(receive(&mut self.pair), number);
        }
        self.wait_until_gone();
    }

    fn wait_until_gone(&mut self) {
        let give_up = self.pair.now() + Duration::from_millis(1_000);
        while !self.pair.is_gone(self.link) {
            assert!(self.pair.now() < give_up, "its end was not told within a second");
            self.pair.wait(Some(give_up)).unwrap();
        }
    }
}

fn start(device: &str, frames: u32) -> Other {
    Other::start("other_side", &[(DEVICE, device), (FRAMES, &frames.to_string())])
}

/// One test at a time: each has two processes that poll.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device(name: &str) -> String {
    format!("memif:sidelane-pair-{name}-{}", std::process::id())
}

fn open(device: &str, own: &str, peer: &str) -> (Pair, Link) {
    let mac = own.split('/').next().unwrap();
    let mut pair = Pair::open(&Config::new(format!("{device},mac={mac}"))).unwrap();
    let link = pair.link(peer.parse().unwrap()).unwrap();
    (pair, link)
}

/// Commits a numbered frame, as soon as there is a slot.
fn send(pair: &mut Pair, link: Link, number: u32) {
    let give_up = pair.now() + PATIENCE;
    loop {
        if let Some(mut slot) = pair.tx_slot(link, 100) {
            slot.fill(0);
            slot[..4].copy_from_slice(&number.to_le_bytes());
            return slot.commit();
        }
        assert!(pair.now() < give_up, "no slot for frame {number}");
        pair.wait(Some(pair.now() + Duration::from_millis(1))).unwrap();
    }
}

/// The number of the next frame.
fn receive(pair: &mut Pair) -> u32 {
    let give_up = pair.now() + PATIENCE;
    let mut number = None;
    while pair.rx_burst(1, |frame, _| number = frame.first_chunk().map(|number| u32::from_le_bytes(*number))) == 0 {
        assert!(pair.now() < give_up, "nothing came");
        pair.wait(Some(give_up)).unwrap();
    }
    number.expect("every frame has a number")
}

const HERE: &str = "02:00:00:00:00:01/0";
const THERE: &str = "02:00:00:00:00:02/0";
/// Frames that a ring takes at the usual MTU.
const RING: u32 = 256;
const NOBODY: libc::uid_t = 65534;
const PATIENCE: Duration = Duration::from_millis(20_000);
