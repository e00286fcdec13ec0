//! Engine mode: a thread of its own drives endpoints, and applications on other threads touch nothing but bounded FIFOs.
//!
//! [`Engine::start`] begins such a thread. [`Engine::drive`] hands it an [`Endpoint`](crate::Endpoint), or Active Messages with their state
//! ([`WithState`]), and returns the application's [`Port`]: the calls of the endpoint, for one thread. [`Sender`]s are for any number of
//! others. Several endpoints, of one driver or of several, may share an engine: each has a port and FIFOs of its own, and they take turns.
//!
//! ```text
//!   Port    --- orders: a ring, one thread pushes ------------->            one turn of one endpoint:
//!   Sender  --- orders: a queue, many push -------------------->  Engine    orders -> endpoint -> poll -> what came
//!   Port    <-- messages: a ring; events: a queue --------------            (nothing at any of them for a while: sleeps)
//! ```
//!
//! The peer is served whatever the application does: acks, timers, handlers of Active Messages and one-sided operations run on the
//! engine's thread. What the endpoint copies into its FIFOs is copied once more to get there. Nobody waits for a FIFO: a full one
//! says `Full`, to one peer without regard to others. One-sided operations are orders too, which wait for none of the room of messages.
//! The engine spins for a while, as long as that pays, and then sleeps by the drivers' means; `flush` wakes it, by a system call only
//! if it sleeps.

mod backlog;
mod bed;
mod company;
mod done;
mod driven;
mod gauge;
mod idle;
mod intake;
mod life;
mod one_sided;
mod operation;
mod order;
mod place;
mod port;
mod requests;
mod rounds;
mod sender;
mod shared;
mod underway;

pub use driven::{Driven, WithState};
pub use port::Port;
pub use sender::Sender;

use std::any::Any;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use sidelane_nic::shm::lane;
use sidelane_nic::{Nic, affinity};

use company::Company;
use place::Core;
use rounds::Rounds;
use shared::Shared;

/// How an engine runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The core that its thread stays on; any, by default.
    pub core: Option<usize>,
    /// Never sleep: for a core that it has for itself.
    pub spin: bool,
}

/// The engine has ended with this endpoint: there was a panic, or its port is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has ended with this endpoint: {0}")]
pub struct Ended(pub String);

/// Why a connection was not begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint refused.
    #[error(transparent)]
    Endpoint(#[from] crate::ConnectError),
    /// There is no endpoint any more.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// A thread that drives endpoints. It runs until this, its clones and all ports are dropped.
#[derive(Clone)]
pub struct Engine(Arc<Thread>);

struct Thread {
    company: Arc<Company>,
    /// Taken when the last of those who need it is dropped.
    handle: Option<JoinHandle<()>>,
}

impl Engine {
    /// Begins the thread, without endpoints.
    pub fn start(options: Options) -> io::Result<Self> {
        let company = Arc::<Company>::default();
        let rounds = Rounds::new(Arc::clone(&company), options);
        let (ready, started) = mpsc::sync_channel(1);
        let handle = thread::Builder::new().name("sidelane-engine".into()).spawn(move || {
            let pinned = options.core.map_or(Ok(()), affinity::pin_to);
            let is_pinned = pinned.is_ok();
            let _ = ready.send(pinned);
            if is_pinned {
                rounds.run();
            }
        })?;
        let engine = Self(Arc::new(Thread { company, handle: Some(handle) }));
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the engine's thread did not start")))?;
        Ok(engine)
    }

    /// Moves `driven` to the engine, which drives it until the [`Port`] is dropped. All that it drives take turns; the one that came
    /// first wakes up soonest.
    pub fn drive<D: Driven>(&self, mut driven: D) -> io::Result<Port<D>> {
        let waker = driven.endpoint().nic_mut().waker()?;
        let shared = Arc::new(Shared::new(waker, driven.endpoint().peers_max()));
        let (own, lane) = lane::pair()?;
        if self.0.handle.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(io::Error::other("the engine's thread has ended"));
        }
        let (back, returned) = mpsc::sync_channel(1);
        self.0.company.join(Box::new(Core::new(driven, own, Arc::clone(&shared), back)));
        self.0.wake();
        Ok(Port::new(lane, shared, returned, self.clone()))
    }
}

impl Engine {
    /// True on the engine's own thread.
    fn is_current(&self) -> bool {
        self.0.handle.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }
}

impl Thread {
    /// Of a thread that has no endpoint to sleep on.
    fn wake(&self) {
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.company.complete();
        self.wake();
        // Not by an order that held the last of them.
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != thread::current().id()
        {
            // Everything on it has ended before, and told if it was by a panic.
            let _ = handle.join();
        }
    }
}

/// Moves `driven` to an engine of its own, which ends with the [`Port`].
pub fn start<D: Driven>(driven: D, options: Options) -> io::Result<Port<D>> {
    Engine::start(options)?.drive(driven)
}

/// What a panic said.
fn why(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}
