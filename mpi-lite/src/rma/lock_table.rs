//! Who holds a target's lock, and who waits for it: first come, first served, so that nobody waits for ever.

use std::collections::VecDeque;

/// How a target is locked (MPI-4.1 12.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Nobody else holds it.
    Exclusive,
    /// Others may hold it so, too.
    Shared,
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
    pub fn ask(&mut self, asker: Asker, lock: Lock, grant: impl FnMut(Asker)) {
        self.waiting.push_back((asker, lock));
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
            table.ask(asker(origin), lock, |asker| granted.push(asker.origin));
        }
        // The last reader came after a writer, and waits for him.
        assert_eq!(granted, [0, 1]);
        for (release, then) in [(1, &[0, 1][..]), (0, &[0, 1, 2]), (2, &[0, 1, 2, 3]), (3, &[0, 1, 2, 3, 4])] {
            assert!(table.release(release, |asker| granted.push(asker.origin)));
            assert_eq!(granted, then);
        }
        assert!(!table.release(0, |_| ()));
    }

    #[test]
    fn who_is_gone_holds_nothing_and_waits_for_nothing() {
        let (mut table, mut granted) = (LockTable::default(), Vec::new());
        for origin in 0..3 {
            table.ask(asker(origin), Lock::Exclusive, |asker| granted.push(asker.origin));
        }
        table.forget(1, |asker| granted.push(asker.origin));
        table.forget(0, |asker| granted.push(asker.origin));
        assert_eq!(granted, [0, 2]);
    }
}
