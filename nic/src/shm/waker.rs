//! Ending an endpoint's sleep from another thread of its own process.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::doorbell::Knock;
use super::mapping::Bell;
use super::sys;

/// An endpoint's doorbell, and that somebody of its own rang it. Made when the first waker is asked for.
pub(super) struct Alarm {
    bell: Bell,
    knock: Knock,
}

impl Alarm {
    pub(super) fn new(bell: Bell) -> Self {
        Self { bell, knock: Knock::new() }
    }

    pub(super) fn knock(&self) -> &Knock {
        &self.knock
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.knock.knock(self.bell.word(), || sys::futex_wake(self.bell.word()));
    }
}
