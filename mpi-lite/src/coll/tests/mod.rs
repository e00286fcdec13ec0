//! Every algorithm against a model that knows everybody's input, and against the cost it states.

mod cases;
pub(crate) mod composed;
mod costs;
mod fit;
mod moved;
mod neighbors;
pub(crate) mod play;
mod reduced;
mod two_level;

use super::{Reduction, Schedule, Team};
use play::{Operator, Play};

/// Adds 32-bit numbers.
pub(super) const ADD: (Operator, Reduction) = (
    |into, from| {
        for (into, from) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
            let sum =
                u32::from_le_bytes(into.try_into().unwrap()).wrapping_add(u32::from_le_bytes(from.try_into().unwrap()));
            into.copy_from_slice(&sum.to_le_bytes());
        }
    },
    Reduction { element: 4, commutative: true },
);

/// [`composed::compose`], whose order matters.
pub(super) const COMPOSE: (Operator, Reduction) = (composed::compose, composed::COMPOSE);

/// A call of every rank, built by `build` from its team, with the send and receive buffers as `buffers` says.
pub(super) fn play(
    ranks: usize,
    seed: u64,
    mut buffers: impl FnMut(usize) -> (Vec<u8>, Vec<u8>),
    mut build: impl FnMut(&mut Schedule, Team<'static>),
) -> Play {
    play_any(ranks, seed, &mut buffers, &mut build)
}

/// One function for all calls.
fn play_any(
    ranks: usize,
    seed: u64,
    buffers: &mut dyn FnMut(usize) -> (Vec<u8>, Vec<u8>),
    build: &mut dyn FnMut(&mut Schedule, Team<'static>),
) -> Play {
    let ranks = (0..ranks).map(|rank| {
        let (send, receive) = buffers(rank);
        let mut schedule = Schedule::new();
        schedule.begin(send.len(), receive.len());
        build(&mut schedule, Team::all(rank, ranks));
        schedule.check().unwrap_or_else(|clash| panic!("rank {rank} of {ranks}: {clash}"));
        (schedule, send, receive)
    });
    Play::new(seed, ranks)
}
