//! What can be waited for together, whatever it is (MPI-4.1 3.7.5).

use super::local::Local;
use super::pending::Pending;
use super::persistent::PersistentRef;

/// What was begun, or may be: [`Pending`], [`PersistentRef`], or [`Awaited`] for both at once.
#[expect(private_bounds, reason = "nobody else has what is begun of a persistent call")]
pub trait Await: Begun {}

/// One of several that are waited for together, such as all requests of a `MPI_Waitany`.
#[derive(Debug)]
pub enum Awaited<'a> {
    /// Once.
    Begun(&'a mut Pending),
    /// A call that may be begun again. Inactive, it counts as null.
    Persistent(PersistentRef<'a>),
}

/// Where it is under way.
pub(super) trait Begun {
    fn pending(&mut self) -> &mut Pending;

    /// Whether it is known to be another process's.
    fn is_of(&self, local: &Local) -> bool;
}

impl<T: Begun> Await for T {}

impl Begun for Pending {
    fn pending(&mut self) -> &mut Pending {
        self
    }

    fn is_of(&self, _: &Local) -> bool {
        true
    }
}

impl Begun for Awaited<'_> {
    fn pending(&mut self) -> &mut Pending {
        match self {
            Self::Begun(pending) => pending,
            Self::Persistent(call) => call.pending(),
        }
    }

    fn is_of(&self, local: &Local) -> bool {
        match self {
            Self::Begun(pending) => pending.is_of(local),
            Self::Persistent(call) => call.is_of(local),
        }
    }
}
