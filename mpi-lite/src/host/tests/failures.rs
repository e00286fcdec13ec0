//! What ends a call early, at every rank.

use super::*;

/// What a rank does in a call.
type Part = fn(&mut Host) -> Result<(), NonZeroU32>;

/// Blocks of these lengths for each neighbour, and as long ones from them.
fn neighbors(host: &mut Host, ranks: &[Option<u32>], given: &[u8], lens: &[usize]) -> Result<(), NonZeroU32> {
    let (mut output, blocks) = (vec![0; given.len()], Blocks::Lens(lens));
    at_once(host.neighbor_alltoall(ranks, (given, blocks), (&mut output, blocks), &mut Thread))
}

/// Alone there is nobody else to find out.
#[test]
fn what_a_rank_gives_itself_is_as_long_as_its_room() {
    let mut host = Host::create(1, sidelane_nic::affinity::online()).unwrap();
    let (to, from) = (Blocks::Equal(2), Blocks::Equal(1));
    assert_eq!(host.alltoall_varying_few((&[1; 4], to), (&mut [0; 4], from), &mut Thread), Err(DIFFER));
    let mut host = Host::create(1, sidelane_nic::affinity::online()).unwrap();
    let made = at_once(host.alltoall_varying((Some(&[1; 4]), to), (&mut [0; 4], from), &mut Thread));
    assert_eq!(made, Err(DIFFER));
}

#[test]
fn calls_that_do_not_fit_fail_everywhere() {
    let cases: [(&str, Part, Part); 12] = [
        (
            "another root, of few bytes",
            |host| host.broadcast_few(if host.me() == 2 { 1 } else { 0 }, &mut [0; 8], &mut Thread),
            |host| host.broadcast_few(0, &mut [0; 8], &mut Thread),
        ),
        (
            "a longer block, of few bytes",
            |host| host.scatter_varying_few(0, Some((&[0; 9], Blocks::Equal(3))), None, &mut Thread),
            |host| host.scatter_varying_few(0, None, Some(&mut [0; 4]), &mut Thread),
        ),
        (
            "another root",
            // The first one is what two expect of it, and nobody is what the last one does.
            |host| at_once(host.broadcast(if host.me() == 2 { 1 } else { 0 }, &mut [0; 8], &mut Thread)),
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
        ),
        (
            "another length",
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
            |host| at_once(host.broadcast(0, &mut vec![0; 100_000], &mut Thread)),
        ),
        (
            "another call",
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
            |host| at_once(host.scatter(0, 8, None, Some(&mut [0; 8]), &mut Thread)),
        ),
        (
            "other counts",
            |host| {
                let own = &[0; 5][..3 + host.me()];
                at_once(host.allgather(Blocks::Lens(&[3, 4, 5]), Some(own), &mut [0; 12], &mut Thread))
            },
            |host| at_once(host.allgather(Blocks::Lens(&[3, 3, 6]), Some(&[0; 3]), &mut [0; 12], &mut Thread)),
        ),
        (
            "a longer block",
            |host| at_once(host.scatter_varying(0, Some((&[0; 9], Blocks::Equal(3))), None, &mut Thread)),
            |host| at_once(host.scatter_varying(0, None, Some(&mut [0; 4]), &mut Thread)),
        ),
        (
            "a longer block behind a table",
            |host| at_once(host.scatter_varying(0, Some((&[0; 9], Blocks::Lens(&[2, 3, 4]))), None, &mut Thread)),
            |host| at_once(host.scatter_varying(0, None, Some(&mut [0; 4]), &mut Thread)),
        ),
        (
            "a shorter block, read where it is",
            |host| {
                let blocks = Blocks::Lens(&[1, 30_000, 1]);
                at_once(host.scatter_varying(0, Some((&[0; 30_002], blocks)), None, &mut Thread))
            },
            |host| at_once(host.scatter_varying(0, None, Some(&mut [0; 20_000]), &mut Thread)),
        ),
        (
            "more neighbours",
            |host| neighbors(host, &[Some(1), None], &[0; 3], &[1, 2]),
            |host| neighbors(host, &[None, None, None, Some(0)], &[0; 4], &[1; 4]),
        ),
        (
            "more neighbours, and what is behind a table looks as if it were of it",
            |host| neighbors(host, &[Some(1), None], &[0x60, 0xea, 4, 0, 0, 0, 0, 0, 0], &[4, 5]),
            |host| neighbors(host, &[None, None, None, Some(0)], &[0; 16], &[4; 4]),
        ),
        (
            "a longer array",
            |host| at_once(host.allreduce(None, &mut [0; 20_000], 1, |_, _| (), &mut Thread)),
            |host| at_once(host.allreduce(None, &mut [0; 30_000], 1, |_, _| (), &mut Thread)),
        ),
    ];
    for (what, most, odd) in cases {
        let ended = run(3, |me, host| {
            let done = if me == 1 { odd(host) } else { most(host) };
            // As who calls this does: and then all meet, if not in this call, then in the next one.
            let done = done.and_then(|()| at_once(host.barrier(&mut Thread)));
            if let Err(code) = done {
                host.fail(code);
                host.tell(&mut Thread);
            }
            done
        });
        assert_eq!(ended, [Err(DIFFER); 3], "{what}");
    }
}

#[test]
fn one_member_s_failure_is_everybody_s() {
    const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();
    let ended = run(5, |me, host| {
        if me == 3 {
            host.fail(WHY);
            host.tell(&mut Thread);
            return Err(WHY);
        }
        at_once(host.barrier(&mut Thread))
    });
    assert_eq!(ended, [Err(WHY); 5]);
}

#[test]
fn an_error_while_waiting_ends_the_call() {
    struct Gone;
    impl Peers for Gone {
        type Error = &'static str;

        const WAITS: bool = true;

        fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, Self::Error> {
            if awaits(1) { Err("rank 1 is gone") } else { Ok(false) }
        }

        fn sleep(&mut self) {}

        fn may_sleep(&self) -> bool {
            false
        }

        fn doze(&mut self) {}

        fn slept(&mut self, _: bool) {}

        fn wake(&mut self, _: usize) {}

        fn read(&mut self, _: usize, _: u64, _: &mut [u8]) -> Result<(), Self::Error> {
            Ok(())
        }

        fn may_write(&mut self, _: usize) -> Result<(), Self::Error> {
            Ok(())
        }

        fn write(&mut self, _: usize, _: u64, _: &[u8]) -> Result<(), Self::Error> {
            Ok(())
        }

        fn code(_: &Self::Error) -> NonZeroU32 {
            DIFFER
        }

        fn error(_: NonZeroU32) -> Self::Error {
            "calls do not fit"
        }
    }
    let mut host = Host::create(2, sidelane_nic::affinity::online()).unwrap();
    assert_eq!(at_once(host.barrier(&mut Gone)), Err("rank 1 is gone"));
}
