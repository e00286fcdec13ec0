//! Each shows its array. Of short ones, whoever comes last combines all, and all copy that; of long ones each combines a part of
//! all, and all copy the parts.

use super::{Host, Peers, SHORT, gate};
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
        if output.len() <= SHORT {
            self.slots.show(self.me, input.unwrap_or(output));
            self.slots.turn();
            gate::pass(self.slots.shared(), self.size, peers, || {
                self.combine_shown(0..self.size, 0, output, combine)?;
                self.slots.show_result(output);
                Ok(())
            })?;
            self.slots.read_result(output);
            return Ok(());
        }
        self.show_address(input.unwrap_or(output));
        self.meet(peers)?;
        let parts = Blocks::cut(output.len(), element, self.size);
        let own = parts.start(self.me)..parts.start(self.me) + parts.len(self.me);
        let mut part = std::mem::take(&mut self.work);
        part.resize(own.len(), 0);
        let given = input.unwrap_or(output);
        let combined = self.combine_read(0..self.size, own.start, (given, &mut part), element, combine, peers);
        self.work = part;
        combined?;
        output[own].copy_from_slice(&self.work);
        self.show_address(&self.work);
        self.meet(peers)?;
        for turn in 1..self.size {
            let member = (self.me + turn) % self.size;
            let into = &mut output[parts.start(member)..][..parts.len(member)];
            peers.read(member, self.address(member), into)?;
        }
        self.meet(peers)
    }
}
