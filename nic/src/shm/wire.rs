//! A connection with one peer: a ring for each direction, and cells for long frames.

use std::sync::Arc;

use super::cells::Cells;
use super::doorbell;
use super::draft;
use super::handshake::Shared;
use super::mapping::{Bell, Ring};
use super::open::MTU;
use super::ring::{Consumer, Frame, Producer, Room};
use super::sys;

/// A connection.
pub(super) struct Wire {
    pub(super) number: u64,
    pub(super) tx: Producer<Ring>,
    pub(super) rx: Consumer<Ring>,
    cells: Cells,
    bell: Bell,
    /// In `ShmNic::published`.
    pub(super) published: bool,
    /// The last look at `rx` found nothing.
    pub(super) was_empty: bool,
    /// The process at the other end is gone; what it had sent is still in `rx`.
    pub(super) hung_up: bool,
    /// By this the steward counts those that we hold.
    _held: Arc<()>,
}

impl Wire {
    pub(super) fn new(number: u64, Shared { tx, rx, cells, bell }: Shared, held: Arc<()>) -> Self {
        let (tx, rx) = (Producer::new(tx), Consumer::new(rx, MTU));
        Self { number, tx, rx, cells, bell, published: false, was_empty: true, hung_up: false, _held: held }
    }

    /// Room for a frame of `len` bytes: in a cell, if it is not short and we have one.
    #[inline]
    pub(super) fn reserve(&mut self, len: usize) -> Option<Room> {
        if len < CELL_MIN || len < GIVE_BACK_MIN && self.cells.is_empty() {
            self.tx.reserve(len)
        } else {
            self.reserve_long(len)
        }
    }

    #[inline(never)]
    fn reserve_long(&mut self, len: usize) -> Option<Room> {
        if self.cells.is_empty() {
            self.fetch_cells();
        }
        match self.cells.next() {
            Some(cell) => self.tx.reserve_in(cell, len),
            None => self.tx.reserve(len),
        }
    }

    /// Takes the cells that were given back to us, as far as no frame is before them.
    fn fetch_cells(&mut self) {
        while let Some(frame) = self.rx.peek()
            && let Some(cell) = frame.place().cell()
            && frame.len() == 0
        {
            self.take_cell(cell, frame);
        }
    }

    /// Takes a cell that was given back. False if that was ours all the time: the other side breaks the rules.
    fn take_cell(&mut self, cell: u8, frame: Frame) -> bool {
        let is_new = self.cells.take(cell);
        if !is_new {
            self.rx.refuse();
        } else if self.rx.release(frame) {
            self.wake();
        }
        is_new
    }

    /// Gives all cells back, each by a frame of no bytes in it.
    fn give_cells_back(&mut self) {
        while let Some(cell) = self.cells.next()
            && let Some(room) = self.tx.reserve_in(cell, 0)
        {
            self.cells.give_next();
            self.tx.publish(room);
        }
    }

    #[inline]
    pub(super) fn publish(&mut self, room: Room) {
        if room.place().cell().is_some() {
            self.cells.give_next();
        }
        self.tx.publish(room);
    }

    /// As [`Consumer::take`]. The cell that the frame is in is ours from now on.
    #[inline]
    pub(super) fn take(&mut self, each: impl FnOnce(&[u8])) -> Option<bool> {
        let frame = self.rx.peek()?;
        self.tx.on_received();
        if frame.place().cell().is_some() || frame.len() >= GIVE_BACK_MIN {
            return self.take_long(frame, each);
        }
        each(self.rx.payload(&frame));
        Some(self.rx.release(frame))
    }

    #[inline(never)]
    fn take_long(&mut self, mut frame: Frame, each: impl FnOnce(&[u8])) -> Option<bool> {
        while let Some(cell) = frame.place().cell() {
            if frame.len() > 0 {
                if !self.cells.take(cell) {
                    self.rx.refuse();
                    return None;
                }
                each(self.rx.payload(&frame));
                return Some(self.rx.release(frame));
            }
            if !self.take_cell(cell, frame) {
                return None;
            }
            frame = self.rx.peek()?;
        }
        each(self.rx.payload(&frame));
        let wants_cells = frame.len() >= GIVE_BACK_MIN;
        let starved = self.rx.release(frame);
        if wants_cells {
            self.give_cells_back();
        }
        Some(starved)
    }

    /// Nothing will ever come or go here any more.
    pub(super) fn is_done(&self) -> bool {
        self.rx.is_broken() || self.tx.is_broken() || (self.hung_up && !self.rx.is_ready())
    }

    /// Wakes the peer if it sleeps, once what it is to see is published. True when it slept.
    #[inline]
    pub(super) fn ring(&self) -> bool {
        let mut slept = false;
        doorbell::ring(self.bell.word(), || {
            slept = true;
            sys::futex_wake(self.bell.word());
        });
        slept
    }

    /// Tells a peer that waited for room that there is some.
    #[cold]
    pub(super) fn wake(&self) {
        doorbell::published();
        self.ring();
    }
}

/// Shorter frames stay within the ring, which they go to in one go, and their receiver asks for all their lines at once.
const CELL_MIN: usize = draft::LEN_MAX + 1;

/// Who sends frames as long as this without an answer is given cells back. Shorter ones are as quick through the ring, or quicker
/// (`bench/NOTES.md`, 59).
const GIVE_BACK_MIN: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::shm::mapping::{BELL_BYTES, PAIR_BYTES, map_pair, sealed_memory};
    use crate::shm::ring::{CELLS, Memory};
    use crate::shm::sync::Ordering;
    use crate::shm::tests::sizes;

    /// The two ends of a connection, each over a mapping of its own.
    fn wires() -> [Wire; 2] {
        let (memory, bell) = (sealed_memory(PAIR_BYTES).unwrap(), sealed_memory(BELL_BYTES).unwrap());
        [true, false].map(|dialled| {
            let [there, back] = map_pair(&memory).unwrap();
            let (tx, rx) = if dialled { (there, back) } else { (back, there) };
            Wire::new(0, Shared { tx, rx, cells: Cells::new(dialled), bell: Bell::map(&bell).unwrap() }, Arc::default())
        })
    }

    /// Sends a frame, and says whether it went in a cell. `None`: there was no room.
    fn push_by(wire: &mut Wire, byte: u8, len: usize) -> Option<bool> {
        let mut room = wire.reserve(len)?;
        wire.tx.payload_mut(&mut room).fill(byte);
        let in_cell = room.place().cell().is_some();
        wire.publish(room);
        Some(in_cell)
    }

    #[test]
    fn long_frames_go_in_cells_as_long_as_there_are_any_and_answers_have_them_again() {
        let [mut a, mut b] = wires();
        for cells in [CELLS / 2, CELLS, CELLS, CELLS] {
            for _ in 0..cells {
                assert_eq!(push_by(&mut a, 7, MTU), Some(true));
            }
            for _ in 0..cells {
                b.take(|frame| assert!(frame.len() == MTU && frame.iter().all(|byte| *byte == 7))).unwrap();
            }
            (a, b) = (b, a);
        }
    }

    #[test]
    fn frames_that_are_not_long_go_in_cells_to_and_fro_and_one_way_through_the_ring() {
        let [mut a, mut b] = wires();
        let push = |from: &mut Wire, to: &mut Wire, len| {
            let in_cell = push_by(from, 7, len).unwrap();
            to.take(|frame| assert!(frame.len() == len && frame.iter().all(|byte| *byte == 7))).unwrap();
            in_cell
        };
        for len in [CELL_MIN, GIVE_BACK_MIN - 1] {
            for _ in 0..100 * CELLS {
                assert!(push(&mut a, &mut b, len) && push(&mut b, &mut a, len));
                assert!(!push(&mut a, &mut b, CELL_MIN - 1));
            }
        }
        for number in 0..100 * CELLS {
            assert_eq!(push(&mut a, &mut b, CELL_MIN), number < CELLS / 2, "no cell comes back");
        }
        // The answer begins it anew.
        for _ in 0..10 {
            assert!(push(&mut b, &mut a, CELL_MIN) && push(&mut a, &mut b, CELL_MIN));
        }
    }

    #[test]
    fn an_answer_is_drafted_and_what_follows_it_is_not() {
        let [mut a, mut b] = wires();
        let is_drafted = |wire: &mut Wire| wire.reserve(8).unwrap().is_drafted();
        assert_eq!(push_by(&mut a, 7, 8), Some(false));
        assert!(!is_drafted(&mut a) && !is_drafted(&mut b));
        b.take(|frame| assert_eq!(frame, [7; 8])).unwrap();
        assert!(is_drafted(&mut b));
        assert_eq!(push_by(&mut b, 8, 8), Some(false));
        assert!(!is_drafted(&mut b));
        a.take(|frame| assert_eq!(frame, [8; 8])).unwrap();
        assert!(is_drafted(&mut a));
    }

    #[test]
    fn who_only_sends_is_given_cells_back_when_there_are_none_left() {
        let [mut a, mut b] = wires();
        for len in [GIVE_BACK_MIN, MTU] {
            let in_rings = (0..100 * CELLS).filter(|_| {
                let in_cell = push_by(&mut a, 7, len).unwrap();
                b.take(|frame| assert_eq!(frame.len(), len)).unwrap();
                !in_cell
            });
            assert!(in_rings.count() <= 100, "{len} B: one each time that all were sent");
        }
        // Short frames do without, and what comes back is no frame.
        while b.tx.reserve(0).is_some() {
            assert_eq!(push_by(&mut b, 7, 0), Some(false));
        }
        let sent = std::iter::from_fn(|| a.take(|frame| assert!(frame.is_empty()))).count();
        assert!(sent > 3_000 && !a.is_done());
    }

    /// So many short frames that the next line given back is an eighth of the ring, which is when the sender is told.
    fn push_up_to_an_eighth(wire: &mut Wire) -> u32 {
        let lines = wire.tx.memory().lines() / 8 - 1;
        (0..lines).for_each(|_| assert_eq!(push_by(wire, 7, 1), Some(false)));
        lines
    }

    #[test]
    fn room_that_a_frame_in_a_cell_has_left_is_told() {
        let [mut a, mut b] = wires();
        let short = push_up_to_an_eighth(&mut a);
        assert_eq!(push_by(&mut a, 7, MTU), Some(true));
        while push_by(&mut a, 7, 1).is_some() {}
        (0..short).for_each(|_| assert_eq!(b.take(|_| ()), Some(false)));
        assert_eq!(b.take(|frame| assert_eq!(frame.len(), MTU)), Some(true));
    }

    #[test]
    fn room_that_a_long_frame_in_the_ring_has_left_is_told() {
        let [mut a, mut b] = wires();
        (0..CELLS / 2).for_each(|_| assert_eq!(push_by(&mut a, 7, CELL_MIN), Some(true)));
        while push_by(&mut a, 7, GIVE_BACK_MIN).is_some() {}
        (0..CELLS / 2).for_each(|_| assert_eq!(b.take(|_| ()), Some(false)));
        let told = std::iter::from_fn(|| b.take(|frame| assert_eq!(frame.len(), GIVE_BACK_MIN)));
        assert!(told.filter(|starved| *starved).count() > 0);
    }

    #[test]
    fn room_that_a_cell_given_back_has_left_is_told() {
        let [mut a, mut b] = wires();
        (0..CELLS / 2).for_each(|_| assert_eq!(push_by(&mut a, 7, CELL_MIN), Some(true)));
        let short = push_up_to_an_eighth(&mut b);
        assert_eq!(push_by(&mut a, 7, GIVE_BACK_MIN), Some(false));
        while b.take(|_| ()).is_some() {}
        while push_by(&mut b, 7, 1).is_some() {}
        (0..short).for_each(|_| assert_eq!(a.take(|_| ()), Some(false)));
        a.bell.word().swap(doorbell::ASLEEP, Ordering::AcqRel);
        // The cells come before the next frame.
        a.take(|_| ()).unwrap();
        assert_eq!(a.bell.word().load(Ordering::Relaxed), doorbell::AWAKE);
    }

    #[test]
    fn who_gives_back_what_was_never_sent_is_done_with() {
        let [mut a, _b] = wires();
        while push_by(&mut a, 7, 1).is_some() {}
        assert!(!a.is_done());
        a.tx.memory().control().forge_head(u32::MAX / 2);
        assert!(push_by(&mut a, 7, 1).is_none() && a.is_done());
    }

    #[test]
    fn who_names_a_cell_that_is_ours_is_heard_no_more() {
        for (cell, len) in [CELLS as u8 / 2, CELLS as u8].into_iter().flat_map(|cell| [(cell, MTU), (cell, 0)]) {
            let [mut a, mut b] = wires();
            let room = a.tx.reserve_in(cell, len).unwrap();
            a.tx.publish(room);
            assert_eq!(b.take(|_| panic!("no frame of ours")), None);
            assert!(b.is_done());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_connection_is_a_queue_each_way(steps in prop::collection::vec((any::<bool>(), sizes(), 0..3u8), 1..300)) {
            let mut wires = wires();
            let mut queues = [VecDeque::new(), VecDeque::new()];
            for (number, (from, len, takes)) in steps.into_iter().enumerate() {
                let (from, byte) = (usize::from(from), number as u8);
                if push_by(&mut wires[from], byte, len).is_some() {
                    queues[from].push_back((byte, len));
                }
                for _ in 0..takes {
                    let mut taken = None;
                    wires[1 - from].take(|frame| taken = Some(frame.to_vec()));
                    let expected = queues[from].pop_front().map(|(byte, len)| vec![byte; len]);
                    prop_assert!(taken == expected);
                }
            }
            prop_assert!(wires.iter().all(|wire| !wire.is_done()));
        }
    }
}
