//! The rings between two threads of one process: records of bytes to and fro, and a doorbell to sleep on.
//!
//! A small record crosses in one cache line, and neither side takes a lock or a system call unless the other sleeps.

use std::io;
use std::sync::atomic::AtomicU32;

use super::doorbell;
use super::mapping::{PAIR_BYTES, Ring, map_pair, sealed_memory};
use super::open::MTU;
use super::ring::{Consumer, Producer};
use super::sys;
pub use super::want::Want;
use crate::clock;
use crate::time::Instant;

/// Longest record.
pub const RECORD_MAX: usize = MTU;

/// One thread's end of two rings. It may move to another thread, and be used by one at a time.
pub struct End {
    tx: Producer<Ring>,
    rx: Consumer<Ring>,
}

/// Two ends that are joined.
pub fn pair() -> io::Result<(End, End)> {
    let [there, back] = map_pair(&sealed_memory(PAIR_BYTES)?)?;
    let end = |tx: &Ring, rx: &Ring| End { tx: Producer::new(tx.twin()), rx: Consumer::new(rx.twin(), MTU) };
    Ok((end(&there, &back), end(&back, &there)))
}

impl End {
    /// Lets `write` fill a record of `len` bytes, at most [`RECORD_MAX`], and makes it visible. False: no room.
    #[inline]
    pub fn push(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(mut room) = self.tx.reserve(len) else { return false };
        write(self.tx.payload_mut(&mut room));
        self.tx.publish(room);
        true
    }

    /// True if a record of `len` bytes has room. Where not, [`End::pop`] tells the other end when it makes some.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.tx.reserve(len).is_some()
    }

    /// True when a record found no room and some was made since.
    pub fn may_have_room(&self) -> bool {
        self.tx.may_have_room()
    }

    /// Shows the oldest record that waits to `take`, and gives its room back. `None`: there is none. The flag beside what `take`
    /// returned says that the other end waits for room: ring its doorbell.
    #[inline]
    pub fn pop<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> Option<(R, bool)> {
        let mut taken = None;
        let starved = self.rx.take(|record| taken = Some(take(record)))?;
        self.tx.on_received();
        taken.map(|taken| (taken, starved))
    }

    /// True when a record waits.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rx.is_ready()
    }
}

/// What one thread sleeps on while nothing is there for it.
#[derive(Default)]
pub struct Doorbell(AtomicU32);

impl Doorbell {
    /// Wakes the owner if it sleeps, or is about to: by `wake`, where it sleeps by [`Doorbell::sleep_by`]. What it is to find
    /// was made visible before.
    #[inline]
    pub fn ring_by(&self, wake: impl FnOnce()) {
        doorbell::published();
        doorbell::ring(&self.0, wake);
    }

    /// As [`Doorbell::ring_by`], of an owner that sleeps by [`Doorbell::sleep`].
    #[inline]
    pub fn ring(&self) {
        self.ring_by(|| sys::futex_wake(&self.0));
    }

    /// Sleeps by `wait`, which `ring_by`'s `wake` ends even if it comes first, unless `ready` is true already.
    pub fn sleep_by(&self, ready: impl FnOnce() -> bool, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        doorbell::sleep(&self.0, ready, |_| wait())
    }

    /// Sleeps until it is rung or the time is `deadline`, unless `ready` is true already. May wake for nothing.
    pub fn sleep(&self, ready: impl FnOnce() -> bool, deadline: Option<Instant>) -> io::Result<()> {
        let limit = deadline.map(|deadline| deadline.since(clock::monotonic()));
        if limit.is_some_and(|limit| limit.as_nanos() == 0) {
            return Ok(());
        }
        doorbell::sleep(&self.0, ready, |word| sys::futex_wait(word, doorbell::ASLEEP, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;

    #[test]
    fn records_of_any_length_come_in_order_and_a_full_lane_says_so() {
        let (mut a, mut b) = pair().unwrap();
        let lens = (0..).map(|n: usize| n * n * 7 % (RECORD_MAX + 1));
        let mut pushed = 0;
        for len in lens.clone() {
            if !a.push(len, |record| record.fill(len as u8)) {
                break;
            }
            pushed += 1;
        }
        assert!(pushed > 16 && !a.may_have_room() && !a.has_room(RECORD_MAX) && b.is_ready());
        let mut wanted = false;
        for len in lens.take(pushed) {
            let (fine, starved) =
                b.pop(|record| record.len() == len && record.iter().all(|byte| *byte == len as u8)).unwrap();
            assert!(fine);
            wanted |= starved;
        }
        assert!(wanted && !b.is_ready() && a.may_have_room() && a.has_room(RECORD_MAX));
    }

    #[test]
    fn two_threads_that_sleep_when_nothing_is_there_exchange_everything() {
        let bells = [Doorbell::default(), Doorbell::default()];
        let (a, b) = pair().unwrap();
        let play = |mut end: End, own: usize| {
            let (mut sent, mut received) = (0u64, 0);
            while received < RECORDS {
                while sent < RECORDS && end.push(8, |record| record.copy_from_slice(&sent.to_le_bytes())) {
                    sent += 1;
                    bells[1 - own].ring();
                }
                while let Some((number, starved)) = end.pop(|record| u64::from_le_bytes(record.try_into().unwrap())) {
                    assert_eq!(number, received);
                    received += 1;
                    if starved {
                        bells[1 - own].ring();
                    }
                }
                let late = clock::monotonic() + crate::time::Duration::from_millis(5_000);
                bells[own].sleep(|| end.is_ready() || received == RECORDS || end.may_have_room(), Some(late)).unwrap();
                assert!(clock::monotonic() < late, "{own} slept through something: sent {sent}, received {received}");
            }
            until("the other side takes the last records", || {
                sent += u64::from(sent < RECORDS && end.push(8, |record| record.copy_from_slice(&sent.to_le_bytes())));
                bells[1 - own].ring();
                sent == RECORDS
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(a, 0));
            play(b, 1);
        });
    }

    const RECORDS: u64 = 100_000;
}
