use std::os::unix::net::UnixDatagram;

use super::*;
use crate::TxSlot;

#[test]
fn whoever_may_lock_no_memory_is_told_so_and_not_of_what_is_forbidden() {
    let advice = |errno| advice(&io::Error::from_raw_os_error(errno));
    assert!(advice(libc::ENOMEM).contains("ulimit -l unlimited") && !advice(libc::ENOMEM).contains("seccomp"));
    assert!(advice(libc::EPERM).contains("seccomp") && !advice(libc::EPERM).contains("ulimit"));
}

#[test]
fn frames_behind_one_that_must_wait_are_not_sent() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    // Room for some (a frame of 1,000 bytes takes two or three times that), whatever this machine gives sockets.
    socket::set_int_option(ours.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 32 << 10).unwrap();
    const FRAMES: u16 = 200;
    let lane = LaneConfig { socket: ours.into(), buffers: FRAMES, payload_max: 1_000 };
    let mut tx = TxQueue::new(lane, None, None);
    for _ in 0..FRAMES {
        tx.lend(Kind::Small, &[], 1_000).unwrap().commit();
    }
    // As when io_uring has taken none of them.
    tx.queue.iter_mut().for_each(|queued| queued.fate = Fate::Sent);
    tx.send_each(0..tx.queue.len(), &mut Ok(()));
    let mut counters = Counters::default();
    tx.settle(&mut counters);
    let came = std::iter::from_fn(|| theirs.recv(&mut [0; 1_000]).ok()).count();
    assert!(came > 0 && came < usize::from(FRAMES));
    assert_eq!((counters.tx_frames as usize, tx.queue.len()), (came, usize::from(FRAMES) - came));
    let long_ago = Some(Instant::from_nanos(clock::monotonic().as_nanos() / 2));
    let mut again = |tries, tx: &mut TxQueue| {
        tx.queue.iter_mut().for_each(|queued| (queued.since, queued.tries) = (long_ago, tries));
        tx.send_each(0..tx.queue.len(), &mut Ok(()));
        tx.settle(&mut counters);
        counters.tx_failed
    };
    assert_eq!(again(0, &mut tx), 0);
    assert!(tx.queue.iter().all(|queued| queued.since > long_ago), "others went");
    assert_eq!(again(TRIES_MIN - 1, &mut tx), 0, "it was seldom tried");
    let waiting = tx.queue.len();
    assert_eq!(tx.again_after(), Some(PAUSE));
    assert_eq!((again(TRIES_MIN, &mut tx), tx.queue.len()), (waiting as u64, 0));
    assert_eq!(tx.again_after(), None);
    assert_eq!(counters.tx_frames + counters.tx_failed, u64::from(FRAMES));
}

/// A queue of frames of both kinds, and where they arrive.
fn both_kinds() -> (TxQueue, [UnixDatagram; 2]) {
    let [small, large] = [(); 2].map(|()| UnixDatagram::pair().unwrap());
    let lane = |socket: UnixDatagram| LaneConfig { socket: socket.into(), buffers: 8, payload_max: 100 };
    let far = [small.1, large.1];
    far.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    (TxQueue::new(lane(small.0), Some(lane(large.0)), None), far)
}

#[test]
fn a_frame_behind_one_that_must_wait_waits_whichever_its_kind() {
    let (mut tx, [_near, large]) = both_kinds();
    let small = tx.lanes[Kind::Small as usize].as_ref().unwrap().socket.as_fd();
    while socket::send(small, &[0]).is_ok() {}
    for kind in [Kind::Small, Kind::Large] {
        tx.lend(kind, &[], 1).unwrap().commit();
    }
    assert!(!tx.send_each(0..2, &mut Ok(())));
    assert!(large.recv(&mut [0; 1]).is_err(), "it went before the one in front of it");
    tx.settle(&mut Counters::default());
    assert_eq!(tx.queue.len(), 2);
}

#[test]
fn no_super_packet_goes_before_frames_that_wait() {
    let (mut tx, [_near, large]) = both_kinds();
    let mut counters = Counters::default();
    tx.lend(Kind::Small, &[], 1).unwrap().commit();
    assert!(tx.lend_before(&HEADER, 1, &[7; 9], false, &mut counters).is_none());
    tx.flush(&mut counters).unwrap();
    tx.lend_before(&HEADER, 1, &[7; 9], false, &mut counters).unwrap().commit();
    assert_eq!(large.recv(&mut [0; 100]).unwrap(), HEADER.len() + 10);
    assert_eq!((counters.tx_frames, counters.tx_bytes), (2, 1 + 10));
}

#[test]
fn a_super_packet_that_must_wait_is_queued_with_its_tail_and_goes_in_pieces() {
    let (mut tx, [_near, large]) = both_kinds();
    let ours = tx.lanes[Kind::Large as usize].as_ref().unwrap().socket.as_fd();
    while socket::send(ours, &[0]).is_ok() {}
    let mut counters = Counters::default();
    let send = |tx: &mut TxQueue, counters: &mut Counters| {
        let mut slot = tx.lend_before(&HEADER, 1, &[3; 9], true, counters).unwrap();
        slot[0] = 2;
        slot.commit();
    };
    send(&mut tx, &mut counters);
    assert_eq!((counters.tx_frames, tx.queue.len()), (0, 1));
    while large.recv(&mut [0; 1]).is_ok() {}
    tx.flush(&mut counters).unwrap();
    let mut came = [0; 100];
    let len = large.recv(&mut came).unwrap();
    assert_eq!(came[..len], [&HEADER[..], &[2], &[3; 9]].concat());
    assert_eq!((counters.tx_frames, counters.tx_bytes), (1, 10));
    send(&mut tx, &mut counters);
    let len = large.recv(&mut came).unwrap();
    assert_eq!(
        came[..len],
        [&gso::in_one_piece(&HEADER)[..], &[2], &[3; 9]].concat(),
        "the kernel's memory had a piece"
    );
}

#[test]
fn frames_of_one_kind_that_went_give_those_of_the_other_no_more_time() {
    let (mut tx, _far) = both_kinds();
    let long_ago = Some(Instant::from_nanos(1));
    for kind in [Kind::Large, Kind::Small, Kind::Large] {
        tx.lend(kind, &[], 1).unwrap().commit();
    }
    tx.queue.iter_mut().for_each(|queued| queued.since = long_ago);
    tx.queue[0].fate = Fate::Sent;
    tx.settle(&mut Counters::default());
    assert!(tx.queue[0].since == long_ago && tx.queue[1].since > long_ago);
}

/// Of a super-packet.
const HEADER: [u8; gso::HEADER_LEN] = [1; gso::HEADER_LEN];
