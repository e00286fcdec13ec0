//! Each shows its block, and the root copies all.

use super::{Host, Peers, SHORT};

impl Host {
    /// Everybody's `block` of `len` bytes to the root's `output`. In place, the root's is there already.
    pub fn gather<P: Peers>(
        &mut self,
        len: usize,
        block: Option<&[u8]>,
        output: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let short = len <= SHORT;
        if let (Some(block), true) = (block, output.is_none()) {
            if short {
                self.slots.show(self.me, block);
            } else {
                self.show_address(block);
            }
        }
        self.meet(peers)?;
        if let Some(output) = output {
            self.take_blocks(len, block, output, peers)?;
        }
        if short { Ok(()) } else { self.meet(peers) }
    }

    /// What all have shown, one after the other; of ours only what is not in place.
    pub(super) fn take_blocks<P: Peers>(
        &self,
        len: usize,
        own: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if len == 0 {
            return Ok(());
        }
        for (member, into) in output.chunks_exact_mut(len).enumerate().take(self.size) {
            match own {
                _ if member != self.me && len <= SHORT => self.slots.read(member, 0, into),
                _ if member != self.me => peers.read(member, self.address(member), into)?,
                Some(own) => into.copy_from_slice(own),
                None => {}
            }
        }
        Ok(())
    }
}
