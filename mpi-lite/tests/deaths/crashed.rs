//! One process crashes at some moment of a call in which two groups agree, or while a window is made and used: whenever it is, all others'
//! calls end. In virtual time, with no launcher: its silence tells.
#![allow(unsafe_code)] // A simulated device stays on its thread, which is promised here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sidelane_mpi::adi::{Config, Device, Patience, Port, Process, Turns};
use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::op::Op;
use sidelane_mpi::window::{Lock, Window};
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::time::{Duration, Instant};

use crate::fibers::{Fiber, Step, pause};
use crate::patience::{PATIENCE, watch};

/// In two groups, whose first ranks are their leaders.
const RANKS: usize = 4;

/// What each rank has: all, its group, and both groups.
struct Communicators {
    world: Communicator,
    half: Communicator,
    between: Communicator,
}

/// What gives back something that has to last.
type Call = fn(&Communicators) -> Result<Communicator, ErrorClass>;

/// Of two groups.
const CALLS: [(&str, Call); 5] = [
    ("intercomm", |of| of.half.intercomm(0, &of.world, if of.world.rank() < 2 { 2 } else { 0 }, 3)),
    ("dup", |of| of.between.dup()),
    ("idup", |of| of.between.idup()?.wait()),
    ("split", |of| of.between.split(Some(1), 0).map(|made| made.expect("all are in"))),
    ("merge", |of| of.between.merge(false)),
];

/// Elements of a rank's part of a window: messages of several frames.
const LEN: usize = 2_000;

const WINDOWS: [(&str, Call); 5] = [
    ("fences", |of| {
        in_window(&of.world, |window, _, next| {
            let epoch = window.fence()?;
            epoch.put(&[1; LEN], next, 0)?;
            epoch.accumulate(&[1; LEN], next, 0, &Op::Sum)?;
            epoch.fence()?;
            epoch.get(&mut [0; LEN], next, 0)?;
            epoch.end()
        })
    }),
    ("locks", |of| {
        in_window(&of.world, |window, _, next| {
            let epoch = window.lock(next, Lock::Exclusive)?;
            epoch.get(&mut [0; LEN], next, 0)?;
            epoch.put(&[1; LEN], next, 0)?;
            epoch.end()?;
            window.lock(0, Lock::Exclusive)?.end()
        })
    }),
    ("locks of all", |of| {
        in_window(&of.world, |window, _, next| {
            let epoch = window.lock_all()?;
            (0..window.size()).try_for_each(|rank| epoch.fetch_and_op(1, rank, 0, &Op::Sum).map(drop))?;
            epoch.accumulate(&[1; LEN], next, 0, &Op::Sum)?;
            epoch.flush_all()?;
            epoch.end()
        })
    }),
    ("posts", |of| {
        in_window(&of.world, |window, before, next| {
            let posted = window.post(&[before])?;
            let epoch = window.start(&[next])?;
            epoch.put(&[1; LEN], next, 0)?;
            epoch.end()?;
            posted.wait()
        })
    }),
    // Nobody else needs the window, and would tell them that somebody has not got it.
    ("posts of two", |of| {
        in_window(&of.world, |window, _, _| match window.rank() {
            2 => window.post(&[3])?.wait(),
            3 => window.start(&[2])?.end(),
            _ => Ok(()),
        })
    }),
];

/// Each rank's calls in a window, which are told who is before it and who comes next. Whoever fails there ends the others' waits.
fn in_window(
    world: &Communicator,
    calls: fn(&mut Window<u64>, u32, u32) -> Result<(), ErrorClass>,
) -> Result<Communicator, ErrorClass> {
    let (rank, size) = (world.rank(), world.size());
    let mut window = world.window(LEN)?;
    let done = calls(&mut window, (rank + size - 1) % size, (rank + 1) % size);
    if done.is_err() {
        window.revoke();
    }
    window.free().and(done).map(|()| world.clone())
}

/// What else is different from one job to another.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// Ids come again, so that all agree on a second thing about one.
    used: bool,
    /// The second group comes when the first one has known of the crash for long.
    late: bool,
    victim: usize,
    /// From the beginning of the call.
    crash: Duration,
}

/// What all ranks of a job look at, and each for itself.
struct Stage {
    fabric: Fabric,
    alarms: RefCell<[Instant; RANKS]>,
    /// Those that are about to call.
    ready: Cell<usize>,
    /// When all were.
    begun: Cell<Option<Instant>>,
    ended: Cell<[bool; RANKS]>,
}

impl Stage {
    fn has_ended(&self, but: usize) -> bool {
        (0..RANKS).all(|rank| rank == but || self.ended.get()[rank])
    }
}

/// Runs a job in which all make a call and one crashes. How long the others took.
fn run((name, call): &(&str, Call), case: Case) -> Duration {
    // Whoever waits without ever sleeping keeps virtual time from moving.
    watch(&format!("{name}, {case:?}"), PATIENCE);
    let stage = Rc::new(Stage {
        fabric: Fabric::new(7),
        alarms: RefCell::new([Instant::ZERO; RANKS]),
        ready: Cell::new(0),
        begun: Cell::new(None),
        ended: Cell::new([false; RANKS]),
    });
    let fabric = &stage.fabric;
    fabric.set_default_link(LinkModel { delay: Duration::from_micros(1), ..LinkModel::default() });
    let on_wait = Rc::downgrade(&stage);
    fabric.on_wait(move |node, until| {
        if let Some(stage) = on_wait.upgrade() {
            stage.alarms.borrow_mut()[node as usize] = until.unwrap_or(Instant::from_nanos(u64::MAX));
        }
        pause();
    });
    let call = *call;
    let fibers = devices(fabric).into_iter().map(|device| {
        let stage = Rc::clone(&stage);
        Some(Fiber::new(move || live(&stage, device, call, case)))
    });
    let mut fibers: Vec<Option<Fiber>> = fibers.collect();
    let crash = || stage.begun.get().map(|begun| begun + case.crash);
    while !stage.has_ended(case.victim) {
        let now = fabric.now();
        if crash().is_some_and(|crash| crash <= now)
            && let Some(crashed) = fibers[case.victim].take()
        {
            // What it holds is nobody's any more.
            std::mem::forget(crashed);
            fabric.crash(case.victim as u32);
        }
        let live: Vec<usize> = (0..RANKS).filter(|rank| fibers[*rank].is_some()).collect();
        let ready = |rank: &usize| stage.alarms.borrow()[*rank] <= now || fabric.has_received(*rank as u32);
        let turn: Vec<usize> = live.iter().copied().filter(ready).collect();
        for rank in &turn {
            if let Some(Step::Panicked(with)) = fibers[*rank].as_mut().map(Fiber::resume) {
                fibers.iter_mut().for_each(|fiber| std::mem::forget(fiber.take()));
                std::panic::resume_unwind(with);
            }
        }
        if turn.is_empty() {
            let alarms = live.iter().map(|rank| stage.alarms.borrow()[*rank]);
            let next = alarms.chain(fabric.next_arrival()).chain(crash().filter(|crash| *crash > now)).min();
            let next = next.filter(|next| *next < END);
            let waiting = || (0..RANKS).filter(|rank| *rank != case.victim && !stage.ended.get()[*rank]);
            fabric.advance_to(
                next.unwrap_or_else(|| panic!("{name}, {case:?}: no end of {:?}", waiting().collect::<Vec<_>>())),
            );
        }
    }
    // Their devices go on for each other's sake.
    fibers.iter_mut().for_each(|fiber| std::mem::forget(fiber.take()));
    fabric.now().since(stage.begun.get().expect("all have begun"))
}

/// One rank.
fn live(stage: &Stage, device: Device, call: Call, case: Case) {
    // SAFETY: All of it is this fiber's, whose thread is the only one.
    let world = unsafe { Communicator::simulated(device) };
    let rank = world.rank();
    let half = world.split(Some(rank / 2), 0).unwrap().unwrap();
    let between = half.intercomm(0, &world, if rank < 2 { 2 } else { 0 }, 0).unwrap();
    if case.used {
        let given_up = world.dup().unwrap();
        given_up.revoke();
        drop(given_up);
    }
    world.barrier().unwrap();
    let now = stage.fabric.now();
    stage.ready.set(stage.ready.get() + 1);
    if stage.ready.get() == RANKS {
        stage.begun.set(Some(now));
    }
    if case.late && rank >= 2 {
        polled(&world, || stage.fabric.now() >= now + LATE);
    }
    let of = Communicators { world: world.clone(), half, between };
    let made = call(&of);
    let mut ended = stage.ended.get();
    ended[rank as usize] = true;
    stage.ended.set(ended);
    // Does something else meanwhile.
    polled(&world, || false);
    drop(made);
}

/// Does nothing but answer others, until it is time.
fn polled(world: &Communicator, is_over: impl Fn() -> bool) {
    // SAFETY: The device stays where it is.
    unsafe {
        world.with_device(|turns| turns.wait_until(|_| is_over().then_some(())));
    }
}

fn devices(fabric: &Fabric) -> Vec<Device> {
    let at_once = Patience { spin: 0, yields: 0 };
    let config = Config { patience: at_once, patience_crowded: at_once, ..Config::default() };
    let config = config.noticing_silence(Duration::from_millis(2_000));
    let port = |_| Port::new(fabric.nic(NodeConfig::default()), &config).expect("a driver that devices know");
    let ports: Vec<Port> = (0..RANKS).map(port).collect();
    let here = |(host, port): (usize, &Port)| Process::here(&format!("host{host}"), std::slice::from_ref(port));
    let processes: Vec<Process> = ports.iter().enumerate().map(here).collect();
    let devices = ports.into_iter().zip(0..);
    devices.map(|(port, own)| Device::open(own, processes.clone(), vec![port], &config).unwrap()).collect()
}

/// Far more than silence takes to tell.
const LATE: Duration = Duration::from_millis(10_000);
/// A call takes microseconds, and some ends are noticed by the silence of a few in turn.
const END: Instant = Instant::from_nanos(200_000_000_000);

/// Every call, when each rank crashes at each microsecond of it.
fn crashes(calls: &[(&str, Call)], used: bool, late: bool) {
    for call in calls {
        let never = Duration::from_millis(1 << 30);
        let took = run(call, Case { used, late: false, victim: 0, crash: never });
        assert!(took < Duration::from_millis(10), "{}: {took:?}", call.0);
        for victim in 0..RANKS {
            for us in 0..=took.as_nanos() / 1_000 {
                run(call, Case { used, late, victim, crash: Duration::from_micros(us) });
            }
        }
    }
}

#[test]
fn a_crash_at_any_moment_of_a_call_of_two_groups_ends_it_for_all() {
    crashes(&CALLS, false, false);
    crashes(&CALLS, true, false);
}

#[test]
fn a_crash_in_one_group_before_the_other_has_come_ends_the_call_of_both() {
    crashes(&CALLS, false, true);
    crashes(&CALLS, true, true);
}

#[test]
fn a_crash_at_any_moment_in_a_window_ends_what_all_do_there() {
    crashes(&WINDOWS, false, false);
}
