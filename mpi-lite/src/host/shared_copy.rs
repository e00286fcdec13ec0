//! What is long is read by one member out of another's memory, which writes some pieces of it itself (`crate::both_ends`).

use super::{DIFFER, Host, Peers, SHORT_ALL};
use crate::both_ends::Pieces;

impl Host {
    /// Writes pieces of `data` to the room that `member` has for it, until none is left. `address` tells where that is, once one was taken.
    pub(super) fn write_pieces<P: Peers>(
        &self,
        member: usize,
        pieces: Pieces<'_>,
        address: impl Fn() -> u64,
        data: &[u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        peers.may_write(member)?;
        while let Some(piece) = pieces.take_back() {
            let written = peers.write(member, address() + piece.start as u64, &data[piece]);
            if let Err(error) = &written {
                // Before the member sees that it is given up, which then knows why.
                self.slots.ground.fail(P::code(error));
                pieces.give_up();
            } else {
                pieces.put();
            }
            self.slots.ground.tell(peers);
            written?;
        }
        Ok(())
    }

    /// Waits until all pieces are there that `owner` has taken.
    pub(super) async fn await_pieces<P: Peers>(
        &self,
        owner: usize,
        pieces: Pieces<'_>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let ground = &self.slots.ground;
        let awaits = |other| other == owner && !pieces.are_there();
        ground.until(peers, || pieces.are_there(), awaits).await?;
        if pieces.is_given_up() { Err(P::error(ground.failure().unwrap_or(DIFFER))) } else { Ok(()) }
    }
}

/// Room that another member may write pieces to: left only when it does not any more.
pub(super) struct Room<'a>(pub Pieces<'a>);

impl Room<'_> {
    /// Leaves a call that has failed. `address` tells of something in the memory of `owner`, who shows it before it takes a piece.
    pub(super) fn leave<P: Peers>(self, owner: usize, address: impl Fn() -> u64, peers: &mut P) {
        self.0.close();
        while !self.0.are_there() && peers.read(owner, address(), &mut [0]).is_ok() {
            std::thread::yield_now();
        }
        // Who has ended, and its memory with it, writes no more.
        if !self.0.are_there() {
            std::mem::forget(self);
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.close();
        while !self.0.are_there() {
            std::thread::yield_now();
        }
    }
}

/// Arrays up to here are read at once. Longer than what may be shown by a copy, so that all know how an array is shown.
pub(super) const SHORT_PIECES: usize = 64 << 10;
const _: () = assert!(SHORT_PIECES >= SHORT_ALL);
