//! A binomial tree; see Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
//!
//! Cost: floor(log2 p) (L + 2o) + (p - 1)/p n G.

use crate::coll::{Blocks, Schedule, Span, Team};

/// `block` is our part, as long as everybody's; `output` is the root's, for the blocks in the team's order. In place, the
/// root's part is there already.
pub fn binomial(schedule: &mut Schedule, team: Team, root: usize, block: Span, output: Option<Span>) {
    let len = block.len();
    let blocks = Blocks::Equal(len);
    if let Some(output) = output {
        schedule.copy(blocks.of(output, team.me), block);
    }
    let tree = team.counted_from(root);
    let rank = |number| tree.rank(number);
    match output {
        // The tree's order is the team's.
        Some(output) if root == 0 => up_tree(schedule, 0, team.size, rank, |first, end| blocks.run(output, first, end)),
        _ => {
            let subtree = if tree.me == 0 { tree.size } else { 1 << tree.me.trailing_zeros() };
            let subtree = subtree.min(tree.size - tree.me);
            // A leaf has nothing to put together.
            let work = if subtree == 1 { block } else { schedule.scratch(subtree * len) };
            schedule.copy(work.part(0, len), block);
            up_tree(schedule, tree.me, tree.size, rank, |first, end| {
                work.part((first - tree.me) * len, (end - first) * len)
            });
            if let Some(output) = output {
                let tail = (team.size - root) * len;
                schedule.copy(output.part(root * len, tail), work.part(0, tail));
                schedule.copy(output.part(0, root * len), work.part(tail, root * len));
            }
        }
    }
    schedule.next_round();
}

/// Runs of blocks go up a binomial tree of `size`, whose root is number 0, as `run` finds them.
pub(in crate::coll) fn up_tree(
    schedule: &mut Schedule,
    number: usize,
    size: usize,
    rank: impl Fn(usize) -> u32,
    run: impl Fn(usize, usize) -> Span,
) {
    schedule.next_round();
    let mut have = 1;
    while have < size && number & have == 0 {
        if number + have < size {
            schedule.receive(rank(number + have), run(number + have, (number + 2 * have).min(size)));
        }
        have *= 2;
    }
    schedule.next_round();
    if number != 0 {
        schedule.send(rank(number - have), run(number, (number + have).min(size)));
        schedule.next_round();
    }
}
