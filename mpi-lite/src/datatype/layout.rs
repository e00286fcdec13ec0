//! Where a type's bytes are: flattened as far as that makes them fewer, symbolic where there is a pattern.
//!
//! Runs that touch are one run, and a regular pattern is a count and a stride, however the type was put together: a column
//! of a matrix is one [`Shape::Strided`] of three numbers, a face of a cube a repetition of that.

use std::sync::Arc;

/// Bytes of memory in the order in which they are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Added to every place in `shape`.
    pub at: isize,
    /// Bytes in all.
    pub size: usize,
    pub shape: Shape,
}

/// Places are relative to the layout's `at`. Strides and places are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// All bytes one after another.
    Run,
    /// `count` blocks of `len` bytes, each `stride` after the one before.
    Strided { count: usize, len: usize, stride: isize },
    /// Blocks of one length at irregular places.
    Blocks { len: usize, places: Arc<[isize]> },
    /// Blocks of several lengths.
    Runs(Arc<[Run]>),
    /// `count` times the same, each `stride` after the one before.
    Repeat { count: usize, stride: isize, body: Arc<Layout> },
    /// Any layouts, one after another.
    Sequence(Arc<[Part]>),
}

/// One block of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub place: isize,
    /// Packed bytes up to its end; its length is what this exceeds the end of the run before by.
    pub end: usize,
}

/// One layout of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub layout: Layout,
    /// Packed bytes up to its end.
    pub end: usize,
}

impl Layout {
    pub const EMPTY: Self = Self::run(0, 0);

    pub const fn run(at: isize, size: usize) -> Self {
        Self { at, size, shape: Shape::Run }
    }

    /// The same, `by` bytes further on.
    pub fn shifted(mut self, by: isize) -> Self {
        self.at += by;
        self
    }

    /// `count` of it, each `stride` bytes after the one before. The caller has checked that no place overflows.
    pub fn repeated(&self, count: usize, stride: isize) -> Self {
        self.widened(count, stride).unwrap_or_else(|| Self {
            at: self.at,
            size: self.size * count,
            shape: Shape::Repeat { count, stride, body: Arc::new(Self { at: 0, ..self.clone() }) },
        })
    }

    /// As [`Self::repeated`], where that needs no memory; `None` elsewhere.
    pub fn widened(&self, count: usize, stride: isize) -> Option<Self> {
        let Self { at, size, .. } = *self;
        let shape = match &self.shape {
            _ if count == 0 || size == 0 => return Some(Self::EMPTY),
            _ if count == 1 => return Some(self.clone()),
            Shape::Run if stride == size as isize => Shape::Run,
            Shape::Run => Shape::Strided { count, len: size, stride },
            Shape::Strided { count: inner, len, stride: step } if continues(*inner, *step, stride) => {
                Shape::Strided { count: inner * count, len: *len, stride: *step }
            }
            Shape::Repeat { count: inner, body, stride: step } if continues(*inner, *step, stride) => {
                Shape::Repeat { count: inner * count, stride: *step, body: Arc::clone(body) }
            }
            _ => return None,
        };
        Some(Self { at, size: size * count, shape })
    }

    /// One after another.
    pub fn sequence(layouts: impl IntoIterator<Item = Self>) -> Self {
        let mut joined: Vec<Self> = Vec::new();
        for next in layouts {
            match joined.last_mut() {
                _ if next.size == 0 => {}
                Some(last) if last.ends_where(&next) => last.size += next.size,
                _ => joined.push(next),
            }
        }
        let (Some(first), Some(last)) = (joined.first(), joined.last()) else { return Self::EMPTY };
        let at = first.at;
        let size = joined.iter().map(|layout| layout.size).sum();
        if joined.len() == 1 {
            return last.clone();
        }
        if let Some(stride) = regular_stride(&joined) {
            return first.repeated(joined.len(), stride);
        }
        let mut end = 0;
        let ends = joined.iter().map(|layout| {
            end += layout.size;
            end
        });
        let shape = if !joined.iter().all(Self::is_run) {
            let parts = joined.iter().zip(ends);
            let relative = |layout: &Self| Self { at: layout.at - at, ..layout.clone() };
            Shape::Sequence(parts.map(|(layout, end)| Part { layout: relative(layout), end }).collect())
        } else if joined.iter().all(|layout| layout.size == first.size) {
            Shape::Blocks { len: first.size, places: joined.iter().map(|layout| layout.at - at).collect() }
        } else {
            Shape::Runs(joined.iter().zip(ends).map(|(layout, end)| Run { place: layout.at - at, end }).collect())
        };
        Self { at, size, shape }
    }

    pub fn is_run(&self) -> bool {
        matches!(self.shape, Shape::Run)
    }

    /// Whether both are runs and `next` begins where this one ends.
    fn ends_where(&self, next: &Self) -> bool {
        self.is_run() && next.is_run() && self.at + self.size as isize == next.at
    }
}

/// Whether copies that are `stride` apart, each of `count` pieces that are `step` apart, make one row of pieces.
fn continues(count: usize, step: isize, stride: isize) -> bool {
    step.checked_mul(count as isize) == Some(stride)
}

/// What each is behind the one before, if they are alike in all else.
fn regular_stride(layouts: &[Layout]) -> Option<isize> {
    let [first, second, ..] = layouts else { return None };
    let stride = second.at - first.at;
    let alike = |pair: &[Layout]| {
        pair[1].at - pair[0].at == stride && pair[0].size == pair[1].size && pair[0].shape == pair[1].shape
    };
    layouts.windows(2).all(alike).then_some(stride)
}
