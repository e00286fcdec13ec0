//! What both ends copy, of which one cannot or is gone.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::both_ends::{Cut, Pieces};
use crate::host::shared_copy::Room;

const LONG: usize = 1 << 20;
/// An address of memory that has ended.
const NOWHERE: u64 = 0;
const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();

/// A rank that cannot write to others, and that finds member `gone` gone when it waits for it.
struct Odd<'a> {
    gone: Option<usize>,
    /// Before it reads so many bytes.
    on_read: &'a mut dyn FnMut(usize),
    on_write: &'a mut dyn FnMut(),
}

impl Peers for Odd<'_> {
    type Error = NonZeroU32;

    const WAITS: bool = true;

    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        if self.gone.is_some_and(awaits) { Err(WHY) } else { Ok(false) }
    }

    fn sleep(&mut self) {
        Thread.sleep();
    }

    fn may_sleep(&self) -> bool {
        false
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, member: usize) {
        Thread.wake(member);
    }

    fn read(&mut self, _: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        if address == NOWHERE {
            return Err(WHY);
        }
        (self.on_read)(into.len());
        // What is shown may be gone when its owner has failed.
        let file = std::fs::File::open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, into, address).map_err(|_| WHY)
    }

    fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
        Ok(())
    }

    fn write(&mut self, _: usize, _: u64, _: &[u8]) -> Result<(), NonZeroU32> {
        (self.on_write)();
        Err(WHY)
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

/// Nobody reads before somebody has tried to write.
#[test]
fn a_piece_that_was_not_written_is_not_taken_for_there() {
    for gathers in [false, true] {
        let tried = AtomicBool::new(false);
        let ended = run(3, |me, host| {
            let mut await_try = |_| {
                while !tried.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            };
            let mut peers =
                Odd { gone: None, on_read: &mut await_try, on_write: &mut || tried.store(true, Ordering::Release) };
            let mut data = vec![me as u8; if gathers { 3 * LONG } else { LONG }];
            let done = if !gathers {
                at_once(host.broadcast(0, &mut data, &mut peers))
            } else if me == 0 {
                at_once(host.gather(0, None, Some((&mut data, Blocks::Equal(LONG))), &mut peers))
            } else {
                at_once(host.gather(0, Some(&data[..LONG]), None, &mut peers))
            };
            if let Err(code) = done {
                host.fail(code);
                host.tell(&mut Thread);
            }
            // As `comm` has it: a call is over when no member has failed.
            done.and(host.failure().map_or(Ok(()), Err)).map(|()| data == [0; LONG])
        });
        assert!(ended.iter().all(|end| matches!(end, Err(WHY) | Ok(true))), "{ended:?}");
        assert!(if gathers { ended[0] } else { ended[1].and(ended[2]) }.is_err(), "{ended:?}");
    }
}

/// Puts a piece when it has been waited for by three looks whether its owner is still there.
fn at_third_look<'a>(put: impl Fn() + 'a) -> impl FnMut(usize) + 'a {
    let mut looks = 0;
    move |len| {
        looks += usize::from(len == 1);
        if looks == 3 {
            put();
        }
    }
}

#[test]
fn a_member_does_not_leave_while_the_root_writes() {
    let data = vec![1; LONG];
    let mut root = Host::create(2, 2).unwrap();
    let mut host = Host::join(root.ticket(), 1, 2).unwrap();
    let what = What::new(What::BROADCAST, 0);
    at_once(root.slots.show_address(what, &data[..], &mut Thread)).unwrap();
    let mut room = vec![0; LONG];
    at_once(host.slots.show_room(what, &mut room, &mut Thread)).unwrap();
    let pieces = root.slots.read_pieces(1, LONG);
    let piece = pieces.take_back().unwrap();
    let mut put = at_third_look(|| pieces.put());
    let mut peers = Odd { gone: Some(0), on_read: &mut put, on_write: &mut || () };
    assert_eq!(at_once(host.take_pieces(what, 0, &mut room, &mut peers)), Err(WHY));
    assert!(pieces.are_there() && pieces.take_back().is_none());
    assert!(room[..piece.start] == data[..piece.start] && room[piece.start..] == vec![0; piece.len()]);
}

#[test]
fn a_root_that_comes_when_a_member_has_left_writes_nothing() {
    let root = Host::create(2, 2).unwrap();
    let mut host = Host::join(root.ticket(), 1, 2).unwrap();
    let mut room = vec![0; LONG];
    let mut peers = Odd { gone: Some(0), on_read: &mut |_| (), on_write: &mut || () };
    assert_eq!(at_once(host.broadcast(0, &mut room, &mut peers)), Err(WHY));
    assert!(root.slots.has_shown(1) && root.slots.read_pieces(1, LONG).take_back().is_none());
}

#[test]
fn a_root_does_not_leave_while_a_member_writes() {
    let block = vec![1; LONG];
    let mut host = Host::create(2, 2).unwrap();
    let mut member = Host::join(host.ticket(), 1, 2).unwrap();
    let what = What::new(What::GATHER, 0);
    at_once(member.slots.show_address(what, &block[..], &mut Thread)).unwrap();
    let pieces = member.slots.own_pieces(1, LONG);
    let mut put = at_third_look(|| pieces.put());
    let mut taken = None;
    let mut on_read = |len| {
        if taken.is_none() {
            taken = pieces.take_back();
        }
        put(len);
    };
    let mut output = vec![0; 2 * LONG];
    let mut peers = Odd { gone: Some(1), on_read: &mut on_read, on_write: &mut || () };
    let gathered = host.gather(0, None, Some((&mut output[..], Blocks::Equal(LONG))), &mut peers);
    assert_eq!(at_once(gathered), Err(WHY));
    assert!(pieces.are_there() && pieces.take_back().is_none());
    let piece = taken.unwrap();
    assert!(
        output[LONG..][..piece.start] == block[..piece.start] && member.slots.room() == output[LONG..].as_ptr() as u64
    );
}

#[test]
fn who_is_gone_in_the_middle_of_a_piece_is_not_waited_for() {
    let (taken, there) = (AtomicU32::new(0), AtomicU32::new(0));
    let pieces = Pieces::new([&taken, &there], 3, Cut::of(LONG));
    pieces.open();
    assert!(pieces.take_back().is_some());
    Room(pieces).leave(1, || NOWHERE, &mut Odd { gone: None, on_read: &mut |_| (), on_write: &mut || () });
}

#[test]
fn a_call_that_is_dropped_leaves_no_piece_to_the_other_end() {
    let (taken, there) = (AtomicU32::new(0), AtomicU32::new(0));
    let pieces = Pieces::new([&taken, &there], 3, Cut::of(LONG));
    pieces.open();
    assert!(pieces.take_back().is_some());
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| drop(Room(pieces)));
        while pieces.take_back().is_some() {
            pieces.put();
        }
        assert!(!dropped.is_finished());
        pieces.put();
    });
    assert!(pieces.take_back().is_none() && pieces.are_there());
}
