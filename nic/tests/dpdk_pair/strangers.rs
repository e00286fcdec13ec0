//! Who comes to a server's socket and is no peer, and memif's handlers that see to such.
#![allow(unsafe_code)] // Sockets, and another user's thread.

use std::fs::Permissions;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use sidelane_nic::Nic;
use sidelane_nic::dpdk::{Config, Dpdk, OpenError, Pair};

use crate::libdpdk;
use crate::patience::until;
use crate::stage::{HERE, Kind, PATIENCE, THERE, alone, open, receive, send};

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

/// As the file's mode has it, which is all that vhost's library goes by, and as the shim has it.
#[test]
fn a_vhost_pair_s_socket_is_for_our_own_user_alone() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let server = Config::new(format!("{},server", Kind::Vhost.device("own")));
    let socket = server.socket().unwrap();
    let pair = Pair::open(&server).unwrap();
    assert_eq!(socket.metadata().unwrap().mode() & 0o777, 0o600);
    let client = Config::new(Kind::Vhost.device("own"));
    // SAFETY: takes numbers.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&socket, Some(NOBODY), None).unwrap();
        assert!(matches!(Pair::open(&client), Err(OpenError::NobodyThere { .. })), "another user's server is trusted");
        std::os::unix::fs::chown(&socket, Some(0), None).unwrap();
        // As it may be until the file has its mode.
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        let place = socket.clone();
        let stranger = std::thread::spawn(move || {
            assert!(becomes(NOBODY));
            let mut stranger = UnixStream::connect(place).unwrap();
            stranger.set_read_timeout(Some(PATIENCE.into())).unwrap();
            stranger.read(&mut [0]).expect("another user is let in")
        });
        assert_eq!(stranger.join().unwrap(), 0);
    }
    Pair::open(&client).unwrap();
    drop(pair);
    assert!(!socket.exists());
}

/// vhost's library lets it in, and its driver takes it for the first.
#[test]
fn a_second_client_of_a_vhost_pair_is_turned_away_and_the_first_has_its_server() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let device = Kind::Vhost.device("second");
    let mut server = Pair::open(&Config::new(format!("{device},server"))).unwrap();
    let (mut first, to_server) = open(&device, THERE, server.caps().addr);
    until("the two meet", || server.link_is_up());
    let to_first = server.link(THERE.parse().unwrap()).unwrap();
    let second = Pair::open(&Config::new(format!("{device},mac={}", HERE.split('/').next().unwrap())));
    assert!(matches!(second, Err(OpenError::NobodyThere { .. })), "a second client is let in");
    for number in 0..3 {
        send(&mut first, to_server, number);
        first.flush();
        assert_eq!(receive(&mut server), number);
        send(&mut server, to_first, number);
        server.flush();
        assert_eq!(receive(&mut first), number);
    }
    drop(first);
    until("its end is told", || {
        server.rx_burst(1, |_, _| ());
        server.is_gone(to_first)
    });
    let (mut next, to_server) = open(&device, THERE, server.caps().addr);
    send(&mut next, to_server, 7);
    next.flush();
    assert_eq!(receive(&mut server), 7);
}

/// Whether memif's server at this abstract socket says Hello to a process of that user. `None`: we can't be that.
fn is_greeted(name: &str, user: Option<libc::uid_t>) -> Option<bool> {
    let name = name.to_owned();
    let thread = std::thread::spawn(move || match user {
        Some(user) if !becomes(user) => None,
        _ => Some(hears_a_word(&dial(&name))),
    });
    thread.join().unwrap()
}

/// Makes this thread, which should have no other work, that user's. False: we can't be that.
fn becomes(user: libc::uid_t) -> bool {
    // SAFETY: they take numbers, and give one. The call behind libc's own is of this thread alone.
    unsafe { libc::geteuid() != user && libc::syscall(libc::SYS_setresuid, -1, user, -1) == 0 }
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
            let device = Kind::Memif.device("first");
            let (mut here, to_there) = open(&format!("{device},server"), HERE, THERE.parse().unwrap());
            let (mut there, _) = open(&device, THERE, HERE.parse().unwrap());
            send(&mut here, to_there, round);
            here.flush();
            assert_eq!(receive(&mut there), round);
        }
    });
}

pub fn dial_and_go(at: &libc::sockaddr_un, len: u32) {
    // SAFETY: an address of that length, and a socket that is closed once.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::connect(socket, (&raw const *at).cast(), len), 0, "{}", std::io::Error::last_os_error());
        libc::close(socket);
    }
}

/// The address of that name, and its length without what follows the name.
pub fn abstract_address(name: &str) -> (libc::sockaddr_un, u32) {
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
    let _other = Pair::open(&Config::new(format!("{},server", Kind::Memif.device("beside")))).unwrap();
    assert!(!waiting.is_finished(), "opened only when the other had given up");
    assert!(matches!(waiting.join().unwrap(), Err(OpenError::NobodyThere { .. })));
    // SAFETY: a number of our own.
    assert_eq!(unsafe { libc::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    assert_eq!(accept(), -1, "it came a second time");
}

const NOBODY: libc::uid_t = 65534;
