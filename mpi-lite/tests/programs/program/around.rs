//! Whom ranks have around them, in a grid or a graph: from whom and to whom the blocks of neighbours' calls go.

/// Whom ranks have around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Around {
    Nobody,
    Grid(Vec<(u32, bool)>),
    /// Of each rank.
    Graph(Vec<Neighbors>),
}

/// Whom a rank of a graph receives from and sends to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbors {
    pub sources: Vec<u32>,
    pub destinations: Vec<u32>,
}

impl Around {
    pub fn is_nobody(&self) -> bool {
        *self == Self::Nobody
    }

    pub fn is_grid(&self) -> bool {
        matches!(self, Self::Grid(_))
    }

    /// Where each block that comes to `rank` is from, and which one it is of those that go out there; `None` beyond a border.
    pub fn sources(&self, rank: u64) -> Vec<Option<(u64, u64)>> {
        match self {
            Self::Nobody => Vec::new(),
            // What comes from below was sent upwards.
            Self::Grid(sides) => {
                let beside = neighbors(sides, rank).into_iter().zip(0u64..);
                beside.map(|(from, slot)| Some((from?, slot ^ 1))).collect()
            }
            // Between two ranks edges are in one order.
            Self::Graph(all) => {
                let sources = &all[rank as usize].sources;
                let slot = |(at, from): (usize, &u32)| {
                    let before = sources[..at].iter().filter(|other| *other == from).count();
                    let to = all[*from as usize].destinations.iter().zip(0u64..);
                    let mut to_us = to.filter(|(to, _)| u64::from(**to) == rank);
                    let (_, slot) = to_us.nth(before).expect("whoever is received from sends");
                    Some((u64::from(*from), slot))
                };
                sources.iter().enumerate().map(slot).collect()
            }
        }
    }

    /// How many blocks go out from `rank`.
    pub fn destinations(&self, rank: u64) -> u64 {
        match self {
            Self::Nobody => 0,
            Self::Grid(sides) => 2 * sides.len() as u64,
            Self::Graph(all) => all[rank as usize].destinations.len() as u64,
        }
    }
}

/// Below and above in each dimension, row-major (MPI-4.1 8.6).
fn neighbors(grid: &[(u32, bool)], rank: u64) -> Vec<Option<u64>> {
    let strides: Vec<u64> =
        (0..grid.len()).map(|at| grid[at + 1..].iter().map(|(size, _)| u64::from(*size)).product()).collect();
    let sides = grid.iter().zip(strides);
    sides
        .flat_map(|((size, periodic), stride)| {
            let (size, at) = (u64::from(*size), rank / stride % u64::from(*size));
            let next = |to: Option<u64>| to.map(|to| rank - at * stride + to * stride);
            let below = if at > 0 { Some(at - 1) } else { periodic.then_some(size - 1) };
            let above = if at + 1 < size { Some(at + 1) } else { periodic.then_some(0) };
            [next(below), next(above)]
        })
        .collect()
}
