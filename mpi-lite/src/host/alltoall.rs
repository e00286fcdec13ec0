//! Each shows its blocks for all, and copies those for it.

use super::{Host, Peers, SHORT_ALL};

impl Host {
    /// Block r of `input`, of `len` bytes, to rank r, and its block for us to block r of `output`. In place, the input is there.
    pub fn alltoall<P: Peers>(
        &mut self,
        len: usize,
        input: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let short = len * self.size <= SHORT_ALL;
        match input {
            _ if short => self.slots.show(&input.unwrap_or(output)[..len * self.size], peers)?,
            Some(input) => self.show_address(input, peers)?,
            // What is read by others must not be written by us meanwhile.
            None => {
                self.work.clear();
                self.work.extend_from_slice(output);
                self.show_address(&raw const self.work[..], peers)?;
            }
        }
        self.slots.await_all(peers)?;
        let at = self.me * len;
        for turn in 1..self.size {
            // Each begins with another, so that not all read the same memory.
            let member = (self.me + turn) % self.size;
            let into = &mut output[member * len..][..len];
            if short {
                self.slots.read(member, len * self.size, at, into);
            } else {
                peers.read(member, self.address(member) + at as u64, into)?;
            }
        }
        if let Some(input) = input {
            output[at..at + len].copy_from_slice(&input[at..at + len]);
        }
        self.slots.finish();
        if short { Ok(()) } else { self.slots.await_taken(peers) }
    }
}
