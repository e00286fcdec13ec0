//! Who has a window, and by which contexts their messages are told from all others.

use std::sync::Arc;

use crate::adi::{Device, Envelope, Incoming, Mode, Outgoing, Pattern, Request, Source};

/// The processes of a window, in the order of their ranks: those of a communicator that is its own.
#[derive(Clone, Debug)]
pub struct Members {
    /// Which process of the job each rank is.
    pub processes: Arc<[u32]>,
    /// This process's rank.
    pub rank: usize,
    /// Contexts that nothing else uses.
    pub contexts: Contexts,
}

/// Context ids of a window, the same at all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contexts {
    /// What origins ask of targets.
    pub requests: u32,
    /// What targets answer, long data of puts, and words of post, start, complete and wait.
    pub answers: u32,
    /// Collective calls of all ranks.
    pub collective: u32,
}

/// Tags of answers are an origin's own numbers; long data has their complement, and these words are below all of them.
pub(super) mod tag {
    /// Operations that an origin may have under way at a target before a number comes again.
    pub const NUMBERS: u32 = 1 << 30;
    pub const POST: i32 = i32::MIN + 1;
    pub const COMPLETE: i32 = i32::MIN + 2;

    /// Of the data that belongs to a request with this number.
    pub const fn data(number: i32) -> i32 {
        !number
    }
}

impl Members {
    pub(super) fn size(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn ask(&self, device: &mut Device, to: usize, request: Outgoing) -> Request {
        let envelope = Envelope::new(self.contexts.requests, self.rank as u32, 0);
        device.send(self.processes[to], envelope, request, Mode::Standard)
    }

    /// Everything but requests.
    pub(super) fn say(&self, device: &mut Device, to: usize, tag: i32, bytes: Outgoing) -> Request {
        let envelope = Envelope::new(self.contexts.answers, self.rank as u32, tag);
        device.send(self.processes[to], envelope, bytes, Mode::Standard)
    }

    pub(super) fn hear(&self, device: &mut Device, from: usize, tag: i32, room: Incoming) -> Request {
        let source = Some(Source { rank: from as u32, process: self.processes[from] });
        device.recv(Pattern { context: self.contexts.answers, source, tag: Some(tag) }, room)
    }
}
