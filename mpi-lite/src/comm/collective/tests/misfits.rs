//! Calls of ranks on one host whose lengths do not fit: an error for all, and nobody waits for ever.

use super::*;

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
            ranks.leave(device);
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
        let call = part(ROOT, 4).0;
        // Of the others what is given is as long as the blocks are, or nothing is.
        if !matches!(call, Call::Broadcast { .. } | Call::Scatterv { .. } | Call::Alltoallv { .. }) {
            cases.extend([0, 2, 8, 2_000].map(|given| (form, part, given)));
        }
    }
    all_fail(&cases, |(form, part, given), rank| {
        let (call, all, room) = part(rank, 4);
        (form, (call, if rank == ROOT { all / 4 * given } else { all }, room))
    });
}
