//! Every interleaving of who stamps and who looks at the stamps, under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-nic --lib stamps::models`

use loom::thread;

use super::{BORDERS, buffer};

/// Three preemptions at most, as in the models of `shm`.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The third takes the place of the first, or is dropped. The reader is the thread that has not made the buffer, and makes way: after that loom
/// shows nobody again what that thread has seen before, such as zeros that it has written itself. Not shown: that no place is written before it
/// is read, since a load of loom's never sees what is stored after it.
#[test]
fn a_sample_is_read_whole_and_in_order_or_was_dropped_and_counted() {
    const SAMPLES: u64 = 3;
    explore(|| {
        let (mut writer, mut reader) = buffer(2);
        let looker = thread::spawn(move || {
            for number in 1..=2 {
                let sample = loop {
                    match reader.pop() {
                        Some(sample) => break sample,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(sample, (number, [10 * number; BORDERS]));
            }
            reader
        });
        (1..=SAMPLES).for_each(|number| writer.push(number, &[10 * number; BORDERS]));
        let last = looker.join().unwrap().pop();
        assert!(last.is_none_or(|last| last == (SAMPLES, [10 * SAMPLES; BORDERS])));
        assert_eq!(writer.dropped(), u64::from(last.is_none()));
    });
}
