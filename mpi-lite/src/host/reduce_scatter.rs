//! Each shows its array and combines its block of all.

use super::{Host, Peers, SHORT_ALL};
use crate::coll::Blocks;

impl Host {
    /// Our block of everybody's `input`, combined in the order of ranks, to the beginning of `output`. In place, the input
    /// is there.
    pub fn reduce_scatter<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        blocks: Blocks,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let given = input.unwrap_or(output);
        let (at, len) = (blocks.start(self.me), blocks.len(self.me));
        let shown = given.len();
        if shown <= SHORT_ALL {
            self.slots.show(given, peers)?;
            self.slots.await_all(peers)?;
            self.slots.combine(0..self.size, shown, at, &mut output[..len], combine);
            self.slots.finish();
            return Ok(());
        }
        self.show_address(given, peers)?;
        self.slots.await_all(peers)?;
        // Not to the output yet: in place, others still read there.
        let mut block = std::mem::take(&mut self.work);
        block.resize(len, 0);
        let combined = self.combine_read(0..self.size, at, (given, &mut block), element, combine, peers);
        self.work = block;
        combined?;
        self.slots.finish();
        self.slots.await_taken(peers)?;
        output[..len].copy_from_slice(&self.work);
        Ok(())
    }
}
