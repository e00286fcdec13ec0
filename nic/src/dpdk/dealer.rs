//! A port with one receive queue for several endpoints: whoever receives deals out the others' frames.
//!
//! Nobody waits for whoever receives: an endpoint takes from its inbox, a ring without locks, and receives itself only when
//! that is empty and nobody else is at it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_queue::ArrayQueue;

use super::frames::{BURST, Frame, RxBatch, TxBatch};
use super::sharing::{ENDPOINTS_MAX, NoPlace, Place};
use super::sys::{CacheNumber, Queue, Shim};
use crate::encap::ether;

/// What the endpoints of a port have in common.
pub struct Dealer {
    shim: Shim,
    mac: [u8; 6],
    table: Mutex<Table>,
    /// By place. Filled under the table's lock, emptied by the endpoint.
    inboxes: [ArrayQueue<Frame>; ENDPOINTS_MAX],
    /// The queues that are sent by. Places take turns where there are fewer queues.
    senders: Box<[Mutex<Queue>]>,
}

/// What whoever receives needs.
struct Table {
    arriving: RxBatch,
    /// By which all come.
    queue: Queue,
    /// By place: the endpoint there.
    endpoints: [Option<u16>; ENDPOINTS_MAX],
    /// By place: frames that were lost because its inbox was full.
    dropped: [u64; ENDPOINTS_MAX],
    /// Frames for no endpoint that there is.
    foreign: u64,
}

impl Dealer {
    /// For a port that sends by so many queues.
    pub fn new(shim: Shim, port: u16, mac: [u8; 6], senders: u16) -> Self {
        let table = Table {
            arriving: RxBatch::new(shim, CacheNumber::NONE),
            queue: shim.queue(port, 0),
            endpoints: [None; ENDPOINTS_MAX],
            dropped: [0; ENDPOINTS_MAX],
            foreign: 0,
        };
        Self {
            shim,
            mac,
            table: Mutex::new(table),
            inboxes: std::array::from_fn(|_| ArrayQueue::new(INBOX_FRAMES)),
            senders: (0..senders).map(|number| Mutex::new(shim.queue(port, number))).collect(),
        }
    }

    pub fn join(&self, endpoint: u16) -> Result<Place, NoPlace> {
        let mut table = self.table();
        if table.endpoints.contains(&Some(endpoint)) {
            return Err(NoPlace::Taken);
        }
        let number = table.endpoints.iter().position(Option::is_none).ok_or(NoPlace::Full)?;
        table.endpoints[number] = Some(endpoint);
        table.dropped[number] = 0;
        Ok(Place { number, mac: self.mac })
    }

    pub fn leave(&self, place: Place) {
        let mut table = self.table();
        table.endpoints[place.number] = None;
        // Before the place is another's, whose frames would go too.
        self.empty(place.number);
    }

    /// What an endpoint lost because its inbox was full, and what came for nobody.
    pub fn lost(&self, place: Place) -> (u64, u64) {
        let table = self.table();
        (table.dropped[place.number], table.foreign)
    }

    /// Fills an endpoint's batch, all of which was shown, from its inbox, and from the device if that is empty; see [`RxBatch::fetch`].
    ///
    /// # Safety
    /// The port is started, and received from by nobody but its dealer.
    #[allow(unsafe_code)] // Hands the promise on.
    pub unsafe fn fetch(&self, place: Place, batch: &mut RxBatch, life: u32) {
        batch.give_back();
        if self.take(place, batch) {
            return;
        }
        let mut table = match self.table.try_lock() {
            Ok(table) => table,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody receives, for us too.
            Err(TryLockError::WouldBlock) => return,
        };
        // What was dealt between that look and the lock comes before what the device has.
        if self.take(place, batch) {
            return;
        }
        let Table { arriving, queue, endpoints, dropped, foreign } = &mut *table;
        arriving.cache = batch.cache;
        // SAFETY: as the caller promises, whose cache it is; whoever receives for the dealer holds this lock.
        unsafe { arriving.fetch(queue, life) };
        for frame in arriving.drain() {
            let to = ether::Header::parse(frame.bytes()).ok().map(|(header, _)| header.dst);
            let to = to.and_then(|to| endpoints.iter().position(|endpoint| *endpoint == Some(to)));
            let refused = match to {
                Some(own) if own == place.number => {
                    batch.put(frame);
                    continue;
                }
                Some(other) => self.inboxes[other].push(frame).inspect_err(|_| dropped[other] += 1),
                None => {
                    *foreign += 1;
                    Err(frame)
                }
            };
            if let Err(frame) = refused {
                frame.free(self.shim);
            }
        }
    }

    /// Sends an endpoint's batch by its queue, in turn with others there; see [`TxBatch::send`].
    ///
    /// # Safety
    /// The port is started, and sent by through its dealer alone.
    #[allow(unsafe_code)] // Hands the promise on.
    pub unsafe fn send(&self, place: Place, batch: &mut TxBatch, life: u32) -> (usize, usize) {
        let number = place.number % self.senders.len();
        let queue = self.senders[number].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as the caller promises; whoever sends by this queue has the lock.
        unsafe { batch.send(&queue, life) }
    }

    /// Moves what is in an inbox into the batch. False: nothing was.
    fn take(&self, place: Place, batch: &mut RxBatch) -> bool {
        for _ in 0..BURST {
            match self.inboxes[place.number].pop() {
                Some(frame) => batch.put(frame),
                None => break,
            }
        }
        !batch.is_empty()
    }

    fn empty(&self, number: usize) {
        while let Some(frame) = self.inboxes[number].pop() {
            frame.free(self.shim);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Dealer {
    fn drop(&mut self) {
        (0..ENDPOINTS_MAX).for_each(|number| self.empty(number));
    }
}

/// Frames kept for an endpoint that does not come for them: as many as a device's ring holds.
pub const INBOX_FRAMES: usize = 256;
