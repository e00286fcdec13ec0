//! Sessions: parts of a program that use MPI, each for itself (MPI-4.1 11.3).
//!
//! ```
//! use sidelane_mpi::comm::ErrorHandler;
//! use sidelane_mpi::op::Op;
//! use sidelane_mpi::world::{Session, WORLD};
//!
//! let session = Session::begin(false)?;
//! let all = session.group(WORLD)?;
//! let comm = session.communicator(&all, "org.example.solver", ErrorHandler::Return)?;
//! let mut sum = [0];
//! comm.allreduce(&[1], &mut sum, &Op::Sum)?;
//! assert_eq!(sum, [all.size()]);
//! session.end()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::adi::lock;
use crate::comm::info::Info;
use crate::comm::{Communicator, ErrorHandler, Group, Local, Pending, Room};
use crate::error::{ErrorClass, ErrorCode};

use super::{Job, WorldError};

/// A part of a program that uses MPI, whatever other parts do. All of a process are of one job, with the [world](super::begin), if the
/// program has that too.
///
/// From its groups it makes communicators, which end before it does. Groups, and communicators of several sessions, are never mixed by a
/// program that goes by the standard; nothing here depends on it.
pub struct Session {
    world: Communicator,
    /// What its processes agree on communicators by.
    bridge: Communicator,
    /// Of those that the job waits for.
    is_counted: bool,
    handler: Mutex<ErrorHandler<Self>>,
    /// For buffered messages of its communicators.
    room: Room,
}

/// The set of all processes of the job.
pub const WORLD: &str = "mpi://WORLD";
/// The set of this process alone.
pub const SELF: &str = "mpi://SELF";

/// The longest tag: the standard ABI's `MPI_MAX_STRINGTAG_LEN` without C's final zero.
pub const TAG_MAX: usize = 1024 - 1;

impl Session {
    /// Begins one, and with it the job, if neither [`super::begin`] nor another session of this process has (`MPI_Session_init`). Then all
    /// ranks of the job have to come, as there; `threads` counts then only ([`Self::has_threads`]).
    ///
    /// A job that has ended, with its last session or with its world, does not begin again, but that of a process without a launcher.
    pub fn begin(threads: bool) -> Result<Self, WorldError> {
        // Held while the job begins: another thread's session is one of the same job.
        let mut running = lock(&RUNNING);
        let world = match running.as_ref().and_then(Running::world) {
            Some(world) => world,
            None => {
                let (job, world) = super::run::begin_alone(threads)?;
                let local = Arc::downgrade(world.local());
                *running = Some(Running { local, left: Some((job, world.clone())), sessions: 0 });
                world
            }
        };
        running.as_mut().expect("it has begun").sessions += 1;
        drop(running);
        let mut session = Self::of(&world);
        session.is_counted = true;
        Ok(session)
    }

    /// One of a job that others begin and end, which this is the communicator of all processes of.
    ///
    /// # Panics
    ///
    /// Of any other communicator.
    pub fn of(world: &Communicator) -> Self {
        let (handler, room) = Default::default();
        Self { world: world.clone(), bridge: world.bridge(), is_counted: false, handler, room }
    }

    /// Ends it (`MPI_Session_finalize`), when its buffered messages have gone. Nothing else of its communicators is under way. The last one of a process ends the job, if there is no
    /// world, or that has ended ([`Job::end`]): then all ranks have to come. One that is dropped, as by an error, is not waited for any more, and ends no job: that is left to others, or to the process's end.
    pub fn end(mut self) -> Result<(), WorldError> {
        self.flush_buffer();
        if !std::mem::take(&mut self.is_counted) {
            return Ok(());
        }
        let mut running = lock(&RUNNING);
        let of = running.as_mut().expect("it is not over while one of its sessions is open");
        of.sessions -= 1;
        let Some((job, world)) = of.left.take_if(|_| of.sessions == 0) else { return Ok(()) };
        *running = None;
        drop(running);
        job.finalize(world.into_device())
    }

    /// Whether several threads may call at the same time (`MPI_THREAD_MULTIPLE`): as whoever has begun the job wished.
    pub fn has_threads(&self) -> bool {
        self.world.local().has_threads()
    }

    /// The names of the sets of processes that there are (`MPI_Session_get_num_psets`, `MPI_Session_get_nth_pset`).
    pub const fn sets(&self) -> &'static [&'static str] {
        &[WORLD, SELF]
    }

    /// What is known of a set: how many are in it, by `mpi_size` (`MPI_Session_get_pset_info`). `Arg` of one that there is not.
    pub fn info_of_set(&self, name: &str) -> Result<Info, ErrorClass> {
        let size = self.group(name)?.size().to_string();
        let mut info = Info::new();
        info.set("mpi_size", &size).expect("it is short");
        Ok(info)
    }

    /// The processes of a set (`MPI_Group_from_session_pset`). `Arg` of one that there is not.
    pub fn group(&self, name: &str) -> Result<Group, ErrorClass> {
        let all = self.bridge.group();
        match name {
            WORLD => Ok(all.clone()),
            SELF => Ok(all.incl(&[self.bridge.rank()]).expect("we are in it")),
            _ => Err(self.fail(ErrorClass::Arg)),
        }
    }

    /// A communicator of these processes, of which this is one, with this error handler; they all call it, and nobody else
    /// (`MPI_Comm_create_from_group`). `tag` tells it from what other threads of theirs make meanwhile. What fails is told to the session.
    ///
    /// Of two tags that are in use at the same time a hash of 31 bits has to differ.
    pub fn communicator(&self, group: &Group, tag: &str, handler: ErrorHandler) -> Result<Communicator, ErrorClass> {
        let made = number(tag).and_then(|tag| self.made_of(group, tag)).map_err(|class| self.fail(class))?;
        Ok(self.own(made, handler))
    }

    /// A communicator between two groups without a common process, of which this process is in `here`; as [`Self::communicator`]
    /// (`MPI_Intercomm_create_from_groups`). Leaders are ranks of their groups.
    pub fn intercommunicator(
        &self,
        (here, leader): (&Group, u32),
        (there, other): (&Group, u32),
        tag: &str,
        handler: ErrorHandler,
    ) -> Result<Communicator, ErrorClass> {
        let between = || {
            let (tag, other) = (number(tag)?, there.process(other).ok_or(ErrorClass::Rank)?);
            // The bridge's ranks are the processes' numbers.
            self.made_of(here, tag)?.intercomm(leader, &self.bridge, other, tag)
        };
        let made = between().map_err(|class| self.fail(class))?;
        Ok(self.own(made, handler))
    }

    /// As [`Communicator::attach_buffer`], for messages of its communicators that have no room of their own
    /// (`MPI_Session_attach_buffer`).
    pub fn attach_buffer(&self, capacity: usize) -> Result<(), ErrorClass> {
        self.room.attach(capacity).map_err(|class| self.fail(class))
    }

    /// As [`Communicator::detach_buffer`], of the session's (`MPI_Session_detach_buffer`).
    pub fn detach_buffer(&self) -> Result<usize, ErrorClass> {
        self.room.detach(self.world.local()).map_err(|class| self.fail(class))
    }

    /// As [`Communicator::flush_buffer`], of the session's (`MPI_Session_flush_buffer`).
    pub fn flush_buffer(&self) {
        self.room.flush(self.world.local());
    }

    /// As [`Communicator::iflush_buffer`], of the session's (`MPI_Session_iflush_buffer`).
    pub fn iflush_buffer(&self) -> Pending {
        self.room.iflush(self.world.local())
    }

    /// What is done when a call on it fails.
    pub fn error_handler(&self) -> ErrorHandler<Self> {
        lock(&self.handler).clone()
    }

    /// Sets what is done when a call on it fails.
    pub fn set_error_handler(&self, handler: ErrorHandler<Self>) {
        *lock(&self.handler) = handler;
    }

    /// Runs the error handler, as a call does that fails with this (`MPI_Session_call_errhandler`).
    pub fn call_error_handler(&self, code: impl Into<ErrorCode>) {
        let code = code.into();
        match self.error_handler() {
            ErrorHandler::Return => {}
            ErrorHandler::Abort => self.bridge.abort_by(code),
            ErrorHandler::Call(function) => function(self, code),
        }
    }

    fn own(&self, made: Communicator, handler: ErrorHandler) -> Communicator {
        made.set_error_handler(handler);
        made.has_room_of_session(&self.room);
        made
    }

    fn made_of(&self, group: &Group, tag: i32) -> Result<Communicator, ErrorClass> {
        self.bridge.create_group(group, tag)?.ok_or(ErrorClass::Group)
    }

    fn fail(&self, class: ErrorClass) -> ErrorClass {
        self.call_error_handler(class);
        class
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_counted {
            lock(&RUNNING).as_mut().expect("as in `end`").sessions -= 1;
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a session of {:?}", self.world)
    }
}

/// The job of this process.
struct Running {
    local: Weak<Local>,
    /// What the world's owner has else: when there was none, or it has ended it.
    left: Option<(Job, Communicator)>,
    sessions: usize,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

impl Running {
    /// `None` when all who had it have dropped it, and not ended.
    fn world(&self) -> Option<Communicator> {
        self.local.upgrade()?.world()
    }
}

/// The world of the job that sessions have begun, or of one that `begin` begins.
pub(super) fn world_of(
    begin: impl FnOnce() -> Result<(Job, Communicator), WorldError>,
) -> Result<(Job, Communicator), WorldError> {
    let mut running = lock(&RUNNING);
    if let Some(of) = running.as_mut().filter(|of| of.world().is_some()) {
        // Else it is a second one of this process, as some tests have.
        return of.left.take().map_or_else(begin, Ok);
    }
    let (job, world) = begin()?;
    *running = Some(Running { local: Arc::downgrade(world.local()), left: None, sessions: 0 });
    Ok((job, world))
}

/// The world has ended: so does the job, unless its sessions go on, of which the last one ends it.
pub(super) fn end_of_world(job: Job, world: Communicator) -> Result<(), WorldError> {
    // Their callbacks may communicate, and another thread's session may be the last one and end the job.
    world.delete_own_attributes();
    let mut running = lock(&RUNNING);
    if let Some(of) = running.as_mut().filter(|of| Weak::ptr_eq(&of.local, &Arc::downgrade(world.local()))) {
        if of.sessions > 0 {
            of.left = Some((job, world.clone()));
            return Ok(());
        }
        *running = None;
    }
    drop(running);
    job.finalize(world.into_device())
}

/// By which [`Communicator::create_group`] tells calls from others.
fn number(tag: &str) -> Result<i32, ErrorClass> {
    if tag.len() > TAG_MAX {
        return Err(ErrorClass::Arg);
    }
    // FNV-1a: the offset basis and prime for 64 bits.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = tag.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    Ok(((hash ^ hash >> 32) as u32 >> 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::Config;
    use crate::comm::{BUFFER_AUTOMATIC, BUFFERED_OVERHEAD, in_threads};
    use crate::op::Op;

    fn sum(comm: &Communicator, number: u64) -> u64 {
        let mut sum = [0];
        comm.allreduce(&[number], &mut sum, &Op::Sum).unwrap();
        sum[0]
    }

    #[test]
    fn communicators_are_of_groups_that_need_no_other_communicator() {
        in_threads(5, &Config::default(), false, |world| {
            let [one, other] = [(); 2].map(|()| Session::of(&world));
            let (own, all) = (world.rank(), one.group(WORLD).unwrap());
            let halves = [&[0, 2, 4][..], &[3, 1]].map(|ranks| all.incl(ranks).unwrap());
            let (here, there) = (&halves[own as usize % 2], &halves[1 - own as usize % 2]);
            for session in [&one, &other] {
                // Both halves at the same time, by the same tag.
                let half = session.communicator(here, "half", ErrorHandler::Return).unwrap();
                assert_eq!(sum(&half, own.into()), [6, 4][own as usize % 2]);
                assert_eq!(half.group(), here);
                let between = session.intercommunicator((here, 1), (there, 1), "half", ErrorHandler::Abort).unwrap();
                assert_eq!((between.group(), between.remote_group()), (here, Some(there)));
                assert!(matches!(between.error_handler(), ErrorHandler::Abort));
                assert_eq!(sum(&between, own.into()), [4, 6][own as usize % 2]);
            }
            world.revoke();
            let alone = one.communicator(&one.group(SELF).unwrap(), "alone", ErrorHandler::Return).unwrap();
            assert_eq!(sum(&alone, own.into()), u64::from(own));
            assert_eq!(sum(&one.communicator(&all, "all", ErrorHandler::Return).unwrap(), 1), 5);
        });
    }

    #[test]
    fn what_threads_make_at_the_same_time_tags_tell_apart() {
        in_threads(2, &Config::default(), true, |world| {
            let make = |tag: &str, number: u64| {
                let session = Session::of(&world);
                let all = session.group(WORLD).unwrap();
                for round in 0..20 {
                    let comm = session.communicator(&all, tag, ErrorHandler::Return).unwrap();
                    assert_eq!(sum(&comm, number + round), 2 * (number + round));
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| make("one", 100));
                make("another", 200);
            });
        });
    }

    #[test]
    fn buffered_messages_go_to_the_room_of_the_communicator_the_session_or_the_process() {
        // Announced, and so in the room until it is received.
        let data = vec![7u8; 100_000];
        in_threads(2, &Config::default(), false, |world| {
            let session = Session::of(&world);
            let comm = session.communicator(&session.group(WORLD).unwrap(), "buffers", ErrorHandler::Return).unwrap();
            let copy = comm.dup().unwrap();
            let one = data.len() + BUFFERED_OVERHEAD;
            if world.rank() == 1 {
                let mut room = vec![0; data.len()];
                world.recv(&mut [0u8], 0, 1).unwrap();
                for from in [&comm, &copy, &copy, &world] {
                    from.recv(&mut room, 0, 0).unwrap();
                }
                world.recv(&mut room, 0, 2).unwrap();
                comm.barrier().unwrap();
                return;
            }
            let refused = Err(ErrorClass::Buffer);
            assert_eq!([comm.bsend(&data, 1, 0), session.detach_buffer().map(drop)], [refused; 2]);
            world.attach_buffer(one).unwrap();
            session.attach_buffer(2 * one).unwrap();
            comm.attach_own_buffer(one).unwrap();
            assert_eq!([comm.attach_own_buffer(one), session.attach_buffer(one)], [refused; 2]);
            assert_eq!([comm.bsend(&data, 1, 0), comm.bsend(&data, 1, 0)], [Ok(()), refused]);
            let mut own = comm.iflush_own_buffer();
            // A communicator's own room is nobody else's.
            assert_eq!([copy.bsend(&data, 1, 0), world.bsend(&data, 1, 0)], [Ok(()); 2]);
            copy.attach_own_buffer(BUFFER_AUTOMATIC).unwrap();
            copy.bsend(&data, 1, 0).unwrap();
            assert_eq!(world.local().test(&mut own), None);
            let mut all = session.iflush_buffer();
            world.send(&[0u8], 1, 1).unwrap();
            for flush in [&mut own, &mut all] {
                assert_eq!(world.local().finish(flush).error, None);
            }
            assert_eq!((comm.detach_own_buffer(), copy.detach_own_buffer()), (Ok(one), Ok(BUFFER_AUTOMATIC)));
            assert_eq!(session.detach_buffer(), Ok(2 * one));
            world.flush_buffer();
            let mut process = world.iflush_buffer();
            // What comes later is not waited for.
            world.bsend(&data, 1, 2).unwrap();
            assert_eq!(world.local().finish(&mut process).error, None);
            comm.barrier().unwrap();
            assert_eq!(world.detach_buffer(), Ok(one));
        });
    }

    #[test]
    fn what_fails_is_told_to_the_session() {
        in_threads(2, &Config::default(), false, |world| {
            let session = Session::of(&world);
            let told = Arc::new(Mutex::new(Vec::new()));
            let all = Arc::clone(&told);
            session.set_error_handler(ErrorHandler::Call(Arc::new(move |of: &Session, code| {
                all.lock().unwrap().push((of.sets().len(), code));
            })));
            let other = session.group(WORLD).unwrap().excl(&[world.rank()]).unwrap();
            let unknown = [session.group("mpi://NOWHERE").map(drop), session.info_of_set("app://ocean").map(drop)];
            let not_in = session.communicator(&other, "not in it", ErrorHandler::Return).map(drop);
            let long = session.communicator(&other, &"x".repeat(TAG_MAX + 1), ErrorHandler::Return).map(drop);
            let own = ErrorCode::from(ErrorClass::Io).new_code().unwrap();
            session.call_error_handler(own);
            assert_eq!(unknown, [Err(ErrorClass::Arg); 2]);
            assert_eq!([not_in, long], [Err(ErrorClass::Group), Err(ErrorClass::Arg)]);
            let arg = ErrorClass::Arg.into();
            let wanted = [arg, arg, ErrorClass::Group.into(), arg, own].map(|code| (2, code));
            assert_eq!(*told.lock().unwrap(), wanted);
            assert_eq!(session.info_of_set(session.sets()[0]).unwrap().get("mpi_size"), Some("2"));
        });
    }
}
