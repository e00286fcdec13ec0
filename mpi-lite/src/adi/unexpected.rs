//! The unexpected queue: messages that came before their receive.

use super::envelope::Envelope;
use super::lists::{CLASSES, Class, EXACT, Lists};

/// Messages in the order of their arrival, each with what is known of it. A receive takes the oldest one that it matches.
///
/// Lists for receives that leave something open are made when the first such receive or probe comes, and kept from then on:
/// programs without wildcards do not pay for them.
#[derive(Debug)]
pub(super) struct Unexpected<T> {
    lists: [Lists; CLASSES],
    kept: [bool; CLASSES],
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    arrived: u64,
}

/// A message that was found. Good until the message is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Found {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<T> {
    key: Envelope,
    generation: u32,
    order: u64,
    /// In the lists, to be found.
    queued: bool,
    content: Option<T>,
}

impl<T> Default for Unexpected<T> {
    fn default() -> Self {
        Self {
            lists: Default::default(),
            kept: std::array::from_fn(|class| class == EXACT),
            entries: Vec::new(),
            free: Vec::new(),
            arrived: 0,
        }
    }
}

impl<T> Unexpected<T> {
    /// Messages that wait to be found.
    #[inline]
    pub const fn len(&self) -> usize {
        self.lists[EXACT].len()
    }

    /// Appends a message.
    pub fn push(&mut self, key: Envelope, content: T) -> Found {
        let order = self.arrived;
        self.arrived += 1;
        let index = match self.free.pop() {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                *entry = Entry { key, generation: entry.generation, order, queued: true, content: Some(content) };
                index
            }
            None => {
                self.entries.push(Entry { key, generation: 0, order, queued: true, content: Some(content) });
                u32::try_from(self.entries.len() - 1).expect("fewer messages than fit into memory")
            }
        };
        for class in 0..CLASSES {
            if self.kept[class] {
                self.lists[class].push(key.masked(class), index);
            }
        }
        Found { index, generation: self.entries[index as usize].generation }
    }

    /// The oldest message that a receive with `key` and `class` takes.
    #[inline]
    pub fn find(&mut self, key: Envelope, class: Class) -> Option<Found> {
        if self.len() == 0 {
            return None;
        }
        if !self.kept[class] {
            self.keep(class);
        }
        let index = self.lists[class].first(key)?;
        Some(Found { index, generation: self.entries[index as usize].generation })
    }

    /// What is known of a message, and its key.
    pub fn get(&mut self, found: Found) -> Option<(Envelope, &mut T)> {
        let entry = self.entries.get_mut(found.index as usize)?;
        let key = entry.key;
        entry.content.as_mut().filter(|_| entry.generation == found.generation).map(|content| (key, content))
    }

    /// Keeps a message from being found again, until it is taken.
    pub fn set_aside(&mut self, found: Found) {
        let Some(entry) = self.entries.get_mut(found.index as usize) else { return };
        if entry.generation != found.generation || !std::mem::replace(&mut entry.queued, false) {
            return;
        }
        let key = entry.key;
        for class in 0..CLASSES {
            if self.kept[class] {
                self.lists[class].remove(key.masked(class), found.index);
            }
        }
    }

    /// Takes a message out.
    pub fn take(&mut self, found: Found) -> Option<(Envelope, T)> {
        self.set_aside(found);
        let entry = self.entries.get_mut(found.index as usize)?;
        let content = entry.content.take_if(|_| entry.generation == found.generation)?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(found.index);
        Some((entry.key, content))
    }

    /// All messages to be found that `which` picks, in no particular order. For what seldom happens: looks at each.
    pub fn filter(&self, which: impl FnMut(Envelope, &T) -> bool) -> Vec<Found> {
        self.pick(|entry| entry.queued, which)
    }

    /// The same, and of those that were set aside.
    pub fn filter_all(&self, which: impl FnMut(Envelope, &T) -> bool) -> Vec<Found> {
        self.pick(|_| true, which)
    }

    fn pick(&self, among: impl Fn(&Entry<T>) -> bool, mut which: impl FnMut(Envelope, &T) -> bool) -> Vec<Found> {
        let entries = self.entries.iter().zip(0u32..);
        entries
            .filter(|(entry, _)| {
                among(entry) && entry.content.as_ref().is_some_and(|content| which(entry.key, content))
            })
            .map(|(entry, index)| Found { index, generation: entry.generation })
            .collect()
    }

    #[cold]
    fn keep(&mut self, class: Class) {
        self.kept[class] = true;
        let mut waiting: Vec<_> = (0u32..).zip(&self.entries).filter(|(_, entry)| entry.queued).collect();
        waiting.sort_by_key(|(_, entry)| entry.order);
        for (index, entry) in waiting {
            self.lists[class].push(entry.key.masked(class), index);
        }
    }
}
