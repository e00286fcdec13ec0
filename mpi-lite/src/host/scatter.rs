//! The root shows all blocks, and each copies its own.

use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// A block of `len` bytes of the root's `input` to each. In place, the root's stays where it is.
    pub async fn scatter<P: Peers>(
        &mut self,
        root: usize,
        len: usize,
        input: Option<&[u8]>,
        block: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCATTER, root);
        let (at, whole) = (self.me * len, self.size * len);
        if let Some(input) = input {
            let long = !self.slots.show_now(what, &input[..whole], peers)
                && self.offer(what, &input[..whole], self.short_parted(), peers).await?;
            if let Some(block) = block {
                block.copy_from_slice(&input[at..at + len]);
            }
            self.slots.finish(peers);
            return if long { self.slots.await_taken(peers).await } else { Ok(()) };
        }
        if !self.slots.has_shown(root) {
            self.slots.await_member(root, peers).await?;
        }
        if let Some(block) = block {
            self.take(what, root, (whole, at), block, self.short_parted(), peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Self::scatter`], of `blocks` that only the root knows.
    pub async fn scatter_varying<P: Peers>(
        &mut self,
        root: usize,
        input: Option<(&[u8], Blocks<'_>)>,
        block: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCATTER, root);
        if let Some((input, blocks)) = input {
            let long = self.show_blocks(what, self.size, input, blocks, peers).await?;
            if let Some(block) = block {
                block.copy_from_slice(&input[blocks.start(self.me)..][..blocks.len(self.me)]);
            }
            self.slots.finish(peers);
            return if long { self.slots.await_taken(peers).await } else { Ok(()) };
        }
        if !self.slots.has_shown(root) {
            self.slots.await_member(root, peers).await?;
        }
        if let Some(block) = block {
            self.take_block(what, root, (self.me, self.size), block, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }
}
