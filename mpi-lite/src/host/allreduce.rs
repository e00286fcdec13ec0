//! Each shows its array. Short ones are combined by everybody for itself, or, with more ranks than cores, by whoever comes
//! last, for all; of long ones each combines a part of all, and all copy the parts.

use super::slots::Slots;
use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `input`, of elements of `element` bytes, combined in the order of ranks in everybody's `output`. In
    /// place, the input is there.
    pub async fn allreduce<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, len) = (What::new(What::ALLREDUCE, element), output.len());
        if len > self.short_combined() {
            return self.allreduce_long(what, input, output, element, combine, peers).await;
        }
        if !self.slots.show_now(what, input.unwrap_or(output), peers) {
            self.slots.show(what, input.unwrap_or(output), peers).await?;
        }
        if self.slots.ground.is_crowded() {
            let last = |slots: &mut Slots, _: &mut P| {
                slots.combine::<P>((what, len), 0, (input, output), element, combine)?;
                slots.show_result(output);
                Ok(())
            };
            let have_it = self.slots.await_last(peers, last).await?;
            if !have_it {
                self.slots.read_result(output);
            }
        } else {
            self.slots.await_all(peers).await?;
            self.slots.combine::<P>((what, len), 0, (input, output), element, combine)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    async fn allreduce_long<P: Peers>(
        &mut self,
        what: What,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let len = output.len();
        self.slots.show_address(what, input.unwrap_or(output), peers).await?;
        self.slots.await_all(peers).await?;
        let parts = Blocks::cut(len, element, self.size);
        let at = parts.start(self.me);
        let own = at..at + parts.len(self.me);
        // In place too: of our array the others read their parts only.
        let given = input.map(|input| &input[own.clone()]);
        self.combine_read((what, len), at, (given, &mut output[own.clone()]), element, combine, peers)?;
        self.slots.show_address(what, &raw const output[own.clone()], peers).await?;
        // Nobody reads our array any more.
        self.slots.await_all(peers).await?;
        for turn in 1..self.size {
            let member = (self.me + turn) % self.size;
            let into = &mut output[parts.start(member)..][..parts.len(member)];
            self.slots.check::<P>(member, what, into.len())?;
            peers.read(member, self.slots.address(member), into)?;
        }
        self.slots.finish(peers);
        self.slots.await_taken(peers).await
    }
}
