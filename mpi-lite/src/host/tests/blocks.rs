//! Blocks get where they belong.

use super::*;

#[test]
fn data_gets_where_it_belongs() {
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            for (len, in_place) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                for root in [0, size - 1] {
                    let what = format!("{len} bytes, rank {me} of {size}, root {root}, in place {in_place}");
                    let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                    let mut data = if me == root { input(root, len) } else { vec![0; len] };
                    at_once(host.broadcast(root, &mut data, &mut Thread)).unwrap();
                    assert!(data == input(root, len), "broadcast: {what}");

                    let mut output = if in_place { all.clone() } else { vec![0; all.len()] };
                    let (own, is_root) = (input(me, len), me == root);
                    let given = (!(in_place && is_root)).then_some(&own[..]);
                    let room = is_root.then_some((&mut output[..], Blocks::Equal(len)));
                    at_once(host.gather(root, given, room, &mut Thread)).unwrap();
                    assert!(!is_root || output == all, "gather: {what}");

                    let mut block = vec![0; len];
                    let room = (!(in_place && is_root)).then_some(&mut block[..]);
                    at_once(host.scatter(root, len, is_root.then_some(&all[..]), room, &mut Thread)).unwrap();
                    assert!((in_place && is_root) || block == own, "scatter: {what}");
                }
                let what = format!("{len} bytes, rank {me} of {size}, in place {in_place}");
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                let mut output = vec![0; all.len()];
                output[me * len..][..len].copy_from_slice(&input(me, len));
                let own = input(me, len);
                at_once(host.allgather(Blocks::Equal(len), (!in_place).then_some(&own[..]), &mut output, &mut Thread))
                    .unwrap();
                assert!(output == all, "allgather: {what}");

                let given: Vec<u8> = (0..size).flat_map(|rank| input(me * size + rank, len)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|rank| input(rank * size + me, len)).collect();
                let mut output = if in_place { given.clone() } else { vec![0; given.len()] };
                at_once(host.alltoall(len, (!in_place).then_some(&given[..]), &mut output, &mut Thread)).unwrap();
                assert!(output == expected, "alltoall: {what}");
                at_once(host.barrier(&mut Thread)).unwrap();
            }
        });
    }
}

#[test]
fn blocks_of_any_length_get_where_they_belong() {
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            for most in LENS {
                // From none to the longest, and not alike among ranks.
                let len = |from: usize, to: usize| most * ((from + 2 * to) % (size + 1)) / size.max(2);
                let what = format!("up to {most} bytes, rank {me} of {size}");
                let given: Vec<u8> = (0..size).flat_map(|to| input(me * size + to, len(me, to))).collect();
                let expected: Vec<u8> = (0..size).flat_map(|from| input(from * size + me, len(from, me))).collect();
                let to: Vec<usize> = (0..size).map(|to| len(me, to)).collect();
                let from: Vec<usize> = (0..size).map(|from| len(from, me)).collect();
                let mut output = vec![0; expected.len()];
                let (to, from) = (Blocks::Lens(&to), Blocks::Lens(&from));
                at_once(host.alltoall_varying((Some(&given), to), (&mut output, from), &mut Thread)).unwrap();
                assert!(output == expected, "alltoall: {what}");

                let lens: Vec<usize> = (0..size).map(|rank| len(rank, 1)).collect();
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, lens[rank])).collect();
                let (own, blocks) = (input(me, lens[me]), Blocks::Lens(&lens));
                let mut output = vec![0; all.len()];
                at_once(host.allgather(blocks, Some(&own), &mut output, &mut Thread)).unwrap();
                assert!(output == all, "allgather: {what}");
                for root in [0, size - 1] {
                    let mut output = vec![0; all.len()];
                    let room = (me == root).then_some((&mut output[..], blocks));
                    at_once(host.gather(root, Some(&own), room, &mut Thread)).unwrap();
                    assert!(me != root || output == all, "gather: {what}, root {root}");
                    let mut block = vec![0; own.len()];
                    let given = (me == root).then_some((&all[..], blocks));
                    at_once(host.scatter_varying(root, given, Some(&mut block), &mut Thread)).unwrap();
                    assert!(block == own, "scatter: {what}, root {root}");
                }

                // In place, what comes is as long as what goes.
                let len = |a: usize, b: usize| most * ((a + b) % (size + 1)) / size.max(2);
                let lens: Vec<usize> = (0..size).map(|other| len(me, other)).collect();
                let mut data: Vec<u8> = (0..size).flat_map(|to| input(me * size + to, len(me, to))).collect();
                let expected: Vec<u8> = (0..size).flat_map(|from| input(from * size + me, len(me, from))).collect();
                let blocks = Blocks::Lens(&lens);
                at_once(host.alltoall_varying((None, blocks), (&mut data, blocks), &mut Thread)).unwrap();
                assert!(data == expected, "alltoall in place: {what}");
            }
        });
    }
}

#[test]
fn neighbours_of_a_ring_and_of_a_line_get_each_others_blocks() {
    for (case @ (size, _), periodic) in CASES.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        run_on(case, |me, host| {
            let around = |rank: usize, step: usize| {
                let there = rank + step;
                (periodic || (1..=size).contains(&there)).then_some((there + size - 1) % size)
            };
            let both = [around(me, 0), around(me, 2)];
            let ranks = both.map(|rank| rank.map(|rank| rank as u32));
            for len in LENS {
                let what = format!("{len} bytes, rank {me} of {size}, periodic {periodic}");
                let mut output = vec![9; 2 * len];
                let room = (&mut output[..], Blocks::Equal(len));
                let few = len + 2 * 4 <= FEW && me % 2 == 0;
                match few {
                    true => host.neighbor_allgather_few(&ranks, &input(me, len), room, &mut Thread),
                    false => at_once(host.neighbor_allgather((&ranks, &ranks), &input(me, len), room, &mut Thread)),
                }
                .unwrap();
                let of = |at: usize, bytes: &dyn Fn(usize) -> Vec<u8>| both[at].map_or(vec![9; len], bytes);
                let expected = [of(0, &|from| input(from, len)), of(1, &|from| input(from, len))].concat();
                assert!(output == expected, "allgather: {what}");

                let given = [input(2 * me, len), input(2 * me + 1, len)].concat();
                let mut output = vec![9; 2 * len];
                let blocks = Blocks::Equal(len);
                match few && 2 * len + 2 * 4 <= FEW {
                    true => host.neighbor_alltoall_few(&ranks, (&given, blocks), (&mut output, blocks), &mut Thread),
                    false => {
                        at_once(host.neighbor_alltoall(&ranks, (&given, blocks), (&mut output, blocks), &mut Thread))
                    }
                }
                .unwrap();
                // From the one before us what it sent forwards, from the one behind us what it sent backwards.
                let expected = [of(0, &|from| input(2 * from + 1, len)), of(1, &|from| input(2 * from, len))].concat();
                assert!(output == expected, "alltoall: {what}");
            }
        });
    }
}

#[test]
fn blocks_at_any_places_get_where_they_belong() {
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            let all: Vec<u8> = (0..3 * (size + 2)).map(|at| at as u8).collect();
            let lens = || (0..size).map(|rank| rank % 3).collect::<Vec<_>>();
            // Backwards, with a byte between them; and one after the other, behind what is nobody's.
            let apart = (lens(), (0..size).map(|rank| 3 * (size - rank)).collect());
            let behind = |lens: Vec<usize>| {
                let starts: Vec<usize> = (0..size).map(|rank| 5 + lens[..rank].iter().sum::<usize>()).collect();
                (lens, starts)
            };
            for (lens, starts) in [apart, behind(lens()), behind(vec![2; size])] {
                let given = (me == 0).then_some((&all[..], Blocks::At { counts: &lens, starts: &starts, element: 1 }));
                for few in [true, false] {
                    let mut block = vec![0; lens[me]];
                    match few {
                        true => host.scatter_varying_few(0, given, Some(&mut block), &mut Thread),
                        false => at_once(host.scatter_varying(0, given, Some(&mut block), &mut Thread)),
                    }
                    .unwrap();
                    assert_eq!(block, all[starts[me]..][..lens[me]], "rank {me} of {size}");
                }
            }
        });
    }
}

#[test]
fn blocks_for_whose_table_a_slot_has_no_room_beside_them_get_where_they_belong() {
    // Where members are more than cores all of a few KiB is copied.
    run_on((2, 1), |me, host| {
        let other = 1 - me as u32;
        let lens: Vec<usize> = (0..1_100).map(|index| if index < 1_000 { 15 } else { 12 }).collect();
        let (given, theirs) = (input(me, lens.iter().sum()), input(1 - me, lens.iter().sum()));
        let (mut output, blocks) = (vec![0; given.len()], Blocks::Lens(&lens));
        let ranks = vec![Some(other); lens.len()];
        at_once(host.neighbor_alltoall(&ranks, (&given, blocks), (&mut output, blocks), &mut Thread)).unwrap();
        for index in 0..lens.len() {
            let [into, from] =
                [(&output, index), (&theirs, index ^ 1)].map(|(all, index)| &all[blocks.start(index)..][..lens[index]]);
            assert_eq!(into, from, "{index}");
        }
    });
}

/// As soon as a call is over, also of who only gives.
#[test]
fn members_write_to_what_they_gave_anew_when_a_call_is_over() {
    run(3, |me, host| {
        let len = PIECE;
        let (equal, lens) = (Blocks::Equal(len), [len; 3]);
        let all = |call: usize| (0..3).flat_map(|rank| input(rank + call, len)).collect::<Vec<u8>>();
        let ring = [2, 1].map(|step| Some((me as u32 + step) % 3));
        for call in 0..8 {
            let (root, what) = (call % 3, format!("rank {me}, call {call}"));
            let mut data = if me == root { input(call, len) } else { vec![0; len] };
            at_once(host.broadcast(root, &mut data, &mut Thread)).unwrap();
            assert!(data == input(call, len), "broadcast: {what}");
            data.fill(0xee);

            let (mut own, mut output) = (input(me + call, len), vec![0; 3 * len]);
            let room = (me == root).then_some((&mut output[..], equal));
            at_once(host.gather(root, Some(&own), room, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(me != root || output == all(call), "gather: {what}");

            let (mut given, mut block) = (all(call), vec![0; len]);
            let of_root = (me == root).then_some(&given[..]);
            at_once(host.scatter(root, len, of_root, Some(&mut block), &mut Thread)).unwrap();
            given.fill(0xee);
            assert!(block == input(me + call, len), "scatter: {what}");

            let (mut given, mut block) = (all(call), vec![0; len]);
            let of_root = (me == root).then_some((&given[..], Blocks::Lens(&lens)));
            at_once(host.scatter_varying(root, of_root, Some(&mut block), &mut Thread)).unwrap();
            given.fill(0xee);
            assert!(block == input(me + call, len), "scatter_varying: {what}");

            let (mut own, mut output) = (input(me + call, len), vec![0; 3 * len]);
            at_once(host.allgather(equal, Some(&own), &mut output, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(output == all(call), "allgather: {what}");

            let theirs: Vec<u8> = (0..3).flat_map(|rank| input(rank + call + me, len)).collect();
            let (mut given, mut output) = (theirs.clone(), vec![0; 3 * len]);
            at_once(host.alltoall(len, Some(&given), &mut output, &mut Thread)).unwrap();
            given.fill(0xee);
            assert!(output == theirs, "alltoall: {what}");

            let (mut given, mut output) = (theirs.clone(), vec![0; 3 * len]);
            let (to, from) = ((Some(&given[..]), equal), (&mut output[..], equal));
            at_once(host.alltoall_varying(to, from, &mut Thread)).unwrap();
            given.fill(0xee);
            assert!(output == theirs, "alltoall_varying: {what}");

            let (mut own, mut output) = (input(me + call, len), vec![0; 2 * len]);
            at_once(host.neighbor_allgather((&ring, &ring), &own, (&mut output, equal), &mut Thread)).unwrap();
            own.fill(0xee);
            let sides = [2, 1].map(|step| input((me + step) % 3 + call, len)).concat();
            assert!(output == sides, "neighbor_allgather: {what}");

            let (mut given, mut output) = ([input(me, len), input(me, len)].concat(), vec![0; 2 * len]);
            at_once(host.neighbor_alltoall(&ring, (&given, equal), (&mut output, equal), &mut Thread)).unwrap();
            given.fill(0xee);
            let sides = [2, 1].map(|step| input((me + step) % 3, len)).concat();
            assert!(output == sides, "neighbor_alltoall: {what}");
        }
    });
}

/// Blocks as long as each other, and others; nobody knows yet how quick copies are.
#[test]
fn blocks_of_two_are_read_where_they_are_when_they_are_longer_than_a_short_array() {
    for (size, whole, reads) in [(2, SHORT, 0), (2, SHORT + 2, 1), (3, SHORT + 2, 0)] {
        for lens in [vec![whole / size; size], (0..size).map(|rank| if rank == 0 { 1 } else { whole - 1 }).collect()] {
            let given = input(0, lens.iter().sum());
            let counted = run(size, |me, host| {
                let blocks = Blocks::Lens(&lens);
                let mut block = vec![0; lens[me]];
                let root = (me == 0).then_some((&given[..], blocks));
                at_once(host.scatter_varying(0, root, Some(&mut block), &mut Thread)).unwrap();
                assert!(block == given[blocks.start(me)..][..lens[me]], "{lens:?}, rank {me}");
                // Where members are more than cores all is copied up to here.
                (READS.get(), if host.slots.ground.is_crowded() { 0 } else { reads })
            });
            assert_eq!(counted[1].0, counted[1].1, "{lens:?}");
        }
    }
}

/// Also when it is tried by copies how near the others are.
#[test]
fn blocks_of_two_arrive_call_after_call() {
    run(2, |me, host| {
        for call in 0..300 {
            let lens = [call, SHORT];
            let given: Vec<u8> = (0..call + SHORT).map(|at| (at + call) as u8).collect();
            let blocks = Blocks::Lens(&lens);
            let mut block = vec![0; lens[me]];
            let root = (me == 0).then_some((&given[..], blocks));
            at_once(host.scatter_varying(0, root, Some(&mut block), &mut Thread)).unwrap();
            assert!(block == given[blocks.start(me)..][..lens[me]], "call {call} at {me}");
        }
    });
}

/// Whatever the root: two calls that are taken for each other would take each other's bytes.
#[test]
fn calls_and_the_forms_of_their_blocks_are_told_apart() {
    let calls = (What::READS..=What::BARRIER).flat_map(|call| (0..20).map(move |root| What::new(call, root)));
    let mut all: Vec<_> = calls
        .flat_map(|what| [what, what.copied()].into_iter().chain(table::Form::ALL.map(|form| what.blocks(form))))
        .map(What::to_bytes)
        .collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}
