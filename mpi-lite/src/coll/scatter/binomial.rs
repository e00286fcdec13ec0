//! A binomial tree; see Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
//!
//! Cost: floor(log2 p) (L + 2o) + (p - 1)/p n G.

use crate::coll::{Blocks, Schedule, Span, Team};

/// `block` is our part, of `len` bytes as everybody's, and nowhere if it stays in place; `input` is the root's, with the
/// blocks in the team's order.
pub fn binomial(
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    len: usize,
    block: Option<Span>,
    input: Option<Span>,
) {
    let tree = team.counted_from(root);
    let subtree = if tree.me == 0 { tree.size } else { 1 << tree.me.trailing_zeros() };
    let subtree = subtree.min(tree.size - tree.me);
    let work = match (input, block) {
        // The tree's order is the team's.
        (Some(input), _) if root == 0 => input,
        (Some(input), _) => {
            let work = schedule.scratch(input.len());
            let tail = (team.size - root) * len;
            schedule.copy(work.part(0, tail), input.part(root * len, tail));
            schedule.copy(work.part(tail, root * len), input.part(0, root * len));
            schedule.next_round();
            work
        }
        // A leaf has nothing to pass on.
        (None, Some(block)) if subtree == 1 => block,
        (None, _) => schedule.scratch(subtree * len),
    };
    let blocks = Blocks::Equal(len);
    down_tree(schedule, tree, |first, end| blocks.run(work, first - tree.me, end - tree.me));
    if let Some(block) = block {
        schedule.copy(block, work.part(0, len));
    }
    schedule.next_round();
}

/// Runs of blocks go down a binomial tree, whose root is number 0, as `run` finds them.
pub(in crate::coll) fn down_tree(schedule: &mut Schedule, team: Team, run: impl Fn(usize, usize) -> Span) {
    let subtree = if team.me == 0 { team.size.next_power_of_two() } else { 1 << team.me.trailing_zeros() };
    if team.me != 0 {
        schedule.receive(team.rank(team.me - subtree), run(team.me, (team.me + subtree).min(team.size)));
        schedule.next_round();
    }
    // The largest subtree first: it has the longest way to go.
    let mut half = subtree / 2;
    while half > 0 {
        let child = team.me + half;
        if child < team.size {
            schedule.send(team.rank(child), run(child, (child + half).min(team.size)));
        }
        half /= 2;
    }
    schedule.next_round();
}
