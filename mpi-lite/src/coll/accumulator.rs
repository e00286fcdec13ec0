use super::schedule::{Memory, Schedule, Span};

/// A partial result to which neighbours' are added on either side, in the order of ranks where that matters.
///
/// An operator writes its right operand. So adding on the right leaves the result where the message came in, and what held
/// the left part takes the next message.
#[derive(Clone, Copy)]
pub(super) struct Accumulator {
    value: Span,
    room: Span,
    /// Takes the place of a value that may not be written.
    spare: Option<Span>,
    commutative: bool,
}

impl Accumulator {
    /// `value` to begin with; messages come into `room`.
    pub(super) fn new(value: Span, room: Span, commutative: bool) -> Self {
        Self { value, room, spare: None, commutative }
    }

    /// What there is so far.
    pub(super) fn value(&self) -> Span {
        self.value
    }

    /// Where the next message comes in.
    pub(super) fn room(&self) -> Span {
        self.room
    }

    /// What came in belongs before the value.
    pub(super) fn prepend(&mut self, schedule: &mut Schedule) {
        if self.value.memory() == Memory::Send {
            let spare = self.spare(schedule);
            schedule.copy(spare, self.value);
            self.value = spare;
        }
        schedule.combine(self.value, self.room);
    }

    /// What came in belongs after the value.
    pub(super) fn append(&mut self, schedule: &mut Schedule) {
        if self.commutative && self.value.memory() != Memory::Send {
            return self.prepend(schedule);
        }
        schedule.combine(self.room, self.value);
        let free = if self.value.memory() == Memory::Send { self.spare(schedule) } else { self.value };
        self.value = std::mem::replace(&mut self.room, free);
    }

    fn spare(&mut self, schedule: &mut Schedule) -> Span {
        *self.spare.get_or_insert_with(|| schedule.scratch(self.value.len()))
    }
}
