//! Each shows its block, and all copy all.

use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `block` to its place in everybody's `output`. In place, ours is there already.
    pub async fn allgather<P: Peers>(
        &mut self,
        blocks: Blocks<'_>,
        block: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::ALLGATHER, 0);
        let shown = block.unwrap_or(&output[blocks.start(self.me)..][..blocks.len(self.me)]);
        let short = self.short_common();
        let long = !self.slots.show_now(what, shown, peers) && self.offer(what, shown, short, peers).await?;
        self.slots.await_all(peers).await?;
        self.take_blocks(what, blocks, (block, output), short, peers).await?;
        self.slots.finish(peers);
        if long { self.slots.await_taken(peers).await } else { Ok(()) }
    }
}
