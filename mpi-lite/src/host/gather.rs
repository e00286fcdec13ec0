//! Each shows its block, and the root copies all; of what is long, each member copies, too, from the other end of its own
//! (`crate::both_ends`): else only the root would have something to do.

use super::shared_copy::{Room, SHORT_PIECES};
use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `block` to its place in the `output` of `root`, who alone knows how long all `blocks` are. In place, the
    /// root's is there already.
    pub async fn gather<P: Peers>(
        &mut self,
        root: usize,
        block: Option<&[u8]>,
        output: Option<(&mut [u8], Blocks<'_>)>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::GATHER, root);
        if let Some((output, blocks)) = output {
            let long = |member| member != root && blocks.len(member) > SHORT_PIECES;
            if (0..self.size).any(long) {
                self.take_long_blocks(what, blocks, output, peers).await?;
                if let Some(block) = block {
                    output[blocks.start(root)..][..blocks.len(root)].copy_from_slice(block);
                }
            } else {
                self.take_blocks(what, blocks, (block, output), self.short, peers).await?;
            }
            self.slots.finish(peers);
            return Ok(());
        }
        let block = block.unwrap_or_default();
        let long = !self.slots.show_now(what, block, peers) && self.offer(what, block, self.short, peers).await?;
        if long && block.len() > SHORT_PIECES {
            self.give_block(root, block, peers).await?;
        }
        self.slots.finish(peers);
        if long { self.slots.await_taken_by(root, peers).await } else { Ok(()) }
    }

    /// Writes pieces of what we show to the room that the root has for it, if it opens that before it is done.
    async fn give_block<P: Peers>(&self, root: usize, block: &[u8], peers: &mut P) -> Result<(), P::Error> {
        let (slots, pieces) = (&self.slots, self.slots.own_pieces(self.me, block.len()));
        let ready = || pieces.are_left() || slots.has_left(root);
        slots.ground.until(peers, ready, |other| other == root && !ready()).await?;
        if pieces.are_left() { self.write_pieces(root, pieces, || slots.room(), block, peers) } else { Ok(()) }
    }

    /// As [`Self::take_blocks`] of all but ours, by pieces of the long ones.
    async fn take_long_blocks<P: Peers>(
        &self,
        what: What,
        blocks: Blocks<'_>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let mut all: Vec<_> = (0..self.size).map(|_| Block::ToCome).collect();
        let taken = self.take_pieces_of(&mut all, what, blocks, output, peers).await;
        if taken.is_err() {
            for (member, block) in all.into_iter().enumerate() {
                if let Block::Open(room) = block {
                    room.leave(member, || self.slots.address(member), peers);
                }
            }
        }
        taken
    }

    async fn take_pieces_of<'a, P: Peers>(
        &'a self,
        all: &mut [Block<'a>],
        what: What,
        blocks: Blocks<'_>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (slots, others) = (&self.slots, || (0..self.size).filter(|member| *member != self.me));
        let range = |member| blocks.start(member)..blocks.start(member) + blocks.len(member);
        loop {
            // Who has left without showing anything was called with something else.
            let has_come = |member| slots.has_shown(member) || slots.has_left(member);
            for member in others().filter(|member| has_come(*member)) {
                if matches!(all[member], Block::ToCome) {
                    let into = &mut output[range(member)];
                    all[member] = if into.len() > SHORT_PIECES {
                        slots.check::<P>(member, what, into.len())?;
                        slots.open_room(member, into, peers);
                        Block::Open(Room(slots.own_pieces(member, into.len())))
                    } else {
                        self.take(what, member, (into.len(), 0), into, self.short, peers)?;
                        Block::Taken
                    };
                }
            }
            let next = others().find_map(|member| match &all[member] {
                Block::Open(room) => room.0.take_front().map(|piece| (member, piece)),
                _ => None,
            });
            if let Some((member, piece)) = next {
                let from = slots.address(member) + piece.start as u64;
                peers.read(member, from, &mut output[range(member)][piece])?;
            } else if let Some(member) = others().find(|member| matches!(all[*member], Block::ToCome)) {
                slots.await_member(member, peers).await?;
            } else {
                break;
            }
        }
        for (member, block) in all.iter().enumerate() {
            if let Block::Open(room) = block {
                self.await_pieces(member, room.0, peers).await?;
            }
        }
        Ok(())
    }

    /// What all have shown, by a copy up to `most` bytes, each to its place; of ours only what is not in place.
    pub(super) async fn take_blocks<P: Peers>(
        &self,
        what: What,
        blocks: Blocks<'_>,
        (own, output): (Option<&[u8]>, &mut [u8]),
        most: usize,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        for turn in 0..self.size {
            // Each begins with another, so that not all read the same memory.
            let member = (self.me + turn) % self.size;
            let into = &mut output[blocks.start(member)..][..blocks.len(member)];
            if member != self.me {
                if !self.slots.has_shown(member) {
                    self.slots.await_member(member, peers).await?;
                }
                self.take(what, member, (into.len(), 0), into, most, peers)?;
            } else if let Some(own) = own {
                into.copy_from_slice(own);
            }
        }
        Ok(())
    }
}

/// How far a member's block is.
enum Block<'a> {
    ToCome,
    /// Both ends copy it.
    Open(Room<'a>),
    Taken,
}
