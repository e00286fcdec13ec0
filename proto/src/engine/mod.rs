//! Engine mode: a thread of its own drives an endpoint, and applications on other threads touch nothing but bounded FIFOs.
//!
//! [`start`] hands an [`Endpoint`](crate::Endpoint), or Active Messages with their state ([`WithState`]), to such a thread and returns the
//! application's [`Port`]: the calls of the endpoint, for one thread. [`Sender`]s are for any number of others.
//!
//! ```text
//!   Port    --- orders: a ring, one thread pushes ------------->            one turn of the engine:
//!   Sender  --- orders: a queue, many push -------------------->  Engine    orders -> endpoint -> poll -> what came
//!   Port    <-- messages: a ring; events: a queue --------------            (nothing for a while: sleeps)
//! ```
//!
//! The peer is served whatever the application does: acks, timers, handlers of Active Messages and one-sided operations run on the
//! engine's thread. What the endpoint copies into its FIFOs is copied once more to get there. Nobody waits for a FIFO: a full one
//! says `Full`, to one peer without regard to others. The engine spins for a while, as long as that pays, and then sleeps by the
//! driver's means; `flush` wakes it, by a system call only if it sleeps.

mod backlog;
mod core;
mod driven;
mod gauge;
mod idle;
mod intake;
mod order;
mod port;
mod sender;
mod shared;

pub use driven::{Driven, WithState};
pub use port::Port;
pub use sender::Sender;

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use sidelane_nic::shm::lane;
use sidelane_nic::{Nic, affinity};

use self::core::Core;
use shared::Shared;

/// How an engine runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The core that its thread stays on; any, by default.
    pub core: Option<usize>,
    /// Never sleep: for a core that it has for itself.
    pub spin: bool,
}

/// The engine's thread is no more: it panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine's thread has ended: {0}")]
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

/// Moves `driven` to a thread of its own. It runs until the [`Port`] is dropped.
pub fn start<D: Driven>(mut driven: D, options: Options) -> io::Result<Port<D>> {
    let waker = driven.endpoint().nic_mut().waker()?;
    let shared = Arc::new(Shared::new(waker, driven.endpoint().peers_max()));
    let (own, port) = lane::pair()?;
    let (ready, started) = mpsc::sync_channel(1);
    let engines = Arc::clone(&shared);
    let thread = thread::Builder::new().name("sidelane-engine".into()).spawn(move || {
        if let Some(core) = options.core
            && let Err(error) = affinity::pin_to(core)
        {
            let _ = ready.send(Err(error));
            return None;
        }
        let _ = ready.send(Ok(()));
        let core = Core::new(driven, own, Arc::clone(&engines), options.spin);
        let driven = catch_unwind(AssertUnwindSafe(|| core.run())).map_err(|panic| why(&*panic));
        engines.end(driven.as_ref().err().cloned());
        driven.ok()
    })?;
    let port = Port::new(port, shared, thread);
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the engine's thread did not start")))?;
    Ok(port)
}

/// What a panic said.
fn why(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}
