//! Slots, bursts, budgets, and rings that are full.

use super::Verdict;
use super::erased::{Driver, Stage};
use super::traffic::{check, commit, expect, link, open, payload, receive, receive_rest, send, try_commit};

pub(super) fn dropped_slot_sends_nothing(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"first")?;
    expect(&receive(&mut b, 1)?[0], b"first", a.caps().addr)?;
    // Of one cache line, of two, of many.
    for size in [0, 5, 100, 500, 5_000] {
        let size = size.min(a.caps().mtu_safe);
        if let Some(mut slot) = a.tx_slot(to_b, size) {
            check(slot.len() == size, || format!("a slot of {} bytes was lent for {size}", slot.len()))?;
            slot.fill(0xee);
        }
        // And between committed ones.
        commit(&mut a, to_b, b"kept")?;
        drop(a.tx_slot(to_b, size));
        a.flush();
        expect(&receive(&mut b, 1)?[0], b"kept", a.caps().addr)?;
        // Before another frame lies over what was dropped.
        let extra = b.rx_burst(1, &mut |_, _| {});
        check(extra == 0, || format!("a dropped slot of {size} bytes was sent"))?;
    }
    let extra = receive_rest(&mut b)?.len();
    check(extra == 0, || format!("{extra} dropped slots were sent"))
}

pub(super) fn burst_arrives_with_one_flush(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    let count = a.caps().burst.min(b.caps().rx_frames);
    for number in 0..count {
        let bytes = payload(number as u64, 16);
        check(try_commit(&mut a, to_b, &bytes), || format!("frame {number} of a burst of {count} found no slot"))?;
    }
    a.flush();
    for (number, arrival) in receive(&mut b, count)?.iter().enumerate() {
        expect(arrival, &payload(number as u64, 16), a.caps().addr)?;
    }
    Ok(())
}

pub(super) fn budget_is_kept(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    for number in 0..5 {
        send(&mut a, to_b, &payload(number, 9))?;
    }
    let mut arrivals = receive(&mut b, 1)?;
    check(b.rx_burst(0, &mut |_, _| {}) == 0, || "a budget of nothing received something".into())?;
    while arrivals.len() < 5 {
        let before = arrivals.len();
        let count = b.rx_burst(2, &mut |frame, from| arrivals.push((frame.to_vec(), from)));
        check(count <= 2, || format!("a budget of 2 received {count}"))?;
        check(arrivals.len() - before == count, || format!("{count} returned, {} shown", arrivals.len() - before))?;
        if count == 0 {
            arrivals.append(&mut receive(&mut b, 1)?);
        }
    }
    for (number, arrival) in arrivals.iter().enumerate() {
        expect(arrival, &payload(number as u64, 9), a.caps().addr)?;
    }
    Ok(())
}

pub(super) fn full_ring_recovers(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    // Nobody receives: either the driver pushes back, or it drops, which only an unreliable one may.
    let enough = 4 * b.caps().rx_frames + 4 * a.caps().burst;
    let len = 64.min(a.caps().mtu_safe);
    let mut committed = 0;
    let mut refused = false;
    for _ in 0..enough {
        if !try_commit(&mut a, to_b, &payload(committed, len)) {
            refused = true;
            a.flush();
            if !try_commit(&mut a, to_b, &payload(committed, len)) {
                break;
            }
        }
        committed += 1;
    }
    check(refused || !a.is_reliable(), || format!("{enough} frames did not fill a ring that must not drop"))?;
    check(!refused || a.counters().tx_full > 0, || "a refused slot was not counted".into())?;
    let mut arrivals = Vec::new();
    let in_order = !stage.may_overtake();
    let mut silences = 0;
    // One may be that of a driver that is between two states, such as memif's while some peer comes or goes.
    while silences < 2 {
        // What the driver still holds goes on as its ring drains.
        a.flush();
        let more = receive_rest(&mut b)?;
        silences = if more.is_empty() { silences + 1 } else { 0 };
        arrivals.extend(more);
    }
    let mut numbers: Vec<u64> = arrivals.iter().filter_map(|(bytes, _)| number_of(bytes)).collect();
    if !in_order {
        arrivals.sort_by_key(|(bytes, _)| number_of(bytes));
        numbers.sort_unstable();
    }
    check(numbers.is_sorted_by(|a, b| a < b), || "frames came twice or out of order".into())?;
    check(numbers.last() < Some(&committed), || "a frame came that was never committed".into())?;
    for (arrival, &number) in arrivals.iter().zip(&numbers) {
        expect(arrival, &payload(number, len), a.caps().addr)?;
    }
    check(!numbers.is_empty(), || "a full ring delivered nothing".into())?;
    check(!a.is_reliable() || numbers.len() as u64 == committed, || {
        format!("{} of {committed} frames came", numbers.len())
    })?;
    for number in 0..100 {
        send(&mut a, to_b, &payload(number, 8))?;
        expect(&receive(&mut b, 1)?[0], &payload(number, 8), a.caps().addr)?;
    }
    Ok(())
}

/// The number that [`payload`] stamped on a frame.
fn number_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}
