//! What a rank waits for, and what ends that.

use std::num::NonZeroU32;

use super::*;

const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();

/// A rank that does `act` in each turn, and says then that these members are gone.
pub(in crate::host) struct Bereft<'a> {
    pub act: &'a mut dyn FnMut(),
    pub gone: &'a [usize],
}

impl Peers for Bereft<'_> {
    type Error = NonZeroU32;

    const WAITS: bool = true;

    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        (self.act)();
        if self.gone.iter().any(|member| awaits(*member)) { Err(WHY) } else { Ok(false) }
    }

    fn sleep(&mut self) {
        unreachable!("what it waits for comes before");
    }

    fn may_sleep(&self) -> bool {
        false
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, _: usize) {}

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        Thread.read(member, address, into)
    }

    fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
        Ok(())
    }

    fn write(&mut self, member: usize, address: u64, bytes: &[u8]) -> Result<(), NonZeroU32> {
        Thread.write(member, address, bytes)
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

/// A rank that only looks who has come.
struct Once;

impl Peers for Once {
    type Error = NonZeroU32;

    const WAITS: bool = true;
    const LOOKS: Option<u32> = Some(1);

    fn not_yet(&mut self) -> NonZeroU32 {
        WHY
    }

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        unreachable!("it looks once");
    }

    fn sleep(&mut self) {
        unreachable!("it looks once");
    }

    fn may_sleep(&self) -> bool {
        false
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, _: usize) {}

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        Thread.read(member, address, into)
    }

    fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
        Ok(())
    }

    fn write(&mut self, member: usize, address: u64, bytes: &[u8]) -> Result<(), NonZeroU32> {
        Thread.write(member, address, bytes)
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

/// Hosts of one thread, of which the first one calls.
fn members<const N: usize>(cores: usize) -> [Host; N] {
    let first = Host::create(N, cores).unwrap();
    let ticket = first.ticket();
    let mut first = Some(first);
    std::array::from_fn(|me| first.take().unwrap_or_else(|| Host::join(ticket, me, N).unwrap()))
}

#[test]
fn who_has_done_its_part_may_go_while_another_one_is_awaited() {
    for few in [false, true] {
        let [mut host, mut one, mut other] = members(3);
        let mut turns = 0;
        let mut come = || {
            turns += 1;
            let (member, given) = match turns {
                1 => (&mut one, 1),
                // Only the other one is awaited now.
                2 => return,
                _ => (&mut other, 2),
            };
            at_once(member.gather(0, Some(&[given]), None, &mut Thread)).unwrap();
        };
        let (mut peers, mut output) = (Bereft { act: &mut come, gone: &[1] }, [9; 3]);
        let room = Some((&mut output[..], Blocks::Equal(1)));
        match few {
            true => host.gather_few(0, Some(&[0]), room, &mut peers),
            false => at_once(host.gather(0, Some(&[0]), room, &mut peers)),
        }
        .unwrap();
        assert_eq!(output, [0, 1, 2]);
    }
}

#[test]
fn who_has_taken_what_was_shown_may_go_while_another_one_is_behind() {
    // More than a ring has slots.
    const CALLS: u32 = 70;
    for len in [8, SHORT] {
        let [mut host, mut one, mut other] = members(3);
        let mut turns = 0;
        let mut take = || {
            turns += 1;
            let member = match turns % 3 {
                1 => &mut one,
                // Only the other one is awaited now.
                2 => return,
                _ => &mut other,
            };
            while at_once(member.broadcast(0, &mut vec![0; len], &mut Once)).is_ok() {}
        };
        let mut peers = Bereft { act: &mut take, gone: &[1] };
        for _ in 0..CALLS {
            match len {
                8 => host.broadcast_few(0, &mut [0; 8], &mut peers),
                _ => at_once(host.broadcast(0, &mut vec![0; len], &mut peers)),
            }
            .unwrap();
        }
        assert!(turns > 0);
    }
}

#[test]
fn who_has_left_a_gate_that_is_open_may_go() {
    for few in [false, true] {
        let [mut host, mut one, mut other] = members(1);
        let mut come = || {
            std::thread::scope(|scope| {
                for member in [&mut one, &mut other] {
                    scope.spawn(|| at_once(member.barrier(&mut Thread)).unwrap());
                }
            });
        };
        let mut peers = Bereft { act: &mut come, gone: &[1, 2] };
        let done = if few { host.barrier_few(&mut peers) } else { at_once(host.barrier(&mut peers)) };
        assert_eq!(done, Ok(()));
    }
}

#[test]
fn the_first_failure_is_everybodys() {
    let [host, other] = members(2);
    host.fail(WHY);
    other.fail(DIFFER);
    assert_eq!([host.failure(), other.failure()], [Some(WHY); 2]);
}

#[test]
fn memory_for_another_number_of_ranks_is_not_joined() {
    let host = Host::create(2, 2).unwrap();
    assert!(Host::join(host.ticket(), 1, 3).is_err());
}

#[test]
fn blocks_of_unknown_lengths_are_for_memory_that_is_read_and_for_as_many_as_a_table_has() {
    let most = slots::SLOT / 16;
    for (reads, size) in [(false, 2), (true, 2), (true, most), (true, most + 1)] {
        let limits = Limits { reads, short: SHORT, size };
        let taken = reads && size <= most;
        assert_eq!([limits.take_varying(), limits.take_neighbors(size)], [taken; 2], "{limits:?}");
        assert_eq!(limits.are_few(2, 8), reads, "{limits:?}");
    }
}
