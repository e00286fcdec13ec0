//! Every interleaving of a writer and a reader, under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-nic --lib models`

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::seqlock;

#[test]
fn a_reader_never_sees_half_of_a_turn() {
    loom::model(|| {
        let page = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                for turn in 1..=2 {
                    seqlock::write(&page.0, &page.1, &[turn, 10 * turn]);
                }
            })
        };
        if let Some(seen) = seqlock::read(&page.0, &page.1) {
            assert_eq!(seen[1], 10 * seen[0]);
        }
        writer.join().unwrap();
        assert_eq!(seqlock::read(&page.0, &page.1), Some(vec![2, 20]));
    });
}
