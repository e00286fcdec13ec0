//! What surrounds a collective call: the memory that it has, and how that has to look when the call is over.

use std::hint;

use sidelane_mpi::comm::Pending;

use super::{Differ, Rank};

/// The memory of one call.
pub struct Buffers {
    /// Lent to the call, which only reads it.
    pub given: Vec<u8>,
    /// What was given, to compare.
    lent: Vec<u8>,
    pub room: Vec<u8>,
    /// What is to be in the room afterwards, or at its front, where what is behind that has no value then.
    pub expected: Vec<u8>,
    /// Which call it is.
    pub what: String,
}

/// A call under way.
pub struct Open {
    pub pending: Pending,
    pub buffers: Buffers,
}

impl Buffers {
    pub fn new(given: Vec<u8>, room: Vec<u8>, expected: Vec<u8>, what: String) -> Self {
        Self { lent: given.clone(), given, room, expected, what }
    }

    /// Of a call that is over.
    pub fn check(&self) {
        let Self { given, lent, room, expected, what } = self;
        holds(what, room, expected);
        unwritten(what, given, lent);
    }
}

impl Open {
    /// Waits for it, in one of two ways.
    pub fn wait(mut self, rank: &mut Rank) {
        let world = rank.comms[0].clone().expect("the world lives");
        let status = loop {
            if rank.rng.chance(0.5) {
                break world.local().wait(&mut self.pending);
            }
            if let Some(status) = world.local().test(&mut self.pending) {
                break status;
            }
            (rank.rest)();
        };
        assert_eq!(status.error, None, "{}", self.buffers.what);
        self.buffers.check();
    }
}

/// At its front, if what is expected is not all.
pub fn holds(what: &str, room: &[u8], expected: &[u8]) {
    assert!(room.starts_with(expected), "{}", Differ(what, room, expected));
}

/// Calls only read what is given to them (MPI-4.1 2.3, IN): when one is over it is as it was.
pub fn unwritten<T: PartialEq>(what: &str, given: &[T], lent: &[T]) {
    // Without it the compiler may go by a shared reference, through which nothing can have been written.
    assert!(hint::black_box(given) == lent, "{what}: what was given has changed");
}
