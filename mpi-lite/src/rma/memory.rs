//! What a window shows of this process's memory, and the only ways to it: nothing is touched that was not found within.
#![allow(unsafe_code)] // Windows are memory of the user's, which outlives the calls.

use std::ops::Range;
use std::ptr::NonNull;

use super::RmaError;
use super::runs::Run;
use crate::adi::{Incoming, Outgoing};

/// Memory that others may access.
#[derive(Debug)]
pub(super) struct Regions {
    /// Bytes of one displacement.
    unit: u64,
    list: Vec<Region>,
    /// Addresses at which nothing was attached, to be detached as if something were.
    empty: Vec<usize>,
}

/// One piece of memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// The offset at which origins see its first byte.
    at: u64,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is memory that whoever lent it has promised to be there, on whatever thread the device is used.
unsafe impl Send for Region {}

/// Where the runs of one request are: all of them within regions.
#[derive(Debug, Default)]
pub(super) struct Places {
    list: Vec<(NonNull<u8>, usize)>,
    len: usize,
    /// Room for what is changed, kept from one request to the next.
    piece: Vec<u8>,
}

// SAFETY: as for `Region`.
unsafe impl Send for Places {}

impl Regions {
    /// One piece that origins see from displacement 0 on, or none.
    ///
    /// # Safety
    /// The memory stays where it is until this is dropped, and whoever else uses it keeps to MPI's rules for windows: it is not
    /// borrowed while this process is in a call of its device.
    pub unsafe fn of(memory: *mut [u8], unit: u64) -> Self {
        let mut regions = Self { unit, list: Vec::new(), empty: Vec::new() };
        // SAFETY: passed on.
        unsafe { regions.add(memory, 0) };
        regions
    }

    /// No memory; what will be attached is seen at its address.
    pub const fn dynamic() -> Self {
        Self { unit: 1, list: Vec::new(), empty: Vec::new() }
    }

    /// Shows more memory, at its address. Where none is given, nothing, wherever that is.
    ///
    /// # Safety
    /// As for [`Self::of`], until it is detached.
    pub unsafe fn attach(&mut self, memory: *mut [u8]) -> Result<(), RmaError> {
        if memory.is_empty() {
            self.empty.push(memory.addr());
            return Ok(());
        }
        let (at, end) = bounds(memory).ok_or(RmaError::Attach)?;
        let overlaps = |region: &Region| region.at < end && at < region.end();
        if self.list.iter().any(overlaps) {
            return Err(RmaError::Attach);
        }
        // SAFETY: passed on.
        unsafe { self.add(memory, at) };
        Ok(())
    }

    /// Hides what was attached with this address; memory first, where there was nothing too. The addresses of it.
    pub fn detach(&mut self, start: *const u8) -> Result<Range<usize>, RmaError> {
        if let Some(at) = self.list.iter().position(|region| std::ptr::eq(region.start.as_ptr(), start)) {
            let region = self.list.swap_remove(at);
            return Ok(start.addr()..start.addr() + region.len);
        }
        let at = self.empty.iter().position(|empty| *empty == start.addr());
        self.empty.swap_remove(at.ok_or(RmaError::Attach)?);
        Ok(0..0)
    }

    /// Finds runs. None of them is in `places` if one of them is not in a region.
    pub fn find(
        &self,
        displacement: i64,
        runs: impl Iterator<Item = Run>,
        places: &mut Places,
    ) -> Result<(), RmaError> {
        places.list.clear();
        places.len = 0;
        let found = self.find_all(displacement, runs, places);
        if found.is_none() {
            places.list.clear();
            places.len = 0;
        }
        found.ok_or(RmaError::Range)
    }

    fn find_all(&self, displacement: i64, runs: impl Iterator<Item = Run>, places: &mut Places) -> Option<()> {
        let base = i128::from(displacement) * i128::from(self.unit);
        for run in runs {
            // No sum of these numbers of 64 bits, nor a product of two, exceeds 128.
            let at = u64::try_from(base + i128::from(run.at)).ok()?;
            let len = usize::try_from(run.len).ok()?;
            if len == 0 {
                continue;
            }
            let region = self.list.iter().find(|region| at >= region.at && at < region.end())?;
            let end = at.checked_add(run.len)?;
            let start = if end <= region.end() {
                // SAFETY: the offset is within the region, as was just found.
                unsafe { region.start.add((at - region.at) as usize) }
            } else if self.goes_on_to(region, end) {
                // Only what was attached touches, and that is seen at its address.
                NonNull::new(std::ptr::with_exposed_provenance_mut(at as usize))?
            } else {
                return None;
            };
            places.list.push((start, len));
            places.len = places.len.checked_add(len)?;
        }
        Some(())
    }

    /// Whether there is memory without a gap from `region` to `end`, in regions that touch.
    fn goes_on_to(&self, region: &Region, end: u64) -> bool {
        let mut reached = region.end();
        while reached < end {
            let Some(next) = self.list.iter().find(|next| next.at == reached) else { return false };
            reached = next.end();
        }
        true
    }

    /// # Safety
    /// As for [`Self::of`].
    unsafe fn add(&mut self, memory: *mut [u8], at: u64) {
        let (Some(start), len) = (NonNull::new(memory.cast::<u8>()), memory.len()) else { return };
        if len > 0 {
            self.list.push(Region { at, start, len });
        }
    }
}

impl Region {
    /// The offset behind its last byte.
    const fn end(&self) -> u64 {
        self.at + self.len as u64
    }
}

impl Places {
    /// Bytes in all.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// All of it as what is sent, if it is one run.
    pub fn outgoing(&self) -> Option<Outgoing> {
        let [(start, len)] = self.list[..] else { return None };
        // SAFETY: within a region, which stays; what is written to it by others meanwhile is theirs to answer for.
        Some(unsafe { Outgoing::lend(std::ptr::slice_from_raw_parts(start.as_ptr(), len)) })
    }

    /// All of it as room for what is received, if it is one run.
    pub fn incoming(&self) -> Option<Incoming> {
        let [(start, len)] = self.list[..] else { return None };
        // SAFETY: as in `outgoing`.
        Some(unsafe { Incoming::lend(std::ptr::slice_from_raw_parts_mut(start.as_ptr(), len)) })
    }

    /// Where all of it is, if it is one run.
    pub fn address(&self) -> Option<*mut [u8]> {
        let [(start, len)] = self.list[..] else { return None };
        Some(std::ptr::slice_from_raw_parts_mut(start.as_ptr(), len))
    }

    /// The addresses of all of it, if it is one run; else none.
    pub fn addresses(&self) -> Range<usize> {
        self.address().map_or(0..0, |run| run.addr()..run.addr() + run.len())
    }

    /// Changes all of it, if it is one run, by copies of pieces of which none ends within `grain` bytes that belong together: `each` is
    /// told where in it its piece begins. False, and nothing is changed, if it is not one run.
    pub fn change(&mut self, grain: usize, mut each: impl FnMut(usize, &mut [u8])) -> bool {
        let [(start, len)] = self.list[..] else { return false };
        let most = PIECE.max(grain) / grain * grain;
        self.piece.resize(len.min(most).max(self.piece.len()), 0);
        for at in (0..len).step_by(most) {
            let piece = &mut self.piece[..most.min(len - at)];
            let here = start.as_ptr().wrapping_add(at);
            // SAFETY: within a region, which stays; `piece` is memory of our own. No reference is made to the region's bytes, as in
            // `gather`: in vain are only the changes of a program that conflicts with its own accumulate (MPI-4.1 12.7).
            unsafe { here.copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len()) };
            each(at, piece);
            // SAFETY: as above.
            unsafe { here.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        }
        true
    }

    /// Appends a copy of all of it.
    pub fn gather(&self, out: &mut Vec<u8>) {
        for (start, len) in &self.list {
            let begin = out.len();
            out.resize(begin + len, 0);
            // SAFETY: within a region, which stays; `out` is memory of our own and no part of it. No reference is made to the
            // region's bytes: other processes that map it may write them meanwhile, and what is read then is theirs to answer for.
            unsafe { start.as_ptr().copy_to_nonoverlapping(out[begin..].as_mut_ptr(), *len) };
        }
    }

    /// Overwrites all of it.
    pub fn scatter(&mut self, mut bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len, "a request whose data is too short was refused");
        for (start, len) in &self.list {
            let (now, rest) = bytes.split_at(*len);
            // SAFETY: within a region, which stays; `now` is part of a message's bytes, which are nobody's window. No reference is
            // made to the region's bytes, as in `gather`.
            unsafe { start.as_ptr().copy_from_nonoverlapping(now.as_ptr(), *len) };
            bytes = rest;
        }
    }
}

/// Bytes that are changed at a time: they are in a core's first cache, twice.
const PIECE: usize = 4 << 10;

/// Where memory begins and ends.
fn bounds(memory: *mut [u8]) -> Option<(u64, u64)> {
    let at = memory.cast::<u8>().expose_provenance() as u64;
    (at != 0).then(|| at.checked_add(memory.len() as u64)).flatten().map(|end| (at, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(regions: &Regions, displacement: i64, runs: &[(i64, u64)]) -> Result<Vec<u8>, RmaError> {
        let (mut places, mut found) = (Places::default(), Vec::new());
        let runs = runs.iter().map(|(at, len)| Run { at: *at, len: *len });
        regions.find(displacement, runs, &mut places)?;
        places.gather(&mut found);
        Ok(found)
    }

    #[test]
    fn only_what_is_within_is_found() {
        let mut memory: Vec<u8> = (0..100).collect();
        // SAFETY: `memory` outlives the regions and is not used beside them.
        let regions = unsafe { Regions::of(&raw mut memory[..], 10) };
        assert_eq!(find(&regions, 2, &[(0, 3), (-20, 1), (79, 1)]), Ok(vec![20, 21, 22, 0, 99]));
        assert_eq!(find(&regions, 10, &[(0, 0)]), Ok(vec![]));
        assert_eq!(find(&regions, 0, &[(0, 100)]).unwrap().len(), 100);
        for (displacement, run) in [
            (0, (0, 101)),
            (9, (0, 11)),
            (10, (0, 1)),
            (0, (-1, 1)),
            (-1, (0, 1)),
            (i64::MAX, (i64::MAX, 1)),
            (i64::MIN, (i64::MIN, u64::MAX)),
            (0, (1, u64::MAX)),
            (0, (i64::MAX, u64::MAX)),
        ] {
            assert_eq!(find(&regions, displacement, &[(0, 1), run]), Err(RmaError::Range), "{displacement} {run:?}");
        }
    }

    #[test]
    fn what_is_attached_is_found_until_it_is_detached() {
        let (mut one, mut other) = (vec![1u8; 50], vec![2u8; 50]);
        let mut regions = Regions::dynamic();
        // SAFETY: both outlive the regions and are not used beside them.
        unsafe {
            regions.attach(&raw mut one[..]).unwrap();
            regions.attach(&raw mut other[..]).unwrap();
            assert_eq!(regions.attach(&raw mut one[3..5]), Err(RmaError::Attach));
        }
        let at = one.as_ptr().expose_provenance() as i64;
        assert_eq!(find(&regions, at, &[(48, 2)]), Ok(vec![1; 2]));
        assert_eq!(find(&regions, at, &[(48, 3)]), Err(RmaError::Range));
        regions.detach(one.as_ptr()).unwrap();
        assert_eq!(regions.detach(one.as_ptr()), Err(RmaError::Attach));
        assert_eq!(find(&regions, at, &[(48, 2)]), Err(RmaError::Range));
        assert_eq!(find(&regions, other.as_ptr().expose_provenance() as i64, &[(0, 50)]), Ok(vec![2; 50]));
    }

    /// MPI-5.0 12.2.4 and 12.6.2: what is refused is memory that is not attached, and all of this is.
    #[test]
    fn what_touches_is_found_as_one_run() {
        let mut memory: Vec<u8> = (0..90).collect();
        let start = memory.as_mut_ptr();
        let at = start.expose_provenance() as i64;
        let mut regions = Regions::dynamic();
        for (begin, end) in [(50, 80), (0, 20), (20, 50)] {
            let part = std::ptr::slice_from_raw_parts_mut(start.wrapping_add(begin), end - begin);
            // SAFETY: the memory outlives the regions and is not used beside them.
            unsafe { regions.attach(part) }.unwrap();
        }
        let bytes = |from: u8, to: u8| Ok((from..to).collect::<Vec<u8>>());
        assert_eq!(find(&regions, at, &[(18, 4)]), bytes(18, 22));
        assert_eq!(find(&regions, at, &[(20, 30)]), bytes(20, 50));
        assert_eq!(find(&regions, at, &[(0, 80)]), bytes(0, 80));
        assert_eq!(find(&regions, at, &[(0, 81)]), Err(RmaError::Range));
        let mut places = Places::default();
        regions.find(at, std::iter::once(Run { at: 10, len: 60 }), &mut places).unwrap();
        assert_eq!(places.address().map(|run| run.len()), Some(60), "long puts and compare-and-swaps need one run");
        regions.detach(start.wrapping_add(20)).unwrap();
        assert_eq!(find(&regions, at, &[(18, 4)]), Err(RmaError::Range));
    }

    #[test]
    fn nothing_is_attached_anywhere_and_detached_as_memory_is() {
        let mut memory = vec![1u8; 50];
        let (start, within) = (memory.as_mut_ptr(), memory[7..].as_mut_ptr());
        let at = start.expose_provenance() as i64;
        let nothing = [std::ptr::null_mut(), start, within];
        let mut regions = Regions::dynamic();
        let attach = |regions: &mut Regions, start, len| {
            // SAFETY: the memory outlives the regions and is not used beside them.
            unsafe { regions.attach(std::ptr::slice_from_raw_parts_mut(start, len)) }
        };
        assert!(nothing.iter().all(|start| attach(&mut regions, *start, 0).is_ok()));
        assert_eq!(find(&regions, at, &[(0, 1)]), Err(RmaError::Range));
        attach(&mut regions, start, 50).unwrap();
        assert_eq!(attach(&mut regions, within, 0), Ok(()));
        assert_eq!(find(&regions, at, &[(0, 50)]), Ok(vec![1; 50]));
        // What is shown is hidden by the first of those who detach its address.
        regions.detach(start).unwrap();
        assert_eq!(find(&regions, at, &[(0, 1)]), Err(RmaError::Range));
        assert!(nothing.iter().chain([&within]).all(|start| regions.detach(*start).is_ok()));
        assert!(nothing.iter().all(|start| regions.detach(*start) == Err(RmaError::Attach)));
    }
}
