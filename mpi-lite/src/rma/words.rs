//! Waiting for words of several ranks: that they have posted their memory, or are done with ours.

use crate::adi::{Device, Request, Status, Turns};

use super::RmaError;

/// One word of each of some ranks. Over when all have come, or when one never will: who should have said another may have been told of
/// the same failure, and left without a word.
#[derive(Default, Debug)]
pub(super) struct Words {
    awaited: Vec<Request>,
}

impl Words {
    /// Receives without data.
    pub const fn of(awaited: Vec<Request>) -> Self {
        Self { awaited }
    }

    /// How it has ended; `None` while it has not.
    pub fn poll(&mut self, device: &mut Device) -> Option<Result<(), RmaError>> {
        let mut failed = None;
        self.awaited.retain(|word| {
            let status = device.poll(*word);
            failed = failed.or(status.and_then(|Status { error, .. }| error));
            status.is_none()
        });
        let Some(error) = failed else { return self.awaited.is_empty().then_some(Ok(())) };
        for word in self.awaited.drain(..) {
            device.cancel(word);
            device.free(word);
        }
        Some(Err(error.into()))
    }

    pub fn wait(mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        turns.wait_until(|turns| self.poll(turns.device()))
    }
}
