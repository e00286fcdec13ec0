//! Who sleeps together: the endpoints of one engine. Each sleeps on its own driver, and whoever gets up wakes the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::place::Place;

/// What the engine's thread shares with the threads that sleep for it, and with whoever brings it another endpoint.
#[derive(Default)]
pub(super) struct Company {
    /// Somebody has got up since all lay down.
    up: AtomicBool,
    /// `newcomers` is not empty.
    has_newcomers: AtomicBool,
    newcomers: Mutex<Vec<Box<dyn Place>>>,
    bells: Mutex<Vec<Arc<dyn Ring>>>,
    /// Nobody brings another endpoint any more.
    is_complete: AtomicBool,
}

/// Wakes one endpoint if it sleeps.
pub(super) trait Ring: Send + Sync {
    fn ring(&self);
}

impl Company {
    /// Another endpoint for the engine.
    pub fn join(&self, place: Box<dyn Place>) {
        lock(&self.bells).push(place.bell());
        lock(&self.newcomers).push(place);
        self.has_newcomers.store(true, Ordering::Release);
        self.get_up();
    }

    /// An endpoint has ended.
    pub fn leave(&self, bell: &Arc<dyn Ring>) {
        lock(&self.bells).retain(|other| !Arc::ptr_eq(other, bell));
    }

    /// Those who have joined since this was last asked.
    #[inline]
    pub fn newcomers(&self) -> Vec<Box<dyn Place>> {
        if !self.has_newcomers.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut newcomers = lock(&self.newcomers);
        self.has_newcomers.store(false, Ordering::Relaxed);
        std::mem::take(&mut newcomers)
    }

    /// Nobody will join any more.
    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// True once nobody will join any more.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// All are about to sleep.
    pub fn lie_down(&self) {
        self.up.store(false, Ordering::Relaxed);
    }

    /// The caller is awake: so is everybody else soon.
    pub fn get_up(&self) {
        if !self.up.swap(true, Ordering::AcqRel) {
            // Ringing fences, as does going to sleep: whoever is not seen asleep sees `up`.
            lock(&self.bells).iter().for_each(|bell| bell.ring());
        }
    }

    /// True when nobody should sleep: somebody has got up, or has joined.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed) || self.has_newcomers.load(Ordering::Relaxed)
    }
}

/// A thread that panicked has left nothing half done: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
