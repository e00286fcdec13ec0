//! A job whose ranks are threads of one process: for examples and tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use sidelane_nic::time::Duration;

use crate::adi::{Config, Device, OpenError, Port, Process, host_identity};

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
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let domain = format!("threads-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let spec = format!("shm:{domain}").parse().expect("the name of a driver");
    let processes = Mutex::new(vec![None; size as usize]);
    let meet = Barrier::new(size as usize);
    let run = |rank: u32| {
        let _end = EndTogether;
        let ports = vec![Port::open(&spec, config).unwrap_or_else(|error| panic!("shared memory: {error}"))];
        let here = Process::here(&host_identity(), &ports);
        processes.lock().expect("no rank panics and goes on")[rank as usize] = Some(here);
        meet.wait();
        let all = processes.lock().expect("no rank panics and goes on").iter().flatten().cloned().collect();
        let device = Device::open(rank, all, ports, config);
        let device = device.unwrap_or_else(|error: OpenError| panic!("the device: {error}"));
        let world = Communicator::world(device, multiple);
        let result = each(world.clone());
        world.local().lock().device.close(CLOSING);
        result
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank that panics ends the process")).collect()
    })
}

/// How long others may take to get what was sent to them last.
const CLOSING: Duration = Duration::from_millis(2_000);

struct EndTogether;

impl Drop for EndTogether {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
