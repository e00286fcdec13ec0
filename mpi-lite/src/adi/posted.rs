//! The posted queue: receives that wait for their message.

use super::envelope::Envelope;
use super::lists::{CLASSES, Class, EXACT, Lists};

/// Posted receives by their request's number. A message takes the oldest one that matches it (MPI-4.1 3.5).
///
/// Receives that leave the same parts open are in lists of their own, so a message looks at the head of four lists at most
/// (of one, where no receive leaves anything open), however many receives wait.
#[derive(Debug, Default)]
pub(super) struct Posted {
    lists: [Lists; CLASSES],
    /// In which order the receives were posted, by request.
    order: Vec<u64>,
    posted: u64,
    /// Receives that leave something open.
    open: usize,
}

impl Posted {
    /// Appends a receive.
    #[inline]
    pub fn post(&mut self, key: Envelope, class: Class, request: u32) {
        if self.order.len() <= request as usize {
            self.order.resize(request as usize + 1, 0);
        }
        self.order[request as usize] = self.posted;
        self.posted += 1;
        self.open += usize::from(class != EXACT);
        self.lists[class].push(key, request);
    }

    /// Takes out the receive that a message with `key` goes to.
    #[inline]
    pub fn take(&mut self, key: Envelope) -> Option<u32> {
        if self.open != 0 {
            return self.take_oldest(key);
        }
        let list = &mut self.lists[EXACT];
        if list.len() == 0 { None } else { list.pop(key) }
    }

    fn take_oldest(&mut self, key: Envelope) -> Option<u32> {
        let mut oldest: Option<(Class, u32)> = None;
        for class in 0..CLASSES {
            if self.lists[class].len() == 0 {
                continue;
            }
            let Some(request) = self.lists[class].first(key.masked(class)) else { continue };
            if oldest.is_none_or(|(_, other)| self.order[request as usize] < self.order[other as usize]) {
                oldest = Some((class, request));
            }
        }
        let (class, request) = oldest?;
        self.remove(key.masked(class), class, request);
        Some(request)
    }

    /// Takes out a receive that was posted with `key` and `class`.
    #[inline]
    pub fn remove(&mut self, key: Envelope, class: Class, request: u32) {
        self.open -= usize::from(class != EXACT);
        self.lists[class].remove(key, request);
    }
}
