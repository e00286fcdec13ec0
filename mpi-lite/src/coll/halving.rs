//! Among a power of two of members: halves of an array exchanged and reduced until everybody has a block of the result, and
//! the way back. The parts of Rabenseifner's algorithms and of the reduction that scatters.

use super::Reduction;
use super::fold::Fold;
use super::schedule::{Schedule, Span};
use super::team::Team;

/// Reduces an array of `size` blocks, as `run` finds them, so that whoever is `number` has the result's block
/// `number`. For operators whose order doesn't matter.
///
/// log2(size) rounds; half the array is sent, then a quarter, and so on.
pub(super) fn reduce_scatter(
    schedule: &mut Schedule,
    team: Team,
    fold: &Fold,
    number: usize,
    run: impl Fn(usize, usize) -> Span,
    reduction: Reduction,
) {
    debug_assert!(reduction.commutative, "halves meet in no order of ranks");
    let (mut first, mut end) = (0, fold.size);
    // The first half that comes is as long as that which is kept, and the others are parts of it.
    let kept = if number < fold.size / 2 { run(0, fold.size / 2) } else { run(fold.size / 2, fold.size) };
    let room = schedule.scratch(if fold.size > 1 { kept.len() } else { 0 });
    while end - first > 1 {
        let half = (end - first) / 2;
        let middle = first + half;
        let ((keep_first, keep_end), (give_first, give_end)) =
            if number < middle { ((first, middle), (middle, end)) } else { ((middle, end), (first, middle)) };
        let peer = team.rank(fold.member(number ^ half));
        let keep = run(keep_first, keep_end);
        let came = room.part(0, keep.len());
        schedule.send(peer, run(give_first, give_end));
        schedule.receive(peer, came);
        schedule.combine(keep, came);
        // Nothing to combine, no border: yet the halves are of different rounds.
        schedule.next_round();
        (first, end) = (keep_first, keep_end);
    }
}

/// From everybody's block to all blocks at everybody's.
///
/// log2(size) rounds; a block is sent, then two, and so on.
pub(super) fn allgather(
    schedule: &mut Schedule,
    team: Team,
    fold: &Fold,
    number: usize,
    run: impl Fn(usize, usize) -> Span,
) {
    let mut have = 1;
    while have < fold.size {
        let first = number & !(have - 1);
        let peer = team.rank(fold.member(number ^ have));
        schedule.send(peer, run(first, first + have));
        schedule.receive(peer, run(first ^ have, (first ^ have) + have));
        schedule.next_round();
        have *= 2;
    }
}
