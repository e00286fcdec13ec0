//! This process's state in a call of one of its threads. While the call waits, the other threads' calls are let in.

use crate::adi::{Device, Idle, Turns};
use crate::biased::Guard;

use super::local::{Local, State};
use super::sleeper::{Sleeper, Watcher};

/// This process's device, and all that is under way on it, for one call.
#[derive(Debug)]
pub struct Held<'a> {
    local: &'a Local,
    /// `None` only while others are let in.
    state: Option<Guard<'a, State>>,
    watcher: Watcher,
}

impl Local {
    /// What a call needs. No other call of this thread's has it.
    ///
    /// # Panics
    ///
    /// When an operator calls it, as [`Self::lock`].
    #[inline]
    pub(super) fn hold(&self) -> Held<'_> {
        Held { local: self, state: Some(self.lock()), watcher: Watcher::default() }
    }
}

impl Held<'_> {
    #[inline]
    pub(super) fn state(&mut self) -> &mut State {
        self.state.as_mut().expect(HELD)
    }

    /// Whether no other thread's call waits.
    pub(super) fn waits_alone(&mut self) -> bool {
        let Self { state, watcher, .. } = self;
        state.as_mut().expect(HELD).lookout.has_nobody_but(watcher)
    }

    /// After a turn of one of several threads: who has waited for long sleeps until there is news, or another thread's call.
    fn let_others_in(&mut self, sleeper: &Sleeper, moved: bool, idle: &mut Idle) {
        let Self { state, watcher, .. } = self;
        let State { device, lookout, .. } = &mut **state.as_mut().expect(HELD);
        let gone = device.gone().len();
        if moved {
            lookout.wait(watcher);
            device.go_on(idle);
        } else if lookout.have_all_looked(watcher) && idle.has_waited_long(device.patience()) && sleeper.may_sleep() {
            sleeper.sleep(|| device.idle(idle));
        } else {
            device.stay_awake(idle);
        }
        if moved || device.gone().len() > gone {
            lookout.tell();
        }
        self.state = None;
        if !moved {
            std::thread::yield_now();
        }
        self.state = Some(self.local.lock_again());
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
        match self.local.threads() {
            Some(sleeper) => self.let_others_in(sleeper, moved, idle),
            None => self.device().pass(moved, idle),
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // There is none when a panic has kept it from being locked again: then nobody may sleep any more.
        if let Some(state) = &mut self.state {
            state.lookout.leave(&self.watcher);
        }
    }
}

/// Of the state.
const HELD: &str = "it is held but while others are let in";
