//! Peers that come, are turned away and go, and what stays of them.
#![allow(unsafe_code)] // Another user's thread, and what descriptors are.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use super::*;
use crate::filter;
use crate::shm::sys::Socket;
use crate::shm::wire::Wire;

#[test]
fn who_only_polls_hears_of_those_who_come_and_go_and_has_their_places_again() {
    let domain = domain("polls");
    let mut hub = ShmNic::open_for(&domain, Some(0), 2).unwrap();
    for round in 0..3 {
        let (to_nobody, to_peer) = (hub.link(address(9)).unwrap(), hub.link(address(1)).unwrap());
        assert!(matches!(hub.link(address(5)), Err(LinkError::TableFull(2))));
        let (mut third, refused) = (join(&domain, 5), hub.counters().peers_refused);
        third.link(hub.caps().addr).unwrap();
        until("who calls beyond the bound is turned away", || hub.counters().peers_refused > refused);
        drop(third);
        let mut peer = join(&domain, 1);
        polled("a connection", &mut hub, 0, |hub| commit(hub, to_peer, round));
        let to_hub = peer.link(hub.caps().addr).unwrap();
        send(&mut peer, to_hub, round);
        drop(peer);
        // Its last word is not read yet: it is not gone, and another has its number.
        polled("an end", &mut hub, 0, |hub| wire(hub, 1).hung_up);
        assert!(!hub.is_gone(to_peer));
        let to_next = hub.link(address(1)).unwrap();
        assert_ne!(to_next, to_peer);
        for link in [to_nobody, to_next, to_peer] {
            hub.unlink(link);
        }
        assert_eq!(hub.rx_burst(0, |_, _| ()), 0);
        assert_eq!(hub.rx_burst(1, |word, _| assert_eq!(word, [round])), 1);
        assert_eq!(hub.rx_burst(1, |_, _| ()), 0);
        assert!(hub.by_endpoint.is_empty() && hub.peers.iter().all(Option::is_none) && hub.peers.len() <= 3);
    }
    for endpoint in [5, 6] {
        let mut peer = join(&domain, endpoint);
        let to_hub = peer.link(hub.caps().addr).unwrap();
        send(&mut peer, to_hub, 1);
    }
}

/// What it asked for is shown after its end: nobody is called for that, and who has its number by then is another.
#[test]
fn there_is_no_way_back_to_one_that_has_gone_while_its_words_waited() {
    let domain = domain("back");
    let mut hub = join(&domain, 0);
    let mut peer = join(&domain, 1);
    let to_hub = peer.link(hub.caps().addr).unwrap();
    send(&mut peer, to_hub, 1);
    drop(peer);
    polled("an end", &mut hub, 0, |hub| hub.by_endpoint.contains_key(&1) && wire(hub, 1).hung_up);
    let mut next = join(&domain, 1);
    let to_hub = next.link(hub.caps().addr).unwrap();
    send(&mut next, to_hub, 2);
    polled("the next life", &mut hub, 0, |hub| !hub.successors.is_empty());
    let is_gone = |result| matches!(result, Err(LinkError::Gone(LinkAddr::Shm { endpoint: 1 })));
    assert!(is_gone(hub.link_back(address(1))));
    assert_eq!(hub.rx_burst(1, |word, _| assert_eq!(word, [1])), 1);
    assert!(is_gone(hub.link_back(address(1))));
    assert_eq!(receive(&mut hub).0, 2);
    let back = hub.link_back(address(1)).unwrap();
    assert_eq!(hub.link(address(1)).unwrap(), back);
    send(&mut hub, back, 3);
    assert_eq!(receive(&mut next).0, 3);
    assert!(matches!(hub.link_back(address(2)), Err(LinkError::Gone(_))), "nobody was ever there");
}

#[test]
fn room_that_nobody_waits_for_any_more_keeps_nobody_awake() {
    let domain = domain("room");
    let mut hub = join(&domain, 0);
    let mut peer = join(&domain, 1);
    let to_peer = hub.link(address(1)).unwrap();
    send(&mut hub, to_peer, 1);
    assert_eq!(receive(&mut peer).0, 1);
    while commit(&mut hub, to_peer, 2) {}
    hub.unlink(to_peer);
    hub.flush();
    while peer.rx_burst(64, |_, _| ()) > 0 {}
    assert!(wire(&hub, 1).tx.may_have_room());
    // The first may end for what the steward had told.
    let deadlines = [(); 2].map(|()| {
        let deadline = hub.now() + Duration::from_millis(20);
        hub.wait(Some(deadline)).unwrap();
        deadline
    });
    assert!(hub.now() >= deadlines[1], "it does not sleep");
}

/// The table is full of those whose number it is anyway.
#[test]
fn who_has_a_place_is_linked_anew_when_all_places_are_taken() {
    let domain = domain("anew");
    let mut hub = ShmNic::open_for(&domain, Some(0), 1).unwrap();
    let mut peer = join(&domain, 1);
    let old = hub.link(address(1)).unwrap();
    send(&mut hub, old, 1);
    assert_eq!(receive(&mut peer).0, 1);
    drop(peer);
    until_gone(&mut hub, old);
    let mut peer = join(&domain, 1);
    let new = hub.link(address(1)).unwrap();
    hub.unlink(old);
    send(&mut hub, new, 2);
    assert_eq!(receive(&mut peer).0, 2);
}

#[test]
fn a_caller_who_is_linked_keeps_the_link_when_it_is_gone() {
    let domain = domain("keeps");
    let mut hub = join(&domain, 0);
    let call = |hub: &mut ShmNic, endpoint| {
        let mut caller = join(&domain, endpoint);
        let to_hub = caller.link(hub.caps().addr).unwrap();
        send(&mut caller, to_hub, 1);
        assert_eq!(receive(hub), (1, caller.caps().addr));
        caller
    };
    for (round, link) in (0..).zip([ShmNic::link, ShmNic::link_back]) {
        let first = call(&mut hub, 2 * round + 1);
        let to_first = link(&mut hub, first.caps().addr).unwrap();
        drop(first);
        until_gone(&mut hub, to_first);
        let second = call(&mut hub, 2 * round + 2);
        assert_ne!(hub.link(second.caps().addr).unwrap(), to_first, "its frames would go to another");
        assert!(hub.is_gone(to_first));
    }
}

#[test]
fn who_breaks_the_rules_is_hung_up_on_and_begins_anew() {
    let domain = domain("rules");
    let (mut a, mut b) = (join(&domain, 0), join(&domain, 1));
    let mut to_b = a.link(b.caps().addr).unwrap();
    for forgets_first in [false, true] {
        send(&mut a, to_b, 1);
        assert_eq!(receive(&mut b).0, 1);
        let ring = wire(&b, 0).tx.memory();
        ring.header(0).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(a.rx_burst(1, |_, _| panic!("no frame")), 0);
        assert!(a.is_gone(to_b));
        if forgets_first {
            a.unlink(to_b);
            a.rx_burst(1, |_, _| ());
        }
        let anew = a.link(b.caps().addr).unwrap();
        if !forgets_first {
            assert_ne!(anew, to_b);
            a.unlink(to_b);
        }
        to_b = anew;
    }
    send(&mut a, to_b, 2);
    assert_eq!(receive(&mut b).0, 2);
}

#[test]
fn of_several_who_send_without_end_none_is_starved() {
    let domain = domain("turns");
    let mut hub = join(&domain, 0);
    let mut senders = [1, 2].map(|endpoint| join(&domain, endpoint));
    for sender in &mut senders {
        let to_hub = sender.link(hub.caps().addr).unwrap();
        (0..10).for_each(|byte| send(sender, to_hub, byte));
        receive(&mut hub);
    }
    polled("both are known", &mut hub, 0, |hub| hub.by_endpoint.len() == 2);
    let mut from = Vec::new();
    for _ in 0..8 {
        assert_eq!(hub.rx_burst(1, |_, sender| from.push(sender)), 1);
    }
    assert!(from.windows(2).all(|pair| pair[0] != pair[1]), "{from:?}");
    from.clear();
    hub.rx_burst(64, |_, sender| from.push(sender));
    assert!(from.iter().any(|sender| *sender != from[0]), "one burst looks at all");
}

#[test]
fn what_nobody_uses_any_more_is_not_mapped() {
    let memory = sealed_memory(PAIR_BYTES).unwrap();
    let inode = std::fs::File::from(memory.try_clone().unwrap()).metadata().unwrap().ino();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .any(|line| line.contains("sidelane-shm") && line.split_whitespace().nth(4) == Some(&inode.to_string()))
    };
    let [ring, _] = map_pair(&memory).unwrap();
    assert!(is_mapped());
    drop(ring);
    assert!(!is_mapped());
}

#[test]
fn who_has_left_is_absent_and_who_is_busy_is_not() {
    let domain = domain("absent");
    let (own, other) = (join(&domain, 1), join(&domain, 2));
    assert!(!own.is_absent(2) && own.is_absent(3));
    drop(other);
    // A process that another test starts may have a copy of it, until its exec.
    until("nobody is there", || own.is_absent(2));
}

/// Only root can be somebody else for a moment.
#[test]
fn another_user_is_neither_let_in_nor_called() {
    let domain = domain("users");
    let _own = join(&domain, 0);
    let bell = sealed_memory(BELL_BYTES).unwrap();
    let [own, other] = [0, 8].map(|endpoint| socket_name(&domain, endpoint));
    let is_let_in = || {
        // Not by `dial`, which would not even ask.
        let (socket, pair) = (sys::connect(&own).unwrap(), sealed_memory(PAIR_BYTES).unwrap());
        // Who is turned away may be so before a word.
        let _ =
            passing::send(socket.as_fd(), &greeting_of(9), &[pair.as_raw_fd(), bell.as_raw_fd()], libc::MSG_DONTWAIT);
        answer(&socket)
    };
    assert!(is_let_in(), "our own user is not let in");
    // SAFETY: they take numbers, and give one. The call behind libc's own: of this thread alone.
    let be_nobody = || unsafe { libc::geteuid() != NOBODY && libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) == 0 };
    let tried = std::thread::scope(|scope| {
        let nobody = scope.spawn(|| be_nobody().then(|| (is_let_in(), sys::listen(&other).unwrap())));
        nobody.join().unwrap()
    });
    // The whole process can't be looked into any more, by a debugger or a core dump, which is of no use to others (prctl(2)).
    // SAFETY: it takes numbers, and gives one.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }, 0);
    let Some((is_let_in, squatter)) = tried else {
        println!("skipped: only root can try");
        return;
    };
    assert!(!is_let_in, "another user is let in");
    assert!(handshake::dial(&other, 0, &bell).is_err(), "another user has taken the name, and is called");
    let called = sys::accept(&squatter).unwrap().unwrap();
    assert_eq!(
        passing::receive(called.as_fd(), &mut [0; 15], libc::MSG_DONTWAIT).unwrap().0,
        0,
        "it is sent memory of ours"
    );
}

/// As under a security policy.
#[test]
fn who_may_not_be_called_is_gone_but_may_call() {
    let domain = domain("forbidden");
    let mut peer = join(&domain, 1);
    // Of this thread and the steward that it starts.
    let called = std::thread::spawn(move || {
        filter::install(libc::SYS_connect as u32, None, libc::EACCES as u32).unwrap();
        let mut own = join(&domain, 0);
        let link = own.link(address(1)).unwrap();
        assert!(!own.is_gone(link));
        polled("an end", &mut own, 0, |own| own.is_gone(link));
        let to_own = peer.link(address(0)).unwrap();
        polled("a connection", &mut own, 0, |own| !own.is_gone(link));
        send(&mut peer, to_own, 1);
        polled("a word", &mut own, 1, |own| own.counters().rx_frames == 1);
    });
    called.join().unwrap();
}

/// Programs that ours starts would keep peers from hearing of our end.
#[test]
fn no_descriptor_goes_to_other_programs() {
    let name = socket_name(&domain("exec"), 0);
    let listener = sys::listen(&name).unwrap();
    let bell = sealed_memory(BELL_BYTES).unwrap();
    let asked = handshake::dial(&name, 1, &bell).unwrap();
    let caller = sys::accept(&listener).unwrap().unwrap();
    let (_, came) = passing::receive(caller.as_fd(), &mut [0; 15], libc::MSG_DONTWAIT).unwrap();
    for fd in came.iter().chain([&listener.0, &bell, &asked.socket.0, &caller.0]) {
        // SAFETY: takes numbers, and gives one.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
    }
}

/// A call to who does not answer, and one to who is not there yet.
#[test]
fn one_who_does_not_answer_keeps_nobody_else_waiting() {
    const OWN: u16 = 4711;
    let domain = domain("silent");
    let mut a = join(&domain, OWN);
    let silent = sys::listen(&socket_name(&domain, 8)).unwrap();
    a.link(address(8)).unwrap();
    until("a call", || sys::accept(&silent).unwrap().map(std::mem::forget).is_some());
    let late = a.link(address(2)).unwrap();
    let sleeps = |task: std::fs::DirEntry| {
        let read = |what| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
        read("comm").trim_end() == format!("shm-{OWN}") && read("stat").contains(") S ")
    };
    until("it was tried in vain", || std::fs::read_dir("/proc/self/task").unwrap().flatten().any(sleeps));
    let mut b = join(&domain, 2);
    send(&mut a, late, 1);
    assert_eq!(receive(&mut b).0, 1);
}

/// Its own call ends a call to it, unless it cannot be answered.
#[test]
fn a_call_stands_when_who_is_called_calls_and_hears_no_answer() {
    let domain = domain("deaf");
    let mut a = join(&domain, 0);
    let link = a.link(address(9)).unwrap();
    let [pair, bell] = [PAIR_BYTES, BELL_BYTES].map(|len| sealed_memory(len).unwrap());
    let deaf = sys::connect(&socket_name(&domain, 0)).unwrap();
    UnixStream::from(deaf.0.try_clone().unwrap()).shutdown(std::net::Shutdown::Read).unwrap();
    passing::send(deaf.as_fd(), &greeting_of(9), &[pair.as_raw_fd(), bell.as_raw_fd()], libc::MSG_DONTWAIT).unwrap();
    let is_closed = |error: std::io::Error| matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
    until("it is hung up on", || passing::send(deaf.as_fd(), b" ", &[], libc::MSG_DONTWAIT).is_err_and(is_closed));
    let mut peer = join(&domain, 9);
    send(&mut a, link, 1);
    assert_eq!(receive(&mut peer).0, 1);
}

#[test]
fn of_two_calls_at_once_that_of_the_lower_one_stands() {
    for (own, other, is_let_in) in [(9, 4, true), (4, 9, false)] {
        let domain = domain(&format!("calls-{own}"));
        let mut a = join(&domain, own);
        // It does not answer, and calls.
        let silent = sys::listen(&socket_name(&domain, other)).unwrap();
        a.link(address(other)).unwrap();
        let mut called = None;
        until("a call", || {
            called = sys::accept(&silent).unwrap();
            called.is_some()
        });
        let [pair, bell] = [PAIR_BYTES, BELL_BYTES].map(|len| sealed_memory(len).unwrap());
        let calls = sys::connect(&socket_name(&domain, own)).unwrap();
        let fds = [pair.as_raw_fd(), bell.as_raw_fd()];
        passing::send(calls.as_fd(), &greeting_of(other), &fds, libc::MSG_DONTWAIT).unwrap();
        assert_eq!(answer(&calls), is_let_in, "{other} calls {own}");
    }
}

#[test]
fn who_is_called_has_a_place_when_it_calls_itself() {
    let domain = domain("called");
    let mut hub = ShmNic::open_for(&domain, Some(0), 1).unwrap();
    hub.link(address(9)).unwrap();
    let bell = sealed_memory(BELL_BYTES).unwrap();
    assert!(answered(&domain, &bell).conclude(0).is_ok());
    assert_eq!(hub.counters().peers_refused, 0);
}

#[test]
fn who_answers_as_another_is_not_taken_for_who_was_called() {
    let domain = domain("other");
    let listener = sys::listen(&socket_name(&domain, 8)).unwrap();
    let bell = sealed_memory(BELL_BYTES).unwrap();
    for (endpoint, is_right) in [(9, false), (8, true)] {
        let asked = handshake::dial(&socket_name(&domain, 8), 0, &bell).unwrap();
        let called = sys::accept(&listener).unwrap().unwrap();
        passing::send(called.as_fd(), &greeting_of(endpoint), &[bell.as_raw_fd()], libc::MSG_DONTWAIT).unwrap();
        assert_eq!(asked.conclude(8).is_ok(), is_right);
    }
}

/// Before the end of its life before is heard.
#[test]
fn who_greets_anew_is_in_another_life() {
    let domain = domain("lives");
    let mut hub = join(&domain, 0);
    let bell = sealed_memory(BELL_BYTES).unwrap();
    let call = || {
        let asked = answered(&domain, &bell);
        (asked.conclude(0).unwrap(), asked)
    };
    let _first = call();
    polled("a life", &mut hub, 0, |hub| hub.by_endpoint.contains_key(&9));
    let link = hub.link(address(9)).unwrap();
    let _second = call();
    polled("another", &mut hub, 0, |hub| hub.is_gone(link));
}

/// Each life of a caller is a memory of its own, and news of its begin and its end.
#[test]
fn who_calls_again_and_again_piles_up_nothing_with_one_who_takes_no_turn() {
    const PEERS_MAX: usize = 3;
    let domain = domain("again");
    let mut hub = ShmNic::open_for(&domain, Some(0), PEERS_MAX).unwrap();
    let bell = sealed_memory(BELL_BYTES).unwrap();
    let call = || answered(&domain, &bell).conclude(0).is_ok();
    for round in 1..=2 {
        let refused = hub.counters().peers_refused;
        assert_eq!((0..20).filter(|_| call()).count(), PEERS_MAX);
        assert_eq!(hub.counters().peers_refused - refused, 20 - PEERS_MAX as u64);
        // Its turn: it hears of all, and lets all of them go once it knows that they are gone.
        let give_up = hub.now() + Duration::from_millis(10_000);
        while hub.peers.iter().any(Option::is_some) || hub.news_heard != round * 2 * PEERS_MAX as u32 {
            assert!(hub.now() < give_up, "the lives of a caller who is gone stay");
            hub.wait(Some(hub.now() + Duration::from_millis(1))).unwrap();
            hub.rx_burst(1, |_, _| {});
        }
    }
}

#[test]
fn greetings_that_are_none_harm_nobody() {
    let domain = domain("rude");
    let mut a = join(&domain, 1);
    let mut b = join(&domain, 2);
    let name = socket_name(&domain, 1);
    let (greeting, own) = (greeting_of(9), greeting_of(1));
    let small = sealed_memory(4096).unwrap();
    let bell = sealed_memory(4096).unwrap();
    let event = OwnedFd::from(std::os::unix::net::UnixDatagram::unbound().unwrap());
    let pair = sealed_memory(PAIR_BYTES).unwrap();
    let attempts: [(&[u8], &[&OwnedFd]); 8] = [
        (b"", &[]),
        (b"GET / HTTP/1.1", &[]),
        (&greeting, &[]),
        (&greeting, &[&pair]),
        (&greeting, &[&small, &bell]),
        (&greeting, &[&event, &event]),
        (&greeting[..5], &[&pair, &bell]),
        // To the endpoint as if from itself.
        (&own, &[&pair, &bell]),
    ];
    let mut silent = Vec::new();
    for (bytes, fds) in attempts {
        let socket = sys::connect(&name).unwrap();
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        if !bytes.is_empty() {
            passing::send(socket.as_fd(), bytes, &fds, libc::MSG_DONTWAIT).unwrap();
        }
        silent.push(socket);
    }
    let link = b.link(a.caps().addr).unwrap();
    for n in 0..100 {
        send(&mut b, link, n);
        assert_eq!(receive(&mut a), (n, b.caps().addr));
    }
    // None of them was let in, and what they were made of is right.
    assert_eq!(a.by_endpoint.keys().collect::<Vec<_>>(), [&2]);
    let socket = sys::connect(&name).unwrap();
    passing::send(socket.as_fd(), &greeting, &[pair.as_raw_fd(), bell.as_raw_fd()], libc::MSG_DONTWAIT).unwrap();
    until("a greeting is one", || {
        a.rx_burst(0, |_, _| ());
        a.by_endpoint.contains_key(&9)
    });
}

fn greeting_of(endpoint: u16) -> Vec<u8> {
    [&b"sidelan\x02"[..], &(PAIR_BYTES as u32).to_le_bytes(), &endpoint.to_le_bytes()].concat()
}

#[test]
fn who_calls_an_endpoint_that_ends_hears_of_it_although_a_copy_of_its_listener_lives_on() {
    let name = socket_name(&domain("queue"), 0);
    let listener = sys::listen(&name).unwrap();
    let caller = sys::connect(&name).unwrap();
    let _copy = listener.0.try_clone().unwrap();
    sys::stop_listening(&listener);
    drop(listener);
    wait_for_answer(&caller);
    assert!(sys::connect(&name).is_err(), "the next one is refused");
}

/// With the present peer of this number.
fn wire(nic: &ShmNic, endpoint: u16) -> &Wire {
    nic.peers[nic.by_endpoint[&endpoint] as usize].as_ref().unwrap().wire.as_ref().unwrap()
}

/// A call of endpoint 9 to endpoint 0, which has answered or hung up.
fn answered(domain: &str, bell: &OwnedFd) -> handshake::Asked {
    let asked = handshake::dial(&socket_name(domain, 0), 9, bell).unwrap();
    wait_for_answer(&asked.socket);
    asked
}

fn wait_for_answer(socket: &Socket) {
    assert_eq!(sys::poll(&[socket.as_raw_fd()], Some(10_000)), [true], "neither let in nor turned away");
}

/// Whether a caller is answered; false if it is hung up on.
fn answer(socket: &Socket) -> bool {
    wait_for_answer(socket);
    passing::receive(socket.as_fd(), &mut [0; 15], libc::MSG_DONTWAIT)
        .is_ok_and(|(len, fds)| len == 14 && fds.len() == 1)
}

const NOBODY: libc::uid_t = 65_534;
