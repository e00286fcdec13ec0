//! Few bytes: what some ranks do at once fits what others do by a future.

use super::*;

/// What some ranks do at once fits what others do by a future.
#[test]
fn few_bytes_fit_whatever_others_do() {
    // None, what a head takes, what lengths of their own are copied, what a small slot takes.
    const LENS: [usize; 7] = [0, 2, 4, 8, 40, 42, FEW];
    for case @ (size, _) in CASES {
        run_on(case, |me, host| {
            for turn in 0..200 {
                let (len, root, few) = (LENS[turn % LENS.len()], turn % size, (me + turn) % 3 > 0);
                let what = format!("{len} bytes, rank {me} of {size}, turn {turn}, few {few}");
                let (own, peers) = (input(me, len), &mut Thread);
                let in_place = turn % 5 == 0;
                let given = (!in_place).then_some(&own[..]);
                let output = || if in_place { own.clone() } else { vec![0; len] };

                let mut data = if me == root { input(turn, len) } else { vec![0; len] };
                match few {
                    true => host.broadcast_few(root, &mut data, peers),
                    false => at_once(host.broadcast(root, &mut data, peers)),
                }
                .unwrap();
                assert!(data == input(turn, len), "broadcast: {what}");

                let mut result = output();
                let room = (me == root).then_some(&mut result[..]);
                let own_part = if me == root { given } else { Some(&own[..]) };
                match few {
                    true => host.reduce_few(root, own_part, room, compose, peers),
                    false => at_once(host.reduce(root, own_part, room, 2, compose, peers)),
                }
                .unwrap();
                assert!(me != root || result == combined(size, len), "reduce: {what}");

                let mut result = output();
                match few {
                    true => host.allreduce_few(given, &mut result, 2, compose, peers),
                    false => at_once(host.allreduce(given, &mut result, 2, compose, peers)),
                }
                .unwrap();
                assert!(result == combined(size, len), "allreduce: {what}");

                let mut result = output();
                match few {
                    true => host.scan_few(given, &mut result, compose, peers),
                    false => at_once(host.scan(given, &mut result, COMPOSE, compose, peers)),
                }
                .unwrap();
                assert!(result == combined(me + 1, len), "scan: {what}");

                let mut result = output();
                match few {
                    true => host.exscan_few(given, &mut result, compose, peers),
                    false => at_once(host.exscan(given, &mut result, 2, compose, peers)),
                }
                .unwrap();
                assert!(me == 0 || result == combined(me, len), "exscan: {what}");

                let blocks = Blocks::cut(len, 2, size);
                let mut block = if in_place { own.clone() } else { vec![0; blocks.len(me)] };
                match few {
                    true => host.reduce_scatter_few(given, &mut block, blocks, 2, compose, peers),
                    false => at_once(host.reduce_scatter(given, &mut block, blocks, 2, compose, peers)),
                }
                .unwrap();
                let expected = &combined(size, len)[blocks.start(me)..][..blocks.len(me)];
                assert!(&block[..blocks.len(me)] == expected, "reduce_scatter: {what}");

                // Blocks for all, together no more than a few bytes.
                let len = len / size / 2;
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                let (own, blocks) = (input(me, len), Blocks::Equal(len));
                let mut output = vec![0; all.len()];
                let room = (me == root).then_some((&mut output[..], blocks));
                match few {
                    true => host.gather_few(root, Some(&own), room, peers),
                    false => at_once(host.gather(root, Some(&own), room, peers)),
                }
                .unwrap();
                assert!(me != root || output == all, "gather: {what}");

                let mut block = vec![0; len];
                let input_of_root = (me == root).then_some(&all[..]);
                match few {
                    true => host.scatter_few(root, len, input_of_root, Some(&mut block), peers),
                    false => at_once(host.scatter(root, len, input_of_root, Some(&mut block), peers)),
                }
                .unwrap();
                assert!(block == own, "scatter: {what}");

                let mut block = vec![0; len];
                let input_of_root = (me == root).then_some((&all[..], blocks));
                match few {
                    true => host.scatter_varying_few(root, input_of_root, Some(&mut block), peers),
                    false => at_once(host.scatter_varying(root, input_of_root, Some(&mut block), peers)),
                }
                .unwrap();
                assert!(block == own, "scatter_varying: {what}");

                let mut output = vec![0; all.len()];
                match few {
                    true => host.allgather_few(blocks, Some(&own), &mut output, peers),
                    false => at_once(host.allgather(blocks, Some(&own), &mut output, peers)),
                }
                .unwrap();
                assert!(output == all, "allgather: {what}");

                let given: Vec<u8> = (0..size).flat_map(|rank| input(me * size + rank, len)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|rank| input(rank * size + me, len)).collect();
                let mut output = if in_place { given.clone() } else { vec![0; given.len()] };
                let from_us = (!in_place).then_some(&given[..]);
                match few {
                    true => host.alltoall_few(len, from_us, &mut output, peers),
                    false => at_once(host.alltoall(len, from_us, &mut output, peers)),
                }
                .unwrap();
                assert!(output == expected, "alltoall: {what}");

                let mut output = vec![0; all.len()];
                match few {
                    true => host.alltoall_varying_few((&given, blocks), (&mut output, blocks), peers),
                    false => at_once(host.alltoall_varying((Some(&given), blocks), (&mut output, blocks), peers)),
                }
                .unwrap();
                assert!(output == expected, "alltoall_varying: {what}");
                match few {
                    true => host.barrier_few(peers),
                    false => at_once(host.barrier(peers)),
                }
                .unwrap();
            }
        });
    }
}

#[test]
fn chains_of_any_length_stand_between_other_calls() {
    run(4, |me, host| {
        for turn in 0..40 {
            // Longer and shorter than a ring.
            for link in 0..turn * 5 {
                let mut prefix = [0; 2];
                let given = input(me + link, 2);
                match (me + turn) % 2 {
                    0 => host.scan_few(Some(&given), &mut prefix, compose, &mut Thread),
                    _ => at_once(host.scan(Some(&given), &mut prefix, COMPOSE, compose, &mut Thread)),
                }
                .unwrap();
                let mut expected = input(me + link, 2);
                (0..me).rev().for_each(|rank| compose(&mut expected, &input(rank + link, 2)));
                assert_eq!(prefix[..], expected, "rank {me}, turn {turn}, link {link}");
            }
            let mut data = if me == 3 { input(turn, 100) } else { vec![0; 100] };
            at_once(host.broadcast(3, &mut data, &mut Thread)).unwrap();
            assert_eq!(data, input(turn, 100));
        }
    });
}
