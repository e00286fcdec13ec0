//! Operations of several messages that are under way: each turn of the process moves them on, whatever it waits for
//! (MPI-4.1 2.9 and 3.7.4: progress).

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::adi::{self, Device};

use super::Status;
use super::context::ContextIds;

/// An operation that goes on by turns.
pub(super) trait Run: Send {
    /// Goes on as far as it can without waiting; `None` while it is not over.
    fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> Option<Status>;

    /// What its messages are told from others by; `None` where there are none.
    fn context(&self) -> Option<u32>;

    /// Its operator has panicked in a turn, which was its last one.
    fn end_by_panic(&mut self, _device: &mut Device) {}
}

/// All that are under way in a process.
#[derive(Default)]
pub(super) struct Runs {
    slots: Vec<Slot>,
    /// Slots in which something is under way.
    under_way: usize,
    has_ended: bool,
}

/// Names an operation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    index: usize,
    generation: u32,
}

struct Slot {
    generation: u32,
    state: State,
}

enum State {
    Free,
    UnderWay(Box<dyn Run>),
    /// As before, and nobody waits for it.
    Orphan(Box<dyn Run>),
    Over(Status),
    /// An operator of the program's has panicked, which is for who waits for this, not for whose turn it was.
    Panicked(Box<dyn Any + Send>),
}

impl Runs {
    /// Takes an operation that has been begun.
    pub fn add(&mut self, run: Box<dyn Run>) -> Handle {
        self.under_way += 1;
        let free = self.slots.iter().position(|slot| matches!(slot.state, State::Free));
        let index = free.unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, state: State::Free });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.state = State::UnderWay(run);
        Handle { index, generation: slot.generation }
    }

    /// Forgets all, with the memory that is lent to them: the device that has it is somebody else's from now on.
    pub fn end(&mut self) {
        let all = std::mem::replace(self, Self { has_ended: true, ..Self::default() });
        if !all.is_empty() {
            std::mem::forget(all);
        }
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// Whether anything is under way in one of these contexts.
    pub fn use_any(&self, contexts: Range<u32>) -> bool {
        self.slots.iter().any(|slot| match &slot.state {
            State::UnderWay(run) | State::Orphan(run) => {
                run.context().is_some_and(|context| contexts.contains(&context))
            }
            State::Over(_) | State::Panicked(_) | State::Free => false,
        })
    }

    /// Moves all on. True if one has ended.
    pub fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> bool {
        let mut ended = false;
        for slot in &mut self.slots {
            let (State::UnderWay(run) | State::Orphan(run)) = &mut slot.state else { continue };
            // Whoever has this turn may have lent its memory to something else, and goes on. A run whose operator panics is between
            // its messages: it can be dropped.
            let over = match catch_unwind(AssertUnwindSafe(|| run.turn(device, contexts))) {
                Ok(None) => continue,
                Ok(Some(status)) => State::Over(status),
                Err(panic) => {
                    run.end_by_panic(device);
                    State::Panicked(panic)
                }
            };
            slot.state = if matches!(slot.state, State::Orphan(_)) { State::Free } else { over };
            self.under_way -= 1;
            ended = true;
        }
        ended
    }

    /// Whether it has ended.
    pub fn is_over(&self, handle: Handle) -> bool {
        matches!(self.at(handle).state, State::Over(_) | State::Panicked(_))
    }

    /// Whether it is still to be waited for.
    pub fn knows(&self, handle: Handle) -> bool {
        self.slots.get(handle.index).is_some_and(|slot| slot.generation == handle.generation)
    }

    /// How it ended, and forgets it.
    ///
    /// # Panics
    ///
    /// Goes on with the panic of its operator.
    pub fn poll(&mut self, handle: Handle) -> Option<Status> {
        if !self.is_over(handle) {
            return None;
        }
        let slot = &mut self.slots[handle.index];
        slot.generation = slot.generation.wrapping_add(1);
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Over(status) => Some(status),
            State::Panicked(panic) => resume_unwind(panic),
            State::Free | State::UnderWay(_) | State::Orphan(_) => unreachable!("it is over"),
        }
    }

    /// Lets it end by itself.
    pub fn free(&mut self, handle: Handle) {
        self.check();
        let slot = &mut self.slots[handle.index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = match std::mem::replace(&mut slot.state, State::Free) {
            State::UnderWay(run) => State::Orphan(run),
            State::Orphan(_) | State::Over(_) | State::Panicked(_) | State::Free => State::Free,
        };
    }

    /// Nobody knows any more whose memory an operation has.
    fn check(&self) {
        if self.has_ended {
            adi::unknown();
        }
    }

    fn at(&self, handle: Handle) -> &Slot {
        self.check();
        let slot = &self.slots[handle.index];
        assert_eq!(slot.generation, handle.generation, "an operation is waited for once");
        slot
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}
