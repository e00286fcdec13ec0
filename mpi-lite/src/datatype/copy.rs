#![allow(unsafe_code)]
//! Copies between memory that a layout describes and a packed stream of bytes.
//!
//! Unsafe, because the memory is what a layout says of an address and not one slice: with `MPI_BOTTOM` it is any number of
//! allocations. And bounds are checked once a call, by the callers, not once a block (a third of the time with blocks of 8
//! bytes).

use sidelane_nic::copy::copy_raw;

use super::layout::{Layout, Run, Shape};

/// Copies all of `layout`, at `memory`, to the stream if `PACK`, and from it otherwise.
///
/// # Safety
///
/// All bytes of the layout at `memory` and `layout.size` bytes at `stream` can be read, and written on the side that is
/// copied to; the two do not overlap.
pub(super) unsafe fn whole<const PACK: bool>(layout: &Layout, memory: *mut u8, stream: *mut u8) {
    let memory = memory.wrapping_offset(layout.at);
    // SAFETY: every piece is of the layout, at its offset in the stream, which the caller vouches for.
    unsafe {
        match &layout.shape {
            Shape::Run => block::<PACK>(memory, stream, layout.size),
            Shape::Strided { count, len, stride } => {
                blocks::<PACK>(*len, (0..*count as isize).map(|index| memory.wrapping_offset(index * stride)), stream);
            }
            Shape::Blocks { len, places } => {
                blocks::<PACK>(*len, places.iter().map(|place| memory.wrapping_offset(*place)), stream);
            }
            Shape::Runs(runs) => {
                let mut start = 0;
                for Run { place, end } in runs.iter() {
                    block::<PACK>(memory.wrapping_offset(*place), stream.add(start), end - start);
                    start = *end;
                }
            }
            Shape::Repeat { count, stride, body } => {
                for index in 0..*count {
                    let place = memory.wrapping_offset(index as isize * stride);
                    whole::<PACK>(body, place, stream.add(index * body.size));
                }
            }
            Shape::Sequence(parts) => {
                for part in parts.iter() {
                    whole::<PACK>(&part.layout, memory, stream.add(part.end - part.layout.size));
                }
            }
        }
    }
}

/// Copies the `len` bytes that come after the first `skip` of the layout.
///
/// # Safety
///
/// As for [`whole`], for these bytes of the layout and `len` bytes at `stream`. `skip + len` is at most the layout's size.
pub(super) unsafe fn part<const PACK: bool>(
    layout: &Layout,
    memory: *mut u8,
    skip: usize,
    stream: *mut u8,
    len: usize,
) {
    debug_assert!(skip + len <= layout.size);
    if len == 0 {
        return;
    }
    if len == layout.size {
        // SAFETY: all of it, as the caller vouches.
        return unsafe { whole::<PACK>(layout, memory, stream) };
    }
    let memory = memory.wrapping_offset(layout.at);
    // SAFETY: every piece is within the bytes from `skip` to `skip + len`, which the caller vouches for.
    unsafe {
        match &layout.shape {
            Shape::Run => block::<PACK>(memory.wrapping_add(skip), stream, len),
            Shape::Strided { len: size, stride, .. } => {
                let body = Layout::run(0, *size);
                repeat_part::<PACK>(&body, *stride, memory, skip, stream, len);
            }
            Shape::Blocks { len: size, places } => {
                let first = skip / size;
                let mut rest = Rest { skip: skip % size, stream, len };
                for place in &places[first..] {
                    let Some((skip, stream, len)) = rest.take(*size) else { break };
                    block::<PACK>(memory.wrapping_offset(*place).wrapping_add(skip), stream, len);
                }
            }
            Shape::Runs(runs) => {
                let first = runs.partition_point(|run| run.end <= skip);
                let mut start = if first == 0 { 0 } else { runs[first - 1].end };
                let mut rest = Rest { skip: skip - start, stream, len };
                for Run { place, end } in &runs[first..] {
                    let Some((skip, stream, len)) = rest.take(end - start) else { break };
                    block::<PACK>(memory.wrapping_offset(*place).wrapping_add(skip), stream, len);
                    start = *end;
                }
            }
            Shape::Repeat { stride, body, .. } => repeat_part::<PACK>(body, *stride, memory, skip, stream, len),
            Shape::Sequence(parts) => {
                let first = parts.partition_point(|part| part.end <= skip);
                let start = parts[first].end - parts[first].layout.size;
                let mut rest = Rest { skip: skip - start, stream, len };
                for each in &parts[first..] {
                    let Some((skip, stream, len)) = rest.take(each.layout.size) else { break };
                    part::<PACK>(&each.layout, memory, skip, stream, len);
                }
            }
        }
    }
}

/// As [`part`], of any number of `body`, `stride` bytes apart.
///
/// # Safety
///
/// As for [`part`].
pub(super) unsafe fn repeat_part<const PACK: bool>(
    body: &Layout,
    stride: isize,
    memory: *mut u8,
    skip: usize,
    stream: *mut u8,
    len: usize,
) {
    let mut index = (skip / body.size) as isize;
    let mut rest = Rest { skip: skip % body.size, stream, len };
    if rest.skip > 0
        && let Some((skip, stream, len)) = rest.take(body.size)
    {
        // SAFETY: the end of the first body, of which the caller skipped the front.
        unsafe { part::<PACK>(body, memory.wrapping_offset(index * stride), skip, stream, len) };
        index += 1;
    }
    let full = rest.len / body.size;
    let place = memory.wrapping_offset(index * stride);
    // SAFETY: as many whole bodies as there are bytes left for, then the front of one more.
    unsafe {
        match body.widened(full, stride) {
            Some(all) => whole::<PACK>(&all, place, rest.stream),
            None => {
                for index in 0..full {
                    let place = place.wrapping_offset(index as isize * stride);
                    whole::<PACK>(body, place, rest.stream.add(index * body.size));
                }
            }
        }
        let stream = rest.stream.add(full * body.size);
        part::<PACK>(body, place.wrapping_offset(full as isize * stride), 0, stream, rest.len % body.size);
    }
}

/// What is still to be copied.
struct Rest {
    /// Bytes to leave out of the next piece.
    skip: usize,
    stream: *mut u8,
    len: usize,
}

impl Rest {
    /// What to copy of the next piece, which has `size` bytes: how many to leave out, where in the stream, how many.
    fn take(&mut self, size: usize) -> Option<(usize, *mut u8, usize)> {
        if self.len == 0 {
            return None;
        }
        let skip = std::mem::take(&mut self.skip);
        let taken = (size - skip).min(self.len);
        let stream = self.stream;
        self.stream = stream.wrapping_add(taken);
        self.len -= taken;
        Some((skip, stream, taken))
    }
}

/// Blocks of one length. The lengths of usual elements are constants to the compiler, for moves in place of calls.
///
/// # Safety
///
/// `len` bytes at each place, and as many bytes at `stream` as all have, are as for [`whole`].
unsafe fn blocks<const PACK: bool>(len: usize, places: impl Iterator<Item = *mut u8>, stream: *mut u8) {
    // SAFETY: passed on.
    unsafe {
        match len {
            1 => sized::<PACK, 1>(places, stream),
            2 => sized::<PACK, 2>(places, stream),
            4 => sized::<PACK, 4>(places, stream),
            8 => sized::<PACK, 8>(places, stream),
            12 => sized::<PACK, 12>(places, stream),
            16 => sized::<PACK, 16>(places, stream),
            24 => sized::<PACK, 24>(places, stream),
            32 => sized::<PACK, 32>(places, stream),
            64 => sized::<PACK, 64>(places, stream),
            _ => {
                for (index, place) in places.enumerate() {
                    block::<PACK>(place, stream.add(index * len), len);
                }
            }
        }
    }
}

/// # Safety
///
/// As for [`blocks`].
#[inline]
unsafe fn sized<const PACK: bool, const LEN: usize>(places: impl Iterator<Item = *mut u8>, stream: *mut u8) {
    for (index, place) in places.enumerate() {
        // SAFETY: one block and its bytes of the stream.
        unsafe { block::<PACK>(place, stream.add(index * LEN), LEN) };
    }
}

/// # Safety
///
/// `len` bytes at both places are as for [`whole`].
#[inline]
unsafe fn block<const PACK: bool>(memory: *mut u8, stream: *mut u8, len: usize) {
    // SAFETY: as the caller says.
    unsafe {
        if PACK {
            copy_raw(memory, stream, len);
        } else {
            copy_raw(stream, memory, len);
        }
    }
}
