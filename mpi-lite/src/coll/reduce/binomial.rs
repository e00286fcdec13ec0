//! A binomial tree, the broadcast's upside down; see Thakur, Rabenseifner, Gropp, "Optimization of collective communication
//! operations in MPICH", 2005.
//!
//! Cost: floor(log2 p) L + ceil(log2 p) (2o + n G), and a message more where the order of ranks matters and the root isn't rank 0.

use crate::coll::accumulator::Accumulator;
use crate::coll::{Reduction, Schedule, Span, Team};

/// Partial results go up a tree; `output` is the root's, and where it is in place `input` is the same.
pub fn binomial(
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    input: Span,
    output: Option<Span>,
    reduction: Reduction,
) {
    debug_assert_eq!(team.me == root, output.is_some(), "the root has an output");
    let (top, is_root) = (if reduction.commutative { root } else { 0 }, team.me == root);
    let root = team.rank(root);
    let team = team.counted_from(top);
    let at_output = output.filter(|output| team.me == 0 && !output.overlaps(input));
    let has_children = team.me.is_multiple_of(2) && team.me + 1 < team.size;
    let room = match at_output {
        Some(output) => output,
        None => schedule.scratch(if has_children { input.len() } else { 0 }),
    };
    let mut partial = Accumulator::new(input, room, reduction.commutative);
    let mut distance = 1;
    while distance < team.size && team.me & distance == 0 {
        let child = team.me + distance;
        if child < team.size {
            schedule.receive(team.rank(child), partial.room());
            partial.append(schedule);
        }
        distance *= 2;
    }
    if team.me != 0 {
        schedule.send(team.rank(team.me - distance), partial.value());
        schedule.next_round();
    }
    match (team.me == 0, output) {
        (true, Some(output)) => schedule.copy(output, partial.value()),
        (true, None) => schedule.send(root, partial.value()),
        (false, Some(output)) if is_root => schedule.receive(team.rank(0), output),
        (false, _) => {}
    }
    schedule.next_round();
}
