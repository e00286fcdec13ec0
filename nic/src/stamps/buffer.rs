//! Stamps from the thread that takes them to one that looks at them, without a lock on the way.

#[cfg(loom)]
use loom::sync::Arc;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{BORDERS, Stamps};

/// A buffer for `records` samples, each with a number that says which message it was.
pub fn buffer(records: usize) -> (Writer, Reader) {
    let records = (0..records.next_power_of_two()).map(|_| Default::default()).collect();
    let shared = Arc::new(Shared { records, written: AtomicUsize::new(0), read: AtomicUsize::new(0) });
    (Writer { shared: Arc::clone(&shared), dropped: 0 }, Reader { shared })
}

struct Shared {
    records: Box<[[AtomicU64; BORDERS + 1]]>,
    /// Records ever written, and ever read: the places between the two are the reader's.
    written: AtomicUsize,
    read: AtomicUsize,
}

/// The end that a poll loop has. Never waits.
pub struct Writer {
    shared: Arc<Shared>,
    dropped: u64,
}

/// The other end.
pub struct Reader {
    shared: Arc<Shared>,
}

impl Writer {
    /// Adds a sample. A full buffer drops it, and counts.
    #[inline]
    pub fn push(&mut self, number: u64, stamps: &Stamps) {
        let Shared { records, written, read } = &*self.shared;
        let at = written.load(Ordering::Relaxed);
        // Pairs with the Release in `pop`: what was there has been read.
        if at.wrapping_sub(read.load(Ordering::Acquire)) == records.len() {
            self.dropped += 1;
            return;
        }
        let record = &records[at & (records.len() - 1)];
        for (word, value) in record.iter().zip(std::iter::once(&number).chain(stamps)) {
            word.store(*value, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `pop`.
        written.store(at.wrapping_add(1), Ordering::Release);
    }

    /// Samples that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Reader {
    /// The oldest sample.
    pub fn pop(&mut self) -> Option<(u64, Stamps)> {
        let Shared { records, written, read } = &*self.shared;
        let at = read.load(Ordering::Relaxed);
        // Pairs with the Release in `push`.
        if at == written.load(Ordering::Acquire) {
            return None;
        }
        let record = &records[at & (records.len() - 1)];
        let mut stamps = [0; BORDERS];
        for (stamp, word) in stamps.iter_mut().zip(&record[1..]) {
            *stamp = word.load(Ordering::Relaxed);
        }
        let number = record[0].load(Ordering::Relaxed);
        // Pairs with the Acquire in `push`.
        read.store(at.wrapping_add(1), Ordering::Release);
        Some((number, stamps))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::patience::until;

    #[test]
    fn a_full_buffer_drops_the_newest_and_counts() {
        let (mut writer, mut reader) = buffer(4);
        for number in 0..6 {
            writer.push(number, &[number; BORDERS]);
        }
        assert_eq!(writer.dropped(), 2);
        assert_eq!(std::iter::from_fn(|| reader.pop()).map(|(number, _)| number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        writer.push(9, &[9; BORDERS]);
        assert_eq!(reader.pop(), Some((9, [9; BORDERS])));
    }

    #[test]
    fn what_a_thread_writes_another_reads_whole_and_in_order() {
        const SAMPLES: u64 = 20_000;
        let (mut writer, mut reader) = buffer(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..SAMPLES {
                    until("a sample is taken", || {
                        let dropped = writer.dropped();
                        writer.push(number, &[number; BORDERS]);
                        writer.dropped() == dropped
                    });
                }
            });
            for next in 0..SAMPLES {
                until("a sample is there", || {
                    let Some(sample) = reader.pop() else { return false };
                    assert_eq!(sample, (next, [next; BORDERS]));
                    true
                });
            }
        });
    }
}
