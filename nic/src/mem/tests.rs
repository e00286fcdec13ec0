use super::*;
use crate::fault::Faults;
use crate::time::{Duration, Instant};
use crate::{LinkAddr, Nic, TxSlot};

fn send(from: &mut MemNic, to: &MemNic, payload: &[u8]) {
    let link = from.link(to.caps().addr).unwrap();
    let mut slot = from.tx_slot(link, payload.len()).expect("room");
    slot.copy_from_slice(payload);
    slot.commit();
    from.flush();
}

fn received(nic: &mut MemNic) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while nic.rx_burst(32, |frame, _| frames.push(frame.to_vec())) > 0 {}
    frames
}

fn pair(fabric: &Fabric) -> (MemNic, MemNic) {
    (fabric.nic(Config::default()), fabric.nic(Config::default()))
}

#[test]
fn without_a_model_a_frame_is_there_when_it_is_flushed() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    send(&mut a, &b, b"hello");
    let mut from = None;
    assert_eq!(b.rx_burst(8, |frame, sender| from = Some((frame.to_vec(), sender))), 1);
    assert_eq!(from, Some((b"hello".to_vec(), a.caps().addr)));
    assert_eq!(fabric.next_arrival(), None);
}

#[test]
fn nothing_is_sent_before_the_flush() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    let link = a.link(b.caps().addr).unwrap();
    a.tx_slot(link, 3).unwrap().commit();
    assert!(received(&mut b).is_empty());
    a.flush();
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn a_frame_takes_the_delay_and_the_rate_of_its_link() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    let line = LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: None };
    fabric.set_link(0, 1, LinkModel { line, delay: Duration::from_micros(5), ..LinkModel::default() });
    send(&mut a, &b, &[0; 962]);
    send(&mut a, &b, &[0; 962]);
    // 1000 bytes with framing at 1 Gbit/s: 8 us each, then 5 us on the way.
    assert_eq!(fabric.next_arrival(), Some(Instant::from_nanos(13_000)));
    fabric.advance_to(Instant::from_nanos(12_999));
    assert!(received(&mut b).is_empty());
    fabric.advance_to(Instant::from_nanos(13_000));
    assert_eq!(received(&mut b).len(), 1);
    assert_eq!(fabric.next_arrival(), Some(Instant::from_nanos(21_000)));
    b.wait(None).unwrap();
    assert_eq!(b.now(), Instant::from_nanos(21_000));
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn waiting_moves_time_no_further_than_the_deadline() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    fabric.set_default_link(LinkModel { delay: Duration::from_millis(1), ..LinkModel::default() });
    send(&mut a, &b, b"late");
    b.wait(Some(Instant::from_nanos(500))).unwrap();
    assert_eq!(fabric.now(), Instant::from_nanos(500));
    // The frame is for the other node: it passes by, and the deadline comes.
    a.wait(Some(Instant::from_nanos(2_000_000))).unwrap();
    assert_eq!(fabric.now(), Instant::from_nanos(2_000_000));
    assert_eq!(received(&mut b), [b"late"]);
    a.wait(None).unwrap();
    assert_eq!(fabric.now(), Instant::from_nanos(2_000_000));
}

#[test]
fn senders_to_one_receiver_share_its_downlink_and_overflow_it() {
    let fabric = Fabric::new(0);
    let mut sink = fabric.nic(Config::default());
    let mut senders: Vec<_> = (0..10).map(|_| fabric.nic(Config::default())).collect();
    fabric.set_default_link(LinkModel { delay: Duration::from_micros(1), ..LinkModel::default() });
    fabric.set_downlink(0, LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: Some(5_000) });
    for sender in &mut senders {
        send(sender, &sink, &[0; 962]);
    }
    fabric.advance_to(Instant::from_nanos(1_000 + 5 * 8_000));
    assert_eq!(received(&mut sink).len(), 5);
    assert_eq!(fabric.next_arrival(), None);
    assert_eq!(fabric.counters().overflowed, 5);
}

#[test]
fn a_full_uplink_lends_no_buffer_until_it_drains() {
    let fabric = Fabric::new(0);
    let (mut a, b) = pair(&fabric);
    fabric.set_uplink(0, LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: Some(2_000) });
    send(&mut a, &b, &[0; 962]);
    send(&mut a, &b, &[0; 962]);
    let link = a.link(b.caps().addr).unwrap();
    assert!(a.tx_slot(link, 962).is_none());
    assert_eq!(a.counters().tx_full, 1);
    fabric.advance_to(Instant::from_nanos(8_000));
    assert!(a.tx_slot(link, 962).is_some());
}

#[test]
fn a_full_receive_queue_drops_and_counts() {
    let fabric = Fabric::new(0);
    let mut a = fabric.nic(Config::default());
    let mut b = fabric.nic(Config { rx_frames: 3, ..Config::default() });
    for n in 0..5 {
        send(&mut a, &b, &[n]);
    }
    assert_eq!(b.counters().rx_dropped, 2);
    assert_eq!(received(&mut b), [[0], [1], [2]]);
}

#[test]
fn delayed_frames_stay_in_order_and_held_back_ones_do_not() {
    for (faults, in_order) in
        [(Faults { delay: 0.5, ..Faults::NONE }, true), (Faults { reorder: 0.5, ..Faults::NONE }, false)]
    {
        let fabric = Fabric::new(3);
        let (mut a, mut b) = pair(&fabric);
        fabric.set_default_link(LinkModel { faults, ..LinkModel::default() });
        for n in 0..100 {
            send(&mut a, &b, &[n]);
            fabric.advance_to(fabric.now() + Duration::from_micros(1));
        }
        fabric.advance_to(Instant::from_nanos(10_000_000));
        let frames = received(&mut b);
        assert_eq!(frames.len(), 100);
        assert_eq!(frames.is_sorted(), in_order);
    }
}

/// A thousand frames over a bad link, as they come out.
fn bad_day(seed: u64) -> (Vec<Vec<u8>>, FabricCounters) {
    let fabric = Fabric::new(seed);
    let (mut a, mut b) = pair(&fabric);
    let faults =
        Faults { loss: 0.1, duplicate: 0.1, reorder: 0.1, delay: 0.1, corrupt: 0.1, truncate: 0.1, ..Faults::NONE };
    fabric.set_default_link(LinkModel { delay: Duration::from_micros(10), faults, ..LinkModel::default() });
    for n in 0..1_000u32 {
        send(&mut a, &b, &n.to_le_bytes());
        fabric.advance_to(fabric.now() + Duration::from_micros(2));
    }
    fabric.advance_to(fabric.now() + Duration::from_millis(1));
    (received(&mut b), fabric.counters())
}

#[test]
fn a_seed_repeats_its_run_and_another_seed_does_not() {
    assert_eq!(bad_day(5), bad_day(5));
    assert_ne!(bad_day(5), bad_day(6));
}

#[test]
fn every_frame_is_accounted_for() {
    let (frames, counters) = bad_day(9);
    assert_eq!(frames.len() as u64, counters.delivered);
    assert_eq!(counters.sent + counters.duplicated, counters.delivered + counters.lost);
    for count in [counters.lost, counters.duplicated, counters.held_back, counters.delayed, counters.damaged] {
        assert!((50..300).contains(&count), "{counters:?}");
    }
}

#[test]
fn a_partition_loses_both_ways_until_it_ends() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    let mut c = fabric.nic(Config::default());
    fabric.partition(1, 0, Instant::from_nanos(100));
    send(&mut a, &b, b"lost");
    send(&mut b, &a, b"lost");
    send(&mut a, &c, b"beside");
    assert!(received(&mut a).is_empty() && received(&mut b).is_empty());
    assert_eq!(received(&mut c), [b"beside"]);
    fabric.advance_to(Instant::from_nanos(100));
    send(&mut a, &b, b"through");
    assert_eq!(received(&mut b), [b"through"]);
    assert_eq!(fabric.counters().partitioned, 2);
}

#[test]
fn a_crashed_node_neither_sends_nor_receives_and_a_new_life_starts_empty() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    send(&mut a, &b, b"unread");
    fabric.crash(1);
    assert!(received(&mut b).is_empty());
    send(&mut a, &b, b"to nobody");
    send(&mut b, &a, b"from nobody");
    assert!(received(&mut a).is_empty());
    let mut again = fabric.nic_at(1, Config::default());
    // The old NIC's end must not end the new life.
    drop(b);
    send(&mut a, &again, b"welcome");
    assert_eq!(received(&mut again), [b"welcome"]);
    assert_eq!(fabric.counters().nobody, 1);
}

#[test]
fn frames_on_their_way_outlive_their_sender() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    fabric.set_default_link(LinkModel { delay: Duration::from_micros(9), ..LinkModel::default() });
    send(&mut a, &b, b"last words");
    fabric.crash(0);
    b.wait(None).unwrap();
    assert_eq!(received(&mut b), [b"last words"]);
}

#[test]
fn frames_larger_than_the_path_vanish() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    fabric.set_link(0, 1, LinkModel { mtu: Some(100), ..LinkModel::default() });
    send(&mut a, &b, &[1; 100]);
    send(&mut a, &b, &[2; 101]);
    assert_eq!(received(&mut b), [[1; 100]]);
    assert_eq!(fabric.counters().too_large, 1);
}

#[test]
fn addresses_of_other_kinds_and_absurd_nodes_are_refused() {
    let fabric = Fabric::new(0);
    let mut a = fabric.nic(Config::default());
    assert!(a.link(LinkAddr::Shm { endpoint: 1 }).is_err());
    assert!(a.link(LinkAddr::Mem { node: u32::MAX }).is_err());
    assert_eq!(a.link(LinkAddr::Mem { node: 7 }).unwrap(), a.link(LinkAddr::Mem { node: 7 }).unwrap());
}

#[test]
fn what_a_dead_node_counted_stays_and_what_it_did_not_send_failed() {
    let fabric = Fabric::new(0);
    let mut a = fabric.nic(Config::default());
    let mut b = fabric.nic(Config { rx_frames: 2, ..Config::default() });
    let to_b = a.link(b.caps().addr).unwrap();
    (0..5).for_each(|_| a.tx_slot(to_b, 1).unwrap().commit());
    a.flush();
    assert_eq!(b.counters().rx_dropped, 3);
    let (node_a, node_b) = (LinkAddr::Mem { node: 0 }, LinkAddr::Mem { node: 1 });
    assert_eq!((a.caps().addr, b.caps().addr), (node_a, node_b));
    a.tx_slot(to_b, 1).unwrap().commit();
    [0, 1].into_iter().for_each(|node| fabric.crash(node));
    a.flush();
    assert_eq!((a.counters().tx_frames, a.counters().tx_failed), (5, 1), "each counts once");
    let next = fabric.nic_at(1, Config::default());
    assert_eq!((b.counters().rx_dropped, next.counters().rx_dropped), (3, 0));
    assert_eq!(b.rx_burst(1, |_, _| ()), 0);
}

const GIGABIT: LineModel = LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: None };

#[test]
fn a_frame_comes_to_a_downlink_when_it_does_however_far_time_is_moved_at_once() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    fabric.set_default_link(LinkModel { delay: Duration::from_micros(1), ..LinkModel::default() });
    fabric.set_downlink(1, GIGABIT);
    send(&mut a, &b, &[0; 962]);
    fabric.advance_to(Instant::from_nanos(8_999));
    assert!(received(&mut b).is_empty());
    // Time never goes back.
    fabric.advance_to(Instant::from_nanos(9));
    assert_eq!((fabric.now(), fabric.next_arrival()), (Instant::from_nanos(8_999), Some(Instant::from_nanos(9_000))));
    fabric.advance_to(Instant::from_nanos(9_000));
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn frames_that_were_lent_together_leave_an_uplink_one_after_the_other_beyond_its_limit_too() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    fabric.set_uplink(0, LineModel { queue_limit_bytes: Some(2_000), ..GIGABIT });
    let link = a.link(b.caps().addr).unwrap();
    (0..3).for_each(|_| a.tx_slot(link, 962).unwrap().commit());
    a.flush();
    for (number, micros) in [(0, 7), (1, 8), (0, 15), (1, 16), (0, 23), (1, 24)] {
        fabric.advance_to(Instant::ZERO + Duration::from_micros(micros));
        assert_eq!(received(&mut b).len(), number, "after {micros} us");
    }
}

#[test]
fn a_link_that_becomes_shorter_lets_no_frame_pass_another() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    for (frame, micros) in [(b"first", 10), (b"later", 1)] {
        fabric.set_link(0, 1, LinkModel { delay: Duration::from_micros(micros), ..LinkModel::default() });
        send(&mut a, &b, frame);
    }
    fabric.advance_to(Instant::from_nanos(10_000));
    assert_eq!(received(&mut b), [b"first", b"later"]);
}

#[test]
fn a_new_life_and_the_old_one_s_nic_have_none_of_each_other_s_frames() {
    let fabric = Fabric::new(0);
    let (mut a, mut b) = pair(&fabric);
    send(&mut a, &b, b"to the old one");
    let mut again = fabric.nic_at(1, Config::default());
    assert!(received(&mut again).is_empty());
    send(&mut a, &again, b"to the new one");
    assert!(received(&mut b).is_empty());
    assert_eq!(received(&mut again), [b"to the new one"]);
}

#[test]
fn no_more_buffers_are_lent_than_there_are() {
    let fabric = Fabric::new(0);
    let mut a = fabric.nic(Config { tx_frames: 2, ..Config::default() });
    let link = a.link(fabric.nic(Config::default()).caps().addr).unwrap();
    (0..2).for_each(|_| a.tx_slot(link, 1).unwrap().commit());
    assert!(a.tx_slot(link, 1).is_none());
    a.flush();
    assert!(a.tx_slot(link, 1).is_some());
}
