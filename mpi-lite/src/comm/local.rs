//! This process's part in a job: its device, and what is under way on it, shared by all its communicators.

use std::sync::{Arc, Mutex, Weak};

use sidelane_nic::time::Duration;

use crate::adi::{self, Config, Device, Process, Turns};
use crate::biased::{Biased, Guard};
use crate::coll::Table;
use crate::giving_way::Turnless;

use super::Communicator;
use super::ErrorClass;
use super::Status;
use super::buffered::Room;
use super::communicator::Inner;
use super::context::{self, ContextIds};
use super::ending::Abort;
use super::failure::{Failures, Name, Watch};
use super::movable::Movable;
use super::operator;
use super::partitioned;
use super::pending::{Pending, Transfer};
use super::running::{Handle, Run, Runs};
use super::sleeper::{Lookout, Sleeper};

/// What all communicators of a process share.
#[derive(Debug)]
pub struct Local {
    state: Biased<State>,
    /// Of several threads that call at the same time (`MPI_THREAD_MULTIPLE`): then who waits lets others in between turns.
    threads: Option<Sleeper>,
    failures: Arc<Mutex<Failures>>,
    /// Dropped while this process was in a call, such as with an operator that ended in it.
    left: Mutex<Vec<Left>>,
    /// Which algorithms collective calls go by.
    table: Arc<Table>,
    /// For buffered messages.
    room: Room,
    /// All of the job, and this process alone.
    standard: Mutex<Standard>,
    abort: Abort,
}

/// The communicators that are there from the start, as long as anybody has them. The first one has the second.
#[derive(Debug, Default)]
struct Standard {
    world: Weak<Inner>,
    own: Weak<Inner>,
}

/// What is left of a communicator that nobody here has any more.
#[derive(Debug)]
pub(super) struct Left {
    pub id: u32,
    pub name: Name,
    /// Processes of both sides.
    pub members: Box<[u32]>,
    pub room: Room,
}

/// Behind the lock, which is held while an operator of the program's own runs ([`super::operator`]).
pub(super) struct State {
    pub device: Movable,
    pub runs: Runs,
    pub contexts: ContextIds,
    /// Freed by the program before they were over.
    pub orphans: Vec<Transfer>,
    /// Partitions of all messages so far.
    partitions: usize,
    /// Of the last tag that a leader of this process is told offers by.
    leader_tag: i32,
    /// Of several threads that wait.
    pub lookout: Lookout,
    /// Calls that were over when they were begun.
    turnless: Turnless,
    /// The device is gone, and with it all requests.
    is_over: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("own", &self.device.own()).finish_non_exhaustive()
    }
}

impl State {
    /// One turn of everything. True if anything moved.
    pub fn turn(&mut self) -> bool {
        let moved = self.device.progress();
        if !self.orphans.is_empty() {
            self.reap();
        }
        if self.runs.is_empty() {
            return moved;
        }
        let ended = self.runs.turn(&mut self.device, &mut self.contexts);
        // A call that is over may be the program's last one for long; others wait for what it has sent.
        self.device.flush();
        ended || moved
    }

    /// Of calls that are over when they are begun, and so take no turn, a few take one: others have to be served too.
    #[inline]
    pub fn serve_now_and_then(&mut self) {
        if self.turnless.is_turn_due() {
            self.turn();
        }
    }

    fn leave(&mut self, failures: &Mutex<Failures>, left: &Left) {
        if !self.is_over
            && let Some(flushing) = left.room.flushing()
        {
            let handle = self.begin_run(flushing);
            self.runs.free(handle);
        }
        // Of a call that has failed messages may wait here, or be on their way, that nobody will receive.
        let has_failed = self.device.gone().iter().any(|process| left.members.contains(process));
        if adi::lock(failures).forget(left.name) && !has_failed {
            self.contexts.retire(left.id);
        } else {
            self.contexts.give_up(left.id);
        }
    }

    fn reclaim(&mut self) {
        let Self { contexts, device, runs, .. } = self;
        for id in contexts.take_unused(|id| device.uses(context::all(id)) || runs.use_any(context::all(id))) {
            // Of a message that nobody has received others may follow, and the next communicator would take them for its own.
            if device.refuse_unreceived(context::all(id)) { contexts.give_up(id) } else { contexts.give_back(id) }
        }
    }

    /// How it ended, and it is null then; or that it may never end, and then it stays what it is.
    #[inline]
    pub fn poll(&mut self, pending: &mut Pending) -> Option<Status> {
        let status = match pending {
            Pending::Null => Some(Status::EMPTY),
            Pending::Done(status) => Some(*status),
            Pending::Transfer(transfer) => transfer.poll(&mut self.device),
            Pending::FromAnybody(transfer, acknowledged) => {
                let status = transfer.poll(&mut self.device);
                if status.is_none() && acknowledged.is_behind(self.device.gone()) {
                    return Some(Status { error: Some(ErrorClass::ProcFailedPending), ..Status::EMPTY });
                }
                status
            }
            Pending::Running(handle) if !self.runs.is_over(*handle) => None,
            Pending::Running(handle) => {
                let handle = *handle;
                // Also when the panic of its operator goes on from here.
                *pending = Pending::Null;
                self.runs.poll(handle)
            }
        }?;
        *pending = Pending::Null;
        Some(status)
    }

    /// From now on it has its part in every turn.
    pub fn begin_run(&mut self, run: Box<dyn Run>) -> Handle {
        self.runs.add(run)
    }

    /// The first of tags for so many partitions.
    pub fn partition_tags(&mut self, partitions: usize) -> i32 {
        let first = partitioned::tag(-1, self.partitions);
        self.partitions = (self.partitions + partitions) % partitioned::TAGS;
        first
    }

    /// By which this process, as a leader, is told the next offers: so many calls cannot be left behind unheard that it comes again.
    pub fn leader_tag(&mut self) -> i32 {
        self.leader_tag = self.leader_tag.wrapping_add(1) & i32::MAX;
        self.leader_tag
    }

    fn reap(&mut self) {
        let device = &mut self.device;
        self.orphans.retain_mut(|transfer| transfer.poll(device).is_none());
    }
}

impl Local {
    pub(super) fn new(mut device: Movable, threads: bool, table: Arc<Table>) -> Self {
        let failures = Arc::new(Mutex::new(Failures::new(device.own(), context::FAILURES)));
        device.watch(context::FAILURES, Box::new(Watch(Arc::clone(&failures))));
        let contexts = ContextIds::new();
        let threads = threads.then(|| Sleeper::new(&mut device));
        let state = State {
            device,
            runs: Runs::default(),
            contexts,
            orphans: Vec::new(),
            partitions: 0,
            leader_tag: 0,
            lookout: Lookout::default(),
            turnless: Turnless::default(),
            is_over: false,
        };
        let (left, room, standard, abort) = Default::default();
        let state = if threads.is_some() { Biased::shared(state) } else { Biased::new(state) };
        Self { state, threads, failures, left, table, room, standard, abort }
    }

    /// Locked after the state, by who locks both.
    pub(super) const fn failures(&self) -> &Arc<Mutex<Failures>> {
        &self.failures
    }

    pub(crate) const fn has_threads(&self) -> bool {
        self.threads.is_some()
    }

    pub(super) const fn threads(&self) -> Option<&Sleeper> {
        self.threads.as_ref()
    }

    pub(super) const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// The communicator of all of the job.
    pub(super) fn note_world(&self, world: &Communicator) {
        operator::lock_outside_operators(&self.standard).world = Arc::downgrade(&world.0);
    }

    /// The same, while anybody has it.
    pub(crate) fn world(&self) -> Option<Communicator> {
        operator::lock_outside_operators(&self.standard).world.upgrade().map(Communicator)
    }

    /// The communicator of this process alone, if it was made.
    pub(super) fn own(&self) -> Option<Communicator> {
        operator::lock_outside_operators(&self.standard).own.upgrade().map(Communicator)
    }

    /// Keeps one that was made for as long as there is one of all of the job, unless another thread was quicker: then that one's.
    pub(super) fn keep_own(&self, made: Communicator) -> Communicator {
        let mut standard = operator::lock_outside_operators(&self.standard);
        if let Some(own) = standard.own.upgrade() {
            return Communicator(own);
        }
        standard.own = Arc::downgrade(&made.0);
        let world = standard.world.upgrade();
        drop(standard);
        if let Some(world) = world {
            let _ = world.own.set(made.clone());
        }
        made
    }

    pub(super) const fn abort(&self) -> &Abort {
        &self.abort
    }

    /// The device, for who ends the job, as soon as no other thread waits in a call, whose memory it may have. What is called
    /// afterwards finds nobody.
    pub(super) fn take_device(&self) -> Device {
        let alone = vec![Process::here("", &[])];
        let nobody = Device::open(0, alone, Vec::new(), &Config::default()).expect("a process reaches itself");
        let mut held = self.hold();
        let (begun, mut told) = (held.device().now(), false);
        held.wait_until(|held| {
            if !told && held.device().now().since(begun) > PATIENCE {
                told = true;
                tracing::warn!("the end of the job waits for a call that another thread is in");
            }
            held.waits_alone().then_some(())
        });
        let state = held.state();
        // What a program has given up and not ended has lent its memory to the device, which goes on.
        state.runs.end();
        if !state.orphans.is_empty() {
            std::mem::forget(std::mem::take(&mut state.orphans));
        }
        state.is_over = true;
        std::mem::replace(&mut state.device, Movable::new(nobody)).into_inner()
    }

    /// # Panics
    ///
    /// When an operator calls it. Else never: of what a thread that panicked has left behind only the collective call is torn whose operator it was in.
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, State> {
        match &self.threads {
            None => operator::lock_outside_operators(&self.state),
            Some(sleeper) => {
                let mut state = sleeper.enter(&self.state);
                state.lookout.tell();
                state
            }
        }
    }

    /// The same for a call that waits, and goes on waiting: behind one that sleeps.
    pub(super) fn lock_again(&self) -> Guard<'_, State> {
        operator::lock_outside_operators(&self.state)
    }

    /// The state, if nobody is in a call.
    pub(super) fn try_lock(&self) -> Option<Guard<'_, State>> {
        self.state.try_lock()
    }

    /// As [`Self::try_lock`], for the thread that only beats.
    pub(super) fn visit(&self) -> Option<Guard<'_, State>> {
        self.state.visit()
    }

    /// Frees the context ids of communicators that were given up, where nothing is under way any more.
    pub(super) fn reclaim(&self) {
        let mut state = self.lock();
        operator::lock_outside_operators(&self.left).drain(..).for_each(|left| state.leave(&self.failures, &left));
        state.reclaim();
    }

    /// Gives up a communicator: now, or, within a call of this process, when ids are wanted next.
    pub(super) fn leave(&self, left: Left) {
        match self.try_lock() {
            Some(mut state) => state.leave(&self.failures, &left),
            None => operator::lock_outside_operators(&self.left).push(left),
        }
    }
}

/// Before it is told that a job's end waits.
const PATIENCE: Duration = Duration::from_millis(1_000);
