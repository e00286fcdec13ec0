//! Several endpoints of one process on one port: whoever receives puts the others' frames into their inboxes.
//!
//! All of this is behind the port's mutex, taken once a burst. A port that is not shared has none of it.

use std::collections::VecDeque;

use super::frames::{BURST, Frame, RxBatch};
use super::sys::Shim;
use crate::encap::ether;

/// What the endpoints of a port have in common.
pub struct Steering {
    shim: Shim,
    inboxes: Vec<Inbox>,
    arriving: RxBatch,
    /// Frames for no endpoint that there is.
    pub foreign: u64,
    pub in_pieces: u64,
}

struct Inbox {
    endpoint: u16,
    frames: VecDeque<Frame>,
    dropped: u64,
}

/// The endpoint's number is in use.
pub struct Taken;

impl Steering {
    pub fn new(shim: Shim) -> Self {
        Self { shim, inboxes: Vec::new(), arriving: RxBatch::new(shim), foreign: 0, in_pieces: 0 }
    }

    /// Opens an inbox.
    pub fn join(&mut self, endpoint: u16) -> Result<(), Taken> {
        if self.inboxes.len() == ENDPOINTS_MAX || self.inboxes.iter().any(|inbox| inbox.endpoint == endpoint) {
            return Err(Taken);
        }
        self.inboxes.push(Inbox { endpoint, frames: VecDeque::with_capacity(INBOX_FRAMES), dropped: 0 });
        Ok(())
    }

    /// Closes an inbox.
    pub fn leave(&mut self, endpoint: u16) {
        let Some(at) = self.inboxes.iter().position(|inbox| inbox.endpoint == endpoint) else { return };
        for frame in self.inboxes.swap_remove(at).frames {
            frame.free(self.shim);
        }
    }

    /// Frames that `endpoint` lost because its inbox was full.
    pub fn dropped(&self, endpoint: u16) -> u64 {
        self.inboxes.iter().find(|inbox| inbox.endpoint == endpoint).map_or(0, |inbox| inbox.dropped)
    }

    /// Fills `batch` from the inbox of `endpoint`, from the device if that is empty.
    ///
    /// # Safety
    /// The port is started, and no other thread receives on it meanwhile.
    #[allow(unsafe_code)] // Hands the promise on.
    pub unsafe fn fetch(&mut self, port: u16, endpoint: u16, batch: &mut RxBatch) {
        batch.give_back();
        let Some(at) = self.inboxes.iter().position(|inbox| inbox.endpoint == endpoint) else { return };
        if self.inboxes[at].frames.is_empty() {
            // SAFETY: as the caller promises.
            unsafe { self.arriving.fetch(port, &mut self.in_pieces) };
            while let Some(frame) = self.arriving.take() {
                self.deliver(frame);
            }
        }
        for _ in 0..BURST {
            match self.inboxes[at].frames.pop_front() {
                Some(frame) => batch.put(frame),
                None => break,
            }
        }
    }

    fn deliver(&mut self, frame: Frame) {
        let endpoint = ether::Header::parse(frame.bytes()).map(|(header, _)| header.dst);
        let inbox = endpoint.ok().and_then(|endpoint| self.inboxes.iter_mut().find(|inbox| inbox.endpoint == endpoint));
        match inbox {
            Some(inbox) if inbox.frames.len() < INBOX_FRAMES => inbox.frames.push_back(frame),
            Some(inbox) => {
                inbox.dropped += 1;
                frame.free(self.shim);
            }
            None => {
                self.foreign += 1;
                frame.free(self.shim);
            }
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        for frame in self.inboxes.drain(..).flat_map(|inbox| inbox.frames) {
            frame.free(self.shim);
        }
    }
}

/// Most endpoints of one port.
pub const ENDPOINTS_MAX: usize = 8;
/// Frames kept for an endpoint that does not come for them: as many as a device's ring holds.
pub const INBOX_FRAMES: usize = 256;
