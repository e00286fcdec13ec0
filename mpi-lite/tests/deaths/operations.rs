//! What all do again and again until one of them dies, each kind of operation in a way that needs it.
#![allow(unsafe_code)] // Partitioned messages and windows on memory that is given by address.

use std::mem::ManuallyDrop;

use sidelane_mpi::comm::cartesian::Side;
use sidelane_mpi::comm::{BUFFERED_OVERHEAD, Communicator, Destination, ErrorClass, Held, Mode, Piece, Source};
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::Op;
use sidelane_mpi::rma::{self, Lent, RmaError, Room, Target};
use sidelane_mpi::window::Lock;

/// Whose death.
pub const VICTIM: u32 = 2;
pub const RANKS: u32 = 4;

/// Called at the begin of each round, from which the one does not come back in one of them.
pub type Next<'a> = &'a dyn Fn();

/// Goes on until it fails.
pub type Operation = fn(&Communicator, Next) -> Result<(), ErrorClass>;

pub const ALL: [(&str, Operation); 42] = [
    ("send", |world, next| asks(world, next, || world.ssend(&long(), VICTIM, 1), |other| take(world, other))),
    ("begun-send", |world, next| {
        let data = long();
        let send = || world.scope(|scope| scope.send(&data, VICTIM, 1)?.wait().map(drop));
        asks(world, next, send, |other| take(world, other))
    }),
    ("buffered-send", |world, next| {
        let send = || {
            world.attach_buffer(LONG + BUFFERED_OVERHEAD)?;
            let sent = world.bsend(&long(), VICTIM, 1);
            world.detach_buffer()?;
            sent
        };
        asks(world, next, send, |other| take(world, other))
    }),
    ("persistent-send", |world, next| {
        let mut sends = world.send_init(Mode::Standard, long(), VICTIM, 1);
        let send = || sends.start().and_then(|()| sends.wait()).map(drop);
        asks(world, next, send, |other| take(world, other))
    }),
    ("receive", |world, next| gets(world, next, || world.recv(&mut [0u8; 8], VICTIM, 1).map(drop))),
    ("receive-from-anybody", |world, next| gets(world, next, || world.recv(&mut [0u8; 8], Source::Any, 1).map(drop))),
    ("probe", |world, next| {
        gets(world, next, || world.probe(VICTIM, 1).and_then(|_| world.recv(&mut [0u8; 8], VICTIM, 1)).map(drop))
    }),
    ("matched-probe", |world, next| {
        gets(world, next, || {
            let (found, _) = world.mprobe(VICTIM, None)?;
            world.mrecv(found, &mut [0u8; 8]).map(drop)
        })
    }),
    ("wait-for-any", |world, next| {
        let wait = || {
            let (mut one, mut other) = ([0u8; 8], [0u8; 8]);
            world.scope(|scope| {
                scope.recv(&mut one, VICTIM, 1)?;
                scope.recv(&mut other, VICTIM, 2)?;
                let (_, status) = scope.wait_any().expect("two were begun");
                status.ok().map(drop)
            })
        };
        asks(world, next, wait, |other| world.send(&[1u8; 8], other, 2).and_then(|()| give(world, other)))
    }),
    ("persistent-receive", |world, next| {
        let mut receives = world.recv_init(vec![0u8; 8], VICTIM, 1);
        gets(world, next, || receives.start().and_then(|()| receives.wait()).map(drop))
    }),
    ("exchange", |world, next| {
        let exchange = |other| world.sendrecv_replace(&mut long(), other, 1, other, 1).map(drop);
        asks(world, next, || exchange(VICTIM), exchange)
    }),
    ("partitions-sent", |world, next| {
        let send = || send_parts(world, VICTIM);
        asks(world, next, send, |other| receive_parts(world, other))
    }),
    ("partitions-received", |world, next| {
        let receive = || receive_parts(world, VICTIM);
        asks(world, next, receive, |other| send_parts(world, other))
    }),
    ("barrier", |world, next| again(next, || world.barrier())),
    ("broadcast", |world, next| again(next, || world.broadcast(&mut long(), VICTIM))),
    ("reduce", |world, next| again(next, || world.reduce(&[1u64; 500], &mut sums(world), &Op::Sum, 0))),
    ("allreduce", |world, next| again(next, || world.allreduce_in_place(&mut [1u64; 1_000], &Op::Sum))),
    ("reduce-scatter", |world, next| {
        again(next, || world.reduce_scatter_block(&[1u64; 4 * 500], &mut [0; 500], &Op::Sum))
    }),
    ("scan", |world, next| again(next, || world.scan(&[1u64; 500], &mut [0; 500], &Op::Sum))),
    ("gather", |world, next| {
        again(next, || world.gather(&long(), &mut vec![0; if world.rank() == 0 { 4 * LONG } else { 0 }], 0))
    }),
    ("scatter", |world, next| {
        let all = vec![1u8; if world.rank() == VICTIM { 4_000 } else { 0 }];
        again(next, || world.scatter(&all, &mut [0; 1_000], VICTIM))
    }),
    ("allgather", |world, next| {
        let counts = [0, 1_000, 1, 300];
        let own = vec![1u8; counts[world.rank() as usize]];
        again(next, || world.allgather_varying(&own, &mut vec![0; 1_301], &counts))
    }),
    ("alltoall", |world, next| again(next, || world.alltoall(&[1u8; 4_000], &mut [0; 4_000]))),
    ("pieces", |world, next| {
        let piece = |at| Piece::new(1_000 * at, 1_000, &Predefined::Byte.into());
        let pieces: Vec<Piece> = (0..RANKS as isize).map(piece).collect();
        again(next, || world.alltoall_pieces(&[1u8; 4_000], &mut [0; 4_000], &pieces, &pieces))
    }),
    ("begun-call", |world, next| {
        again(next, || {
            let mut sum = [0u64; 1_000];
            world.scope(|scope| scope.allreduce(&[1u64; 1_000], &mut sum, &Op::Sum)?.wait().map(drop))
        })
    }),
    ("persistent-call", |world, next| {
        let mut sums = world.allreduce_in_place_init(vec![1u64; 1_000], &Op::Sum)?;
        again(next, || sums.start().and_then(|()| sums.wait()).map(drop))
    }),
    ("neighbours", |world, next| {
        let ring = world.cartesian(&[Side { size: RANKS, periodic: true }])?.expect("all are in it");
        again(next, || ring.neighbor_alltoall(&[1u8; 2_000], &mut [0; 2_000]))
    }),
    ("two-groups", |world, next| {
        let between = between(world)?;
        again(next, || between.allreduce(&[1u64; 500], &mut [0; 500], &Op::Sum))
    }),
    ("split", |world, next| again(next, || world.split(Some(0), 0).map(drop))),
    ("duplicate", |world, next| again(next, || world.dup().map(drop))),
    ("begun-duplicate", |world, next| again(next, || world.idup()?.wait().map(drop))),
    ("merge", |world, next| {
        let between = between(world)?;
        again(next, || between.merge(false).map(drop))
    }),
    ("agreement", |world, next| again(next, || world.agree(1).ok().map(drop))),
    ("window", |world, next| again(next, || world.window::<u64>(100)?.free())),
    ("fence", |world, next| {
        in_memory(world, next, |window, turns, given, _, at| {
            window.fence(turns, false)?;
            // SAFETY: the words stay until the epoch is over, or this process.
            unsafe { window.put(turns, given, at) }?;
            window.fence(turns, false)
        })
    }),
    ("lock", |world, next| {
        in_memory(world, next, |window, turns, given, _, at| {
            window.lock(turns, at.rank, Lock::Exclusive)?;
            // SAFETY: as above.
            unsafe { window.put(turns, given, at) }?;
            window.unlock(turns, at.rank)
        })
    }),
    ("get", |world, next| {
        in_memory(world, next, |window, turns, _, room, at| {
            window.lock(turns, at.rank, Lock::Shared)?;
            // SAFETY: as above.
            unsafe { window.get(turns, room, at) }?;
            window.unlock(turns, at.rank)
        })
    }),
    ("accumulate", |world, next| {
        let window = world.window::<u64>(1_000)?;
        let epoch = window.lock_all()?;
        again(next, || epoch.accumulate(&[1; 1_000], VICTIM, 0, &Op::Sum).and_then(|()| epoch.flush_all()))
    }),
    ("fetch", |world, next| {
        let window = world.window::<u64>(1)?;
        let epoch = window.lock_all()?;
        again(next, || epoch.fetch_and_op(1, VICTIM, 0, &Op::Sum).map(drop))
    }),
    ("compare", |world, next| {
        let window = world.window::<u64>(1)?;
        let epoch = window.lock_all()?;
        again(next, || epoch.compare_and_swap(0, 1, VICTIM, 0).map(drop))
    }),
    ("lock-of-all", |world, next| {
        let window = world.window::<u64>(1)?;
        again(next, || window.lock_all()?.end())
    }),
    ("post", |world, next| {
        let window = world.window::<u64>(1_000)?;
        let others: Vec<u32> = (0..RANKS).filter(|other| *other != world.rank()).collect();
        again(next, || {
            let posted = window.post(&others)?;
            let epoch = window.start(&others)?;
            epoch.put(&[1; 1_000], others[0], 0)?;
            epoch.end()?;
            posted.wait()
        })
    }),
];

fn again(next: Next, mut round: impl FnMut() -> Result<(), ErrorClass>) -> Result<(), ErrorClass> {
    loop {
        next();
        round()?;
    }
}

/// The others ask the one for something, which serves each.
fn asks(
    world: &Communicator,
    next: Next,
    mut ask: impl FnMut() -> Result<(), ErrorClass>,
    serve: impl Fn(u32) -> Result<(), ErrorClass>,
) -> Result<(), ErrorClass> {
    again(next, || {
        if world.rank() != VICTIM {
            return ask();
        }
        (0..RANKS).filter(|other| *other != VICTIM).try_for_each(&serve)
    })
}

/// The others wait for a short message.
fn gets(world: &Communicator, next: Next, get: impl FnMut() -> Result<(), ErrorClass>) -> Result<(), ErrorClass> {
    asks(world, next, get, |other| give(world, other))
}

fn give(world: &Communicator, other: u32) -> Result<(), ErrorClass> {
    world.send(&[1u8; 8], other, 1)
}

fn take(world: &Communicator, other: u32) -> Result<(), ErrorClass> {
    world.recv(&mut long(), other, 1).map(drop)
}

fn send_parts(world: &Communicator, other: u32) -> Result<(), ErrorClass> {
    let (data, byte) = (long(), Predefined::Byte.into());
    let to = Destination::Rank(other);
    // SAFETY: the data stays until the message is dropped, and is not written.
    let (mut message, partitions) = unsafe { world.psend_init(data.as_ptr(), PARTS, LONG / PARTS, &byte, to, 1) }?;
    message.start()?;
    let ready = partitions.ready_range(0..=PARTS - 1);
    message.wait().and(ready)
}

fn receive_parts(world: &Communicator, other: u32) -> Result<(), ErrorClass> {
    let (mut room, byte) = (long(), Predefined::Byte.into());
    // SAFETY: the room stays until the message is dropped, and nobody else uses it.
    let (mut message, _) = unsafe { world.precv_init(room.as_mut_ptr(), PARTS, LONG / PARTS, &byte, other, 1) }?;
    message.start()?;
    message.wait().map(drop)
}

/// Room for them at the root.
fn sums(world: &Communicator) -> Vec<u64> {
    vec![0; if world.rank() == 0 { 500 } else { 0 }]
}

/// The first two, and the last two.
fn between(world: &Communicator) -> Result<Communicator, ErrorClass> {
    let is_first = world.rank() < RANKS / 2;
    let half = world.split(Some(is_first.into()), 0)?.expect("it has a color");
    half.intercomm(0, world, if is_first { RANKS / 2 } else { 0 }, 0)
}

/// In a window of the program's own memory, of which each has some at the one.
fn in_memory(
    world: &Communicator,
    next: Next,
    epoch: fn(&rma::Window, &mut Held, Lent, Room, Target) -> Result<(), RmaError>,
) -> Result<(), ErrorClass> {
    // Lent as long as the window is there, whose end is all ranks' matter.
    let kept = ManuallyDrop::new(world.dup()?);
    let memory: &'static mut [u64] = Box::leak(vec![0; 100 * RANKS as usize].into());
    let shown = std::ptr::slice_from_raw_parts_mut(memory.as_mut_ptr().cast(), size_of_val(memory));
    // SAFETY: the memory stays until this process ends, and nobody else uses it. The device stays where it is.
    let window = unsafe { kept.with_device(|device| rma::Window::create(device, kept.members(), shown, 8)) }?;
    let window = ManuallyDrop::new(window);
    let datatype: Datatype = Predefined::Uint64.into();
    let words: &'static mut [u64] = Box::leak(vec![1; 100].into());
    let displacement = i64::from(world.rank()) * 100;
    again(next, || {
        let at = Target { rank: VICTIM as usize, displacement, count: 100, datatype: &datatype };
        let given = Lent { address: words.as_ptr().cast(), count: 100, datatype: &datatype };
        let room = Room { address: words.as_mut_ptr().cast(), count: 100, datatype: &datatype };
        // SAFETY: the device stays where it is.
        Ok(unsafe { kept.with_device(|turns| epoch(&window, turns, given, room, at)) }?)
    })
}

fn long() -> Vec<u8> {
    vec![1; LONG]
}

/// What can't go eagerly.
const LONG: usize = 100_000;
const PARTS: usize = 4;
