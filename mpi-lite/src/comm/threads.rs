//! A job whose ranks are threads of one process: for examples and tests.

use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::time::Duration;

use crate::adi::{self, Config};

use super::Communicator;

/// Runs `each` as every rank of a job of `size` on this host, over shared memory, and returns what they return, by rank. With
/// `multiple`, each may use its communicator from several threads.
///
/// # Panics
///
/// When shared memory can't be opened. A rank that panics ends the process, since the others would wait for it for ever.
pub fn in_threads<T: Send>(
    size: u32,
    config: &Config,
    multiple: bool,
    each: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    run(size, config, multiple, &each)
}

/// One function for all that return the same. A closure within [`in_threads`] would be another one for each of its callers.
fn run<T: Send>(size: u32, config: &Config, multiple: bool, each: &(dyn Fn(Communicator) -> T + Sync)) -> Vec<T> {
    let running = AtomicU32::new(size);
    adi::in_threads(size, config, |device| {
        let world = Communicator::world(device, multiple);
        let result = each(world.clone());
        world.delete_own_attributes();
        // As a job's ranks at their end: who closes is gone for the others, which may still need this one's turns.
        running.fetch_sub(1, Ordering::Relaxed);
        world.local().wait_for(|_| (running.load(Ordering::Relaxed) == 0).then_some(()));
        world.local().lock().device.close(CLOSING);
        result
    })
}

/// How long others may take to get what was sent to them last.
const CLOSING: Duration = Duration::from_millis(2_000);
