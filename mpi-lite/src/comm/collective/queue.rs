#![allow(unsafe_code)]
//! Collective calls that do not wait, by shared memory: one after the other, in the order in which they were begun, which is the same
//! in all ranks (MPI-4.1 6.12). So the first one that is not over needs nothing of those behind it.
//!
//! Unsafe, since what a call was lent is used as long as it is under way, and the device while it is moved on.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use sidelane_nic::clock;
use sidelane_nic::time::Instant;

use super::execution::Lent;
use super::few::{Look, make_now};
use super::on_host::{Caller, Done, Members, Words, make, takes};
use super::ranks::Combine;
use crate::adi::{Device, Error, Patience, Request, lock};
use crate::coll::{Blocks, Buffers, Call};
use crate::giving_way::GivingWay;
use crate::host::{Host, Limits, YIELDS};
use crate::op::Function;

/// What combines, for as long as a call is under way.
pub enum KeptCombine {
    /// Of predefined numbers.
    Function(Function),
    /// Whatever it is.
    Any(Box<BoxedCombine>),
}

type BoxedCombine = dyn FnMut(&mut [u8], &[u8]) + Send;

/// Those of a communicator's ranks.
#[derive(Debug)]
pub struct Queue {
    context: u32,
    rank: usize,
    processes: Arc<[u32]>,
    limits: Limits,
    /// The tag of words that wake a rank in which a call is under way: no call's.
    wake: i32,
    patience: Patience,
    line: Mutex<Line>,
    /// Only while a call is moved on.
    device: AtomicPtr<Device>,
}

#[derive(Debug)]
struct Line {
    /// `None` while the first call has it.
    host: Option<Box<Host>>,
    /// Calls so far, and those of them that are over.
    begun: u64,
    over: u64,
    /// A call has failed: so do all that follow.
    failed: Option<Error>,
    /// A receive for who wakes us.
    wake: Option<Request>,
}

/// A call of the queue.
#[derive(Debug)]
pub struct Queued {
    queue: Arc<Queue>,
    number: u64,
    course: Course,
}

enum Course {
    /// Others come first.
    InLine(Arguments, Waited),
    UnderWay(Pin<Box<dyn Future<Output = (Box<Host>, Done)>>>),
    Over,
}

struct Arguments {
    call: Call<'static>,
    in_place: bool,
    lent: Lent,
    combine: KeptCombine,
}

// SAFETY: all that a call under way has may go to other threads: the mapped memory, and what it was lent, as the lender has promised.
// What it borrows is its own.
unsafe impl Send for Queued {}

impl Queue {
    /// Of rank `rank` among `processes`, in memory that all have joined; `wake` is the tag of its words. `patience`: that of the device which calls are moved on with.
    pub fn new(context: u32, rank: usize, processes: Arc<[u32]>, host: Host, wake: i32, patience: Patience) -> Self {
        let limits = host.limits();
        let line = Line { host: Some(Box::new(host)), begun: 0, over: 0, failed: None, wake: None };
        let device = AtomicPtr::new(ptr::null_mut());
        Self { context, rank, processes, limits, wake, patience, line: Mutex::new(line), device }
    }

    /// The call as it can be begun here again and again, if it can be: as all ranks find alike. Not those whose blocks have lengths
    /// of their own.
    pub fn takes(&self, call: Call, buffers: Buffers) -> Option<Call<'static>> {
        let kept = match call {
            Call::Barrier => Call::Barrier,
            Call::Broadcast { root } => Call::Broadcast { root },
            Call::Reduce { root, reduction } => Call::Reduce { root, reduction },
            Call::Allreduce { reduction } => Call::Allreduce { reduction },
            Call::ReduceScatter { blocks: Blocks::Equal(len), reduction } => {
                Call::ReduceScatter { blocks: Blocks::Equal(len), reduction }
            }
            Call::Scan { reduction } => Call::Scan { reduction },
            Call::Exscan { reduction } => Call::Exscan { reduction },
            Call::Gather { root, len } => Call::Gather { root, len },
            Call::Scatter { root, len } => Call::Scatter { root, len },
            Call::Allgather { len } => Call::Allgather { len },
            Call::Alltoall { len } => Call::Alltoall { len },
            _ => return None,
        };
        let given = if buffers.in_place { buffers.receive } else { buffers.send };
        takes(self.limits, call, given, buffers.receive, self.processes.len()).then_some(kept)
    }

    /// What its words are told from others by.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// The next call: one that this takes, and that [`Self::call_now`] has not made.
    pub fn begin(self: &Arc<Self>, call: Call<'static>, in_place: bool, lent: Lent, combine: KeptCombine) -> Queued {
        let mut line = self.line();
        let number = line.begun;
        line.begun += 1;
        let course = Course::InLine(Arguments { call, in_place, lent, combine }, Waited::default());
        Queued { queue: Arc::clone(self), number, course }
    }

    /// Makes the next call, one that this takes, if it is of few bytes, no call is under way, and nobody has to be waited for.
    pub fn call_now(
        &self,
        device: &mut Device,
        call: &Call,
        buffers: (Option<&[u8]>, &mut [u8]),
        function: Option<Function>,
    ) -> Look<Result<(), Error>> {
        let mut line = self.line();
        if line.over != line.begun || line.why_not(self, device).is_some() {
            return Look::Nothing;
        }
        let made = match line.make_now(self, device, call, buffers, function) {
            Look::Made(made) => made,
            Look::NotYet => return Look::NotYet,
            Look::Nothing => return Look::Nothing,
        };
        line.begun += 1;
        line.finish_call(&made);
        drop(line);
        Look::Made(made.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn members(&self) -> Members<'_> {
        let Self { context, rank, ref processes, wake, .. } = *self;
        Members { context, rank, processes, whole: processes, tag: wake }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}

impl Line {
    /// Makes the call whose turn it is, if that is of few bytes and nobody has to be waited for.
    #[inline]
    fn make_now(
        &mut self,
        queue: &Queue,
        device: &mut Device,
        call: &Call,
        buffers: (Option<&[u8]>, &mut [u8]),
        function: Option<Function>,
    ) -> Look<Done> {
        let host = self.host.as_mut().expect("the call before has given it back");
        let words = Words { members: queue.members(), device, wake: &mut self.wake, bereft: &mut None };
        make_now(host, words, call, buffers, function)
    }

    /// Why no call can be made any more, as far as is known here. Who need not wait would not look.
    #[inline]
    fn why_not(&self, queue: &Queue, device: &Device) -> Option<Error> {
        self.failed.or_else(|| device.is_revoked(queue.context).then_some(Error::Revoked))
    }

    /// The call whose turn it was is over.
    fn finish_call(&mut self, done: &Done) {
        self.over += 1;
        self.failed = done.as_ref().map_or(Some(Error::ProcFailed), |ended| ended.err());
    }
}

impl Queued {
    /// What its words are told from others by.
    pub fn context(&self) -> u32 {
        self.queue.context
    }

    /// Goes on as far as it can without waiting. True once it is over; not to be called then any more.
    pub fn advance(&mut self, device: &mut Device) -> Result<bool, Error> {
        if let Course::InLine(Arguments { call, in_place, lent, combine }, waited) = &mut self.course {
            let mut line = self.queue.line();
            if line.over != self.number {
                waited.count(self.queue.patience, clock::monotonic);
                return Ok(false);
            }
            let done = match line.why_not(&self.queue, device) {
                Some(error) => Some(Ok(Err(error))),
                None => {
                    // SAFETY: lent until the call is over, and nobody else uses it: no future has it.
                    let (send, receive) = unsafe { lent.slices() };
                    let buffers = ((!*in_place).then_some(send), receive);
                    match line.make_now(&self.queue, device, call, buffers, combine.function()) {
                        Look::Made(done) => Some(done),
                        Look::NotYet if waited.turns < TURNS => {
                            waited.count(self.queue.patience, clock::monotonic);
                            return Ok(false);
                        }
                        Look::NotYet | Look::Nothing => None,
                    }
                }
            };
            if let Some(done) = done {
                line.finish_call(&done);
                drop(line);
                self.course = Course::Over;
                return done.unwrap_or_else(|panic| resume_unwind(panic)).map(|()| true);
            }
            let host = line.host.take().expect("the call before has given it back");
            drop(line);
            if let Course::InLine(arguments, waited) = std::mem::replace(&mut self.course, Course::Over) {
                let peers = Polled { queue: Arc::clone(&self.queue), waited, bereft: None };
                self.course = Course::UnderWay(Box::pin(course(host, peers, arguments)));
            }
        }
        let Course::UnderWay(course) = &mut self.course else { return Ok(true) };
        self.queue.device.store(device, Ordering::Relaxed);
        let polled = course.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.queue.device.store(ptr::null_mut(), Ordering::Relaxed);
        let Poll::Ready((host, done)) = polled else { return Ok(false) };
        self.course = Course::Over;
        let mut line = self.queue.line();
        line.host = Some(host);
        line.finish_call(&done);
        drop(line);
        done.unwrap_or_else(|panic| resume_unwind(panic)).map(|()| true)
    }
}

impl KeptCombine {
    /// Without an operator: nothing is combined.
    pub fn none() -> Self {
        Self::Any(Box::new(|_, _| unreachable!("nothing is combined")))
    }

    /// To be called.
    pub fn as_dyn(&mut self) -> &mut Combine<'static> {
        match self {
            Self::Function(function) => function,
            Self::Any(combine) => &mut **combine,
        }
    }

    /// One that does as this does, in its place.
    pub fn of_shared(shared: &Arc<Mutex<Self>>) -> Self {
        if let Self::Function(function) = *lock(shared) {
            return Self::Function(function);
        }
        let shared = Arc::clone(shared);
        Self::Any(Box::new(move |into, from| lock(&shared).as_dyn()(into, from)))
    }

    /// What combines numbers, if it is one.
    pub fn function(&self) -> Option<Function> {
        match self {
            Self::Function(function) => Some(*function),
            Self::Any(_) => None,
        }
    }
}

impl std::fmt::Debug for Course {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InLine(..) => "InLine",
            Self::UnderWay(_) => "UnderWay",
            Self::Over => "Over",
        })
    }
}

async fn course(mut host: Box<Host>, mut peers: Polled, mut it: Arguments) -> (Box<Host>, Done) {
    // SAFETY: lent until the call is over, which is when this is.
    let (send, receive) = unsafe { it.lent.slices() };
    let send = (!it.in_place).then_some(send);
    let done = make(&mut host, &mut peers, it.call, (send, receive), it.combine.as_dyn()).await;
    (host, done)
}

/// The other ranks, for a call that does not wait.
struct Polled {
    queue: Arc<Queue>,
    waited: Waited,
    bereft: Option<Instant>,
}

impl Caller for Polled {
    const WAITS: bool = false;

    fn with<R>(&mut self, does: impl FnOnce(&mut Words) -> R) -> R {
        let queue = &self.queue;
        let mut line = queue.line();
        let device = queue.device.load(Ordering::Relaxed);
        assert!(!device.is_null(), "a call goes on while it is moved on");
        // SAFETY: we are called by the call's future, which only `advance` polls; and it has borrowed the device for that, and does
        // not use it meanwhile.
        let device = unsafe { &mut *device };
        does(&mut Words { members: queue.members(), device, wake: &mut line.wake, bereft: &mut self.bereft })
    }

    fn turn(&mut self) -> bool {
        self.waited.count(self.queue.patience, clock::monotonic);
        false
    }

    fn sleep(&mut self) {
        unreachable!("a call that does not wait does not sleep");
    }

    fn may_sleep(&self) -> bool {
        self.waited.is_long
    }
}

/// How long a call has been waited for: turns in which it was not over.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    turns: u32,
    giving_way: GivingWay,
    /// Whoever waits may sleep before long, by the device or in a call in shared memory: by then others have to know that we do. He sleeps
    /// when as many turns again have passed, or when he has let others run for long, which was looked at after this.
    is_long: bool,
}

impl Waited {
    fn count(&mut self, patience: Patience, now: impl FnOnce() -> Instant) {
        self.turns = self.turns.saturating_add(1);
        let most = (patience.turns() / 2).min(YIELDS / 2);
        self.is_long = self.turns >= most || self.giving_way.is_enough(now());
    }
}

/// Turns in which a call of few bytes only looks who has come. Then it is made a future, which can wait for long.
const TURNS: u32 = 64;

#[cfg(test)]
mod tests {
    use sidelane_nic::time::Duration;

    use super::*;
    use crate::adi::Config;

    /// Turns until a call is known to be waited for long, where each takes so long.
    fn turns_of(turn: Duration, patience: Patience) -> u32 {
        let (mut waited, mut now) = (Waited::default(), Instant::ZERO);
        while !waited.is_long {
            now += turn;
            waited.count(patience, || now);
        }
        waited.turns
    }

    /// Whoever sleeps unbeknown is woken by nobody. (Those turns: `adi::idle`, `host::wait`.)
    #[test]
    fn that_a_call_waits_long_is_known_before_anybody_sleeps() {
        let (crowded, alone) = (Patience { spin: 0, yields: 200 }, Patience { spin: 9_000, yields: 100 });
        assert_eq!(turns_of(Duration::from_nanos(100), crowded), 100);
        assert_eq!(turns_of(Duration::from_nanos(100), alone), YIELDS / 2);
        let usual = Config::default();
        for patience in [usual.patience, usual.patience_crowded] {
            // Of those before a device sleeps, and before a call in shared memory does.
            let turns = turns_of(Duration::from_nanos(100), patience);
            assert!(2 * turns <= patience.turns().min(YIELDS), "{patience:?}: {turns}");
        }
        // Other programs want the core: it is slept when they were let run for 20 ms.
        assert_eq!(turns_of(Duration::from_millis(3), crowded), 8);
        assert_eq!(turns_of(Duration::from_millis(30), crowded), 2);
    }
}
