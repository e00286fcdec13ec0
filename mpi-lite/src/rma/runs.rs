//! Which bytes of a target are meant: runs, and how many of them go into one request.

use std::ops::Range;

use crate::datatype::Datatype;

/// Bytes one after another, from `at` on relative to an operation's displacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub at: i64,
    pub len: u64,
}

/// A part of an operation that is one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Part {
    pub runs: Vec<Run>,
    /// Where its bytes are among all of the operation's, packed.
    pub at: usize,
    pub len: usize,
}

/// Calls `each` with the runs that these bytes of elements are, counted as they are packed, in that order.
fn each_run(datatype: &Datatype, bytes: Range<usize>, mut each: impl FnMut(Run)) {
    let (mut before, mut left) = (bytes.start, bytes.len());
    // No elements behind the last one that is meant are gone through.
    let count = bytes.end.div_ceil(datatype.size().max(1));
    datatype.each_run(count, &mut |at, len| {
        let skipped = len.min(before);
        let now = (len - skipped).min(left);
        if now > 0 {
            each(Run { at: at as i64 + skipped as i64, len: now as u64 });
        }
        (before, left) = (before - skipped, left - now);
    });
}

/// Calls `each` with parts of about [`PART`] bytes that make these bytes of elements, one after another: a type may have more runs than
/// there is memory to list them. None ends within `grain` bytes that belong together.
pub(super) fn each_part(datatype: &Datatype, bytes: Range<usize>, grain: usize, mut each: impl FnMut(Part)) {
    let grain = grain.max(1);
    let most = PART - PART % grain;
    let mut part = Part { at: bytes.start, ..Part::default() };
    each_run(datatype, bytes, |Run { mut at, len }| {
        let mut len = len as usize;
        while len > 0 {
            let now = len.min(most - part.len);
            match part.runs.last_mut() {
                Some(last) if last.at + last.len as i64 == at => last.len += now as u64,
                _ => part.runs.push(Run { at, len: now as u64 }),
            }
            part.len += now;
            (at, len) = (at + now as i64, len - now);
            if part.len == most || part.runs.len() >= RUNS && part.len.is_multiple_of(grain) {
                let next = Part { at: part.at + part.len, ..Part::default() };
                each(std::mem::replace(&mut part, next));
            }
        }
    });
    if part.len > 0 {
        each(part);
    }
}

/// Bytes of a part: a few of the cheapest messages that carry them, and little enough that a target can keep one for each
/// origin.
pub(super) const PART: usize = 32 << 10;

/// Runs of a part, plus those that its last element needs.
pub(super) const RUNS: usize = 1 << 10;

/// Bytes that belong together at most: `MPI_LONG_DOUBLE_INT`, and complex numbers of two of them.
pub(super) const GRAIN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Predefined;

    fn parts(datatype: &Datatype, bytes: Range<usize>, grain: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        each_part(datatype, bytes, grain, |part| parts.push(part));
        parts
    }

    /// Where each byte is.
    fn places(parts: &[Part]) -> Vec<i64> {
        parts.iter().flat_map(|part| &part.runs).flat_map(|run| run.at..run.at + run.len as i64).collect()
    }

    #[test]
    fn parts_are_all_of_it_in_order_and_cut_between_elements() {
        let short = Datatype::from(Predefined::ShortInt);
        let bytes = Datatype::from(Predefined::Byte);
        let spread = Datatype::hvector(9_000, 1, 24, &short).unwrap();
        // Without gaps: twelve bytes each, which no part of full length ends behind.
        let tight = Datatype::resized(&Datatype::from(Predefined::DoubleInt), 0, 12).unwrap();
        for (datatype, count, grain) in [(short, 3_000, 6), (bytes, 100_000, 1), (spread, 2, 6), (tight, 8_000, 12)] {
            let all = datatype.pack_size(count).unwrap();
            let whole = places(&parts(&datatype, 0..all, grain));
            for cut in [0, grain, 7 * grain, all - grain, all] {
                let halves = [parts(&datatype, 0..cut, grain), parts(&datatype, cut..all, grain)];
                assert!(halves.iter().any(|half| half.len() > 1));
                let mut end = 0;
                for part in halves.iter().flatten() {
                    assert_eq!(part.at, end);
                    assert_eq!(part.runs.iter().map(|run| run.len as usize).sum::<usize>(), part.len);
                    assert!(part.len <= PART && part.len.is_multiple_of(grain) && part.runs.len() <= RUNS + GRAIN_MAX);
                    end += part.len;
                }
                assert_eq!(end, all);
                assert_eq!(places(&halves.concat()), whole);
            }
        }
    }

    #[test]
    fn what_is_behind_the_bytes_that_are_meant_is_not_gone_through() {
        let every_other = Datatype::vector(2, 1, 2, &Datatype::from(Predefined::Byte)).unwrap();
        // More elements than anybody could go through, were they there.
        let few = parts(&every_other, 1..4, 1);
        assert_eq!(few, [Part { runs: [(2, 2), (5, 1)].map(|(at, len)| Run { at, len }).to_vec(), at: 1, len: 3 }]);
    }
}
