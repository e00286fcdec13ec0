//! Two threads with an endpoint each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::erased::{Driver, Stage};
use super::traffic::{
    PATIENCE, check, commit, expect, link, missing, open, pause, payload, receive, send, try_commit, wait,
};
use super::{Stop, Verdict};
use crate::LinkAddr;
use crate::time::Duration;

pub(super) fn frame_wakes_waiter(stage: &mut dyn Stage<dyn Driver + Send>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let (at_a, at_b) = (a.caps().addr, b.caps().addr);
    // Both links are up before anybody's sleep is measured.
    let (to_b, to_a) = (link(&mut a, at_b)?, link(&mut b, at_a)?);
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    send(&mut b, to_a, b"up")?;
    receive(&mut a, 1)?;
    thread::scope(|scope| {
        // Borrows its endpoint: a device that is closed may lose what it still has to send, and the last answer with it.
        let echo = scope.spawn(|| {
            for number in 0..ROUNDS {
                let arrival = sleep_for_one(&mut b)?;
                expect(&arrival, &payload(number, 40), at_a)?;
                send(&mut b, to_a, &payload(number, 40))?;
            }
            Ok(())
        });
        let asked = (0..ROUNDS).try_for_each(|number| {
            send(&mut a, to_b, &payload(number, 40))?;
            expect(&sleep_for_one(&mut a)?, &payload(number, 40), at_b)
        });
        let answered = echo.join().unwrap_or_else(|_| Err(Stop::Failed("the echo panicked".into())));
        answered.and(asked)
    })
}

pub(super) fn waker_wakes_waiter(stage: &mut dyn Stage<dyn Driver + Send>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let waker = |nic: &mut Box<dyn Driver + Send>| nic.waker().map_err(|error| Stop::Failed(format!("waker: {error}")));
    let (wake_a, wake_b) = (waker(&mut a)?, waker(&mut b)?);
    // Each thread's turn is as many as the number of wake-ups it has had.
    let (turn_a, turn_b) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            (1..=ROUNDS).try_for_each(|round| {
                sleep_until(&mut b, &turn_b, round)?;
                turn_a.store(round, Ordering::Relaxed);
                wake_a.wake_by_ref();
                Ok(())
            })
        });
        let asked = (1..=ROUNDS).try_for_each(|round| {
            turn_b.store(round, Ordering::Relaxed);
            wake_b.wake_by_ref();
            sleep_until(&mut a, &turn_a, round)
        });
        let answered = echo.join().unwrap_or_else(|_| Err(Stop::Failed("the echo panicked".into())));
        asked.and(answered)
    })
}

/// Sleeps until `turn` is `round`, and checks that the sleep did not last until its deadline.
fn sleep_until<D: Driver + ?Sized>(nic: &mut Box<D>, turn: &AtomicU64, round: u64) -> Verdict {
    let give_up = nic.now() + PATIENCE;
    while turn.load(Ordering::Relaxed) < round {
        wait(nic, give_up)?;
        check(nic.now() < give_up, || format!("round {round}: slept for {PATIENCE:?} in spite of a wake-up"))?;
    }
    Ok(())
}

/// Sleeps until one frame is there, and checks that the sleep did not last until its deadline.
fn sleep_for_one<D: Driver + ?Sized>(nic: &mut Box<D>) -> Result<(Vec<u8>, LinkAddr), Stop> {
    let give_up = nic.now() + PATIENCE;
    loop {
        let mut arrival = None;
        if nic.rx_burst(1, &mut |frame, from| arrival = Some((frame.to_vec(), from))) > 0 {
            let overslept = nic.now() >= give_up;
            check(!overslept, || format!("a frame was there and the sleep lasted its {PATIENCE:?}"))?;
            return arrival.ok_or_else(|| Stop::Failed("a frame was counted and not shown".into()));
        }
        if nic.now() >= give_up {
            return Err(missing(&**nic, "asleep, no frame came"));
        }
        wait(nic, give_up)?;
    }
}

pub(super) fn driver_moves_between_threads(stage: &mut dyn Stage<dyn Driver + Send>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    let count = a.caps().burst.min(b.caps().rx_frames).min(10) as u64;
    for round in 0..3 {
        let numbers = round * count..(round + 1) * count;
        let moved = thread::scope(|scope| {
            let mut a = a;
            let numbers = numbers.clone();
            let mover = scope.spawn(move || {
                let sent = numbers.into_iter().try_for_each(|number| commit(&mut a, to_b, &payload(number, 40)));
                a.flush();
                sent.map(|()| a)
            });
            mover.join().unwrap_or_else(|_| Err(Stop::Failed("the other thread panicked".into())))
        });
        a = moved?;
        for (number, arrival) in numbers.zip(receive(&mut b, count as usize)?) {
            expect(&arrival, &payload(number, 40), a.caps().addr)?;
        }
    }
    Ok(())
}

pub(super) fn floods_arrive_intact(stage: &mut dyn Stage<dyn Driver + Send>) -> Verdict {
    let in_order = !stage.may_overtake();
    let [a, b] = open(stage)?;
    let (at_a, at_b) = (a.caps().addr, b.caps().addr);
    thread::scope(|scope| {
        let other = scope.spawn(move || flood(b, at_a, in_order));
        let one = flood(a, at_b, in_order);
        other.join().unwrap_or_else(|_| Err(Stop::Failed("a thread panicked".into()))).and(one)
    })
}

/// Sends numbered frames of many sizes and receives the other side's, both as fast as they go.
fn flood(mut nic: Box<dyn Driver + Send>, peer: LinkAddr, in_order: bool) -> Verdict {
    let to_peer = link(&mut nic, peer)?;
    let span = nic.caps().mtu_safe.min(1_500) as u64 - 8;
    let size = |number: u64| 8 + (number * number % span) as usize;
    let (mut sent, mut received, mut next) = (0, 0, 0);
    let mut seen = vec![false; FLOOD_FRAMES as usize];
    let mut verdict = Ok(());
    let mut last_news = nic.now();
    // The last frames of either side may be lost, so on such drivers a silence ends the flood, once it has begun.
    let silence_max = if nic.is_reliable() { PATIENCE } else { Duration::from_millis(200) };
    while sent < FLOOD_FRAMES || received < FLOOD_FRAMES {
        let mut moved = 0;
        while moved < 16 && sent < FLOOD_FRAMES && try_commit(&mut nic, to_peer, &payload(sent, size(sent))) {
            sent += 1;
            moved += 1;
        }
        nic.flush();
        moved += nic.rx_burst(32, &mut |frame, from| {
            let stamp = frame.get(..8).and_then(|stamp| stamp.try_into().ok());
            let number = u64::from_le_bytes(stamp.unwrap_or([0xff; 8]));
            let once = seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true));
            let due = number >= next || !in_order;
            let fine = from == peer && once && due && frame == payload(number, size(number));
            if !fine && verdict.is_ok() {
                verdict = Err(Stop::Failed(format!("frame {number} of {} bytes, where {next} was due", frame.len())));
            }
            next = number.saturating_add(1);
            received += 1;
        });
        if moved > 0 {
            last_news = nic.now();
        } else if nic.now().since(last_news) > if received == 0 { PATIENCE } else { silence_max } {
            break;
        } else {
            pause(&mut nic)?;
        }
    }
    verdict?;
    check(received > 0, || "nothing of a flood came".into())?;
    check(!nic.is_reliable() || received == FLOOD_FRAMES, || format!("{received} of {FLOOD_FRAMES} frames came"))
}

/// Sleeps and wake-ups: enough to meet a race that shows once in a hundred.
const ROUNDS: u64 = 500;

/// Frames that either side floods.
const FLOOD_FRAMES: u64 = 50_000;
