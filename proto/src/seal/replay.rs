//! Which frames of one direction were taken in: each number at most once (RFC 4303, 3.4.3).

/// The newest number that was taken in, and which of those before it.
#[derive(Debug)]
pub(super) struct ReplayWindow {
    /// One above the newest number.
    next: u64,
    /// Bit `n % SPAN`: number `n` was taken in, for the last `SPAN` numbers.
    seen: [u64; SPAN as usize / 64],
}

/// Twice the frames that can be in flight, their acks and Pings among them: what comes later than that is as good as lost.
const SPAN: u64 = 1024;

impl ReplayWindow {
    /// Nothing was taken in.
    pub const fn new() -> Self {
        Self { next: 0, seen: [0; SPAN as usize / 64] }
    }

    /// The whole number whose lower half is `low`: the one nearest to what is next (RFC 9000, A.3).
    pub fn expand(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.next as u32).cast_signed();
        // Before the first wrap there is nothing to be behind of.
        self.next.checked_add_signed(ahead.into()).unwrap_or(u64::from(low))
    }

    /// True if `number` was not taken in, as far as can be told.
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.next || (self.next - number <= SPAN && !self.has(number))
    }

    /// `number` is taken in.
    pub fn take(&mut self, number: u64) {
        if number >= self.next {
            if number - self.next >= SPAN {
                self.seen = [0; SPAN as usize / 64];
            } else {
                for skipped in self.next..number {
                    *self.word(skipped) &= !bit(skipped);
                }
            }
            self.next = number + 1;
        }
        *self.word(number) |= bit(number);
    }

    fn has(&self, number: u64) -> bool {
        self.seen[place(number)] & bit(number) != 0
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.seen[place(number)]
    }
}

const fn place(number: u64) -> usize {
    (number % SPAN / 64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Against the simple model: a set of all numbers.
        #[test]
        fn each_number_is_taken_once_and_old_ones_never(start in 0u64..1 << 40, steps in proptest::collection::vec(0u64..3000, 1..400)) {
            let (mut window, mut taken, mut newest) = (ReplayWindow::new(), HashSet::new(), 0);
            for step in steps {
                let number = start + step;
                let too_old = newest > SPAN && number < newest - SPAN;
                prop_assert_eq!(window.is_new(number), !too_old && !taken.contains(&number));
                if window.is_new(number) {
                    window.take(number);
                    taken.insert(number);
                    newest = newest.max(number + 1);
                }
            }
        }

        #[test]
        fn lower_half_names_the_nearest_number(next in 0u64..1 << 60, distance in -(1i64 << 31)..1 << 31) {
            let mut window = ReplayWindow::new();
            window.next = next;
            if let Some(number) = next.checked_add_signed(distance) {
                prop_assert_eq!(window.expand(number as u32), number);
            }
        }
    }
}
