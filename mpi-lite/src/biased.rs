#![allow(unsafe_code)]
//! A lock that its usual thread takes without a locked instruction: that would wait, in every call, until all that was written before
//! has left the core, lines of shared memory that others have among it (`bench/NOTES.md` 80). Unsafe, since a value that threads
//! share is behind it.
//!
//! As long as no other thread has come, whoever made it says by a plain store that it has the value, and then looks whether another has
//! come meanwhile. Who comes says so, has the first thread's stores seen by a barrier in it (`membarrier`), and waits until it has not
//! got the value. From then on both take a mutex. Only who visits leaves everything as it was.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use system::{AtomicBool, Mutex, MutexGuard, NUMBER, Ordering, can_bias, heavy_fence, light_fence, pause};

/// A value of one thread at a time. Whole whenever it is free, also after a panic: nobody is told of that.
pub struct Biased<T> {
    /// The usual thread's number.
    owner: u64,
    /// It has the value. Only it writes this.
    has_it: AtomicBool,
    /// All take the mutex.
    is_shared: AtomicBool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is one thread's at a time, as `lock` says.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The value, until this is dropped, by the same thread.
pub struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// Kept until then. A guard of a mutex stays with its thread, also where there is none.
    _mutex: Option<MutexGuard<'a, ()>>,
    /// It is the usual thread's.
    is_owners: bool,
    /// The mutex is for this one only.
    is_visit: bool,
    /// Threads that share it share the value.
    _value: PhantomData<&'a mut T>,
}

impl<T> Biased<T> {
    /// For this thread, as long as no other one comes.
    pub fn new(value: T) -> Self {
        Self::with(value, number(), !can_bias())
    }

    /// For several threads.
    #[cfg_attr(loom, expect(dead_code, reason = "its models are of the other one"))]
    pub fn shared(value: T) -> Self {
        Self::with(value, 0, true)
    }

    fn with(value: T, owner: u64, is_shared: bool) -> Self {
        let (has_it, is_shared) = (AtomicBool::new(false), AtomicBool::new(is_shared));
        Self { owner, has_it, is_shared, mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// The value, if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.owner != number() {
            return self.try_shared();
        }
        if self.has_it.load(Ordering::Relaxed) {
            return None;
        }
        self.has_it.store(true, Ordering::Relaxed);
        light_fence();
        // Pairs with the store at a visit's end.
        if !self.is_shared.load(Ordering::Acquire) {
            return Some(self.guard(None, true, false));
        }
        self.has_it.store(false, Ordering::Release);
        self.try_mutex().map(|mutex| self.owner_with(mutex))
    }

    /// The value, as soon as nobody has it.
    ///
    /// # Panics
    ///
    /// If the usual thread has it, and this is it. (Another one would wait for itself, as with any mutex.)
    pub fn lock(&self) -> Guard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        let is_owners = self.owner == number();
        assert!(!is_owners || !self.has_it.load(Ordering::Relaxed), "a thread waits for itself");
        let mutex = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        if is_owners {
            return self.owner_with(mutex);
        }
        self.share();
        for turn in 0u32.. {
            // Pairs with the store in `drop`.
            if !self.has_it.load(Ordering::Acquire) {
                break;
            }
            pause(turn);
        }
        self.guard(Some(mutex), false, false)
    }

    /// As [`Self::try_lock`], for a thread that comes seldom and briefly: the usual one goes on as if it had not.
    pub fn visit(&self) -> Option<Guard<'_, T>> {
        if self.owner == number() {
            return self.try_lock();
        }
        let mutex = self.try_mutex()?;
        let is_visit = self.share();
        let guard = self.guard(Some(mutex), false, is_visit);
        // If not, the visit is over: the guard goes.
        guard.is_free().then_some(guard)
    }

    #[cold]
    fn try_shared(&self) -> Option<Guard<'_, T>> {
        let mutex = self.try_mutex()?;
        self.share();
        let guard = self.guard(Some(mutex), false, false);
        guard.is_free().then_some(guard)
    }

    /// The usual thread has the mutex: that it has the value it says all the same, to itself.
    #[cold]
    fn owner_with<'a>(&'a self, mutex: MutexGuard<'a, ()>) -> Guard<'a, T> {
        self.has_it.store(true, Ordering::Relaxed);
        self.guard(Some(mutex), true, false)
    }

    #[inline]
    fn guard<'a>(&'a self, mutex: Option<MutexGuard<'a, ()>>, is_owners: bool, is_visit: bool) -> Guard<'a, T> {
        Guard { lock: self, _mutex: mutex, is_owners, is_visit, _value: PhantomData }
    }

    fn try_mutex(&self) -> Option<MutexGuard<'_, ()>> {
        match self.mutex.try_lock() {
            Ok(mutex) => Some(mutex),
            Err(TryLockError::Poisoned(mutex)) => Some(mutex.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// From now on the usual thread takes the mutex, which we have; what it has without it, `has_it` says. False: so it was.
    fn share(&self) -> bool {
        let is_new = !self.is_shared.load(Ordering::Relaxed);
        if is_new {
            self.is_shared.store(true, Ordering::Relaxed);
            heavy_fence();
        }
        is_new
    }
}

impl<T> Guard<'_, T> {
    /// Whether the usual thread has not got the value, of one that has the mutex.
    fn is_free(&self) -> bool {
        // Pairs with the store in `drop`.
        !self.lock.has_it.load(Ordering::Acquire)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the value while there is a guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_owners {
            self.lock.has_it.store(false, Ordering::Release);
        }
        if self.is_visit {
            self.lock.is_shared.store(false, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Of this thread; never 0, nor another's.
#[inline]
fn number() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(next_number());
        }
        number.get()
    })
}

#[cold]
fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What the machine has.
#[cfg(not(loom))]
mod system {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};

    use std::cell::Cell;
    use std::sync::atomic::{self, compiler_fence};
    use std::time::Duration;

    use crate::membarrier;

    thread_local!(pub(super) static NUMBER: Cell<u64> = const { Cell::new(0) });

    pub(super) fn can_bias() -> bool {
        membarrier::register()
    }

    /// One of a pair, of which the other is [`heavy_fence`].
    #[inline]
    pub(super) fn light_fence() {
        compiler_fence(atomic::Ordering::SeqCst);
    }

    pub(super) fn heavy_fence() {
        assert!(membarrier::run(), "membarrier(2) was there, and is no more");
    }

    /// For so long the usual thread may be in a call that waits; once only, since then both take the mutex.
    pub(super) fn pause(turn: u32) {
        if turn < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// What loom has: a full fence in each, since its model has no membarrier.
#[cfg(loom)]
mod system {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    use loom::sync::atomic::fence;
    use std::cell::Cell;

    loom::thread_local!(pub(super) static NUMBER: Cell<u64> = Cell::new(0));

    pub(super) fn can_bias() -> bool {
        true
    }

    pub(super) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy_fence() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

/// Every interleaving of who usually takes it and who comes, under loom's model of memory; what is counted is a cell that loom
/// watches.
///
/// `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-mpi --lib models`
#[cfg(all(loom, test))]
mod models {
    use loom::cell::Cell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn add(lock: &Biased<Cell<i32>>) {
        let count = lock.lock();
        count.set(count.get() + 1);
    }

    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn each_has_it_alone_when_another_one_comes() {
        explore(|| {
            let lock = Arc::new(Biased::new(Cell::new(0)));
            let other = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || add(&lock))
            };
            add(&lock);
            add(&lock);
            other.join().unwrap();
            assert_eq!(lock.lock().get(), 3);
        });
    }

    #[test]
    fn a_visit_leaves_it_as_it_was() {
        explore(|| {
            let lock = Arc::new(Biased::new(Cell::new(0)));
            let visitor = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    (0..2).filter(|_| lock.visit().is_some_and(|count| count.replace(count.get() + 1) >= 0)).count()
                        as i32
                })
            };
            add(&lock);
            add(&lock);
            let visits = visitor.join().unwrap();
            assert!(!lock.is_shared.load(Ordering::Relaxed));
            assert_eq!(lock.lock().get(), 2 + visits);
        });
    }

    #[test]
    fn two_that_come_at_once_and_who_only_tries() {
        explore(|| {
            let lock = Arc::new(Biased::new(Cell::new(0)));
            let others = [0, 1].map(|at| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    let Some(count) = lock.try_lock().or_else(|| (at == 0).then(|| lock.lock())) else { return 0 };
                    count.set(count.get() + 1);
                    1
                })
            });
            add(&lock);
            let added: i32 = others.into_iter().map(|other| other.join().unwrap()).sum();
            assert_eq!(lock.lock().get(), 1 + added);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    const SKIPPED: &str = "skipped: wants membarrier(2), which this kernel or its rules have not";

    #[test]
    fn who_has_it_does_not_get_it_again() {
        for lock in [Biased::new(1), Biased::shared(1)] {
            let guard = lock.try_lock().expect("nobody has it");
            assert!(lock.try_lock().is_none());
            drop(guard);
            *lock.lock() += 1;
            assert_eq!(*lock.try_lock().unwrap(), 2);
        }
        if !can_bias() {
            return println!("{SKIPPED}");
        }
        let lock = Biased::new(1);
        // As when it had to wait for a visitor, who has gone.
        let guard = lock.owner_with(lock.try_mutex().expect("nobody has it"));
        assert!(lock.try_lock().is_none());
        drop(guard);
        let _guard = lock.lock();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err(), "it would wait for itself");
    }

    #[test]
    fn it_is_free_after_a_panic_of_whoever_had_it() {
        for lock in [Biased::new(1), Biased::shared(1)] {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _guard = lock.lock();
                panic!("with the value");
            }));
            assert!(panicked.is_err());
            assert_eq!(*lock.lock(), 1);
            thread::scope(|scope| scope.spawn(|| drop(lock.lock())).join().unwrap());
        }
    }

    #[test]
    fn who_comes_waits_for_the_usual_thread_and_then_both_take_turns() {
        let lock = Biased::new(0u64);
        let is_over = AtomicU32::new(0);
        let guard = lock.lock();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(lock.try_lock().is_none());
                is_over.store(1, Ordering::Relaxed);
                let guard = lock.lock();
                assert_eq!(is_over.load(Ordering::Relaxed), 2, "before its turn");
                drop(guard);
            });
            while is_over.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            is_over.store(2, Ordering::Relaxed);
            drop(guard);
            other.join().unwrap();
        });
        assert!(lock.is_shared.load(Ordering::Relaxed));
    }

    #[test]
    fn who_visits_leaves_it_as_it_was() {
        if !can_bias() {
            return println!("{SKIPPED}");
        }
        const ROUNDS: u64 = 2_000;
        let lock = Biased::new(0u64);
        let is_over = AtomicU32::new(0);
        thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                let mut visits = 0;
                while is_over.load(Ordering::Relaxed) == 0 || visits == 0 {
                    // A mutex is whose who comes first, and that would always be this one.
                    thread::yield_now();
                    visits += lock.visit().map_or(0, |mut count| {
                        *count += 1;
                        1
                    });
                }
                visits
            });
            (0..ROUNDS).for_each(|_| *lock.lock() += 1);
            is_over.store(1, Ordering::Relaxed);
            let visits = visitor.join().unwrap();
            assert_eq!(*lock.lock(), ROUNDS + visits);
        });
        assert!(!lock.is_shared.load(Ordering::Relaxed));
        // Nor does it make several threads' lock one of its own.
        let lock = Biased::shared(0);
        drop(lock.visit());
        assert!(lock.is_shared.load(Ordering::Relaxed));
    }

    /// New locks, since each is biased once: another thread comes at any moment of the usual one's calls.
    #[test]
    fn nothing_is_lost_when_another_one_comes() {
        for round in 0..2_000u64 {
            let lock = Biased::new(0);
            thread::scope(|scope| {
                let other = scope.spawn(|| (0..100).for_each(|_| *lock.lock() += 1));
                (0..round).for_each(|_| *lock.lock() += 1);
                other.join().unwrap();
            });
            assert_eq!(*lock.lock(), 100 + round);
        }
    }
}
