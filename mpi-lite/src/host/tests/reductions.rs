//! What all give is combined in the order of ranks.

use super::*;

#[test]
fn reductions_keep_the_order_of_ranks() {
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            for (len, in_place) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                let what = format!("{len} bytes, rank {me} of {size}, in place {in_place}");
                let own = input(me, len);
                let given = (!in_place).then_some(&own[..]);
                let output = || if in_place { own.clone() } else { vec![0; len] };
                for root in [0, size - 1] {
                    let (mut output, is_root) = (output(), me == root);
                    let given = if is_root { given } else { Some(&own[..]) };
                    let room = is_root.then_some(&mut output[..]);
                    at_once(host.reduce(root, given, room, 2, compose, &mut Thread)).unwrap();
                    assert!(!is_root || output == combined(size, len), "reduce: {what}, root {root}");
                }
                let mut all = output();
                at_once(host.allreduce(given, &mut all, 2, compose, &mut Thread)).unwrap();
                assert!(all == combined(size, len), "allreduce: {what}");

                let mut prefix = output();
                at_once(host.scan(given, &mut prefix, COMPOSE, compose, &mut Thread)).unwrap();
                assert!(prefix == combined(me + 1, len), "scan: {what}");
                let mut prefix = output();
                let free = Reduction { element: 1, commutative: true };
                at_once(host.scan(given, &mut prefix, free, add, &mut Thread)).unwrap();
                assert!(prefix == added(me + 1, len), "scan in any order: {what}");
                let mut prefix = output();
                at_once(host.exscan(given, &mut prefix, 2, compose, &mut Thread)).unwrap();
                assert!(me == 0 || prefix == combined(me, len), "exscan: {what}");

                let blocks = Blocks::cut(len, 2, size);
                let mut block = if in_place { own.clone() } else { vec![0; blocks.len(me)] };
                at_once(host.reduce_scatter(given, &mut block, blocks, 2, compose, &mut Thread)).unwrap();
                let expected = &combined(size, len)[blocks.start(me)..][..blocks.len(me)];
                assert!(&block[..blocks.len(me)] == expected, "reduce_scatter: {what}");
            }
        });
    }
}

#[test]
fn arrays_too_long_for_the_root_alone_are_reduced_in_parts() {
    run(3, |me, host| {
        let len = super::reduce::ALONE / 2 + 2;
        let own = input(me, len);
        for (root, in_place) in [(0, false), (2, true)] {
            let mut output = if in_place { own.clone() } else { vec![0; len] };
            let room = (me == root).then_some(&mut output[..]);
            let given = (!(in_place && me == root)).then_some(&own[..]);
            at_once(host.reduce(root, given, room, 2, compose, &mut Thread)).unwrap();
            // Has room of its own for what it passes on, as parts have that the root may still read.
            let mut prefix = vec![0; PIECE];
            at_once(host.exscan(Some(&own[..PIECE]), &mut prefix, 2, compose, &mut Thread)).unwrap();
            assert!(me != root || output == combined(3, len), "root {root}, rank {me}");
        }
    });
}

#[test]
fn members_write_to_their_arrays_anew_as_soon_as_a_call_is_over() {
    run(3, |me, host| {
        let len = 2 * PIECE;
        for call in 0..20 {
            let what = format!("rank {me}, call {call}");
            let mut own = input(me, len);
            let mut output = vec![0; len];
            let root = call % 3;
            at_once(host.reduce(root, Some(&own), (me == root).then_some(&mut output), 2, compose, &mut Thread))
                .unwrap();
            own.fill(0xee);
            assert!(me != root || output == combined(3, len), "reduce: {what}");

            own = input(me, len);
            at_once(host.allreduce(Some(&own), &mut output, 2, compose, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(output == combined(3, len), "allreduce: {what}");

            own = input(me, len);
            at_once(host.scan(Some(&own), &mut output, COMPOSE, compose, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(output == combined(me + 1, len), "scan: {what}");

            own = input(me, len);
            at_once(host.exscan(Some(&own), &mut output, 2, compose, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(me == 0 || output == combined(me, len), "exscan: {what}");

            // Two members have nothing to read.
            let lens: [usize; 3] = std::array::from_fn(|member| if member == root { len } else { 0 });
            let blocks = Blocks::Lens(&lens);
            own = input(me, len);
            let mut block = vec![0; lens[me]];
            at_once(host.reduce_scatter(Some(&own), &mut block, blocks, 2, compose, &mut Thread)).unwrap();
            own.fill(0xee);
            assert!(me != root || block == combined(3, len), "reduce_scatter: {what}");
        }
    });
}

fn add(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = into.wrapping_add(*from));
}

/// What the inputs of ranks `0..members` add up to.
fn added(members: usize, len: usize) -> Vec<u8> {
    let mut sum = vec![0; len];
    (0..members).for_each(|member| add(&mut sum, &input(member, len)));
    sum
}
