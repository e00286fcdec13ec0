//! A whole job in one thread and in virtual time: each rank's calls block as they do elsewhere, and while they wait, others run.
#![allow(unsafe_code)] // A simulated device stays on its thread, which is promised here.

use std::cell::RefCell;
use std::rc::Rc;

use sidelane_mpi::adi::{Config, Device, Limits, Patience, Port, Process};
use sidelane_mpi::comm::Communicator;
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::{Duration, Instant};

use crate::fibers::{Fiber, Step, pause};
use crate::program::Program;

/// When each rank wants to go on: at the latest then, if nothing comes before.
type Alarms = Rc<RefCell<Vec<Instant>>>;

/// Runs a program, whose seed also says what befalls its frames; how much virtual time that took.
pub fn run(program: Program) -> Instant {
    let mut rng = Rng::new(program.seed ^ 0x5171);
    let size = program.ranks as usize;
    let fabric = Fabric::new(rng.next_u64());
    fabric.set_default_link(link(&mut rng));
    let alarms: Alarms = Rc::new(RefCell::new(vec![Instant::ZERO; size]));
    let on_wait = Rc::clone(&alarms);
    fabric.on_wait(move |node, until| {
        on_wait.borrow_mut()[node as usize] = until.unwrap_or(Instant::from_nanos(u64::MAX));
        pause();
    });
    let program = Rc::new(program);
    let devices = devices(&fabric, size, &config(&mut rng), rng.next_u64());
    let fibers = devices.into_iter().enumerate().map(|(rank, device)| {
        let (program, fabric, alarms) = (Rc::clone(&program), fabric.clone(), Rc::clone(&alarms));
        Fiber::new(move || {
            let rest = move || {
                alarms.borrow_mut()[rank] = fabric.now() + REST;
                pause();
            };
            live(&program, device, &rest);
        })
    });
    let mut fibers: Vec<Option<Fiber>> = fibers.map(Some).collect();
    drive(&mut fibers, &fabric, &alarms, &mut rng);
    fabric.now()
}

/// One rank.
fn live(program: &Program, device: Device, rest: &dyn Fn()) {
    // SAFETY: All of it is this fiber's, whose thread is the only one.
    let world = unsafe { Communicator::simulated(device) };
    program.run(&world, rest);
    // SAFETY: The device stays where it is.
    unsafe {
        world.with_device(|device| {
            let counters = device.counters();
            assert_eq!((counters.malformed, counters.stale, counters.beyond_credit), (0, 0, 0));
            device.close(CLOSING);
        });
    }
}

/// Lets each run that has something to do, in random order, and moves time when none has.
fn drive(fibers: &mut [Option<Fiber>], fabric: &Fabric, alarms: &Alarms, rng: &mut Rng) {
    loop {
        let now = fabric.now();
        let ready = |rank: usize| alarms.borrow()[rank] <= now || fabric.has_received(rank as u32);
        let live = || (0..fibers.len()).filter(|rank| fibers[*rank].is_some());
        let mut turn: Vec<usize> = live().filter(|rank| ready(*rank)).collect();
        if turn.is_empty() {
            let alarm = live().map(|rank| alarms.borrow()[rank]).min();
            let Some(alarm) = alarm else { return };
            let next = fabric.next_arrival().map_or(alarm, |arrival| arrival.min(alarm));
            assert!(next < END, "ranks {:?} wait without end", live().collect::<Vec<_>>());
            fabric.advance_to(next);
            continue;
        }
        while !turn.is_empty() {
            let rank = turn.swap_remove(rng.below(turn.len() as u64) as usize);
            match fibers[rank].as_mut().expect("it was live").resume() {
                Step::Paused => {}
                Step::Returned => fibers[rank] = None,
                Step::Panicked(with) => {
                    // The others hold what they hold: they are not run to their ends.
                    fibers.iter_mut().for_each(|fiber| std::mem::forget(fiber.take()));
                    std::panic::resume_unwind(with);
                }
            }
        }
    }
}

fn devices(fabric: &Fabric, size: usize, config: &Config, seed: u64) -> Vec<Device> {
    let ports = (0..size).map(|rank| {
        let mut config = *config;
        config.endpoint.seed = seed ^ rank as u64;
        Port::new(fabric.nic(NodeConfig::default()), &config).expect("a driver that devices know")
    });
    let ports: Vec<Port> = ports.collect();
    // Hosts of their own: nobody reads another's memory.
    let processes: Vec<Process> = ports
        .iter()
        .enumerate()
        .map(|(rank, port)| Process::here(&format!("host{rank}"), std::slice::from_ref(port)))
        .collect();
    let devices = ports.into_iter().zip(0..);
    devices.map(|(port, own)| Device::open(own, processes.clone(), vec![port], config).unwrap()).collect()
}

fn link(rng: &mut Rng) -> LinkModel {
    let delay = Duration::from_nanos(rng.below(5_000));
    let faults = match rng.below(4) {
        0 => Faults::NONE,
        1 => Faults { loss: 0.02, ..Faults::NONE },
        2 => Faults { duplicate: 0.1, reorder: 0.2, delay: 0.1, ..Faults::NONE },
        _ => Faults { loss: 0.02, duplicate: 0.05, reorder: 0.1, delay: 0.05, corrupt: 0.01, ..Faults::NONE },
    };
    LinkModel { delay, faults, ..LinkModel::default() }
}

/// Limits that short messages reach.
fn config(rng: &mut Rng) -> Config {
    let prefix = if rng.chance(0.5) { 0 } else { 100 };
    let limits = Limits { eager_max: 300, prefix, put_min: 1_000, pull_min: usize::MAX };
    let at_once = Patience { spin: 0, yields: 0 };
    let default = Config::default();
    let endpoint = sidelane_proto::Config { send_fifo: 4 << 10, recv_fifo: 8 << 10, ..default.endpoint };
    let credit = 512 << rng.below(6);
    Config {
        endpoint,
        on_host: limits,
        off_host: limits,
        credit,
        patience: at_once,
        patience_crowded: at_once,
        ..default
    }
}

/// How long a rank rests that asks again and again.
const REST: Duration = Duration::from_micros(1);
/// As `world` gives the ends of connections.
const CLOSING: Duration = Duration::from_millis(1_000);
/// A program takes milliseconds, and a few time-outs of lost frames.
const END: Instant = Instant::from_nanos(100_000_000_000);
