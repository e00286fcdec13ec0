//! The root shows all blocks, and each copies its own.

use super::{Host, Peers, SHORT_ALL};

impl Host {
    /// A block of `len` bytes of the root's `input` to each. In place, the root's stays where it is.
    pub fn scatter<P: Peers>(
        &mut self,
        root: usize,
        len: usize,
        input: Option<&[u8]>,
        block: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let short = len * self.size <= SHORT_ALL;
        let at = self.me * len;
        if let Some(input) = input {
            if short {
                self.slots.show(&input[..len * self.size], peers)?;
            } else {
                self.show_address(input, peers)?;
            }
            if let Some(block) = block {
                block.copy_from_slice(&input[at..at + len]);
            }
            self.slots.finish();
            return if short { Ok(()) } else { self.slots.await_taken(peers) };
        }
        self.slots.await_member(root, peers)?;
        match block {
            Some(block) if short => self.slots.read(root, len * self.size, at, block),
            Some(block) => peers.read(root, self.address(root) + at as u64, block)?,
            None => {}
        }
        self.slots.finish();
        Ok(())
    }
}
