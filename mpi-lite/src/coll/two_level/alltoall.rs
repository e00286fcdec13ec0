//! All that a host's ranks send goes to its leader, from there to each other host as one message, and to the ranks that it is for. Träff,
//! "Improved MPI all-to-all communication on a Giganet SMP cluster", 2002.
//!
//! Cost, of n bytes that each gives: (h - 1) (o + k n/h G) + L + 2 floor(log2 k) (L' + 2o') + 2 (k - 1) n G', and two copies of k n bytes
//! at each leader. Between hosts goes one message from each to each.

use super::Levels;
use crate::coll::{Blocks, Collective, Schedule, Span, Team, alltoall as on_one_level};

/// Blocks of `len` bytes, from each to each. In place, `input` is `output`.
pub fn alltoall(schedule: &mut Schedule, levels: &Levels, input: Span, output: Span, len: usize) {
    let whole = levels.hosts.ranks() * len;
    let on_host = levels.leads().then(|| schedule.scratch(levels.ours().size * whole));
    levels.gather(schedule, input, on_host);
    if let Some((leaders, on_host)) = levels.leaders().zip(on_host) {
        between_hosts(schedule, levels, leaders, on_host, len);
    }
    levels.scatter(schedule, whole, (on_host, Some(output)));
}

/// From what each rank `on_host` sends to everybody to what each receives from everybody, one rank after the other.
fn between_hosts(schedule: &mut Schedule, levels: &Levels, leaders: Team, on_host: Span, len: usize) {
    let size = levels.ours().size;
    let lens = levels.lens(Blocks::Equal(size * len));
    let blocks = Blocks::Lens(&lens);
    let (outgoing, incoming) = (schedule.scratch(on_host.len()), schedule.scratch(on_host.len()));
    // The block of one of us for a rank, or from it.
    let block = |us: usize, rank: u32| on_host.part((us * levels.hosts.ranks() + rank as usize) * len, len);
    // A message is in the order of its senders, and for each in that of those whom it is for.
    let mut places = (0..).map(|place| outgoing.part(place * len, len));
    for host in 0..leaders.size {
        for us in 0..size {
            levels.on(host).iter().zip(&mut places).for_each(|(rank, place)| schedule.copy(place, block(us, *rank)));
        }
    }
    schedule.next_round();
    if levels.are_even() {
        let algorithm = levels.choose(Collective::Alltoall, leaders, lens[0]);
        on_one_level::build(algorithm, schedule, leaders, outgoing, incoming, lens[0]);
    } else {
        on_one_level::linear(schedule, leaders, (outgoing, blocks), (incoming, blocks));
    }
    let mut places = (0..).map(|place| incoming.part(place * len, len));
    for rank in levels.ranks() {
        (0..size).zip(&mut places).for_each(|(us, place)| schedule.copy(block(us, rank), place));
    }
    schedule.next_round();
}
