//! Each shows its array. Short ones are combined by everybody for itself, or, with more ranks than cores, by whoever comes
//! last, for all; of long ones each combines a part of all, and all copy the parts.

use super::{Host, Peers, SHORT_ALL};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `input`, of elements of `element` bytes, combined in the order of ranks in everybody's `output`. In
    /// place, the input is there.
    pub fn allreduce<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if output.len() > SHORT_ALL {
            return self.allreduce_long(input, output, element, combine, peers);
        }
        self.slots.show(input.unwrap_or(output), peers)?;
        if self.slots.crowded {
            let (size, len) = (self.size, output.len());
            self.slots.await_last(peers, |slots| {
                slots.combine(0..size, len, 0, output, combine);
                slots.show_result(output);
            })?;
            self.slots.read_result(output);
        } else {
            self.slots.await_all(peers)?;
            self.slots.combine(0..self.size, output.len(), 0, output, combine);
        }
        self.slots.finish();
        Ok(())
    }

    fn allreduce_long<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        self.show_address(input.unwrap_or(output), peers)?;
        self.slots.await_all(peers)?;
        let parts = Blocks::cut(output.len(), element, self.size);
        let own = parts.start(self.me)..parts.start(self.me) + parts.len(self.me);
        let mut part = std::mem::take(&mut self.work);
        part.resize(own.len(), 0);
        let given = input.unwrap_or(output);
        let combined = self.combine_read(0..self.size, own.start, (given, &mut part), element, combine, peers);
        self.work = part;
        combined?;
        self.slots.finish();
        self.show_address(&raw const self.work[..], peers)?;
        // Nobody reads our array any more.
        self.slots.await_all(peers)?;
        output[own].copy_from_slice(&self.work);
        for turn in 1..self.size {
            let member = (self.me + turn) % self.size;
            let into = &mut output[parts.start(member)..][..parts.len(member)];
            peers.read(member, self.address(member), into)?;
        }
        self.slots.finish();
        self.slots.await_taken(peers)
    }
}
