//! Each shows its block, and the root copies all.

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
            self.take_blocks(what, blocks, (block, output), self.short, peers).await?;
            self.slots.finish(peers);
            return Ok(());
        }
        let block = block.unwrap_or_default();
        let long = !self.slots.show_now(what, block, peers) && self.offer(what, block, self.short, peers).await?;
        self.slots.finish(peers);
        if long { self.slots.await_taken_by(root, peers).await } else { Ok(()) }
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
