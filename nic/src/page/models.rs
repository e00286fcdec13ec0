//! Every interleaving of a writer and a reader, under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-nic --lib models`

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::seqlock;

/// The reader is the thread that has not made the page, and makes way: after that loom shows nobody again what that thread has seen before, such
/// as zeros that it has written itself.
#[test]
fn a_reader_never_sees_half_of_a_turn() {
    // As in the models of `shm`.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let page = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
        let readers = Arc::clone(&page);
        let reader = thread::spawn(move || {
            loop {
                if let Some(seen) = seqlock::read(&readers.0, &readers.1) {
                    assert_eq!(seen[1], 10 * seen[0]);
                    if seen[0] == 2 {
                        break;
                    }
                }
                thread::yield_now();
            }
        });
        for turn in 1..=2 {
            seqlock::write(&page.0, &page.1, &[turn, 10 * turn]);
        }
        reader.join().unwrap();
    });
}
