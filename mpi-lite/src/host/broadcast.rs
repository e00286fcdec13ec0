//! One copy by the root and one by each member; or, of what is long, one by each member, all at the same time. The root copies then, too,
//! from the other end of each member's array (`crate::pieces`): else it would have nothing to do, and members on one core wait for each other.

use super::{DIFFER, Host, Peers, SHORT_ALL, What};
use crate::pieces::Pieces;

impl Host {
    /// The root's `data` to all.
    pub async fn broadcast<P: Peers>(&mut self, root: usize, data: &mut [u8], peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::BROADCAST, root);
        let short = self.short_common();
        let by_pieces = data.len() > short.max(SHORT_PIECES);
        if self.me == root {
            let long = !self.slots.show_now(what, data, peers) && self.offer(what, data, short, peers).await?;
            if by_pieces {
                self.give(what, data, peers).await?;
            }
            self.slots.finish(peers);
            return if long { self.slots.await_taken(peers).await } else { Ok(()) };
        }
        if by_pieces {
            self.slots.show_room(what, data, peers).await?;
        }
        if !self.slots.has_shown(root) {
            self.slots.await_member(root, peers).await?;
        }
        if by_pieces {
            self.take_pieces(what, root, data, peers).await?;
        } else {
            self.take(what, root, (data.len(), 0), data, short, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// Writes pieces of `data` to the room of each member that has come, until none is left.
    async fn give<P: Peers>(&mut self, what: What, data: &[u8], peers: &mut P) -> Result<(), P::Error> {
        let (slots, len) = (&self.slots, data.len());
        let others = || (0..self.size).filter(|member| *member != self.me);
        loop {
            let is_to_take = |member: &usize| slots.has_shown(*member) && slots.pieces(*member, len).are_left();
            if let Some(member) = others().find(is_to_take) {
                slots.check::<P>(member, what, len)?;
                peers.may_write(member)?;
                let (pieces, address) = (slots.pieces(member, len), slots.address(member));
                while let Some(piece) = pieces.take_back() {
                    let written = peers.write(member, address + piece.start as u64, &data[piece]);
                    if let Err(error) = &written {
                        // Before the member sees that it is given up, which then knows why.
                        slots.ground.fail(P::code(error));
                        pieces.give_up();
                    } else {
                        pieces.put();
                    }
                    slots.ground.tell(peers);
                    written?;
                }
            } else if let Some(member) = others().find(|member| !slots.has_shown(*member) && !slots.has_left(*member)) {
                slots.await_member(member, peers).await?;
            } else {
                return Ok(());
            }
        }
    }

    /// Fills `into` with what the root shows, but for the pieces that it writes, and waits for these.
    async fn take_pieces<P: Peers>(
        &self,
        what: What,
        root: usize,
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (slots, address) = (&self.slots, self.slots.address(root));
        let room = Room(slots.pieces(self.me, into.len()));
        let pieces = &room.0;
        let mut taken = slots.check::<P>(root, what, into.len());
        while taken.is_ok()
            && let Some(piece) = pieces.take_front()
        {
            taken = peers.read(root, address + piece.start as u64, &mut into[piece]);
        }
        if taken.is_ok() {
            let awaits = |other| other == root && !pieces.are_there();
            taken = slots.ground.until(peers, || pieces.are_there(), awaits).await;
        }
        if taken.is_ok() && pieces.is_given_up() {
            taken = Err(P::error(slots.ground.failure().unwrap_or(DIFFER)));
        }
        if taken.is_err() {
            pieces.close();
            while !pieces.are_there() && peers.read(root, address, &mut [0]).is_ok() {
                std::thread::yield_now();
            }
            // A root that has ended, and its memory with it, writes no more.
            if !pieces.are_there() {
                std::mem::forget(room);
            }
        }
        taken
    }
}

/// Room that the root may write to: left only when it does not any more.
struct Room<'a>(Pieces<'a>);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.close();
        while !self.0.are_there() {
            std::thread::yield_now();
        }
    }
}

/// Arrays up to here are read at once. Longer than what may be shown by a copy, so that all know what the root shows.
const SHORT_PIECES: usize = 64 << 10;
const _: () = assert!(SHORT_PIECES >= SHORT_ALL);

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::host::at_once;
    use crate::host::tests::{Thread, run};

    const LONG: usize = 1 << 20;
    const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();

    /// A rank that cannot write to others, or reads only once somebody has tried to.
    struct Odd<'a> {
        tried: &'a AtomicBool,
        /// It finds rank 0 gone, but still reads its memory: so often until it does this.
        gone: Option<(usize, &'a mut dyn FnMut())>,
    }

    impl Peers for Odd<'_> {
        type Error = NonZeroU32;
        const WAITS: bool = true;

        fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
            if self.gone.is_some() && awaits(0) { Err(WHY) } else { Ok(false) }
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

        fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
            if let Some((reads, then)) = &mut self.gone
                && into.len() == 1
            {
                *reads -= 1;
                if *reads == 0 {
                    then();
                }
            }
            while !self.tried.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Thread.read(member, address, into)
        }

        fn may_write(&mut self, _: usize) -> Result<(), NonZeroU32> {
            Ok(())
        }

        fn write(&mut self, _: usize, _: u64, _: &[u8]) -> Result<(), NonZeroU32> {
            self.tried.store(true, Ordering::Release);
            Err(WHY)
        }

        fn code(error: &NonZeroU32) -> NonZeroU32 {
            *error
        }

        fn error(code: NonZeroU32) -> NonZeroU32 {
            code
        }
    }

    #[test]
    fn a_piece_that_was_not_written_is_not_taken_for_there() {
        let tried = AtomicBool::new(false);
        let ended = run(3, |me, host| {
            let mut data = vec![me as u8; LONG];
            let done = at_once(host.broadcast(0, &mut data, &mut Odd { tried: &tried, gone: None }));
            if done.is_err() {
                host.fail(WHY);
                host.tell(&mut Thread);
            }
            // As `comm` has it: a call is over when no member has failed. The root has written to one of the two.
            done.and(host.failure().map_or(Ok(()), Err)).map(|()| data == [0; LONG])
        });
        assert_eq!(ended[0], Err(WHY));
        assert!(
            ended.iter().all(|end| matches!(end, Err(WHY) | Ok(true))) && ended[1..].contains(&Err(WHY)),
            "{ended:?}"
        );
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
        let pieces = root.slots.pieces(1, LONG);
        let piece = pieces.take_back().unwrap();
        let mut written = false;
        let mut put = || {
            written = true;
            pieces.put();
        };
        let mut peers = Odd { tried: &AtomicBool::new(true), gone: Some((3, &mut put)) };
        assert_eq!(at_once(host.take_pieces(what, 0, &mut room, &mut peers)), Err(WHY));
        assert!(written && room[..piece.start] == data[..piece.start] && pieces.take_back().is_none());
    }

    #[test]
    fn a_call_that_is_dropped_leaves_no_piece_to_the_root() {
        let (taken, there) = Default::default();
        let pieces = Pieces::new([&taken, &there], 3, crate::pieces::Cut::of(LONG));
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
}
