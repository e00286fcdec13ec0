//! A gather on each host, an allgather among the leaders, and a broadcast on each host. Träff, "Efficient allgather for regular
//! SMP-clusters", 2006.
//!
//! Cost: ceil(log2 h) (L + 2o) + (h - 1)/h n G + 2 ceil(log2 k) (L' + 2o') + (ceil(log2 k) + (k - 1)/p) n G', and a copy of n bytes at
//! everybody's where hosts do not follow each other in the order of ranks. Between hosts go ceil(log2 h) messages from each.

use super::{Direction, Levels};
use crate::coll::{Blocks, Collective, Schedule, Span, allgather as on_one_level, gather};

/// Blocks of `len` bytes to all. In place, `block` is ours of `output`.
pub fn allgather(schedule: &mut Schedule, levels: &Levels, block: Span, output: Span, len: usize) {
    debug_assert_eq!(block.len(), len);
    by_leaders(schedule, levels, output, Blocks::Equal(len), |schedule, on_host| {
        levels.gather(schedule, block, on_host);
    });
}

/// Blocks of any lengths to all. In place, `block` is ours of `output`.
pub fn allgatherv(schedule: &mut Schedule, levels: &Levels, block: Span, output: Span, blocks: Blocks) {
    let lens = levels.lens_here(blocks);
    by_leaders(schedule, levels, output, blocks, |schedule, on_host| {
        let on_host = on_host.map(|on_host| (on_host, Blocks::Lens(&lens)));
        gather::linear(schedule, levels.ours(), levels.place_of_leader(), block, on_host);
    });
}

/// `gather` takes what our host's ranks give to its leader, into the place that it is told.
fn by_leaders(
    schedule: &mut Schedule,
    levels: &Levels,
    output: Span,
    blocks: Blocks,
    gather: impl FnOnce(&mut Schedule, Option<Span>),
) {
    let lens = levels.lens(blocks);
    let total = lens.iter().sum();
    // Each for itself: what goes between ranks is in the order of hosts anyway.
    let apart = !(levels.are_in_order() && blocks.follow_each_other());
    let whole = if apart { schedule.scratch(total) } else { blocks.run(output, 0, levels.hosts.ranks()) };
    let of_hosts = Blocks::Lens(&lens);
    let on_host = levels.leaders().map(|leaders| of_hosts.of(whole, leaders.me));
    gather(schedule, on_host);
    if let Some((leaders, on_host)) = levels.leaders().zip(on_host) {
        let algorithm = levels.choose(Collective::Allgather, leaders, total / leaders.size);
        on_one_level::build(algorithm, schedule, leaders, on_host, whole, of_hosts);
    }
    levels.broadcast(schedule, whole);
    if apart {
        levels.copy(schedule, Direction::Unpack, output, whole, blocks);
    }
}
