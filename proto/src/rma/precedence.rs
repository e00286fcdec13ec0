//! Which goes first where both messages and operations to one peer wait.
//!
//! Operations go first: they need none of the peer's room, so they need not wait behind messages that nobody takes. But a
//! user that always has another put at hand must not keep its messages waiting for ever. So messages wait only for the
//! operations that were handed over before them, or up to when the messages before them had left; after that both take turns.

/// What the messages that wait for their turn are behind. Positions are those of the send FIFO and the outbox.
#[derive(Debug)]
pub(crate) struct Precedence {
    batch: Option<Batch>,
    /// The last frame that was planned carried operations.
    after_operations: bool,
}

/// Messages that all may go once the same operations have left.
#[derive(Debug)]
struct Batch {
    /// Behind the last operation before them.
    operations_end: u64,
    /// Behind the last of them.
    messages_end: u64,
}

/// How far a queue has come: bytes that were ever appended, and those of them that were sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub appended: u64,
    pub sent: u64,
}

impl Precedence {
    /// Nothing waits.
    pub const fn new() -> Self {
        Self { batch: None, after_operations: false }
    }

    /// Operations wait to be sent: how many bytes of records of the send FIFO go before the next of them.
    pub fn messages_first(&mut self, messages: Progress, operations: Progress) -> u64 {
        if messages.sent == messages.appended {
            self.batch = None;
            return 0;
        }
        let batch = self.batch.take_if(|batch| batch.messages_end > messages.sent);
        let batch = batch.unwrap_or(Batch { operations_end: operations.appended, messages_end: messages.appended });
        let is_their_turn = operations.sent >= batch.operations_end && self.after_operations;
        let bytes = if is_their_turn { batch.messages_end - messages.sent } else { 0 };
        self.after_operations = !is_their_turn;
        self.batch = Some(batch);
        bytes
    }

    /// All operations have left: messages go as they come.
    pub const fn forget(&mut self) {
        self.batch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Both queues as lists of what they say: an entry is a frame, and remembers how much of the other one was before it.
    struct Model {
        precedence: Precedence,
        /// Of each message: how many operations were handed over before it.
        messages: Vec<u64>,
        messages_sent: usize,
        operations: u64,
        operations_sent: u64,
    }

    impl Model {
        fn new() -> Self {
            Self {
                precedence: Precedence::new(),
                messages: Vec::new(),
                messages_sent: 0,
                operations: 0,
                operations_sent: 0,
            }
        }

        /// Sends one frame; true if that was a message.
        fn send(&mut self) -> bool {
            let messages = Progress { appended: self.messages.len() as u64, sent: self.messages_sent as u64 };
            let operations = Progress { appended: self.operations, sent: self.operations_sent };
            if operations.sent == operations.appended {
                self.precedence.forget();
            } else if self.precedence.messages_first(messages, operations) == 0 {
                self.operations_sent += 1;
                return false;
            }
            if let Some(before) = self.messages.get(self.messages_sent) {
                assert!(self.operations_sent >= *before, "a message overtook an operation before it");
                self.messages_sent += 1;
            }
            true
        }
    }

    proptest! {
        /// Whatever comes when, no message overtakes an operation that was handed over before it.
        #[test]
        fn messages_never_overtake_what_was_before_them(steps in proptest::collection::vec(0..4u8, 0..300)) {
            let mut model = Model::new();
            for step in steps {
                match step {
                    0 => model.messages.push(model.operations),
                    1 => model.operations += 1,
                    _ => _ = model.send(),
                }
            }
        }
    }

    #[test]
    fn operations_without_end_keep_no_message_waiting() {
        let mut model = Model::new();
        let mut waited = 0;
        for frame in 0..1_000 {
            // Never fewer than twenty wait, and a message comes with every tenth.
            model.operations = model.operations_sent + 20;
            if frame % 10 == 0 {
                model.messages.push(model.operations);
            }
            let before = model.messages_sent;
            waited = if model.send() || before == model.messages.len() { 0 } else { waited + 1 };
            assert!(waited <= 40, "{waited} frames of operations while messages wait");
        }
        assert!(model.messages_sent > 90);
    }
}
