//! The table of regions: whose memory, who may do what with it, and when it may go back.
//!
//! ```text
//! register          publish             unregister                 nothing here uses it any more
//! --------> private -------> published -----------> winding down -----------------------------> removed, Unregistered
//!              ^ <---------- unpublish
//! ```
//! A key is good for one publication. Operations under way hold the memory (`uses`): a put out of it until it is
//! acknowledged, a get into it until it is answered, a get out of it by a peer until its answer is acknowledged.

use std::collections::VecDeque;

use super::key::{OpError, Region, RemoteKey, Rights};
use super::memory::Memory;
use crate::PeerId;
use crate::event::Event;
use crate::wire::{Change, Target};

/// Regions of one endpoint. An index is used again, but never with the same generation, nor a key.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    memory: Memory,
    published: Option<Published>,
    /// Signals that arrived.
    signals: u64,
    /// Operations under way that need the memory.
    uses: u32,
    winding_down: bool,
}

#[derive(Debug, Clone, Copy)]
struct Published {
    key: u64,
    rights: Rights,
    /// `None`: whoever knows the key.
    to: Option<PeerId>,
    /// What is missing of the one put that fills the region, as long as its bytes come one behind the other, or one before the other.
    missing: Option<Missing>,
}

/// Bytes of a region.
#[derive(Debug, Clone, Copy)]
struct Missing {
    start: usize,
    end: usize,
}

impl Missing {
    /// Without `len` bytes at either end; `None` if those at `at` are not.
    fn without(self, at: usize, len: usize) -> Option<Self> {
        let end = at + len;
        if at == self.start && end <= self.end {
            Some(Self { start: end, ..self })
        } else if end == self.end && at >= self.start {
            Some(Self { end: at, ..self })
        } else {
            None
        }
    }
}

impl Regions {
    /// Takes `memory` in. Nobody else can reach it yet.
    pub fn register(&mut self, memory: Memory) -> Region {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            u32::try_from(self.entries.len() - 1).expect("fewer regions than fit into memory")
        });
        let entry = &mut self.entries[index as usize];
        entry.held = Some(Held { memory, published: None, signals: 0, uses: 0, winding_down: false });
        Region { index, generation: entry.generation }
    }

    /// Lets peers reach it by `key`, and no longer by an earlier one.
    pub fn publish(&mut self, region: Region, key: u64, rights: Rights, to: Option<PeerId>) -> Option<RemoteKey> {
        let held = self.live(region)?;
        held.published = Some(Published { key, rights, to, missing: None });
        Some(RemoteKey { region: region.index, key, len: held.memory.bytes().len() as u64 })
    }

    /// As [`Self::publish`], for one put by `to` of all its bytes.
    pub fn publish_to_fill(&mut self, region: Region, key: u64, to: PeerId) -> Option<RemoteKey> {
        let remote = self.publish(region, key, Rights::WRITE, Some(to))?;
        let end = remote.len as usize;
        self.held_mut(region.index).published.as_mut()?.missing = Some(Missing { start: 0, end });
        Some(remote)
    }

    /// Nobody else can reach it any more. False when there is no such region.
    pub fn unpublish(&mut self, region: Region) -> bool {
        self.live(region).map(|held| held.published = None).is_some()
    }

    /// As [`Self::unpublish`]; the memory goes back as soon as nothing here needs it.
    pub fn unregister(&mut self, region: Region, events: &mut VecDeque<Event>) -> bool {
        let Some(held) = self.live(region) else { return false };
        held.published = None;
        held.winding_down = true;
        self.remove_if_unused(region.index, events);
        true
    }

    /// Ends a region that no operation needs, without an event: its memory, if it was the endpoint's. `None`: it is none of those.
    pub fn withdraw(&mut self, region: Region) -> Option<Option<Vec<u8>>> {
        self.live(region).filter(|held| held.uses == 0)?;
        self.end(region.index).map(|held| held.memory.into_owned())
    }

    /// The region's memory, between two operations.
    pub fn memory(&self, region: Region) -> Option<&[u8]> {
        let entry = self.entries.get(region.index as usize)?;
        let held = entry.held.as_ref().filter(|held| entry.generation == region.generation && !held.winding_down)?;
        Some(held.memory.bytes())
    }

    /// As [`Self::memory`], to be written.
    pub fn memory_mut(&mut self, region: Region) -> Option<&mut [u8]> {
        Some(self.live(region)?.memory.bytes_mut())
    }

    /// Signals that have arrived for it.
    #[inline]
    pub fn signals(&self, region: Region) -> Option<u64> {
        let entry = self.entries.get(region.index as usize)?;
        entry.held.as_ref().filter(|_| entry.generation == region.generation).map(|held| held.signals)
    }

    /// Whether `from` may do `what` to `len` bytes at `target`: the index of the region, and where in it.
    #[inline]
    pub fn allow(&self, target: &Target, len: usize, what: Rights, from: PeerId) -> Result<(u32, usize), OpError> {
        let held = self.entries.get(target.region as usize).and_then(|entry| entry.held.as_ref());
        let Some((held, published)) = held.and_then(|held| Some((held, held.published?))) else {
            return Err(OpError::NoRegion);
        };
        if published.key != target.key || published.to.is_some_and(|to| to != from) {
            return Err(OpError::NoRegion);
        }
        if !published.rights.has(what) {
            return Err(OpError::Rights);
        }
        let end = target.offset.checked_add(len as u64).ok_or(OpError::Bounds)?;
        if end > held.memory.bytes().len() as u64 {
            return Err(OpError::Bounds);
        }
        Ok((target.region, target.offset as usize))
    }

    /// True when `len` bytes for `at`, which [`Self::allow`] let in, may be what comes next of the put that fills the region.
    pub fn may_fill(&self, index: u32, at: usize, len: usize) -> bool {
        let missing = self.held(index).published.and_then(|published| published.missing);
        missing.and_then(|missing| missing.without(at, len)).is_some()
    }

    /// `len` bytes of a put have come, where [`Self::allow`] said. `goes_on`: it was their turn, and its end is still to come.
    #[inline]
    pub fn on_put(&mut self, index: u32, at: usize, len: usize, goes_on: bool) {
        if let Some(published) = &mut self.held_mut(index).published {
            published.missing = published.missing.filter(|_| goes_on).and_then(|missing| missing.without(at, len));
        }
    }

    /// Writes `bytes` where [`Self::allow`] said, or where an operation of ours lands.
    #[inline]
    pub fn write(&mut self, index: u32, at: usize, bytes: &[u8]) {
        crate::copy::copy_ends(self.place(index, at, bytes.len()), bytes);
    }

    /// `len` bytes where [`Self::allow`] said, or where an operation of ours lands, to be written.
    #[inline]
    pub fn place(&mut self, index: u32, at: usize, len: usize) -> &mut [u8] {
        &mut self.held_mut(index).memory.bytes_mut()[at..at + len]
    }

    /// Bytes of a region that an operation under way holds.
    #[inline]
    pub fn read(&self, index: u32, at: usize, len: usize) -> &[u8] {
        &self.held(index).memory.bytes()[at..at + len]
    }

    /// Changes a word, and returns it as it was.
    pub fn change(&mut self, index: u32, at: usize, change: Change) -> u64 {
        let word = self.held_mut(index).memory.bytes_mut()[at..].first_chunk_mut::<8>();
        let word = word.expect("`allow` saw eight bytes there");
        let before = u64::from_le_bytes(*word);
        match change {
            Change::Add(value) => *word = before.wrapping_add(value).to_le_bytes(),
            Change::Swap { expected, new } if before == expected => *word = new.to_le_bytes(),
            Change::Swap { .. } => {}
        }
        before
    }

    /// A signal has arrived.
    #[inline]
    pub fn signal(&mut self, index: u32) {
        self.held_mut(index).signals += 1;
    }

    /// An operation begins that needs `len` bytes at `at`.
    pub fn hold(&mut self, region: Region, at: usize, len: usize) -> Result<u32, super::RmaError> {
        let held = self.live(region).ok_or(super::RmaError::NoRegion)?;
        if at.checked_add(len).is_none_or(|end| end > held.memory.bytes().len()) {
            return Err(super::RmaError::Bounds);
        }
        held.uses += 1;
        Ok(region.index)
    }

    /// An operation of a peer begins that [`Self::allow`] let in.
    pub fn hold_at(&mut self, index: u32) {
        self.held_mut(index).uses += 1;
    }

    /// An operation that held the region is over.
    pub fn release(&mut self, index: u32, events: &mut VecDeque<Event>) {
        self.held_mut(index).uses -= 1;
        self.remove_if_unused(index, events);
    }

    /// Takes the memory of a region in use out of the table for a moment; [`Self::put_back`] must follow.
    pub fn take(&mut self, index: u32) -> Memory {
        std::mem::take(&mut self.held_mut(index).memory)
    }

    /// Ends [`Self::take`].
    pub fn put_back(&mut self, index: u32, memory: Memory) {
        self.held_mut(index).memory = memory;
    }

    fn remove_if_unused(&mut self, index: u32, events: &mut VecDeque<Event>) {
        let entry = &self.entries[index as usize];
        let region = Region { index, generation: entry.generation };
        if entry.held.as_ref().is_some_and(|held| held.winding_down && held.uses == 0)
            && let Some(held) = self.end(index)
        {
            events.push_back(Event::Unregistered { region, memory: held.memory.into_owned() });
        }
    }

    /// Its place is free for another one.
    fn end(&mut self, index: u32) -> Option<Held> {
        let entry = &mut self.entries[index as usize];
        let held = entry.held.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(held)
    }

    fn live(&mut self, region: Region) -> Option<&mut Held> {
        let entry = self.entries.get_mut(region.index as usize)?;
        let generation = entry.generation;
        entry.held.as_mut().filter(|held| generation == region.generation && !held.winding_down)
    }

    #[inline]
    fn held(&self, index: u32) -> &Held {
        self.entries[index as usize]
            .held
            .as_ref()
            .expect("whoever has an index holds the region, or has just been let in")
    }

    #[inline]
    fn held_mut(&mut self, index: u32) -> &mut Held {
        self.entries[index as usize].held.as_mut().expect("as in `held`")
    }
}

#[cfg(test)]
mod model;
