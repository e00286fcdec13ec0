//! Calls of ranks on one host whose lengths do not fit: an error for all, and nobody waits for ever.

use super::*;
use crate::coll::neighbor::Neighbors;

/// How ranks make a call.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Those of few bytes without a future.
    Waits,
    /// All by a future.
    WaitsLong,
    Begun,
}

/// What one rank makes of a call with `len` bytes for each: the call, what it gives, and room.
type Part = fn(usize, usize) -> (Call<'static>, usize, usize);

const SIZE: usize = 3;
const ROOT: usize = 1;

const PARTS: [Part; 14] = [
    |_, len| (Call::Broadcast { root: ROOT }, 0, len),
    |rank, len| (Call::Reduce { root: ROOT, reduction: COMPOSE }, len, at_root(rank, len)),
    |_, len| (Call::Allreduce { reduction: COMPOSE }, len, len),
    |_, len| (Call::ReduceScatter { blocks: Blocks::Equal(len), reduction: COMPOSE }, SIZE * len, len),
    |_, len| (Call::Scan { reduction: COMPOSE }, len, len),
    |_, len| (Call::Exscan { reduction: COMPOSE }, len, len),
    |rank, len| (Call::Gather { root: ROOT, len }, len, at_root(rank, SIZE * len)),
    |rank, len| {
        let blocks = (rank == ROOT).then_some(Blocks::Equal(len));
        (Call::Gatherv { root: ROOT, blocks }, len, at_root(rank, SIZE * len))
    },
    |rank, len| (Call::Scatter { root: ROOT, len }, at_root(rank, SIZE * len), len),
    |rank, len| {
        let blocks = (rank == ROOT).then_some(Blocks::Equal(len));
        (Call::Scatterv { root: ROOT, blocks }, at_root(rank, SIZE * len), len)
    },
    |_, len| (Call::Allgather { len }, len, SIZE * len),
    |_, len| (Call::Allgatherv { blocks: Blocks::Equal(len) }, len, SIZE * len),
    |_, len| (Call::Alltoall { len }, SIZE * len, SIZE * len),
    |_, len| (Call::Alltoallv { to: Blocks::Equal(len), from: Blocks::Equal(len) }, SIZE * len, SIZE * len),
];

/// Every kind in every form in which it goes by memory.
fn forms() -> Vec<(Form, Part)> {
    let all = [Form::Waits, Form::WaitsLong, Form::Begun];
    let mut forms: Vec<_> = all.into_iter().flat_map(|form| PARTS.map(|part| (form, part))).collect();
    // Those whose blocks have lengths of their own are begun by messages.
    forms.retain(|(form, part)| !(matches!(form, Form::Begun) && has_lengths_of_its_own(part(ROOT, 4).0)));
    forms
}

fn has_lengths_of_its_own(call: Call) -> bool {
    matches!(call, Call::Gatherv { .. } | Call::Scatterv { .. } | Call::Allgatherv { .. } | Call::Alltoallv { .. })
}

fn at_root(rank: usize, len: usize) -> usize {
    if rank == ROOT { len } else { 0 }
}

/// Makes a call, and a barrier behind it: who has only given learns of it there.
fn make(
    ranks: &mut Ranks,
    device: &mut Device,
    form: Form,
    call: Call,
    given: &[u8],
    room: &mut [u8],
) -> Option<Error> {
    let wait = |ranks: &mut Ranks, device: &mut Device, call: Call, given: &[u8], room: &mut [u8]| {
        let few = matches!(form, Form::Waits) && given.len() <= FEW;
        let done = if few { ranks.call_few(device, &call, Some(given), room, Some(compose)) } else { None };
        done.unwrap_or_else(|| ranks.call(device, call, Some(given), room, &mut compose))
    };
    if !matches!(form, Form::Begun) {
        let first = wait(ranks, device, call, given, room);
        return first.and_then(|()| wait(ranks, device, Call::Barrier, &[], &mut [])).err();
    }
    let mut ended = Ok(());
    for (call, given, room) in [(call, given, room), (Call::Barrier, &[][..], &mut [][..])] {
        if let Some(done) = at_once::call_now(ranks, device, call, Some(given), room) {
            ended = ended.and(done);
        } else {
            let mut begun = begin(ranks, call, Some(given), room)?;
            ended = ended.and(finish(device, &mut begun));
        }
    }
    ended.err()
}

/// Ranks of memory of their own for each `case`, which all find that it fails.
fn all_fail<C: Copy + Sync + std::fmt::Debug>(
    cases: &[C],
    call: impl Fn(C, usize) -> (Form, (Call<'static>, usize, usize)) + Sync,
) {
    let have_met = std::sync::Barrier::new(SIZE);
    in_job(SIZE as u32, |device| {
        let rank = device.own() as usize;
        for (context, case) in (5..).zip(cases) {
            let processes = (0..SIZE as u32).collect();
            let mut ranks = Ranks::new(device, context, rank, processes, Arc::new(Table::default()));
            ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
            // The failure of one who is ahead would be that of the barrier, too.
            have_met.wait();
            let (form, (call, given, room)) = call(*case, rank);
            let (given, mut room) = (vec![1; given], vec![0; room]);
            let failed = make(&mut ranks, device, form, call, &given, &mut room);
            assert_eq!(failed, Some(Error::Truncated), "rank {rank}: {call:?}, {case:?}");
        }
    });
}

#[test]
fn a_rank_with_another_length_than_the_others_fails_the_call_of_all() {
    let mut cases = Vec::new();
    for (form, part) in forms() {
        for odd in 0..SIZE {
            // Few bytes too, more, and an array that others read.
            cases.extend([8, 2_000, 100_000].map(|len| (form, part, odd, len)));
        }
    }
    all_fail(&cases, |(form, part, odd, len), rank| (form, part(rank, if rank == odd { len } else { 4 })));
}

/// As a program may that gives two counts, or two datatypes, in one call.
#[test]
fn a_rank_whose_own_lengths_do_not_fit_fails_the_call_of_all() {
    let mut cases = Vec::new();
    for (form, part) in forms() {
        for odd in 0..SIZE {
            let (call, given, room) = part(odd, 4);
            for len in [0, 2, 8, 2_000] {
                let (other_given, other_room) = (given / 4 * len, room / 4 * len);
                for (given, room) in [(other_given, room), (given, other_room)] {
                    let buffers = Buffers { send: given, receive: room, in_place: false };
                    // Of some calls one rank alone cannot know.
                    if !call.fits((odd, SIZE), buffers) {
                        cases.push((form, part, odd, (given, room)));
                    }
                }
            }
        }
    }
    assert!(cases.len() > 300, "{}", cases.len());
    all_fail(&cases, |(form, part, odd, lens), rank| {
        let (call, given, room) = part(rank, 4);
        let (given, room) = if rank == odd { lens } else { (given, room) };
        (form, (call, given, room))
    });
}

/// Of whose blocks some lie beyond what it gives, or its room, or which has none although it has to.
const BEYOND: [(Part, Part); 12] = [
    (GATHERV, |_, len| (Call::Gatherv { root: ROOT, blocks: Some(FAR) }, len, SIZE * len)),
    (GATHERV, |_, len| (Call::Gatherv { root: ROOT, blocks: Some(Blocks::Lens(&[4, 4])) }, len, SIZE * len)),
    (GATHERV, |_, len| (Call::Gatherv { root: ROOT, blocks: None }, len, SIZE * len)),
    (SCATTERV, |_, len| (Call::Scatterv { root: ROOT, blocks: Some(FAR) }, SIZE * len, len)),
    (SCATTERV, |_, len| (Call::Scatterv { root: ROOT, blocks: None }, SIZE * len, len)),
    (ALLGATHERV, |_, len| (Call::Allgatherv { blocks: FAR }, len, SIZE * len)),
    (ALLTOALLV, |_, len| (Call::Alltoallv { to: FAR, from: Blocks::Equal(len) }, SIZE * len, SIZE * len)),
    (ALLTOALLV, |_, len| (Call::Alltoallv { to: Blocks::Equal(len), from: FAR }, SIZE * len, SIZE * len)),
    (REDUCE_SCATTER, |_, len| {
        let blocks = Blocks::Counts { counts: &[1, 1, 2], element: 4 };
        (Call::ReduceScatter { blocks, reduction: COMPOSE }, SIZE * len, len)
    }),
    (neighbor_allgather, |rank, len| (Call::NeighborAllgather { neighbors: ring(rank), from: FAR }, len, 2 * len)),
    (neighbor_alltoall, |rank, len| {
        let from = Blocks::Equal(len);
        (Call::NeighborAlltoall { neighbors: ring(rank), to: FAR, from }, 2 * len, 2 * len)
    }),
    (neighbor_alltoall, |rank, len| {
        let to = Blocks::Equal(len);
        (Call::NeighborAlltoall { neighbors: ring(rank), to, from: FAR }, 2 * len, 2 * len)
    }),
];

const GATHERV: Part = PARTS[7];
const SCATTERV: Part = PARTS[9];
const ALLGATHERV: Part = PARTS[11];
const ALLTOALLV: Part = PARTS[13];
const REDUCE_SCATTER: Part = |_, len| {
    let blocks = Blocks::Counts { counts: &[1, 1, 1], element: 4 };
    (Call::ReduceScatter { blocks, reduction: COMPOSE }, SIZE * len, len)
};

fn ring(rank: usize) -> Neighbors<'static> {
    Neighbors::Grid(match rank {
        0 => &[Some(2), Some(1)],
        1 => &[Some(0), Some(2)],
        _ => &[Some(1), Some(0)],
    })
}

fn neighbor_allgather(rank: usize, len: usize) -> (Call<'static>, usize, usize) {
    (Call::NeighborAllgather { neighbors: ring(rank), from: Blocks::Equal(len) }, len, 2 * len)
}

fn neighbor_alltoall(rank: usize, len: usize) -> (Call<'static>, usize, usize) {
    let (to, from) = (Blocks::Equal(len), Blocks::Equal(len));
    (Call::NeighborAlltoall { neighbors: ring(rank), to, from }, 2 * len, 2 * len)
}

/// Of four bytes, the second one further on than there is memory.
const FAR: Blocks = Blocks::At { counts: &[4, 4, 4], starts: &[0, 10_000, 4], element: 1 };

#[test]
fn blocks_beyond_a_rank_s_memory_fail_the_call_of_all() {
    let cases: Vec<_> =
        [Form::Waits, Form::WaitsLong].into_iter().flat_map(|form| BEYOND.map(|case| (form, case))).collect();
    all_fail(&cases, |(form, (all, odd)), rank| (form, if rank == ROOT { odd(rank, 4) } else { all(rank, 4) }));
}

#[test]
fn who_goes_by_messages_has_an_error_if_its_lengths_do_not_fit() {
    in_job(1, |device| {
        let mut ranks = Ranks::new(device, 5, 0, vec![0], Arc::new(Table::default()));
        for (call, given, room) in [
            (Call::Allreduce { reduction: COMPOSE }, 4, 8),
            (Call::Scatterv { root: 0, blocks: Some(Blocks::At { counts: &[4], starts: &[5], element: 1 }) }, 8, 4),
            (Call::Alltoallv { to: Blocks::Lens(&[9]), from: Blocks::Equal(4) }, 4, 4),
        ] {
            let (given, mut room) = (vec![0; given], vec![0; room]);
            let done = ranks.call(device, call, Some(&given), &mut room, &mut compose);
            assert_eq!(done, Err(Error::Truncated), "{call:?}");
        }
    });
}
