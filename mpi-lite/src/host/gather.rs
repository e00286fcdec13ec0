//! Each shows its block, and the root copies all.

use super::{Host, Peers, SHORT};

impl Host {
    /// Everybody's `block` of `len` bytes to the `output` of `root`. In place, the root's is there already.
    pub fn gather<P: Peers>(
        &mut self,
        root: usize,
        len: usize,
        block: Option<&[u8]>,
        output: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let short = len <= SHORT;
        if let Some(output) = output {
            self.take_blocks(len, block, output, peers)?;
            self.slots.finish();
            return Ok(());
        }
        let block = block.unwrap_or_default();
        if short {
            self.slots.show(block, peers)?;
        } else {
            self.show_address(block, peers)?;
        }
        self.slots.finish();
        if short { Ok(()) } else { self.slots.await_taken_by(root, peers) }
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
        let short = len <= SHORT;
        for (member, into) in output.chunks_exact_mut(len).enumerate().take(self.size) {
            if member == self.me {
                if let Some(own) = own {
                    into.copy_from_slice(own);
                }
                continue;
            }
            self.slots.await_member(member, peers)?;
            if short {
                self.slots.read(member, len, 0, into);
            } else {
                peers.read(member, self.address(member), into)?;
            }
        }
        Ok(())
    }
}
