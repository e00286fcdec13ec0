//! Each shows its array and combines its block of all.

use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Our block of everybody's `input`, combined in the order of ranks, to the beginning of `output`. In place, the input
    /// is there.
    pub async fn reduce_scatter<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        blocks: Blocks<'_>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::REDUCE_SCATTER, element);
        let given = input.unwrap_or(output);
        let (at, len) = (blocks.start(self.me), blocks.len(self.me));
        let shown = given.len();
        if shown <= self.short_combined() {
            if !self.slots.show_now(what, given, peers) {
                self.slots.show(what, given, peers).await?;
            }
            self.slots.await_all(peers).await?;
            let own = input.map(|input| &input[at..at + len]);
            self.slots.combine::<P>((what, shown), at, (own, &mut output[..len]), element, combine)?;
            self.slots.finish(peers);
            return Ok(());
        }
        self.slots.show_address(what, given, peers).await?;
        self.slots.await_all(peers).await?;
        let own = Some(&given[at..at + len]);
        if let Some(input) = input {
            let own = Some(&input[at..at + len]);
            self.combine_read((what, shown), at, (own, &mut output[..len]), element, combine, peers)?;
            return self.slots.await_taken(peers).await;
        }
        // Not to the output yet: others still read there.
        let mut block = std::mem::take(&mut self.work);
        block.resize(len, 0);
        self.combine_read((what, shown), at, (own, &mut block), element, combine, peers)?;
        self.slots.await_taken(peers).await?;
        output[..len].copy_from_slice(&block);
        self.work = block;
        Ok(())
    }
}
