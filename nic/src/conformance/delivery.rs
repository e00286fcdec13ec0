//! Frames arrive as they were sent, where they were sent.

use super::erased::{Driver, Stage};
use super::traffic::{check, commit, expect, link, open, payload, receive, receive_rest, send};
use super::{Stop, Verdict};
use crate::LinkAddr;

pub(super) fn frame_arrives(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"the first one")?;
    expect(&receive(&mut b, 1)?[0], b"the first one", a.caps().addr)
}

pub(super) fn every_size_arrives(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let (mtu, safe) = (a.caps().mtu, a.caps().mtu_safe);
    // Around every power of two something changes: cache lines, words, pages, slots. Around the MTUs the encapsulation.
    let powers = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&power| power <= mtu);
    let mut sizes: Vec<usize> = powers.flat_map(|power: usize| power.saturating_sub(1)..=power + 1).collect();
    sizes.extend([0, safe.saturating_sub(1), safe, safe + 1, mtu - 1, mtu]);
    sizes.retain(|&size| size <= mtu);
    sizes.sort_unstable();
    sizes.dedup();
    for (number, &size) in sizes.iter().enumerate() {
        let sent = payload(number as u64, size);
        send(&mut a, to_b, &sent)?;
        expect(&receive(&mut b, 1)?[0], &sent, a.caps().addr)?;
    }
    Ok(())
}

pub(super) fn tails_arrive_in_turn(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let mtu = a.caps().mtu;
    for (number, len) in [mtu / 2, mtu - 1, mtu, a.caps().mtu_safe].into_iter().enumerate() {
        let front = 36.min(len);
        let sent = [payload(number as u64, 8), payload(number as u64 + 1, len), payload(number as u64 + 2, 8)];
        commit(&mut a, to_b, &sent[0])?;
        let in_place = match a.tx_slot_before(to_b, front, &sent[1][front..]) {
            Some(mut slot) => {
                check(slot.len() == front, || format!("a slot of {} bytes for {front}", slot.len()))?;
                slot.copy_from_slice(&sent[1][..front]);
                slot.commit();
                true
            }
            None => false,
        };
        if !in_place {
            commit(&mut a, to_b, &sent[1])?;
        }
        commit(&mut a, to_b, &sent[2])?;
        a.flush();
        for (arrival, bytes) in receive(&mut b, sent.len())?.iter().zip(&sent) {
            expect(arrival, bytes, a.caps().addr)?;
        }
    }
    check(a.tx_slot_before(to_b, 1, &vec![0; mtu]).is_none(), || "a frame above the MTU was taken".to_owned())
}

pub(super) fn larger_than_mtu_finds_no_slot(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    // So that a link that is not up yet is not taken for a refusal.
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    for size in [a.caps().mtu + 1, a.caps().mtu * 2, usize::MAX] {
        check(a.tx_slot(to_b, size).is_none(), || format!("a slot of {size} bytes was lent"))?;
    }
    send(&mut a, to_b, b"still up")?;
    expect(&receive(&mut b, 1)?[0], b"still up", a.caps().addr)
}

pub(super) fn in_order_and_once(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let in_flight = a.caps().burst.min(b.caps().rx_frames / 2).clamp(1, 64) as u64;
    let mut next = 0;
    for burst in 1..200 {
        let count = 1 + burst % in_flight;
        let sent: Vec<_> = (next..next + count).map(|number| payload(number, 8 + (number % 120) as usize)).collect();
        for bytes in &sent {
            commit(&mut a, to_b, bytes)?;
        }
        a.flush();
        for (arrival, bytes) in receive(&mut b, sent.len())?.iter().zip(&sent) {
            expect(arrival, bytes, a.caps().addr)?;
        }
        next += count;
    }
    let extra = receive_rest(&mut b)?;
    check(extra.is_empty(), || format!("{} frames came twice or from nowhere", extra.len()))
}

pub(super) fn sender_can_be_answered(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"question")?;
    let arrivals = receive(&mut b, 1)?;
    let (_, asker): &(Vec<u8>, LinkAddr) = &arrivals[0];
    let back = b.link_back(*asker).map_err(|error| Stop::Failed(format!("the way back to {asker}: {error}")))?;
    check(link(&mut b, *asker)? == back, || format!("the way back to {asker} is another than the way to it"))?;
    send(&mut b, back, b"answer")?;
    expect(&receive(&mut a, 1)?[0], b"answer", b.caps().addr)
}

pub(super) fn endpoints_are_separated(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b, mut c] = open(stage)?;
    let (to_b, to_c) = (link(&mut a, b.caps().addr)?, link(&mut a, c.caps().addr)?);
    check(to_b != to_c, || "two peers share one link".into())?;
    let (from_b, from_c) = (link(&mut b, a.caps().addr)?, link(&mut c, a.caps().addr)?);
    send(&mut a, to_b, b"for b")?;
    send(&mut a, to_c, b"for c")?;
    send(&mut b, from_b, b"for a, from b")?;
    send(&mut c, from_c, b"for a, from c")?;
    expect(&receive(&mut b, 1)?[0], b"for b", a.caps().addr)?;
    expect(&receive(&mut c, 1)?[0], b"for c", a.caps().addr)?;
    let mut at_a = receive(&mut a, 2)?;
    // Two senders' frames come in no order.
    at_a.sort_by(|(one, _), (other, _)| one.cmp(other));
    expect(&at_a[0], b"for a, from b", b.caps().addr)?;
    expect(&at_a[1], b"for a, from c", c.caps().addr)?;
    for (name, nic) in [("a", &mut a), ("b", &mut b), ("c", &mut c)] {
        let stray = receive_rest(nic)?.len();
        check(stray == 0, || format!("{stray} frames for others came to {name}"))?;
    }
    Ok(())
}

pub(super) fn silence_shows_nothing(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    link(&mut a, b.caps().addr)?;
    a.flush();
    let (at_a, at_b) = (receive_rest(&mut a)?.len(), receive_rest(&mut b)?.len());
    check(at_a + at_b == 0, || format!("{at_a} and {at_b} frames came though none was sent"))
}

pub(super) fn counters_count(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let sizes = [0, 1, 60, 100];
    for size in sizes {
        send(&mut a, to_b, &payload(0, size))?;
    }
    receive(&mut b, sizes.len())?;
    let (sent, received) = (a.counters(), b.counters());
    let expected = (sizes.len() as u64, sizes.iter().sum::<usize>() as u64);
    check((sent.tx_frames, sent.tx_bytes) == expected, || format!("sender: {sent:?}"))?;
    check((received.rx_frames, received.rx_bytes) == expected, || format!("receiver: {received:?}"))?;
    check((sent.rx_frames, sent.tx_failed, received.tx_frames) == (0, 0, 0), || format!("{sent:?} {received:?}"))
}
