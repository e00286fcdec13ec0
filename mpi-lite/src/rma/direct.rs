//! Windows that are memory which ranks of one host share: there put and get are copies, and nobody is asked.
#![allow(unsafe_code)] // The other ranks' memory is reached by address.

use sidelane_nic::share::Shared;

use super::RmaError;
use super::lent::{Lent, Room, Target};
use super::memory::{Places, Regions};
use super::runs::{Run, each_run};

/// What of every rank's memory is mapped here.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    ranks: Vec<Option<Share>>,
    places: Places,
}

/// One rank's part of the memory.
#[derive(Debug)]
struct Share {
    whole: Whole,
    unit: u64,
    regions: Regions,
}

#[derive(Clone, Copy, Debug)]
struct Whole(*mut [u8]);

// SAFETY: the address of a mapping, which belongs to the process and not to a thread.
unsafe impl Send for Whole {}

impl Mapped {
    /// Parts of `memory`, which the window's exposure keeps: of each rank where its part begins, its length and its unit; `None` of those on other hosts.
    pub fn new(memory: &Shared, parts: impl Iterator<Item = Option<(usize, usize, u64)>>) -> Self {
        let share = |(at, len, unit): (usize, usize, u64)| {
            assert!(at.checked_add(len).is_some_and(|end| end <= memory.len()), "a part is within the whole");
            let whole = std::ptr::slice_from_raw_parts_mut(memory.start().as_ptr().wrapping_add(at), len);
            // SAFETY: within the mapping, which the exposure keeps longer than the window is there; others may change its bytes as MPI allows them.
            let regions = unsafe { Regions::of(whole, unit) };
            Share { whole: Whole(whole), unit, regions }
        };
        Self { ranks: parts.map(|part| part.map(share)).collect(), places: Places::default() }
    }

    /// Where a rank's part is here, and its unit.
    pub fn share(&self, rank: usize) -> Option<(*mut [u8], u64)> {
        let share = self.ranks.get(rank)?.as_ref()?;
        Some((share.whole.0, share.unit))
    }

    /// Puts `len` bytes, if the target's memory is mapped; `None` if not.
    pub fn put(&mut self, from: &Lent<'_>, to: &Target<'_>, len: usize) -> Option<Result<(), RmaError>> {
        let share = self.ranks.get(to.rank)?.as_ref()?;
        if let Err(error) = find(&share.regions, to, len, &mut self.places) {
            return Some(Err(error));
        }
        // The operand may be part of the window.
        let mut packed = Vec::new();
        match (from.slice(), self.places.address()) {
            // SAFETY: the first is lent for reading and has `len` bytes, the second has as many, within the mapping.
            (Some(bytes), Some(room)) => unsafe { room.cast::<u8>().copy_from(bytes.cast(), room.len()) },
            _ => {
                from.pack(0, len, &mut packed);
                self.places.scatter(&packed);
            }
        }
        Some(Ok(()))
    }

    /// Gets `len` bytes, if the target's memory is mapped; `None` if not.
    pub fn get(&mut self, into: &Room<'_>, from: &Target<'_>, len: usize) -> Option<Result<(), RmaError>> {
        let share = self.ranks.get(from.rank)?.as_ref()?;
        if let Err(error) = find(&share.regions, from, len, &mut self.places) {
            return Some(Err(error));
        }
        match (into.whole(), self.places.address()) {
            // SAFETY: as in `put`, the other way; the room has at least as many bytes, as was seen when the operation began.
            (Some(room), Some(bytes)) => unsafe { room.cast::<u8>().copy_from(bytes.cast(), bytes.len()) },
            _ => {
                let mut packed = Vec::with_capacity(self.places.len());
                self.places.gather(&mut packed);
                into.unpacking(0).unpack(&packed);
            }
        }
        Some(Ok(()))
    }
}

/// Finds the first `len` bytes of a target's elements.
fn find(regions: &Regions, target: &Target<'_>, len: usize, places: &mut Places) -> Result<(), RmaError> {
    if let Some((at, _)) = target.datatype.contiguous_run(target.count) {
        let run = Run { at: at as i64, len: len as u64 };
        return regions.find(target.displacement, std::iter::once(run), places);
    }
    let mut runs = Vec::new();
    each_run(target.datatype, 0..len, |run| runs.push(run));
    regions.find(target.displacement, runs.into_iter(), places)
}
