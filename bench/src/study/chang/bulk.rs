//! Stores and gets, one at a time and many: rates by size, and of them r∞ and n½ (their Section 3.3).
//!
//! r∞ is the highest rate that was seen; n½ the size with half of it, between the two sizes measured around it. A store here is
//! from a region without a copy, and over when its bytes are in place; its handler runs behind them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{LongError, ReplyRoom};
use sidelane_proto::{Event, Op, RemoteKey, Rights, RmaError};

use super::{Am, Inbox, KEY, OVER, SILENT, handlers};
use crate::clock::now_ns;
use crate::pattern::{Outcome, Pattern, Role};
use crate::transport::{Broken, close, establish};

/// What one operation takes, in nanoseconds: the whole time by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bulk {
    /// Bytes of each.
    pub size: usize,
    /// One at a time.
    pub store_ns: f64,
    /// Many.
    pub store_async_ns: f64,
    /// One at a time.
    pub get_ns: f64,
    /// Many.
    pub get_async_ns: f64,
}

/// The two numbers of a curve of rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Highest rate, in MB/s.
    pub r_inf: f64,
    /// Size in bytes that has half of it; `None` when the smallest size has more.
    pub n_half: Option<f64>,
}

impl Curve {
    /// Of operations by size in ascending order, and the time of each.
    pub fn of(rows: &[Bulk], time: fn(&Bulk) -> f64) -> Self {
        let rate = |row: &Bulk| row.size as f64 * 1e3 / time(row);
        let r_inf = rows.iter().map(rate).fold(0.0, f64::max);
        let around = rows.windows(2).find(|pair| rate(&pair[0]) < r_inf / 2.0 && rate(&pair[1]) >= r_inf / 2.0);
        let n_half = around.map(|pair| {
            let (low, high) = (rate(&pair[0]), rate(&pair[1]));
            let part = (r_inf / 2.0 - low) / (high - low);
            pair[0].size as f64 + part * (pair[1].size - pair[0].size) as f64
        });
        Self { r_inf, n_half }
    }
}

/// Plays one side.
pub(crate) fn play<N: Nic>(nic: N, peer: LinkAddr, role: Role, pattern: &Pattern) -> Result<Outcome, Broken> {
    let deadline_ns = now_ns() + pattern.limit_ns;
    let mut inbox = Inbox::default();
    let (mut am, peer) = establish(nic, handlers(), &mut inbox, (role, peer), deadline_ns)?;
    let region = am.endpoint_mut().register(vec![1; pattern.size]);
    let outcome = match role {
        Role::Responder => {
            let key = am.endpoint_mut().publish(region, Rights::ALL, None).map_err(Broken::driver)?;
            am.request(peer, KEY, &[], &key.to_bytes(), ReplyRoom::NONE).map_err(Broken::driver)?;
            while !inbox.over {
                turn(&mut am, &mut inbox, deadline_ns)?;
            }
            Outcome::default()
        }
        Role::Initiator => {
            let key = loop {
                match inbox.key {
                    Some(key) => break key,
                    None => turn(&mut am, &mut inbox, deadline_ns)?,
                }
            };
            let range = 0..pattern.size;
            let store = |am: &mut Am<N>| match am.store_async(peer, (&key, 0), (region, range.clone()), SILENT, []) {
                Err(error) if error.is_full() => Ok(None),
                begun => begun.map(Some).map_err(|error: LongError| Broken::driver(error)),
            };
            let get = |am: &mut Am<N>| match am.get(peer, (&key, 0), (region, range.clone())) {
                Err(RmaError::Full) => Ok(None),
                begun => begun.map(Some).map_err(Broken::driver),
            };
            let mut time = |depth, begin: &Begin<'_, N>| {
                repeat(&mut am, &mut inbox, depth, pattern.warm_ns / PARTS, deadline_ns, begin)?;
                repeat(&mut am, &mut inbox, depth, pattern.measure_ns / PARTS, deadline_ns, begin)
            };
            let bulk = Bulk {
                size: pattern.size,
                store_ns: time(1, &store)?,
                store_async_ns: time(DEPTH, &store)?,
                get_ns: time(1, &get)?,
                get_async_ns: time(DEPTH, &get)?,
            };
            am.request(peer, OVER, &[], &[], ReplyRoom::NONE).map_err(Broken::driver)?;
            Outcome { bulk: Some(bulk), ..Outcome::default() }
        }
    };
    close(&mut am, &mut inbox, peer, deadline_ns);
    Ok(outcome)
}

/// Begins an operation; `None`: there is no room now.
type Begin<'a, N> = dyn Fn(&mut Am<N>) -> Result<Option<Op>, Broken> + 'a;

/// Keeps `depth` operations under way for a time; what one took.
fn repeat<N: Nic>(
    am: &mut Am<N>,
    inbox: &mut Inbox,
    depth: usize,
    span_ns: u64,
    deadline_ns: u64,
    begin: &Begin<'_, N>,
) -> Result<f64, Broken> {
    let (began, mut operations) = (now_ns(), 0u64);
    let mut under_way = VecDeque::with_capacity(depth);
    // One at least, however late it is: the time limit is the end of patience.
    while operations == 0 || now_ns() < began + span_ns || !under_way.is_empty() {
        while under_way.len() < depth && (operations == 0 || now_ns() < began + span_ns) {
            let Some(op) = begin(am)? else { break };
            under_way.push_back(op);
            operations += 1;
        }
        am.flush();
        turn(am, inbox, deadline_ns)?;
        while under_way.front().is_some_and(|op| am.endpoint_mut().is_done(*op)) {
            under_way.pop_front();
        }
    }
    Ok((now_ns() - began) as f64 / operations as f64)
}

fn turn<N: Nic>(am: &mut Am<N>, inbox: &mut Inbox, deadline_ns: u64) -> Result<(), Broken> {
    am.poll(inbox);
    while let Some(event) = am.poll_event() {
        // The last message of all may have come with the other end's close.
        if matches!(event, Event::OpFailed { .. } | Event::Gone { .. }) && !inbox.over {
            return Err(Broken::Driver(format!("{event:?}")));
        }
    }
    if now_ns() > deadline_ns { Err(Broken::Deadline) } else { Ok(()) }
}

/// A key that came as a payload.
pub(super) fn key_of(payload: &[u8]) -> Option<RemoteKey> {
    payload.try_into().ok().map(RemoteKey::from_bytes)
}

/// Sizes of stores and gets.
pub(super) const SIZES: [usize; 9] = [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Operations under way when there are many: a quarter of the gets that may be unanswered.
const DEPTH: usize = 16;
/// A measurement's time is that of four curves.
const PARTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_a_fixed_cost_and_a_rate_has_both() {
        // 2 GB/s and 500 ns beside: half of the rate at 1000 bytes.
        let rows = SIZES.map(|size| Bulk { size, store_ns: 500.0 + size as f64 / 2.0, ..Bulk::default() });
        let curve = Curve::of(&rows, |row| row.store_ns);
        assert!((curve.r_inf - 2_000.0).abs() < 5.0, "{curve:?}");
        assert!((curve.n_half.unwrap() - 1_000.0).abs() < 30.0, "{curve:?}");
        assert_eq!(Curve::of(&rows[8..], |row| row.store_ns).n_half, None);
    }

    #[test]
    fn every_operation_is_timed_at_every_size() {
        for size in SIZES {
            let domain = format!("bulk-{}", std::process::id());
            let open = || sidelane_nic::shm::ShmNic::open(&domain, None).unwrap();
            let (a, b) = (open(), open());
            let (at_a, at_b) = (a.caps().addr, b.caps().addr);
            let (warm_ns, measure_ns, limit_ns) = (100_000, 1_000_000, 10_000_000_000);
            let pattern =
                Pattern { kind: crate::pattern::Kind::PingPong, size, depth: None, warm_ns, measure_ns, limit_ns };
            let outcome = std::thread::scope(|scope| {
                let other = scope.spawn(|| play(b, at_a, Role::Responder, &pattern));
                let outcome = play(a, at_b, Role::Initiator, &pattern);
                other.join().unwrap().unwrap();
                outcome
            });
            let bulk = outcome.unwrap().bulk.unwrap();
            assert!([bulk.store_ns, bulk.store_async_ns, bulk.get_ns, bulk.get_async_ns].iter().all(|ns| *ns > 0.0));
        }
    }
}
