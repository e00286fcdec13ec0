//! One copy by the root and one by each member; or, of what is long, one by each member, all at the same time. The root copies then, too,
//! from the other end of each member's array (`crate::both_ends`): else it would have nothing to do, and members on one core wait for each other.

use super::shared_copy::{Room, SHORT_PIECES};
use super::{Host, Peers, What};
use crate::both_ends::Pieces;

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
            self.take_pieces(what, root, data, peers).await?;
        } else {
            if !self.slots.has_shown(root) {
                self.slots.await_member(root, peers).await?;
            }
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
            let is_to_take = |member: &usize| slots.has_shown(*member) && slots.read_pieces(*member, len).are_left();
            if let Some(member) = others().find(is_to_take) {
                slots.check::<P>(member, what, len)?;
                self.write_pieces(member, slots.read_pieces(member, len), || slots.address(member), data, peers)?;
            } else if let Some(member) = others().find(|member| !slots.has_shown(*member) && !slots.has_left(*member)) {
                slots.await_member(member, peers).await?;
            } else {
                return Ok(());
            }
        }
    }

    /// Fills `into`, which is shown as room, with what the root shows, but for the pieces that it writes, and waits for these.
    pub(super) async fn take_pieces<P: Peers>(
        &self,
        what: What,
        root: usize,
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        // From here on the root may write there, also one that comes when we have left.
        let room = Room(self.slots.read_pieces(self.me, into.len()));
        let taken = self.read_from_root(what, root, room.0, into, peers).await;
        if taken.is_err() {
            room.leave(root, || self.slots.address(root), peers);
        }
        taken
    }

    async fn read_from_root<P: Peers>(
        &self,
        what: What,
        root: usize,
        pieces: Pieces<'_>,
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if !self.slots.has_shown(root) {
            self.slots.await_member(root, peers).await?;
        }
        self.slots.check::<P>(root, what, into.len())?;
        let address = self.slots.address(root);
        while let Some(piece) = pieces.take_front() {
            peers.read(root, address + piece.start as u64, &mut into[piece])?;
        }
        self.await_pieces(root, pieces, peers).await
    }
}
