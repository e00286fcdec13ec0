use super::schedule::Span;

/// Where in a span each member's block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks<'a> {
    /// As many bytes for each, one after the other.
    Equal(usize),
    /// An array cut at its elements into as nearly equal blocks as there are members; the first ones have the odd elements.
    Cut {
        /// Elements of the array.
        count: usize,
        /// Bytes of an element.
        element: usize,
        /// Blocks.
        into: usize,
    },
    /// One after the other, in these bytes each.
    Lens(&'a [usize]),
    /// One after the other, in these numbers of elements each.
    Counts {
        /// Elements of each block.
        counts: &'a [usize],
        /// Bytes of an element.
        element: usize,
    },
    /// In these numbers of elements each, at these places.
    At {
        /// Elements of each block.
        counts: &'a [usize],
        /// Where each begins, in elements.
        starts: &'a [usize],
        /// Bytes of an element.
        element: usize,
    },
}

impl Blocks<'_> {
    /// An array of `len` bytes cut at elements of `element` bytes.
    pub fn cut(len: usize, element: usize, into: usize) -> Self {
        debug_assert!(len.is_multiple_of(element), "an array has whole elements");
        Self::Cut { count: len / element, element, into }
    }

    /// Bytes of block `index`.
    pub fn len(&self, index: usize) -> usize {
        match self {
            Self::Equal(len) => *len,
            Self::Cut { count, element, into } => (count / into + usize::from(index < count % into)) * element,
            Self::Lens(lens) => lens[index],
            Self::Counts { counts, element } | Self::At { counts, element, .. } => counts[index] * element,
        }
    }

    /// Where block `index` begins.
    pub fn start(&self, index: usize) -> usize {
        match self {
            Self::Equal(len) => len * index,
            Self::Cut { count, element, into } => (count / into * index + index.min(count % into)) * element,
            Self::Lens(lens) => lens[..index].iter().sum(),
            Self::Counts { counts, element } => counts[..index].iter().sum::<usize>() * element,
            // One of no bytes may be said to be anywhere.
            Self::At { counts, .. } if counts[index] == 0 => 0,
            Self::At { starts, element, .. } => starts[index] * element,
        }
    }

    /// The place after the last byte of `count` blocks. `None` if there are not so many, or no memory is as long.
    #[inline]
    pub fn end(&self, count: usize) -> Option<usize> {
        let together = |lens: &[usize], element: usize| {
            lens.get(..count)?.iter().try_fold(0_usize, |end, len| end.checked_add(len.checked_mul(element)?))
        };
        match *self {
            Self::Equal(len) => len.checked_mul(count),
            Self::Cut { count: elements, element, into } => {
                if count == into {
                    elements.checked_mul(element)
                } else {
                    None
                }
            }
            Self::Lens(lens) => together(lens, 1),
            Self::Counts { counts, element } => together(counts, element),
            Self::At { counts, starts, element } => {
                let (counts, starts) = (counts.get(..count)?, starts.get(..count)?);
                let some = counts.iter().zip(starts).filter(|(count, _)| **count > 0);
                let mut ends = some.map(|(count, start)| start.checked_add(*count)?.checked_mul(element));
                ends.try_fold(0, |end, its| Some(end.max(its?)))
            }
        }
    }

    /// Whether there are `count` blocks, all of them within `room` bytes.
    #[inline]
    pub fn lie_within(&self, count: usize, room: usize) -> bool {
        self.end(count).is_some_and(|end| end <= room)
    }

    /// Whether each block begins where the one before it ends. Not said of blocks at places of their own of which one has no bytes.
    pub fn follow_each_other(&self) -> bool {
        match self {
            Self::Equal(_) | Self::Cut { .. } | Self::Lens(_) | Self::Counts { .. } => true,
            Self::At { counts, starts, .. } => {
                let follow = |(pair, count): (&[usize], &usize)| pair[0].checked_add(*count) == Some(pair[1]);
                !counts.contains(&0) && starts.windows(2).zip(*counts).all(follow)
            }
        }
    }

    /// Where `count` blocks begin and the bytes of each, if all have as many and each begins where the one before it ends.
    #[inline]
    pub fn equal(&self, count: usize) -> Option<(usize, usize)> {
        let of_each = |lens: &[usize]| {
            let len = lens.first().copied().unwrap_or_default();
            lens.iter().all(|its| *its == len).then_some(len)
        };
        Some(match *self {
            Self::Equal(len) => (0, len),
            Self::Cut { count: elements, into, .. } if elements % into != 0 => return None,
            Self::Cut { .. } => (0, self.len(0)),
            Self::Lens(lens) => (0, of_each(&lens[..count])?),
            Self::Counts { counts, element } => (0, of_each(&counts[..count])? * element),
            Self::At { .. } if !self.follow_each_other() => return None,
            Self::At { counts, starts, element } => {
                (starts.first().copied().unwrap_or_default() * element, of_each(&counts[..count])? * element)
            }
        })
    }

    /// Block `index` of `whole`.
    pub fn of(&self, whole: Span, index: usize) -> Span {
        whole.part(self.start(index), self.len(index))
    }

    /// Blocks `first` up to and without `end` of `whole`, which follow each other.
    pub fn run(&self, whole: Span, first: usize, end: usize) -> Span {
        debug_assert!(self.follow_each_other(), "a run has no holes");
        if first >= end {
            return whole.part(0, 0);
        }
        let start = self.start(first);
        whole.part(start, self.start(end - 1) + self.len(end - 1) - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::Memory;

    #[test]
    fn a_cut_array_is_covered_once() {
        for (count, into) in [(0, 3), (1, 3), (7, 3), (9, 3), (5, 17)] {
            let blocks = Blocks::cut(count * 4, 4, into);
            let mut end = 0;
            for index in 0..into {
                assert_eq!(blocks.start(index), end);
                end += blocks.len(index);
            }
            assert_eq!(end, count * 4);
        }
    }

    #[test]
    fn the_end_is_that_of_the_last_byte() {
        let (lens, starts) = ([3, 0, 5, 2], [4, 20, 7, 0]);
        assert_eq!(Blocks::Equal(5).end(3), Some(15));
        assert_eq!(Blocks::cut(28, 4, 3).end(3), Some(28));
        assert_eq!(Blocks::cut(28, 4, 3).end(2), None);
        assert_eq!(Blocks::Lens(&lens).end(3), Some(8));
        assert_eq!(Blocks::Counts { counts: &lens, element: 8 }.end(4), Some(80));
        let at = Blocks::At { counts: &lens, starts: &starts, element: 1 };
        assert_eq!((at.end(4), at.start(1)), (Some(12), 0), "no bytes are anywhere");
        for few in [Blocks::Lens(&lens), Blocks::At { counts: &lens, starts: &starts[..3], element: 1 }] {
            assert!(few.lie_within(3, 12));
            assert!(!few.lie_within(5, 20) && !few.lie_within(3, 7));
        }
        let wide = Blocks::At { counts: &lens, starts: &starts, element: 4 };
        assert_eq!((wide.end(4), wide.start(2), wide.len(2)), (Some(48), 28, 20));
        assert_eq!(Blocks::At { counts: &lens, starts: &starts, element: usize::MAX / 4 }.end(4), None);
        let long = [usize::MAX, 8];
        for long in
            [Blocks::Lens(&long), Blocks::At { counts: &lens, starts: &long, element: 1 }, Blocks::Equal(usize::MAX)]
        {
            assert_eq!(long.end(2), None);
        }
        assert_eq!(Blocks::Counts { counts: &lens, element: usize::MAX }.end(1), None);
    }

    #[test]
    fn blocks_are_equal_or_not() {
        assert_eq!(Blocks::Equal(5).equal(3), Some((0, 5)));
        assert_eq!(Blocks::cut(24, 4, 3).equal(3), Some((0, 8)));
        assert_eq!(Blocks::cut(28, 4, 3).equal(3), None);
        assert_eq!(Blocks::Lens(&[4, 4, 5]).equal(3), None);
        assert_eq!(Blocks::Lens(&[4, 4, 5]).equal(2), Some((0, 4)));
        assert_eq!(Blocks::Lens(&[]).equal(0), Some((0, 0)));
        assert_eq!(Blocks::Counts { counts: &[2, 2], element: 8 }.equal(2), Some((0, 16)));
        assert_eq!(Blocks::At { counts: &[4, 4], starts: &[8, 12], element: 1 }.equal(2), Some((8, 4)));
        assert_eq!(Blocks::At { counts: &[4, 4], starts: &[8, 12], element: 8 }.equal(2), Some((64, 32)));
        assert_eq!(Blocks::At { counts: &[4, 4], starts: &[12, 8], element: 1 }.equal(2), None);
        assert_eq!(Blocks::At { counts: &[4, 3], starts: &[8, 12], element: 1 }.equal(2), None);
    }

    #[test]
    fn a_run_spans_its_blocks() {
        let whole = Span::new(Memory::Send, 0, 30);
        let lens = [3, 0, 5, 2];
        assert_eq!(Blocks::Lens(&lens).run(whole, 1, 3), whole.part(3, 5));
        assert_eq!(Blocks::Lens(&lens).run(whole, 2, 2).len(), 0);
        let places = Blocks::At { counts: &[3, 5, 2], starts: &[4, 7, 12], element: 1 };
        assert_eq!(places.run(whole, 0, 3), whole.part(4, 10));
        assert!(!Blocks::At { counts: &[3, 5, 2], starts: &[0, 7, 12], element: 1 }.follow_each_other());
        assert!(
            !Blocks::At { counts: &lens, starts: &[4, 7, 7, 12], element: 1 }.follow_each_other(),
            "one is anywhere"
        );
    }
}
