//! A job whose processes are threads of one: for examples and tests.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use super::config::Config;
use super::device::Device;
use super::lock::lock;
use super::open::OpenError;
use super::port::Port;
use super::process::{Process, host_identity};

/// Runs `each` as every process of a job of `size` on this host, over shared memory, and returns what they return. It closes
/// its device.
///
/// # Panics
///
/// When shared memory can't be opened. A process that panics ends this one, since the others would wait for it for ever.
pub fn in_threads<T: Send>(size: u32, config: &Config, each: impl Fn(Device) -> T + Sync) -> Vec<T> {
    run(size, config, &|_| {}, &each)
}

/// As [`in_threads`], with something else said of each process than what is true.
#[cfg(test)]
pub(super) fn in_changed_threads<T: Send>(
    size: u32,
    config: &Config,
    change: impl Fn(&mut Process) + Sync,
    each: impl Fn(Device) -> T + Sync,
) -> Vec<T> {
    run(size, config, &change, &each)
}

/// One function for all that return the same. A closure within [`in_threads`] would be another one for each of its callers.
fn run<T: Send>(size: u32, config: &Config, change: Change<'_>, each: &(dyn Fn(Device) -> T + Sync)) -> Vec<T> {
    let results: Vec<_> = (0..size).map(|_| Mutex::new(None)).collect();
    run_all(size, config, change, &|own, device| {
        let result = each(device);
        *lock(&results[own as usize]) = Some(result);
    });
    let results = results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.map(|result| result.expect("each has run")).collect()
}

type Change<'a> = &'a (dyn Fn(&mut Process) + Sync);

/// One function for all jobs: what starts threads is a lot of code.
fn run_all(size: u32, config: &Config, change: Change<'_>, each: &(dyn Fn(u32, Device) + Sync)) {
    // Nothing else ends a test whose ranks wait for each other for ever.
    #[cfg(test)]
    crate::patience::watch(&format!("a job of {size} threads"), crate::patience::SUITE_PATIENCE);
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let domain = format!("threads-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let spec = format!("shm:{domain}").parse().expect("the name of a driver");
    let processes = Mutex::new(vec![None; size as usize]);
    let meet = Barrier::new(size as usize);
    let run = &|own: u32| {
        let ports = vec![Port::open(&spec, config).unwrap_or_else(|error| panic!("shared memory: {error}"))];
        let mut here = Process::here(&host_identity(), &ports);
        change(&mut here);
        lock(&processes)[own as usize] = Some(here);
        meet.wait();
        let all = lock(&processes).iter().flatten().cloned().collect();
        let device = Device::open(own, all, ports, config);
        each(own, device.unwrap_or_else(|error: OpenError| panic!("the device: {error}")));
    };
    let run_or_end = &|own| catch_unwind(AssertUnwindSafe(|| run(own))).unwrap_or_else(|why| end_together(own, &*why));
    // The scope waits for all, and none panics: that ends all.
    thread::scope(|scope| (0..size).for_each(|own| drop(scope.spawn(move || run_or_end(own)))));
}

/// Says what a test harness has taken of the panic's own message, and would lose now.
fn end_together(own: u32, why: &(dyn Any + Send)) -> ! {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref().copied());
    let _ = writeln!(
        std::io::stderr(),
        "process {own} of a job of threads panicked, which ends all: {}",
        text.unwrap_or("with something else than a text")
    );
    std::process::abort()
}
