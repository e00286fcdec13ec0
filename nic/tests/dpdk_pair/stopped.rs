//! A server is stopped for a while, or turns its client away: opening and closing end in time.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use sidelane_nic::Nic;
use sidelane_nic::dpdk::{Config, OpenError, Pair};

use crate::libdpdk;
use crate::patience::watch;
use crate::stage::{HERE, Kind, Stage, THERE, alone, open, receive, send, start, start_as};
use crate::strangers::{abstract_address, dial_and_go};

/// A client waits 2.5 s for its server, and this is above what a loaded machine adds.
const IN_TIME: Duration = Duration::from_secs(20);

#[test]
fn who_opens_to_a_stopped_server_is_told_so_and_is_in_nobodys_way() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    watch("opening", 2 * IN_TIME);
    let device = Kind::Vhost.device("stopped");
    let client = Config::new(device.clone());
    let mut server = start(&format!("{device},server"), 0, HERE.parse().unwrap());
    server.heard("open");
    server.stop();
    let opening = std::thread::spawn({
        let client = client.clone();
        move || Pair::open(&client).map(drop)
    });
    let beside = Config::new(format!("{},server", Kind::Memif.device("beside-stopped")));
    while !opening.is_finished() {
        let begun = Instant::now();
        Pair::open(&beside).unwrap();
        // Or the other one has ended, which has the same limit.
        assert!(begun.elapsed() < Duration::from_secs(1) || opening.is_finished(), "it waits for who waits");
    }
    let error = opening.join().unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoAnswer { .. }) && error.to_string().contains("kill -CONT"), "{error}");
    server.go_on();
    Pair::open(&client).expect("it goes on, and nothing of those who came before is left");
    // It removes its socket, which a killed one leaves.
    server.say("close");
    server.ended();
}

/// Its connection waits in the server's queue, and nothing was lent yet.
#[test]
fn who_opens_to_a_stopped_memif_is_told_and_nothing_of_it_is_left() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    watch("opening", 2 * IN_TIME);
    let client = Config::new(Kind::Memif.device("stopped-memif"));
    let mut server = start(&format!("{},server", client.device), 0, HERE.parse().unwrap());
    server.heard("open");
    server.stop();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What DPDK has for good it has after the first.
    let counts = [(); 2].map(|()| {
        let error = Pair::open(&client).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NobodyThere { .. }), "{error}");
        count()
    });
    assert_eq!(counts[0], counts[1]);
    server.go_on();
    Pair::open(&client).expect("it goes on, and those who came before are gone");
    server.say("close");
    server.ended();
}

#[test]
fn who_closes_while_its_server_is_stopped_ends_in_time_and_what_it_sent_arrives() {
    for kind in Kind::LENDING {
        let Some(mut stage) = Stage::new(kind, "stopped-closing", "", ",server", 0) else { return };
        watch("closing", 2 * IN_TIME);
        send(&mut stage.pair, stage.link, 7);
        stage.pair.flush();
        stage.other.stop();
        drop(stage.pair);
        // Others send meanwhile, in its memory if that were free.
        let device = Kind::Memif.device("after-stopped");
        let (mut here, link) = open(&format!("{device},server"), HERE, THERE.parse().unwrap());
        let (mut there, _) = open(&device, THERE, HERE.parse().unwrap());
        for number in 100..1000 {
            send(&mut here, link, number);
            here.flush();
            assert_eq!(receive(&mut there), number);
        }
        stage.other.go_on();
        stage.other.say("listen");
        stage.other.heard("heard 7");
        stage.other.ended();
    }
}

/// DPDK's virtio-user does not close what it made where the server does not answer.
#[test]
fn who_is_turned_away_keeps_no_descriptors() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let device = Kind::Vhost.device("descriptors");
    let server = Pair::open(&Config::new(format!("{device},server"))).unwrap();
    let _first = Pair::open(&Config::new(device.clone())).unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    assert!(Pair::open(&Config::new(format!("{device},mac=02:00:00:00:00:09"))).is_err(), "a second client is let in");
    assert_eq!(count(), before);
    drop(server);
}

/// DPDK's device is of that server for good.
#[test]
fn a_server_that_goes_while_its_client_opens_makes_way_for_the_next() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let client = Config::new(Kind::Vhost.device("going"));
    let place = Config::new(format!("{},server", client.device)).socket().unwrap();
    let listener = UnixListener::bind(&place).unwrap();
    std::thread::spawn(move || {
        let mut shows = 1;
        for client in listener.incoming() {
            // The first client that is more than a knock.
            if serve(client.unwrap(), shows) == shows {
                shows = usize::MAX;
            }
        }
    });
    let opened = Pair::open(&client);
    std::fs::remove_file(&place).unwrap();
    opened.expect("the next server is asked");
}

/// As a vhost server without a ring does it, until it has been shown its client's memory so many times, or the client goes.
fn serve(mut client: UnixStream, at_most: usize) -> usize {
    const GET_FEATURES: u8 = 1;
    const SET_MEM_TABLE: u8 = 5;
    const GET_VRING_BASE: u8 = 11;
    let mut shown = 0;
    let (mut header, mut body) = ([0; 12], [0; 512]);
    while shown < at_most && client.read_exact(&mut header).is_ok() {
        let [request, .., a, b, c, d] = header;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        client.read_exact(&mut body[..len]).unwrap();
        shown += usize::from(request == SET_MEM_TABLE);
        if [GET_FEATURES, GET_VRING_BASE].contains(&request) {
            // Version 1, a reply; VIRTIO_F_VERSION_1, or the number of the ring.
            let body = if request == GET_FEATURES { (1u64 << 32).to_ne_bytes() } else { body[..8].try_into().unwrap() };
            let _ = client.write_all(&[&[request, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0], &body[..]].concat());
        }
    }
    shown
}

#[test]
fn no_signal_of_a_pipe_ends_a_program_in_c() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    let vhost = Kind::Vhost.device("pipes");
    let server = Pair::open(&Config::new(format!("{vhost},server"))).unwrap();
    let mut client = start_as("other_side_in_c", &vhost, 0, server.caps().addr);
    client.heard("open");
    drop(server);
    client.say("close");
    client.ended();
    let memif = Kind::Memif.device("pipes");
    let mut server = start_as("other_side_in_c", &format!("{memif},server"), 0, HERE.parse().unwrap());
    server.heard("open");
    let (at, len) = abstract_address(memif.strip_prefix("memif:").unwrap());
    for _ in 0..300 {
        dial_and_go(&at, len);
    }
    server.say("close");
    server.ended();
}
