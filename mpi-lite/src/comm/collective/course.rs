//! What moves calls by messages on while other calls are made.

use std::sync::Arc;

use super::Combine;
use super::execution::{Execution, Lent, Progress, Route};
use crate::adi::{Device, Error};

/// Where the messages of a communicator's calls go.
#[derive(Clone, Debug)]
pub struct Course {
    pub(super) context: u32,
    pub(super) rank: u32,
    pub(super) processes: Arc<[u32]>,
}

impl Course {
    /// What its messages are told from others by.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Begins once more what was built in `execution`, with messages of this tag, which nobody else has now.
    pub fn start(&self, device: &mut Device, execution: &mut Execution, lent: Lent, tag: i32) {
        execution.start(device, self.route(), lent, tag);
    }

    /// Goes on with a call, as far as it can without waiting. True once it is over.
    pub fn advance(
        &self,
        device: &mut Device,
        execution: &mut Execution,
        combine: &mut Combine,
    ) -> Result<bool, Error> {
        match execution.advance(device, self.route(), combine)? {
            Progress::Over => Ok(true),
            Progress::Waits => Ok(false),
            Progress::Calls(_) => unreachable!("within hosts go messages"),
        }
    }

    fn route(&self) -> Route<'_> {
        Route { context: self.context, rank: self.rank, processes: &self.processes, whole: &self.processes }
    }
}
