//! Windows that are memory which ranks of one host share: there put and get are copies, and nobody is asked.
#![allow(unsafe_code)] // The other ranks' memory is reached by address.

use sidelane_nic::share::Shared;

use super::RmaError;
use super::lent::{Lent, Room, Target};
use super::memory::{Places, Regions};
use super::runs::{Run, each_part};

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
        let mut packed = Vec::new();
        Some(share.each_piece(to, len, &mut self.places, |places, at| match (from.slice(), places.address()) {
            (Some(bytes), Some(room)) => {
                let bytes = bytes.cast::<u8>().wrapping_add(at);
                // SAFETY: the first is lent for reading and has so many bytes from here on, the second is within the mapping. They may be
                // one memory: the operand may be part of the window.
                unsafe { room.cast::<u8>().copy_from(bytes, room.len()) };
            }
            _ => {
                packed.clear();
                from.pack(at, places.len(), &mut packed);
                places.scatter(&packed);
            }
        }))
    }

    /// Gets `len` bytes, if the target's memory is mapped; `None` if not.
    pub fn get(&mut self, into: &Room<'_>, from: &Target<'_>, len: usize) -> Option<Result<(), RmaError>> {
        let share = self.ranks.get(from.rank)?.as_ref()?;
        let mut packed = Vec::new();
        Some(share.each_piece(from, len, &mut self.places, |places, at| match (into.whole(), places.address()) {
            (Some(room), Some(bytes)) => {
                let room = room.cast::<u8>().wrapping_add(at);
                // SAFETY: as in `put`, the other way; the room has at least as many bytes, as was seen when the operation began.
                unsafe { room.copy_from(bytes.cast(), bytes.len()) };
            }
            _ => {
                packed.clear();
                places.gather(&mut packed);
                into.unpacking(at).unpack(&packed);
            }
        }))
    }
}

impl Share {
    /// Calls `each` with where the first `len` bytes of a target's elements are, piece by piece, and how many were before: with none
    /// unless all are there.
    fn each_piece(
        &self,
        target: &Target<'_>,
        len: usize,
        places: &mut Places,
        mut each: impl FnMut(&mut Places, usize),
    ) -> Result<(), RmaError> {
        let Target { displacement, datatype, .. } = *target;
        if let Some((at, _)) = datatype.contiguous_run(target.count) {
            let run = Run { at: at as i64, len: len as u64 };
            self.regions.find(displacement, std::iter::once(run), places)?;
            each(places, 0);
            return Ok(());
        }
        let (mut found, mut pieces) = (Ok(()), 0);
        each_part(datatype, 0..len, 1, |part| {
            pieces += 1;
            if found.is_ok() {
                found = self.regions.find(displacement, part.runs.into_iter(), places);
            }
        });
        found?;
        match pieces {
            0 => {}
            // It was just found.
            1 => each(places, 0),
            _ => each_part(datatype, 0..len, 1, |part| {
                let found = self.regions.find(displacement, part.runs.into_iter(), places);
                debug_assert_eq!(found, Ok(()), "nothing of a mapping is detached");
                each(places, part.at);
            }),
        }
        Ok(())
    }
}
