//! Each shows its blocks for all, and copies those for it.

use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Block r of `input`, of `len` bytes, to rank r, and its block for us to block r of `output`. In place, the input is there.
    pub async fn alltoall<P: Peers>(
        &mut self,
        len: usize,
        input: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, whole) = (What::new(What::ALLTOALL, 0), len * self.size);
        let most = self.short_parted();
        let long = whole > most;
        let kept = if long && input.is_none() { self.keep(output) } else { Vec::new() };
        let shown = input.unwrap_or(if long { &kept } else { output });
        let by_address = self.offer(what, &shown[..whole], most, peers).await?;
        self.slots.await_all(peers).await?;
        let at = self.me * len;
        for turn in 1..self.size {
            // Each begins with another, so that not all read the same memory.
            let member = (self.me + turn) % self.size;
            let into = &mut output[member * len..][..len];
            self.take(what, member, (whole, at), into, most, peers)?;
        }
        if let Some(input) = input {
            output[at..at + len].copy_from_slice(&input[at..at + len]);
        }
        self.slots.finish(peers);
        if by_address {
            self.slots.await_taken(peers).await?;
        }
        if long {
            self.came = kept;
        }
        Ok(())
    }

    /// As [`Self::alltoall`], blocks `to` of the input to blocks `from` of the output. In place they are the same.
    pub async fn alltoall_varying<P: Peers>(
        &mut self,
        (input, to): (Option<&[u8]>, Blocks<'_>),
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::ALLTOALL, 0);
        let kept = if input.is_none() { self.keep(output) } else { Vec::new() };
        let shown = input.unwrap_or(&kept);
        let long = self.show_blocks(what, self.size, shown, to, peers).await?;
        self.slots.await_all(peers).await?;
        for turn in 0..self.size {
            let member = (self.me + turn) % self.size;
            let into = &mut output[from.start(member)..][..from.len(member)];
            if member != self.me {
                self.take_block(what, member, (self.me, self.size), into, peers)?;
            } else if let Some(input) = input {
                self.fits::<P>(to.len(member), into.len())?;
                into.copy_from_slice(&input[to.start(member)..][..to.len(member)]);
            }
        }
        self.slots.finish(peers);
        if long {
            self.slots.await_taken(peers).await?;
        }
        if input.is_none() {
            self.came = kept;
        }
        Ok(())
    }

    /// A copy of what others read while it is overwritten.
    fn keep(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut kept = std::mem::take(&mut self.came);
        kept.clear();
        kept.extend_from_slice(bytes);
        kept
    }
}
