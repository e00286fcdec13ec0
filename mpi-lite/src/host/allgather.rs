//! Each shows its block, and all copy all.

use super::{Host, Peers, SHORT};

impl Host {
    /// Everybody's `block` of `len` bytes to everybody's `output`. In place, ours is there already.
    pub fn allgather<P: Peers>(
        &mut self,
        len: usize,
        block: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let short = len <= SHORT;
        let shown = block.unwrap_or(&output[self.me * len..][..len]);
        if short {
            self.slots.show(shown, peers)?;
        } else {
            self.show_address(shown, peers)?;
        }
        self.slots.await_all(peers)?;
        self.take_blocks(len, block, output, peers)?;
        self.slots.finish();
        if short { Ok(()) } else { self.slots.await_taken(peers) }
    }
}
