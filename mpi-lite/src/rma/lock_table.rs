//! Who holds a target's lock, and who waits for it: first come, first served, so that nobody waits for ever; with one exception.
//!
//! Who asks all targets at once is served before others that wait: he may hold one target already, and who waits for that one may
//! hold what somebody waits for who is before him here. Writers wait for as long as such epochs overlap.

use std::collections::VecDeque;

/// How a target is locked (MPI-4.1 12.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Nobody else holds it.
    Exclusive,
    /// Others may hold it so, too.
    Shared,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    One(Lock),
    /// Shared, of every target at the same time.
    All,
}

impl Wish {
    /// As a request has it.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::One(Lock::Shared) => 0,
            Self::One(Lock::Exclusive) => 1,
            Self::All => 2,
        }
    }

    pub const fn from_wire(said: u8) -> Self {
        match said {
            1 => Self::One(Lock::Exclusive),
            2 => Self::All,
            _ => Self::One(Lock::Shared),
        }
    }
}

/// One who asked, and the number by which he is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub origin: usize,
    pub number: i32,
}

#[derive(Debug, Default)]
pub(super) struct LockTable {
    /// All of one kind; one, if it is exclusive.
    holders: Vec<usize>,
    exclusive: bool,
    waiting: VecDeque<(Asker, Lock)>,
}

impl LockTable {
    /// Calls `grant` if the lock is free for it; else it waits.
    pub fn ask(&mut self, asker: Asker, wish: Wish, grant: impl FnMut(Asker)) {
        match wish {
            Wish::One(lock) => self.waiting.push_back((asker, lock)),
            Wish::All => self.waiting.push_front((asker, Lock::Shared)),
        }
        self.go_on(grant);
    }

    /// Gives a lock back, and calls `grant` for those who get it. False if the origin had none.
    pub fn release(&mut self, origin: usize, grant: impl FnMut(Asker)) -> bool {
        let Some(at) = self.holders.iter().position(|holder| *holder == origin) else { return false };
        self.holders.swap_remove(at);
        self.go_on(grant);
        true
    }

    /// Forgets an origin that is gone.
    pub fn forget(&mut self, origin: usize, grant: impl FnMut(Asker)) {
        self.waiting.retain(|(asker, _)| asker.origin != origin);
        self.holders.retain(|holder| *holder != origin);
        self.go_on(grant);
    }

    fn go_on(&mut self, mut grant: impl FnMut(Asker)) {
        while let Some((asker, lock)) = self.waiting.front().copied() {
            let free = self.holders.is_empty() || !self.exclusive && lock == Lock::Shared;
            if !free {
                return;
            }
            self.waiting.pop_front();
            self.exclusive = lock == Lock::Exclusive;
            self.holders.push(asker.origin);
            grant(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(origin: usize) -> Asker {
        Asker { origin, number: origin as i32 }
    }

    #[test]
    fn the_lock_goes_round_in_the_order_in_which_it_was_asked_for() {
        let (mut table, mut granted) = (LockTable::default(), Vec::new());
        let asked = [Lock::Shared, Lock::Shared, Lock::Exclusive, Lock::Shared, Lock::Exclusive];
        for (origin, lock) in asked.into_iter().enumerate() {
            table.ask(asker(origin), Wish::One(lock), |asker| granted.push(asker.origin));
        }
        // The last reader came after a writer, and waits for him.
        assert_eq!(granted, [0, 1]);
        for (release, then) in [(1, &[0, 1][..]), (0, &[0, 1, 2]), (2, &[0, 1, 2, 3]), (3, &[0, 1, 2, 3, 4])] {
            assert!(table.release(release, |asker| granted.push(asker.origin)));
            assert_eq!(granted, then);
        }
        assert!(!table.release(0, |_| ()));
    }

    /// Of two that lock all, each holds one target and asks for the other behind a writer, who waits for the holder.
    #[test]
    fn who_locks_all_waits_for_holders_and_not_for_those_who_wait() {
        let (mut here, mut there, mut granted) = (LockTable::default(), LockTable::default(), Vec::new());
        let mut grant = |asker: Asker| granted.push(asker.origin);
        here.ask(asker(0), Wish::One(Lock::Exclusive), &mut grant);
        there.ask(asker(3), Wish::All, &mut grant);
        here.ask(asker(2), Wish::All, &mut grant);
        there.ask(asker(1), Wish::One(Lock::Exclusive), &mut grant);
        here.ask(asker(3), Wish::All, &mut grant);
        there.ask(asker(2), Wish::All, &mut grant);
        here.release(0, &mut grant);
        there.release(2, &mut grant);
        there.release(3, &mut grant);
        assert_eq!(granted, [0, 3, 2, 3, 2, 1]);
    }

    #[test]
    fn who_is_gone_holds_nothing_and_waits_for_nothing() {
        let (mut table, mut granted) = (LockTable::default(), Vec::new());
        for origin in 0..3 {
            table.ask(asker(origin), Wish::One(Lock::Exclusive), |asker| granted.push(asker.origin));
        }
        table.forget(1, |asker| granted.push(asker.origin));
        table.forget(0, |asker| granted.push(asker.origin));
        assert_eq!(granted, [0, 2]);
    }
}
