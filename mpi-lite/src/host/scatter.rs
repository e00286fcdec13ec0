//! The root shows all blocks, and each copies its own.

use super::{Host, Peers, SHORT};

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
        let short = len * self.size <= SHORT;
        match input {
            Some(input) if short => self.slots.show(root, &input[..len * self.size]),
            Some(input) => self.show_address(input),
            None => {}
        }
        self.meet(peers)?;
        let at = self.me * len;
        match (input, block) {
            (Some(input), Some(block)) => block.copy_from_slice(&input[at..at + len]),
            (None, Some(block)) if short => self.slots.read(root, at, block),
            (None, Some(block)) => peers.read(root, self.address(root) + at as u64, block)?,
            (_, None) => {}
        }
        if short { Ok(()) } else { self.meet(peers) }
    }
}
