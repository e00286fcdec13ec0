//! Calls that wait for each other in one thread: each has a stack of its own, and one runs until it pauses.
#![allow(unsafe_code)] // makecontext(3), mmap(2).

use std::any::Any;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::ucontext_t;

/// A call that may pause. Dropped before its end, it leaves behind what it holds.
pub struct Fiber(Box<Inner>);

/// How far a fiber has come.
pub enum Step {
    /// It has paused.
    Paused,
    /// It has returned.
    Returned,
    /// It has panicked, with this.
    Panicked(Box<dyn Any + Send>),
}

struct Inner {
    own: ucontext_t,
    resumer: ucontext_t,
    stack: *mut libc::c_void,
    body: Option<Box<dyn FnOnce()>>,
    end: Option<Step>,
}

thread_local! {
    /// Whose stack this thread is on.
    static RUNNING: Cell<*mut Inner> = const { Cell::new(std::ptr::null_mut()) };
}

impl Fiber {
    pub fn new(body: impl FnOnce() + 'static) -> Self {
        // SAFETY: Asks for fresh pages; the system takes them up as they are used.
        let stack = unsafe {
            let (kind, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, std::ptr::null_mut());
            let stack = libc::mmap(none, STACK, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0);
            assert!(stack != libc::MAP_FAILED, "no memory for a stack");
            // Who uses it up is stopped at its end.
            libc::mprotect(stack, GUARD, libc::PROT_NONE);
            stack
        };
        // SAFETY: `getcontext` fills it, and a context is plain data till then.
        let context = unsafe { MaybeUninit::<ucontext_t>::zeroed().assume_init() };
        let inner = Inner { own: context, resumer: context, stack, body: Some(Box::new(body)), end: None };
        let mut inner = Box::new(inner);
        // SAFETY: The box keeps the contexts where they are; the stack is the fiber's alone until it is dropped.
        unsafe {
            libc::getcontext(&raw mut inner.own);
            inner.own.uc_stack.ss_sp = stack;
            inner.own.uc_stack.ss_size = STACK;
            libc::makecontext(&raw mut inner.own, enter, 0);
        }
        Self(inner)
    }

    /// Runs it until it pauses or ends. Not to be called after its end, nor by a fiber.
    pub fn resume(&mut self) -> Step {
        assert!(self.0.end.is_none() && RUNNING.get().is_null(), "it has not ended, and no fiber runs others");
        let inner: *mut Inner = &raw mut *self.0;
        RUNNING.set(inner);
        // SAFETY: `own` was made by `makecontext` or by the `swapcontext` in `pause`; this returns by one of the two swaps back.
        unsafe { libc::swapcontext(&raw mut (*inner).resumer, &raw const (*inner).own) };
        RUNNING.set(std::ptr::null_mut());
        // It may be resumed no more when this is seen.
        match &mut self.0.end {
            None => Step::Paused,
            Some(end) => std::mem::replace(end, Step::Returned),
        }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: Nobody runs on it: a fiber that runs does so within `resume`, which has borrowed it.
        unsafe { libc::munmap(self.0.stack, STACK) };
    }
}

/// Lets whoever has resumed this fiber go on.
pub fn pause() {
    let inner = RUNNING.get();
    assert!(!inner.is_null(), "only a fiber pauses");
    // SAFETY: `resume` has stored where it is, and waits for this.
    unsafe { libc::swapcontext(&raw mut (*inner).own, &raw const (*inner).resumer) };
}

extern "C" fn enter() {
    let inner = RUNNING.get();
    // SAFETY: `resume` has set it, for this fiber, and nobody else touches it while the fiber runs.
    let body = unsafe { (*inner).body.take() }.expect("a fiber begins once");
    let end = catch_unwind(AssertUnwindSafe(body)).map_or_else(Step::Panicked, |()| Step::Returned);
    // SAFETY: As above; `resumer` is where `resume` waits, and this stack is never run again.
    unsafe {
        (*inner).end = Some(end);
        libc::setcontext(&raw const (*inner).resumer);
    }
    unreachable!("it has gone on elsewhere");
}

/// What calls without optimisation need, with room for a panic's words.
const STACK: usize = 1 << 20;
const GUARD: usize = 4096;
