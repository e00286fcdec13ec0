//! Communicators: a group of processes with messages of its own.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::adi::Device;
use crate::attribute::{Attributes, Keyval, Name, Value};
use crate::biased::Biased;
use crate::coll::Table;

use super::buffered::Room;
use super::cartesian::Cartesian;
use super::collective::Ranks;
use super::context::{self, Kind};
use super::graph::{DistGraph, Graph};
use super::info::Info;
use super::local::{Left, Local};
use super::movable::Movable;
use super::operator::lock_outside_operators;
use super::{Around, Comparison, ErrorClass, ErrorCode, ErrorHandler, Group, compound, failure};

/// A group of processes and a context for their messages (MPI-4.1 7.4). Clones are the same communicator.
#[derive(Clone)]
pub struct Communicator(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub local: Arc<Local>,
    pub id: u32,
    pub group: Group,
    pub rank: u32,
    /// Of an intercommunicator.
    pub remote: Option<Group>,
    /// Of an intercommunicator: our side alone.
    pub side: Option<Communicator>,
    /// Of all of a job: this process alone, once it was asked for.
    pub own: OnceLock<Communicator>,
    /// Of all of a job: the same processes, for what sessions agree on.
    bridge: OnceLock<Communicator>,
    pub topology: Topology,
    /// Who is around us in it, once somebody has asked.
    pub around: OnceLock<Option<Around>>,
    /// For collective calls.
    pub ranks: Arc<Biased<Ranks>>,
    pub acknowledged: Arc<failure::Acknowledged>,
    /// What it is called in messages about failures.
    pub in_failures: failure::Name,
    /// For its buffered messages, and for those of all that are made of the same session, if it is made of one.
    pub room: Room,
    pub session_room: OnceLock<Room>,
    name: Name,
    handler: Mutex<ErrorHandler>,
    attributes: Attributes<Communicator>,
    info: Mutex<Info>,
}

/// What was copied for a duplicate.
#[derive(Debug)]
pub(super) struct Settings {
    handler: ErrorHandler,
    attributes: Attributes<Communicator>,
}

/// What kinds of communicators differ in.
struct Kindred {
    remote: Option<Group>,
    side: Option<Communicator>,
    topology: Topology,
    ranks: Arc<Biased<Ranks>>,
}

/// Who is whose neighbour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum Topology {
    #[default]
    None,
    Cartesian(Cartesian),
    Graph(Graph),
    DistGraph(DistGraph),
}

impl Communicator {
    /// All processes of a job: this one reaches the others by `device`. `threads` is whether several threads will call at
    /// the same time (`MPI_THREAD_MULTIPLE`), and is the same in all processes.
    ///
    /// # Panics
    ///
    /// When the device has a port on the simulated fabric, which is one thread's: [`Self::simulated`].
    pub fn world(device: Device, threads: bool) -> Self {
        Self::world_with(device, threads, Arc::default())
    }

    /// The same, with a table of algorithms for its collective calls and those of all communicators made from it, which is
    /// the same in all processes.
    ///
    /// # Panics
    ///
    /// As [`Self::world`].
    pub fn world_with(device: Device, threads: bool, table: Arc<Table>) -> Self {
        Self::of_device(Movable::new(device), threads, table)
    }

    pub(super) fn of_device(device: Movable, threads: bool, table: Arc<Table>) -> Self {
        let (own, size) = (device.own(), device.processes().len() as u32);
        let local = Arc::new(Local::new(device, threads, table));
        let world = Self::new(local, context::WORLD, Group::world(size), own, Topology::None);
        world.set_name("MPI_COMM_WORLD");
        world.0.local.note_world(&world);
        world
    }

    /// This process alone (`MPI_COMM_SELF`). Every call gives the same one, whose attributes are deleted at the job's end.
    pub fn own(&self) -> Self {
        let local = &self.0.local;
        if let Some(own) = local.own() {
            return own;
        }
        let process = self.0.group.processes()[self.0.rank as usize];
        let alone = Group::new([process]).expect("one process is not there twice");
        let made = Self::new(Arc::clone(local), context::OWN, alone, 0, Topology::None);
        made.set_name("MPI_COMM_SELF");
        local.keep_own(made)
    }

    /// All processes of the job that this is the communicator of, for what sessions agree on; nobody else says anything there.
    ///
    /// # Panics
    ///
    /// Of any other communicator.
    pub(crate) fn bridge(&self) -> Self {
        assert_eq!(self.0.id, context::WORLD, "a session is of all processes of a job");
        let make = || {
            let (local, group) = (Arc::clone(&self.0.local), self.0.group.clone());
            let made = Self::new(local, context::SESSIONS, group, self.0.rank, Topology::None);
            made.set_name("a session");
            made
        };
        self.0.bridge.get_or_init(make).clone()
    }

    pub(super) fn new(local: Arc<Local>, id: u32, group: Group, rank: u32, topology: Topology) -> Self {
        let (context, processes) = (context::on_wire(id, Kind::Collective), group.processes().to_vec());
        let ranks = Ranks::new(&local.lock().device, context, rank as usize, processes, Arc::clone(local.table()));
        // What waits in shared memory waits for its own call only, and threads make others meanwhile.
        let ranks = if local.has_threads() { ranks.without_shared_memory() } else { ranks };
        let ranks = Arc::new(Biased::new(ranks));
        Self::of(local, id, group, rank, Kindred { remote: None, side: None, topology, ranks })
    }

    /// One that is made of this one, and has its error handler (MPI-4.1 9.3), and its session.
    pub(super) fn made(&self, id: u32, group: Group, rank: u32, topology: Topology) -> Self {
        self.inherited(Self::new(Arc::clone(&self.0.local), id, group, rank, topology))
    }

    /// The same between the group that `side` is a communicator of, which nobody else has, and a remote one.
    pub(super) fn made_between(&self, id: u32, side: Self, remote: Group) -> Self {
        self.inherited(Self::between(Arc::clone(&self.0.local), id, side, remote))
    }

    fn inherited(&self, made: Self) -> Self {
        made.set_error_handler(self.error_handler());
        if let Some(room) = self.0.session_room.get() {
            made.has_room_of_session(room);
        }
        made
    }

    fn between(local: Arc<Local>, id: u32, side: Self, remote: Group) -> Self {
        let (context, group, rank) = (context::on_wire(id, Kind::Collective), side.group().clone(), side.rank());
        let (here, there) = (group.processes(), remote.processes());
        let table = Arc::clone(local.table());
        let ranks = Ranks::between(&local.lock().device, context, here, rank as usize, there, table);
        let kindred = Kindred {
            remote: Some(remote),
            side: Some(side),
            topology: Topology::None,
            ranks: Arc::new(Biased::new(ranks)),
        };
        Self::of(local, id, group, rank, kindred)
    }

    fn of(local: Arc<Local>, id: u32, group: Group, rank: u32, kindred: Kindred) -> Self {
        let Kindred { remote, side, topology, ranks } = kindred;
        let (room, session_room, name, handler, attributes, info) = Default::default();
        let acknowledged = Arc::new(failure::Acknowledged::new(remote.as_ref().unwrap_or(&group).clone()));
        let members = failure::members(&group, remote.as_ref());
        let in_failures = failure::Name::of(id, &members);
        let inner = Inner {
            local,
            id,
            group,
            rank,
            remote,
            side,
            own: OnceLock::new(),
            bridge: OnceLock::new(),
            topology,
            around: OnceLock::new(),
            ranks,
            acknowledged,
            in_failures,
            room,
            session_room,
            name,
            handler,
            attributes,
            info,
        };
        let comm = Self(Arc::new(inner));
        comm.watch(members);
        comm
    }

    /// Our rank.
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Ranks on our side.
    pub fn size(&self) -> u32 {
        self.0.group.size()
    }

    /// The processes on our side.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Those on the other side of an intercommunicator.
    pub fn remote_group(&self) -> Option<&Group> {
        self.0.remote.as_ref()
    }

    /// Who is whose neighbour.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// This process, for waiting.
    pub fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    /// The same one, the same processes, or not (MPI-4.1 7.4.1).
    pub fn compare(&self, other: &Self) -> Comparison {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Comparison::Ident;
        }
        let remote = match (&self.0.remote, &other.0.remote) {
            (None, None) => Comparison::Ident,
            (Some(here), Some(there)) => here.compare(there),
            _ => Comparison::Unequal,
        };
        match (self.0.group.compare(&other.0.group), remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Comparison::Unequal,
            (Comparison::Ident, Comparison::Ident) => Comparison::Congruent,
            _ => Comparison::Similar,
        }
    }

    /// Its name: that of the standard for all of a job and for a process alone, else empty until it is set (MPI-4.1 7.8).
    pub fn name(&self) -> String {
        self.0.name.get()
    }

    /// Sets its name, here only.
    pub fn set_name(&self, name: &str) {
        self.0.name.set(name);
    }

    /// Its hints. One is used: [`Repeated`](super::Repeated).
    pub fn info(&self) -> Info {
        lock_outside_operators(&self.0.info).clone()
    }

    /// Sets these hints; others that it has stay (MPI-4.1 7.4.4).
    pub fn set_info(&self, info: &Info) {
        lock_outside_operators(&self.0.info).merge(info);
    }

    /// What is done when a call on it fails.
    pub fn error_handler(&self) -> ErrorHandler {
        lock_outside_operators(&self.0.handler).clone()
    }

    /// Sets what is done when a call on it fails.
    pub fn set_error_handler(&self, handler: ErrorHandler) {
        *lock_outside_operators(&self.0.handler) = handler;
    }

    /// Runs the error handler, as a call does that fails with this (`MPI_Comm_call_errhandler`).
    pub fn call_error_handler(&self, code: impl Into<ErrorCode>) {
        self.handle(code.into());
    }

    /// What is stored under a key.
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<Value> {
        self.0.attributes.get(key)
    }

    /// Stores a value, after the old one was deleted.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: Value) -> Result<(), ErrorClass> {
        self.0.attributes.set(self, key, value).map_err(|class| self.fail(class))
    }

    /// Takes a value out; returns whether there was one.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<bool, ErrorClass> {
        self.0.attributes.delete(self, key).map_err(|class| self.fail(class))
    }

    /// What a duplicate has of this one but its context and name: no hints (MPI-4.1 7.4.2), and attributes as they are copied.
    pub(super) fn settings(&self) -> Result<Settings, ErrorClass> {
        let (attributes, result) = self.0.attributes.copied(self);
        let settings = Settings { handler: self.error_handler(), attributes };
        match result {
            Ok(()) => Ok(settings),
            Err(class) => {
                self.drop_settings(settings);
                Err(class)
            }
        }
    }

    /// Gives a new duplicate what was copied for it. Where that has failed others have it, who may say something there.
    pub(super) fn begin_with(&self, settings: Result<Settings, ErrorClass>) -> Result<(), ErrorClass> {
        let settings = settings.inspect_err(|_| self.revoke())?;
        self.0.attributes.begin_with(settings.attributes);
        self.set_error_handler(settings.handler);
        Ok(())
    }

    /// What was copied is deleted, since the duplicate is never seen.
    pub(super) fn drop_settings(&self, settings: Settings) {
        let _ = settings.attributes.clear(self);
    }

    /// Gives it up: attributes are deleted. All its processes do so; messages under way still arrive. A long one that no receive is for ends with
    /// [`ErrorClass::Revoked`] at its sender once the receiver has given it up.
    ///
    /// Its context is free for others when the last clone is dropped, and the last handle to the partitions of a message on it, and what was
    /// begun is over.
    pub fn free(self) -> Result<(), ErrorClass> {
        self.0.attributes.clear(&self).map_err(|class| self.fail(class))
    }

    /// The same where nobody can be told of errors.
    pub(super) fn free_quietly(self) {
        let _ = self.0.attributes.clear(&self);
    }

    /// Runs the error handler, which in a part of a call is left to the whole; what failed returns the same.
    #[cold]
    pub(crate) fn fail(&self, class: ErrorClass) -> ErrorClass {
        if !compound::is_part() {
            self.handle(class.into());
        }
        class
    }

    fn handle(&self, code: ErrorCode) {
        match self.error_handler() {
            ErrorHandler::Return => {}
            ErrorHandler::Abort => self.abort_by(code),
            ErrorHandler::Call(function) => function(self, code),
        }
    }

    /// What [`ErrorHandler::Abort`] does.
    pub(crate) fn abort_by(&self, code: ErrorCode) -> ! {
        let failed: Vec<_> = self.failed().processes().iter().filter_map(|p| self.peers().rank_of(*p)).collect();
        let gone = if failed.is_empty() { String::new() } else { format!(" (gone: ranks {failed:?})") };
        let why = match &code.to_string()[..] {
            "" => format!("error {code:?}{gone}"),
            text => format!("{text}{gone}"),
        };
        match code.standard() {
            // Whoever is to blame has ended, and the launcher is to tell of that one, and by its code.
            Some(ErrorClass::ProcFailed | ErrorClass::ProcFailedPending | ErrorClass::Revoked) => self.leave(&why),
            _ => self.abort(1, &why),
        }
    }

    /// What collective calls name this process by, as a root.
    pub(super) fn own_number(&self) -> usize {
        lock_outside_operators(&self.0.ranks).own_number()
    }

    /// The same of a rank that messages go to.
    pub(super) fn number_of(&self, rank: u32) -> usize {
        lock_outside_operators(&self.0.ranks).number_of(rank as usize)
    }

    #[inline]
    pub(super) fn context(&self, kind: Kind) -> u32 {
        context::on_wire(self.0.id, kind)
    }

    /// Whom messages go to: those of the other side, where there is one.
    #[inline]
    pub(super) fn peers(&self) -> &Group {
        self.0.remote.as_ref().unwrap_or(&self.0.group)
    }

    pub(super) fn title(&self) -> String {
        match &self.name()[..] {
            "" => format!("communicator {}", self.0.id),
            name => name.to_owned(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if context::is_agreed_on(self.id) {
            let members = failure::members(&self.group, self.remote.as_ref());
            let room = self.room.clone();
            self.local.leave(Left { id: self.id, name: self.in_failures, members, room });
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in {}", self.rank(), self.size(), self.title())
    }
}
