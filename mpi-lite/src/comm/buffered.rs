//! Buffered sends: room that the program has allowed, and what waits in it (MPI-4.1 3.6).

use crate::adi::Device;

use super::ErrorClass;
use super::pending::Transfer;

/// What a message costs besides its bytes: the standard ABI's `MPI_BSEND_OVERHEAD`.
pub const OVERHEAD: usize = 512;

/// Turns that a send without room takes at most: others may bring something for ever.
const TURNS: u32 = 1000;

/// Messages that were sent for the program, and the room for them.
#[derive(Debug, Default)]
pub(super) struct Buffered {
    capacity: Option<usize>,
    used: usize,
    sent: Vec<(Transfer, usize)>,
}

impl Buffered {
    /// Allows so many bytes. `Err` when there is room already.
    pub fn attach(&mut self, capacity: usize) -> Result<(), ErrorClass> {
        match self.capacity.replace(capacity) {
            None => Ok(()),
            Some(old) => {
                self.capacity = Some(old);
                Err(ErrorClass::Buffer)
            }
        }
    }

    /// Takes the room back, when nothing waits in it any more: how much it was.
    pub fn detach(&mut self, device: &mut Device) -> Option<Result<usize, ErrorClass>> {
        let Some(capacity) = self.capacity else { return Some(Err(ErrorClass::Buffer)) };
        self.reap(device);
        self.sent.is_empty().then(|| {
            self.capacity = None;
            Ok(capacity)
        })
    }

    /// Whether all messages have gone (`MPI_Buffer_flush`).
    pub fn is_flushed(&mut self, device: &mut Device) -> bool {
        self.reap(device);
        self.sent.is_empty()
    }

    /// Whether a message of so many bytes has room; those that have gone make some, as far as their receivers were heard.
    pub fn reserve(&mut self, device: &mut Device, bytes: usize) -> Result<(), ErrorClass> {
        let fits =
            |used: usize, capacity: usize| bytes.checked_add(used + OVERHEAD).is_some_and(|needed| needed <= capacity);
        let capacity = self.capacity.ok_or(ErrorClass::Buffer)?;
        if !fits(self.used, capacity) {
            device.flush();
            self.reap(device);
            for _ in 0..TURNS {
                // A receiver may have said already that it has taken one, behind what others have said.
                if fits(self.used, capacity) || !device.progress() {
                    break;
                }
                self.reap(device);
            }
        }
        if fits(self.used, capacity) { Ok(()) } else { Err(ErrorClass::Buffer) }
    }

    /// A message in reserved room.
    pub fn add(&mut self, transfer: Transfer, bytes: usize) {
        self.used += bytes + OVERHEAD;
        self.sent.push((transfer, bytes));
    }

    fn reap(&mut self, device: &mut Device) {
        let used = &mut self.used;
        self.sent.retain_mut(|(transfer, bytes)| {
            let under_way = transfer.poll(device).is_none();
            if !under_way {
                *used -= *bytes + OVERHEAD;
            }
            under_way
        });
    }
}
