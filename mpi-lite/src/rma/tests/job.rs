//! The processes of a job on one host, a thread each, over shared memory.

use std::sync::mpsc;
use std::thread;

use sidelane_nic::time::Duration;

use crate::adi::{Config, Device, Port, Process, host_identity};
use crate::rma::{Contexts, Members};

/// Runs `each` as every process of a job, with members that are all of them. A panic of one ends all.
pub fn job(name: &str, size: u32, config: &Config, each: impl Fn(&mut Device, Members) + Send + Sync) {
    let domain = format!("rma-{name}-{}", std::process::id());
    thread::scope(|scope| {
        let (mut told, mut tell) = (Vec::new(), Vec::new());
        for own in 0..size {
            let (to_all, from_it) = mpsc::channel();
            let (all, from_all) = mpsc::channel::<Vec<Process>>();
            told.push(from_it);
            tell.push(all);
            let (domain, each) = (&domain, &each);
            scope.spawn(move || {
                let port = Port::open(&format!("shm:{domain}").parse().unwrap(), config).unwrap();
                let ports = vec![port];
                to_all.send(Process::here(&host_identity(), &ports)).unwrap();
                let mut device = Device::open(own, from_all.recv().unwrap(), ports, config).unwrap();
                // Others wait for this one, for ever.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    each(&mut device, members(size, own, 0));
                }));
                if done.is_err() {
                    eprintln!("process {own} of {name} has failed");
                    std::process::abort();
                }
                device.close(Duration::from_millis(2_000));
            });
        }
        let processes: Vec<_> = told.iter().map(|from| from.recv().unwrap()).collect();
        tell.iter().for_each(|to| to.send(processes.clone()).unwrap());
    });
}

/// All processes, for the window with this number.
pub fn members(size: u32, own: u32, number: u32) -> Members {
    let first = 100 + 3 * number;
    let contexts = Contexts { requests: first, answers: first + 1, collective: first + 2 };
    Members { processes: (0..size).collect(), rank: own as usize, contexts }
}
