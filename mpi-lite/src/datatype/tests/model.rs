//! The model: a type map as a plain list, built entry by entry from the standard's definitions (MPI-4.1 5.1).

use proptest::prelude::*;

use super::*;

/// Larger types say nothing new and take long.
const ENTRIES_MAX: usize = 300;

/// A type map.
#[derive(Debug, Clone)]
pub struct Model {
    pub map: Vec<(Predefined, isize)>,
    /// Lower and upper markers. They come in pairs, since `resized` and arrays set both.
    markers: Vec<(isize, isize)>,
}

impl Model {
    pub fn bounds(&self) -> (isize, isize) {
        let marked = (self.markers.iter().map(|pair| pair.0).min(), self.markers.iter().map(|pair| pair.1).max());
        if let (Some(low), Some(high)) = marked {
            return (low, high);
        }
        let low = self.map.iter().map(|(_, at)| *at).min().unwrap_or(0);
        let end = |kind: Predefined| match kind.repr() {
            Repr::Pair(_, index) => kind.second_at() + index.size(),
            _ => kind.size(),
        };
        let mut high = self.map.iter().map(|(kind, at)| at + end(*kind) as isize).max().unwrap_or(0);
        let alignment = self.map.iter().map(|(kind, _)| kind.alignment()).max().unwrap_or(1) as isize;
        while (high - low) % alignment != 0 {
            high += 1;
        }
        (low, high)
    }

    fn extent(&self) -> isize {
        let (low, high) = self.bounds();
        high - low
    }

    fn at(&self, by: isize) -> Self {
        Self {
            map: self.map.iter().map(|(kind, at)| (*kind, at + by)).collect(),
            markers: self.markers.iter().map(|(low, high)| (low + by, high + by)).collect(),
        }
    }

    fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self { map: vec![], markers: vec![] }, |mut all, part| {
            all.map.extend(part.map);
            all.markers.extend(part.markers);
            all
        })
    }

    /// Copies at these places.
    fn copies(&self, places: impl IntoIterator<Item = isize>) -> Self {
        Self::join(places.into_iter().map(|place| self.at(place)))
    }

    fn block(&self, length: usize, at: isize) -> Self {
        self.copies((0..length as isize).map(|index| at + index * self.extent()))
    }

    /// Elements of an array of `sizes`, those that `keep` names by their indices.
    fn array(&self, sizes: &[usize], order: Order, keep: impl Fn(&[usize]) -> bool) -> Self {
        let total: usize = sizes.iter().product();
        let kept = (0..total).filter(|linear| {
            let mut rest = *linear;
            let mut indices = vec![0; sizes.len()];
            let dimensions: Vec<usize> = match order {
                Order::C => (0..sizes.len()).rev().collect(),
                Order::Fortran => (0..sizes.len()).collect(),
            };
            for dimension in dimensions {
                indices[dimension] = rest % sizes[dimension];
                rest /= sizes[dimension];
            }
            keep(&indices)
        });
        let kept = self.copies(kept.map(|linear| linear as isize * self.extent()));
        Self { markers: vec![(0, total as isize * self.extent())], ..kept }
    }

    pub fn elements(&self, count: usize) -> impl Iterator<Item = (Predefined, isize)> {
        let extent = self.extent();
        (0..count as isize).flat_map(move |index| self.map.iter().map(move |(kind, at)| (*kind, at + index * extent)))
    }

    /// The place of every byte of data, in packed order.
    pub fn bytes(&self, count: usize) -> Vec<isize> {
        let byte = |(kind, at): (Predefined, isize)| -> Vec<isize> {
            let (first, second) = match kind.repr() {
                Repr::Pair(value, index) => (value.size(), index.size()),
                _ => (kind.size(), 0),
            };
            let second = (0..second).map(|index| kind.second_at() + index);
            (0..first).chain(second).map(|place| at + place as isize).collect()
        };
        self.elements(count).flat_map(byte).collect()
    }
}

/// How to make a type, and its model alike.
#[derive(Debug, Clone)]
pub enum Spec {
    Named(Predefined),
    Dup(Box<Spec>),
    Contiguous(usize, Box<Spec>),
    Vector(usize, usize, isize, Box<Spec>),
    Hvector(usize, usize, isize, Box<Spec>),
    Indexed(Vec<(usize, isize)>, Box<Spec>),
    Hindexed(Vec<(usize, isize)>, Box<Spec>),
    IndexedBlock(usize, Vec<isize>, Box<Spec>),
    HindexedBlock(usize, Vec<isize>, Box<Spec>),
    Struct(Vec<(usize, isize, Spec)>),
    Resized(isize, isize, Box<Spec>),
    Subarray(Vec<(usize, usize, usize)>, Order, Box<Spec>),
    Darray(usize, Vec<Dimension>, Order, Box<Spec>),
}

impl Spec {
    /// The type and its model; `None` when that is too large to be of use.
    pub fn build(&self) -> Option<(Datatype, Model)> {
        let built = match self {
            Self::Named(kind) => (Datatype::from(*kind), Model { map: vec![(*kind, 0)], markers: vec![] }),
            Self::Dup(of) => {
                let (of, model) = of.build()?;
                (of.dup().unwrap(), model)
            }
            Self::Contiguous(count, of) => {
                let (of, model) = of.build()?;
                (Datatype::contiguous(*count, &of).unwrap(), model.block(*count, 0))
            }
            Self::Vector(count, length, stride, of) => {
                let (of, model) = of.build()?;
                let blocks = (0..*count as isize).map(|index| model.block(*length, index * stride * model.extent()));
                (Datatype::vector(*count, *length, *stride, &of).unwrap(), Model::join(blocks))
            }
            Self::Hvector(count, length, stride, of) => {
                let (of, model) = of.build()?;
                let blocks = (0..*count as isize).map(|index| model.block(*length, index * stride));
                (Datatype::hvector(*count, *length, *stride, &of).unwrap(), Model::join(blocks))
            }
            Self::Indexed(blocks, of) => {
                let (of, model) = of.build()?;
                let (lengths, places): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
                let blocks = blocks.iter().map(|(length, at)| model.block(*length, at * model.extent()));
                (Datatype::indexed(&lengths, &places, &of).unwrap(), Model::join(blocks))
            }
            Self::Hindexed(blocks, of) => {
                let (of, model) = of.build()?;
                let (lengths, places): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
                let blocks = blocks.iter().map(|(length, at)| model.block(*length, *at));
                (Datatype::hindexed(&lengths, &places, &of).unwrap(), Model::join(blocks))
            }
            Self::IndexedBlock(length, places, of) => {
                let (of, model) = of.build()?;
                let blocks = places.iter().map(|at| model.block(*length, at * model.extent()));
                (Datatype::indexed_block(*length, places, &of).unwrap(), Model::join(blocks))
            }
            Self::HindexedBlock(length, places, of) => {
                let (of, model) = of.build()?;
                let blocks = places.iter().map(|at| model.block(*length, *at));
                (Datatype::hindexed_block(*length, places, &of).unwrap(), Model::join(blocks))
            }
            Self::Struct(blocks) => {
                let parts: Vec<_> = blocks.iter().map(|(_, _, of)| of.build()).collect::<Option<_>>()?;
                let (types, models): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
                let (lengths, places): (Vec<_>, Vec<_>) = blocks.iter().map(|(length, at, _)| (*length, *at)).unzip();
                let blocks = blocks.iter().zip(&models).map(|((length, at, _), model)| model.block(*length, *at));
                (Datatype::structure(&lengths, &places, &types).unwrap(), Model::join(blocks))
            }
            Self::Resized(low, extent, of) => {
                let (of, model) = of.build()?;
                let markers = vec![(*low, low + extent)];
                (of.resized(*low, *extent).unwrap(), Model { markers, ..model })
            }
            Self::Subarray(dimensions, order, of) => {
                let (of, model) = of.build()?;
                let sizes: Vec<_> = dimensions.iter().map(|dimension| dimension.0).collect();
                let parts: Vec<_> = dimensions.iter().map(|dimension| dimension.1).collect();
                let starts: Vec<_> = dimensions.iter().map(|dimension| dimension.2).collect();
                let inside = |indices: &[usize]| {
                    indices.iter().zip(dimensions).all(|(at, (_, part, start))| at >= start && *at < start + part)
                };
                let array = model.array(&sizes, *order, inside);
                (Datatype::subarray(&sizes, &parts, &starts, *order, &of).unwrap(), array)
            }
            Self::Darray(rank, dimensions, order, of) => {
                let (of, model) = of.build()?;
                let sizes: Vec<_> = dimensions.iter().map(|dimension| dimension.size).collect();
                let owner = |dimension: &Dimension, index: usize| match dimension.distribution {
                    Distribution::None => 0,
                    Distribution::Block(None) => index / dimension.size.div_ceil(dimension.processes),
                    Distribution::Block(Some(block)) => index / block,
                    Distribution::Cyclic(block) => index / block.unwrap_or(1) % dimension.processes,
                };
                // The process grid is numbered in row-major order.
                let owned = |indices: &[usize]| {
                    let grid = dimensions.iter().zip(indices);
                    grid.fold(0, |at, (each, index)| at * each.processes + owner(each, *index)) == *rank
                };
                let array = model.array(&sizes, *order, owned);
                (Datatype::darray(*rank, dimensions, *order, &of).unwrap(), array)
            }
        };
        (built.1.map.len() <= ENTRIES_MAX).then_some(built)
    }
}

/// Types that hold no numbers which the portable format has in another size, so that one model of that format does for all.
const LEAVES: [Predefined; 8] = [
    Predefined::Byte,
    Predefined::Short,
    Predefined::Int,
    Predefined::Double,
    Predefined::ShortInt,
    Predefined::DoubleInt,
    Predefined::CFloatComplex,
    Predefined::Integer16,
];

/// Trees of at most three constructors above a predefined type.
pub fn spec() -> impl Strategy<Value = Spec> {
    let leaf = prop::sample::select(&LEAVES[..]).prop_map(Spec::Named);
    leaf.prop_recursive(3, 12, 3, |inner| {
        let of = || inner.clone().prop_map(Box::new);
        let order = || prop_oneof![Just(Order::C), Just(Order::Fortran)];
        let places = || prop::collection::vec((0..4usize, -9..9isize), 0..5);
        prop_oneof![
            of().prop_map(Spec::Dup),
            (0..4usize, of()).prop_map(|(count, of)| Spec::Contiguous(count, of)),
            (0..4usize, 0..4usize, -5..6isize, of()).prop_map(|(c, b, s, of)| Spec::Vector(c, b, s, of)),
            (0..4usize, 0..4usize, -50..60isize, of()).prop_map(|(c, b, s, of)| Spec::Hvector(c, b, s, of)),
            (places(), of()).prop_map(|(blocks, of)| Spec::Indexed(blocks, of)),
            (places(), of()).prop_map(|(blocks, of)| Spec::Hindexed(blocks, of)),
            (0..3usize, prop::collection::vec(-9..9isize, 0..5), of())
                .prop_map(|(length, places, of)| Spec::IndexedBlock(length, places, of)),
            (0..3usize, prop::collection::vec(-40..40isize, 0..5), of())
                .prop_map(|(length, places, of)| Spec::HindexedBlock(length, places, of)),
            prop::collection::vec((0..3usize, -40..40isize, inner.clone()), 0..4).prop_map(Spec::Struct),
            (-20..20isize, -40..60isize, of()).prop_map(|(low, extent, of)| Spec::Resized(low, extent, of)),
            (prop::collection::vec(part(), 1..4), order(), of())
                .prop_map(|(d, order, of)| Spec::Subarray(d, order, of)),
            (prop::collection::vec(dimension(), 1..3), order(), of(), any::<prop::sample::Index>()).prop_map(
                |(dimensions, order, of, rank)| {
                    let grid = dimensions.iter().map(|dimension| dimension.processes).product();
                    Spec::Darray(rank.index(grid), dimensions, order, of)
                }
            ),
        ]
    })
}

/// Size, part and start of one dimension.
fn part() -> impl Strategy<Value = (usize, usize, usize)> {
    (0..3usize, 1..4usize, 0..3usize).prop_map(|(before, part, after)| (before + part + after, part, before))
}

fn dimension() -> impl Strategy<Value = Dimension> {
    (1..9usize, 1..4usize, 0..5usize, 1..4usize).prop_map(|(size, processes, way, block)| match way {
        0 => Dimension { size, processes: 1, distribution: Distribution::None },
        1 => Dimension { size, processes, distribution: Distribution::Block(None) },
        2 => {
            Dimension { size, processes, distribution: Distribution::Block(Some(size.div_ceil(processes) + block - 1)) }
        }
        3 => Dimension { size, processes, distribution: Distribution::Cyclic(None) },
        _ => Dimension { size, processes, distribution: Distribution::Cyclic(Some(block)) },
    })
}
