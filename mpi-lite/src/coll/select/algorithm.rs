use std::fmt;

use super::Case;

/// What there are several ways for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum Collective {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
}

/// A way of doing a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as its file in the collective's folder")]
pub enum Algorithm {
    Dissemination,
    Binomial,
    ScatterAllgather,
    Chain {
        /// Bytes of a segment, at least 1.
        segment: usize,
    },
    Rabenseifner,
    RecursiveDoubling,
    RecursiveHalving,
    Ring,
    Pairwise,
    Doubling,
    Linear,
    Bruck,
    /// Within hosts and between them, on each level by what the table says there.
    TwoLevel,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scan => "scan",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
        }
    }

    /// Its algorithms. The first one can do every case.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Self::Barrier => &[Dissemination, TwoLevel],
            Self::Broadcast => &[Binomial, ScatterAllgather, Chain { segment: 16384 }, TwoLevel],
            Self::Reduce => &[Binomial, Rabenseifner, TwoLevel],
            Self::Allreduce => &[RecursiveDoubling, Rabenseifner, Ring, TwoLevel],
            Self::ReduceScatter => &[Pairwise, RecursiveHalving, TwoLevel],
            Self::Scan => &[Doubling],
            Self::Gather | Self::Scatter => &[Binomial, Linear, TwoLevel],
            Self::Allgather => &[Ring, Bruck, RecursiveDoubling, TwoLevel],
            Self::Alltoall => &[Pairwise, Bruck, Linear, TwoLevel],
        }
    }

    /// Whether `algorithm` is one of its, with whatever segments.
    pub fn has(self, algorithm: Algorithm) -> bool {
        self.algorithms().iter().any(|own| own.name() == algorithm.name())
    }
}

impl Algorithm {
    /// Its name in tables, without its segment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dissemination => "dissemination",
            Self::Binomial => "binomial",
            Self::ScatterAllgather => "scatter-allgather",
            Self::Chain { .. } => "chain",
            Self::Rabenseifner => "rabenseifner",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::RecursiveHalving => "recursive-halving",
            Self::Ring => "ring",
            Self::Pairwise => "pairwise",
            Self::Doubling => "doubling",
            Self::Linear => "linear",
            Self::Bruck => "bruck",
            Self::TwoLevel => "two-level",
        }
    }

    /// Whether it can do a case of a collective that has it: not all keep the ranks' order, or do with any number of ranks, and
    /// where no host has several ranks, or one has all, there are no two levels; nor where leaders would keep many MiB.
    pub fn can(self, case: Case) -> bool {
        match (case.collective, self) {
            (Collective::Reduce | Collective::Allreduce, Self::Rabenseifner | Self::Ring)
            | (Collective::ReduceScatter, Self::RecursiveHalving) => case.commutative,
            (collective, Self::TwoLevel) => {
                let differ = 1 < case.hosts && case.hosts < case.ranks && case.commutative;
                // What a leader keeps, where each host has as many ranks.
                let kept = case.ranks.div_ceil(case.hosts).saturating_mul(case.ranks).saturating_mul(case.bytes);
                differ && (collective != Collective::Alltoall || kept <= KEPT_MAX)
            }
            (Collective::Allgather, Self::RecursiveDoubling) => case.ranks.is_power_of_two(),
            _ => true,
        }
    }
}

/// Bytes that the ranks of a host give to an alltoall by their leader, at most. Beyond that copies take longer than messages, which were
/// measured with a sixteenth of it.
const KEPT_MAX: usize = 1 << 20;

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain { segment } => f.pad(&format!("chain:{segment}")),
            _ => f.pad(self.name()),
        }
    }
}
