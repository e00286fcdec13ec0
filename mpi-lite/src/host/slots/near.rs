//! Whether those who read are near. How long a copy out of another core's cache takes depends on that, and nothing tells it but the
//! copy: of a virtual machine's cores not even the kernel knows where they are, and they move. So who has made one says whether it was
//! quick, and who shows the next array goes by that.

use std::sync::atomic::Ordering;

use sidelane_nic::{clock, time::Duration};

use super::Slots;

impl Slots {
    /// Whether an array is to be copied that could be read where it is too: copies are quick, or it is time to try one.
    pub(in crate::host) fn shall_copy(&mut self) -> bool {
        let mut paces =
            (0..self.ground.size).filter(|member| *member != self.ground.me).map(|member| self.pace(member));
        let known_as_quick = paces.try_fold(false, |known, pace| match pace {
            SLOW => None,
            pace => Some(known || pace != UNKNOWN),
        });
        let copy = known_as_quick == Some(true) || self.not_copied == UNTIL_TRIED;
        self.not_copied = if copy { 0 } else { self.not_copied + 1 };
        copy
    }

    /// As [`Self::read`], of such an array. Says to all whether it was quick.
    pub(in crate::host) fn read_timed(&self, member: usize, shown: usize, at: usize, into: &mut [u8]) {
        let start = clock::monotonic();
        self.read(member, shown, at, into);
        let took = clock::monotonic().since(start);
        self.say_pace(took <= QUICK_KIB.saturating_mul(into.len().div_ceil(1024) as u64));
    }

    fn say_pace(&self, quick: bool) {
        let pace = match self.pace(self.ground.me) {
            _ if quick => QUICK,
            QUICK => HELD_UP,
            _ => SLOW,
        };
        self.ground.shared.word(self.places.pace(self.ground.me)).store(pace, Ordering::Relaxed);
    }

    fn pace(&self, member: usize) -> u32 {
        self.ground.shared.word(self.places.pace(member)).load(Ordering::Relaxed)
    }
}

// What a member says of its last copies.
const UNKNOWN: u32 = 0;
const QUICK: u32 = 1;
/// Quick but for the last one: of near ones too one of 400 is held up.
const HELD_UP: u32 = 2;
const SLOW: u32 = 3;

/// A KiB takes 25 to 32 ns from a near core's cache, 65 to 75 from a far one's (`bench/NOTES.md` 56). To write it takes four times as
/// long.
const QUICK_KIB: Duration = Duration::from_nanos(45);

/// Arrays after which a copy is tried again: a slow one costs as much as two.
const UNTIL_TRIED: u32 = 64;

#[cfg(test)]
mod tests {
    use crate::coll::Blocks;
    use crate::host::tests::{Thread, run};
    use crate::host::{Host, SHORT, SHORT_ALL, at_once};

    use super::*;

    #[test]
    fn longer_arrays_are_copied_to_who_is_near_and_now_and_then_to_others() {
        run(2, |me, host| {
            if host.slots.ground.is_crowded() {
                return;
            }
            let mut others = 0;
            for turn in 0..400 {
                // In turns at first, then far for so long that copies are tried.
                let (shower, near) = (turn / 200, turn % 200 < 100 && turn / 10 % 2 == 0);
                // The second slow one counts.
                host.slots.say_pace(near);
                host.slots.say_pace(near);
                at_once(host.barrier(&mut Thread)).unwrap();
                let len = [SHORT + 1, SHORT_ALL][turn % 2];
                let shown = turn as u8;
                let mut data = vec![if me == shower { shown } else { 0xee }; len];
                if turn % 3 == 0 {
                    let (given, room) =
                        if me == shower { (Some(&data[..]), None) } else { (None, Some(&mut data[..])) };
                    // What was shown is left: of rank 0 `from`, of rank 1 `into`.
                    let combine = |into: &mut [u8], from: &[u8]| {
                        if shower == 0 {
                            into.copy_from_slice(from);
                        }
                    };
                    at_once(host.reduce(1 - shower, given, room, 1, combine, &mut Thread)).unwrap();
                } else {
                    at_once(host.broadcast(shower, &mut data, &mut Thread)).unwrap();
                }
                assert!(data.iter().all(|byte| *byte == shown), "{len} bytes, turn {turn} at {me}");
                if me == shower {
                    let copied = near || others == UNTIL_TRIED;
                    assert_eq!(host.slots.not_copied == 0, copied, "turn {turn}");
                    others = if copied { 0 } else { others + 1 };
                }
            }
        });
    }

    #[test]
    fn a_block_tells_how_near_its_reader_is_unless_it_is_short() {
        for (block, tells) in [(SHORT, true), (1, false), (0, false)] {
            run(2, |me, host| {
                if host.slots.ground.is_crowded() {
                    return;
                }
                let lens = [SHORT + 1 - block, block];
                let given = [7; SHORT + 1];
                // One of them is copied, to find out.
                for _ in 0..=UNTIL_TRIED {
                    let mut room = vec![0; lens[me]];
                    let root = (me == 0).then_some((&given[..], Blocks::Lens(&lens)));
                    at_once(host.scatter_varying(0, root, Some(&mut room), &mut Thread)).unwrap();
                }
                if me == 1 {
                    assert_eq!(host.slots.pace(1) != UNKNOWN, tells, "{block} bytes");
                }
            });
        }
    }

    #[test]
    fn one_reader_that_is_far_counts_for_all() {
        let mut writer = Host::create(3, sidelane_nic::affinity::online()).unwrap().slots;
        let readers = [1, 2].map(|me| Host::join(writer.ground.shared.ticket(), me, 3).unwrap().slots);
        let mut copies = |paces: [bool; 2]| {
            readers.iter().zip(paces).for_each(|(reader, quick)| reader.say_pace(quick));
            writer.shall_copy()
        };
        assert_eq!([[true, false], [true, true]].map(&mut copies), [false, true]);
    }

    #[test]
    fn one_slow_copy_alone_does_not_count() {
        let mut writer = Host::create(2, sidelane_nic::affinity::online()).unwrap().slots;
        let reader = Host::join(writer.ground.shared.ticket(), 1, 2).unwrap().slots;
        let mut copies = |quick| {
            reader.say_pace(quick);
            writer.shall_copy()
        };
        let paces = [false, true, false, true, false, false, false, true];
        let copied = [false, true, true, true, true, false, false, true];
        assert_eq!(paces.map(&mut copies), copied);
    }
}
