//! Which bytes of a target are meant: runs, and how many of them go into one request.

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

/// Calls `each` with the runs that the first `len` bytes of `count` elements are, in the order in which they are packed.
pub(super) fn each_run(datatype: &Datatype, count: usize, len: usize, mut each: impl FnMut(Run)) {
    let mut left = len;
    datatype.each_run(count, &mut |at, len| {
        let now = len.min(left);
        if now > 0 {
            each(Run { at: at as i64, len: now as u64 });
        }
        left -= now;
    });
}

/// Cuts the first `len` bytes of `count` elements into parts of about [`PART`] bytes, none of which ends within `grain` bytes that
/// belong together.
pub(super) fn parts(datatype: &Datatype, count: usize, len: usize, grain: usize) -> Vec<Part> {
    let grain = grain.max(1);
    let most = PART - PART % grain;
    let (mut parts, mut part) = (Vec::new(), Part::default());
    each_run(datatype, count, len, |Run { mut at, len }| {
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
                parts.push(std::mem::replace(&mut part, next));
            }
        }
    });
    if part.len > 0 {
        parts.push(part);
    }
    parts
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

    #[test]
    fn parts_are_all_of_it_in_order_and_cut_between_elements() {
        let short = Datatype::from(Predefined::ShortInt);
        let bytes = Datatype::from(Predefined::Byte);
        let spread = Datatype::hvector(9_000, 1, 24, &short).unwrap();
        for (datatype, count, grain) in [(short, 3_000, 6), (bytes, 100_000, 1), (spread, 2, 6)] {
            let parts = parts(&datatype, count, datatype.pack_size(count).unwrap(), grain);
            assert!(parts.len() > 1);
            let mut end = 0;
            for part in &parts {
                assert_eq!(part.at, end);
                assert_eq!(part.runs.iter().map(|run| run.len as usize).sum::<usize>(), part.len);
                assert!(part.len <= PART && part.len.is_multiple_of(grain) && part.runs.len() <= RUNS + GRAIN_MAX);
                end += part.len;
            }
            assert_eq!(end, datatype.pack_size(count).unwrap());
        }
    }
}
