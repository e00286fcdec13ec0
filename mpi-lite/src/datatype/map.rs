//! Type maps, and the three ways in which every constructor puts them together: shift, repeat, one after another.

use std::sync::Arc;

use super::elements::Elements;
use super::layout::Layout;
use super::{Overflow, Predefined, Repr};

/// What a datatype means: its bytes, its elements and its bounds. MPI-4.1 5.1 calls this a type map.
#[derive(Debug, Clone)]
pub(super) struct Map {
    pub layout: Layout,
    pub elements: Elements,
    /// From the first byte of data to behind the last; `None` without data.
    pub data: Option<Bounds>,
    /// Bounds that `resized` and arrays set, which hold whatever the data (`lb_marker`, `ub_marker` in MPI-4.1 5.1.7).
    pub marked: Option<Bounds>,
    /// The largest alignment among the elements.
    pub alignment: usize,
}

/// Bytes relative to a buffer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub low: isize,
    pub high: isize,
}

impl Map {
    pub const EMPTY: Self =
        Self { layout: Layout::EMPTY, elements: Elements::None, data: None, marked: None, alignment: 1 };

    pub fn predefined(kind: Predefined) -> Self {
        let runs = match kind.repr() {
            Repr::Pair(value, index) => {
                Layout::sequence([Layout::run(0, value.size()), Layout::run(kind.second_at() as isize, index.size())])
            }
            _ => Layout::run(0, kind.size()),
        };
        let high = match kind.repr() {
            Repr::Pair(_, index) => kind.second_at() + index.size(),
            _ => kind.size(),
        };
        Self {
            layout: runs,
            elements: Elements::One(kind),
            data: Some(Bounds { low: 0, high: high as isize }),
            marked: None,
            alignment: kind.alignment(),
        }
    }

    /// Lower and upper bound (MPI-4.1 5.1.7). Without markers the extent is what the data takes, rounded up to its alignment.
    pub fn bounds(&self) -> Result<Bounds, Overflow> {
        match (self.marked, self.data) {
            (Some(marked), _) => Ok(marked),
            (None, None) => Ok(Bounds { low: 0, high: 0 }),
            (None, Some(Bounds { low, high })) => {
                let span = high.checked_sub(low).ok_or(Overflow)? as usize;
                let extent = span.checked_next_multiple_of(self.alignment).ok_or(Overflow)?;
                let extent = isize::try_from(extent).map_err(|_| Overflow)?;
                Ok(Bounds { low, high: low.checked_add(extent).ok_or(Overflow)? })
            }
        }
    }

    pub fn shifted(self, by: isize) -> Result<Self, Overflow> {
        let shift = |bounds: Option<Bounds>| bounds.map(|bounds| bounds.shifted(by)).transpose();
        Ok(Self {
            data: shift(self.data)?,
            marked: shift(self.marked)?,
            layout: if self.data.is_some() { self.layout.shifted(by) } else { Layout::EMPTY },
            elements: match self.elements {
                Elements::None => Elements::None,
                elements if by == 0 => elements,
                elements => Elements::Sequence(Arc::new([(by, elements)])),
            },
            alignment: self.alignment,
        })
    }

    /// `count` of it, each `stride` bytes after the one before.
    pub fn repeated(&self, count: usize, stride: isize) -> Result<Self, Overflow> {
        let Some(last) = count.checked_sub(1) else { return Ok(Self::EMPTY) };
        if last == 0 {
            return Ok(self.clone());
        }
        isize::try_from(count).ok().and_then(|count| count.checked_mul(self.layout.size as isize)).ok_or(Overflow)?;
        let last = isize::try_from(last).map_err(|_| Overflow)?.checked_mul(stride).ok_or(Overflow)?;
        let spread = |bounds: Option<Bounds>| bounds.map(|bounds| bounds.hull(bounds.shifted(last)?)).transpose();
        let (data, marked) = (spread(self.data)?, spread(self.marked)?);
        Ok(Self {
            layout: self.layout.repeated(count, stride),
            elements: match self.elements {
                Elements::None => Elements::None,
                _ => Elements::Repeat { count, stride, body: Arc::new(self.elements.clone()) },
            },
            data,
            marked,
            alignment: self.alignment,
        })
    }

    /// One after another in the order of the type map, each where it is.
    pub fn sequence(mut maps: Vec<Self>) -> Result<Self, Overflow> {
        if maps.len() == 1 {
            return Ok(maps.remove(0));
        }
        let sizes = maps.iter().try_fold(0isize, |sum, map| sum.checked_add(map.layout.size as isize));
        sizes.ok_or(Overflow)?;
        let data = hull(maps.iter().filter_map(|map| map.data))?;
        let marked = hull(maps.iter().filter_map(|map| map.marked))?;
        let elements = maps.iter().filter(|map| map.data.is_some()).map(|map| (0, map.elements.clone())).collect();
        Ok(Self {
            layout: Layout::sequence(maps.iter().map(|map| map.layout.clone())),
            elements: Elements::Sequence(elements),
            data,
            marked,
            alignment: maps.iter().map(|map| map.alignment).max().unwrap_or(1),
        })
    }
}

impl Bounds {
    fn shifted(self, by: isize) -> Result<Self, Overflow> {
        let low = self.low.checked_add(by).ok_or(Overflow)?;
        Ok(Self { low, high: self.high.checked_add(by).ok_or(Overflow)? })
    }

    /// Both. That no distance within exceeds an `isize` is what layouts may take for granted.
    fn hull(self, other: Self) -> Result<Self, Overflow> {
        let (low, high) = (self.low.min(other.low), self.high.max(other.high));
        high.checked_sub(low).ok_or(Overflow)?;
        Ok(Self { low, high })
    }

    pub fn len(self) -> isize {
        self.high - self.low
    }
}

fn hull(bounds: impl Iterator<Item = Bounds>) -> Result<Option<Bounds>, Overflow> {
    let mut bounds = bounds;
    let Some(first) = bounds.next() else { return Ok(None) };
    bounds.try_fold(first, Bounds::hull).map(Some)
}
