//! A whole job in one thread and in virtual time: each rank's calls block as they do elsewhere, and while they wait, others run.
#![allow(unsafe_code)] // A simulated device stays on its thread, which is promised here.

use std::cell::RefCell;
use std::rc::Rc;

use sidelane_mpi::adi::{Config, Device, Limits, Patience, Port, Process, Turns};
use sidelane_mpi::comm::Communicator;
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::{Duration, Instant};

use crate::fibers::{Fiber, Step, pause};
use crate::program::Program;

/// When each rank wants to go on: at the latest then, if nothing comes before.
type Alarms = Rc<RefCell<Vec<Instant>>>;

/// Runs a program, whose seed also says on which hosts its ranks are and what befalls its frames; how much virtual time that took.
pub fn run(program: Program) -> Instant {
    let mut rng = Rng::new(program.seed ^ 0x5171);
    let hosts = hosts(&mut rng, program.ranks as usize);
    let fabric = Fabric::new(rng.next_u64());
    fabric.set_default_link(link(&mut rng));
    let config = config(&mut rng);
    let of_ranks = hosts.clone();
    on_fabric(&fabric, &hosts, &config, rng, move |world, rest| {
        program.run(world, of_ranks[world.rank() as usize], rest);
    })
}

/// What `each` rank does on hosts of which only the first ranks reach other hosts.
pub fn run_among_leaders(hosts: &[u64], each: impl Fn(&Communicator) + 'static) {
    let fabric = Fabric::new(1);
    let leads = |rank: usize| !hosts[..rank].contains(&hosts[rank]);
    for (one, other) in (0..hosts.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
        if hosts[one] != hosts[other] && !(leads(one) && leads(other)) {
            fabric.partition(one as u32, other as u32, END);
        }
    }
    on_fabric(&fabric, hosts, &config(&mut Rng::new(1)), Rng::new(2), move |world, _| each(world));
}

fn on_fabric(
    fabric: &Fabric,
    hosts: &[u64],
    config: &Config,
    mut rng: Rng,
    each: impl Fn(&Communicator, &dyn Fn()) + 'static,
) -> Instant {
    let alarms: Alarms = Rc::new(RefCell::new(vec![Instant::ZERO; hosts.len()]));
    let on_wait = Rc::clone(&alarms);
    fabric.on_wait(move |node, until| {
        on_wait.borrow_mut()[node as usize] = until.unwrap_or(Instant::from_nanos(u64::MAX));
        pause();
    });
    let each = Rc::new(each);
    let node = node(config);
    let devices = devices(fabric, node, hosts, config, rng.next_u64());
    let fibers = devices.into_iter().enumerate().map(|(rank, device)| {
        let (each, fabric, alarms) = (Rc::clone(&each), fabric.clone(), Rc::clone(&alarms));
        Fiber::new(move || {
            let rest = move || {
                alarms.borrow_mut()[rank] = fabric.now() + REST;
                pause();
            };
            live(&*each, device, &rest);
        })
    });
    let mut fibers: Vec<Option<Fiber>> = fibers.map(Some).collect();
    drive(&mut fibers, fabric, &alarms, &mut rng);
    fabric.now()
}

/// One rank.
fn live(each: &impl Fn(&Communicator, &dyn Fn()), device: Device, rest: &dyn Fn()) {
    // SAFETY: All of it is this fiber's, whose thread is the only one.
    let world = unsafe { Communicator::simulated(device) };
    each(&world, rest);
    // SAFETY: The device stays where it is.
    unsafe {
        world.with_device(|held| {
            let device = held.device();
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

/// Each on one of its own, or some on each.
fn hosts(rng: &mut Rng, size: usize) -> Vec<u64> {
    let most = 1 + rng.below(4);
    if rng.chance(0.3) { (0..size as u64).collect() } else { (0..size).map(|_| rng.below(most)).collect() }
}

/// Frames in which messages go in parts of a page, where they may go unasked so long.
fn node(config: &Config) -> NodeConfig {
    let node = NodeConfig::default();
    if config.off_host.eager_max > node.mtu { NodeConfig { mtu: 4_300, mtu_safe: 4_300, ..node } } else { node }
}

fn devices(fabric: &Fabric, node: NodeConfig, hosts: &[u64], config: &Config, seed: u64) -> Vec<Device> {
    let ports = (0..hosts.len()).map(|rank| {
        let mut config = *config;
        config.endpoint.seed = Some(seed ^ rank as u64);
        Port::new(fabric.nic(node), &config).expect("a driver that devices know")
    });
    let ports: Vec<Port> = ports.collect();
    // Nobody shares memory with others of its host, nor sees whether they live: their births are unknown.
    let unborn = |process: Process| {
        let text = process.to_string();
        let mut parts: Vec<&str> = text.split(',').collect();
        parts[2] = "-";
        parts.join(",").parse().expect("a process")
    };
    let process = |(host, port)| unborn(Process::here(&format!("host{host}"), std::slice::from_ref(port)));
    let processes: Vec<Process> = hosts.iter().zip(&ports).map(process).collect();
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
    let eager_max = if rng.chance(0.3) { 10_000 } else { 300 };
    let limits = Limits { eager_max, prefix, put_min: 1_000, pull_min: usize::MAX };
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
