//! The processes of a job on one host, a thread each, over shared memory.

use sidelane_nic::time::Duration;

use crate::adi::{self, Config, Device};
use crate::rma::{Contexts, Members};

/// Runs `each` as every process of a job, with members that are all of them. A panic of one ends all.
pub fn job(size: u32, config: &Config, each: impl Fn(&mut Device, Members) + Sync) {
    adi::in_threads(size, config, |mut device| {
        let own = device.own();
        each(&mut device, members(size, own, 0));
        device.close(Duration::from_millis(2_000));
    });
}

/// All processes, for the window with this number.
pub fn members(size: u32, own: u32, number: u32) -> Members {
    let first = 100 + 3 * number;
    let contexts = Contexts { requests: first, answers: first + 1, collective: first + 2 };
    Members { processes: (0..size).collect(), rank: own as usize, contexts }
}
