//! This process's state in a call of one of its threads. While the call waits, the other threads' calls are let in.

use std::sync::MutexGuard;

use crate::adi::{Device, Idle, Turns};

use super::local::{Local, State};

/// This process's device, and all that is under way on it, for one call.
#[derive(Debug)]
pub struct Held<'a> {
    local: &'a Local,
    /// `None` only while others are let in.
    state: Option<MutexGuard<'a, State>>,
}

impl Local {
    /// What a call needs. No other call of this thread's has it.
    ///
    /// # Panics
    ///
    /// When an operator calls it, as [`Self::lock`].
    #[inline]
    pub(super) fn hold(&self) -> Held<'_> {
        Held { local: self, state: Some(self.lock()) }
    }
}

impl Held<'_> {
    #[inline]
    pub(super) fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("it is held but while others are let in")
    }

    /// Nobody sleeps in a driver here: others could not call meanwhile.
    fn let_others_in(&mut self, moved: bool, idle: &mut Idle) {
        if moved {
            self.device().go_on(idle);
        } else {
            self.device().stay_awake(idle);
        }
        self.state = None;
        if !moved {
            std::thread::yield_now();
        }
        self.state = Some(self.local.lock());
    }
}

/// A call that waits moves on all that is under way besides.
impl Turns for Held<'_> {
    #[inline]
    fn device(&mut self) -> &mut Device {
        &mut self.state().device
    }

    #[inline]
    fn turn(&mut self) -> bool {
        self.state().turn()
    }

    #[inline]
    fn pass(&mut self, moved: bool, idle: &mut Idle) {
        if self.local.has_threads() {
            self.let_others_in(moved, idle);
        } else if moved {
            self.device().go_on(idle);
        } else {
            self.device().idle(idle);
        }
    }
}
