//! Calls in which each shows few bytes, of ranks that wait, or need not (`ready.rs`). They go as in the other files, and fit those:
//! what one rank does here another may do there. But no future is made, which would cost as much as all the rest
//! (`bench/NOTES.md`, 33).

use super::neighbor::present;
use super::{Host, Peers, What};
use crate::coll::Blocks;
use crate::op::Function;

impl Host {
    /// As [`Host::barrier`].
    #[inline]
    pub fn barrier_few<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        self.slots.show_few(What::new(What::BARRIER, 0), &[], peers)?;
        self.slots.wait_all(peers)?;
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::broadcast`].
    #[inline]
    pub fn broadcast_few<P: Peers>(&mut self, root: usize, data: &mut [u8], peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::BROADCAST, root);
        if self.me == root {
            self.slots.show_few(what, data, peers)?;
        } else {
            self.take_few(what, root, (data.len(), 0), data, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::reduce`].
    #[inline]
    pub fn reduce_few<P: Peers>(
        &mut self,
        root: usize,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        combine: Function,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::REDUCE, root);
        if let Some(output) = output {
            if input.is_none() {
                // What is combined there is read from the slot.
                self.slots.show_few(what, output, peers)?;
            }
            for member in (0..self.size).filter(|member| *member != root) {
                self.slots.wait_member(member, peers)?;
            }
            self.slots.combine_few::<P>((what, output.len()), 0, (input, output), combine)?;
        } else {
            self.slots.show_few(what, input.unwrap_or_default(), peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::allreduce`], of elements of `element` bytes.
    #[inline]
    pub fn allreduce_few<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: Function,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, len) = (What::new(What::ALLREDUCE, element), output.len());
        self.slots.show_few(what, input.unwrap_or(output), peers)?;
        if self.slots.ground.is_crowded() {
            let have_it = self.slots.wait_last(peers, |slots, _| {
                slots.combine_few::<P>((what, len), 0, (input, output), combine)?;
                slots.show_result(output);
                Ok(())
            })?;
            if !have_it {
                self.slots.read_result(output);
            }
        } else {
            self.slots.wait_all(peers)?;
            self.slots.combine_few::<P>((what, len), 0, (input, output), combine)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::reduce_scatter`].
    #[inline]
    pub fn reduce_scatter_few<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        blocks: Blocks<'_>,
        element: usize,
        combine: Function,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::REDUCE_SCATTER, element);
        let given = input.unwrap_or(output);
        let (shown, at, len) = (given.len(), blocks.start(self.me), blocks.len(self.me));
        self.slots.show_few(what, given, peers)?;
        self.slots.wait_all(peers)?;
        let own = input.map(|input| &input[at..at + len]);
        self.slots.combine_few::<P>((what, shown), at, (own, &mut output[..len]), combine)?;
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::scan`].
    #[inline]
    pub fn scan_few<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        combine: Function,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCAN, 1);
        if let Some(input) = input {
            output.copy_from_slice(input);
        }
        if self.me > 0 {
            self.slots.wait_member(self.me - 1, peers)?;
            self.slots.combine_one::<P>(what, self.me - 1, output, combine)?;
        }
        if self.me + 1 < self.size {
            self.slots.show_next_few(what, output, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::exscan`].
    #[inline]
    pub fn exscan_few<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        combine: Function,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, before, last) = (What::new(What::SCAN, 0), self.me.checked_sub(1), self.me + 1 == self.size);
        match before {
            None if last => {}
            None => self.slots.show_next_few(what, input.unwrap_or(output), peers)?,
            Some(before) if last => self.take_few(what, before, (output.len(), 0), output, peers)?,
            Some(before) => {
                let mut all = std::mem::take(&mut self.work);
                all.clear();
                all.extend_from_slice(input.unwrap_or(output));
                self.take_few(what, before, (output.len(), 0), output, peers)?;
                combine(&mut all, output);
                self.slots.show_next_few(what, &all, peers)?;
                self.work = all;
            }
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::gather`].
    #[inline]
    pub fn gather_few<P: Peers>(
        &mut self,
        root: usize,
        block: Option<&[u8]>,
        output: Option<(&mut [u8], Blocks<'_>)>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::GATHER, root);
        match output {
            Some((output, blocks)) => self.take_all_few(what, blocks, block, output, peers)?,
            None => self.slots.show_few(what, block.unwrap_or_default(), peers)?,
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::scatter`].
    #[inline]
    pub fn scatter_few<P: Peers>(
        &mut self,
        root: usize,
        len: usize,
        input: Option<&[u8]>,
        block: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCATTER, root);
        let (at, whole) = (self.me * len, self.size * len);
        match (input, block) {
            (Some(input), block) => {
                self.slots.show_few(what, &input[..whole], peers)?;
                if let Some(block) = block {
                    block.copy_from_slice(&input[at..at + len]);
                }
            }
            (None, Some(block)) => self.take_few(what, root, (whole, at), block, peers)?,
            (None, None) => self.slots.wait_member(root, peers)?,
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::scatter_varying`].
    #[inline]
    pub fn scatter_varying_few<P: Peers>(
        &mut self,
        root: usize,
        input: Option<(&[u8], Blocks<'_>)>,
        block: Option<&mut [u8]>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCATTER, root);
        if let Some((input, blocks)) = input {
            self.show_blocks_few(what, self.size, input, blocks, peers)?;
            if let Some(block) = block {
                block.copy_from_slice(&input[blocks.start(self.me)..][..blocks.len(self.me)]);
            }
        } else {
            self.slots.wait_member(root, peers)?;
            if let Some(block) = block {
                self.take_block(what, root, (self.me, self.size), block, peers)?;
            }
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::allgather`].
    #[inline]
    pub fn allgather_few<P: Peers>(
        &mut self,
        blocks: Blocks<'_>,
        block: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::ALLGATHER, 0);
        let shown = block.unwrap_or(&output[blocks.start(self.me)..][..blocks.len(self.me)]);
        self.slots.show_few(what, shown, peers)?;
        self.slots.wait_all(peers)?;
        self.take_all_few(what, blocks, block, output, peers)?;
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::alltoall`].
    #[inline]
    pub fn alltoall_few<P: Peers>(
        &mut self,
        len: usize,
        input: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, whole, at) = (What::new(What::ALLTOALL, 0), len * self.size, self.me * len);
        self.slots.show_few(what, &input.unwrap_or(output)[..whole], peers)?;
        self.slots.wait_all(peers)?;
        for member in 0..self.size {
            let into = &mut output[member * len..][..len];
            if member != self.me {
                self.take_few(what, member, (whole, at), into, peers)?;
            } else if let Some(input) = input {
                into.copy_from_slice(&input[at..at + len]);
            }
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::alltoall_varying`], not in place.
    #[inline]
    pub fn alltoall_varying_few<P: Peers>(
        &mut self,
        (input, to): (&[u8], Blocks<'_>),
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::ALLTOALL, 0);
        self.show_blocks_few(what, self.size, input, to, peers)?;
        self.slots.wait_all(peers)?;
        for member in 0..self.size {
            let into = &mut output[from.start(member)..][..from.len(member)];
            if member == self.me {
                self.fits::<P>(to.len(member), into.len())?;
                into.copy_from_slice(&input[to.start(member)..][..into.len()]);
            } else {
                self.take_block(what, member, (self.me, self.size), into, peers)?;
            }
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::neighbor_allgather`].
    #[inline]
    pub fn neighbor_allgather_few<P: Peers>(
        &mut self,
        sources: &[Option<u32>],
        block: &[u8],
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::NEIGHBORS, 0);
        self.slots.show_few(what, block, peers)?;
        for (index, source) in present(sources) {
            let into = &mut output[from.start(index)..][..from.len(index)];
            self.take_few(what, source, (into.len(), 0), into, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// As [`Host::neighbor_alltoall`].
    #[inline]
    pub fn neighbor_alltoall_few<P: Peers>(
        &mut self,
        neighbors: &[Option<u32>],
        (input, to): (&[u8], Blocks<'_>),
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::NEIGHBORS, 0);
        self.show_blocks_few(what, neighbors.len(), input, to, peers)?;
        for (index, source) in present(neighbors) {
            self.slots.wait_member(source, peers)?;
            let into = &mut output[from.start(index)..][..from.len(index)];
            self.take_block(what, source, (index ^ 1, neighbors.len()), into, peers)?;
        }
        self.slots.finish(peers);
        Ok(())
    }

    /// What all have shown, each to its place; of ours only what is not in place.
    #[inline]
    fn take_all_few<P: Peers>(
        &self,
        what: What,
        blocks: Blocks<'_>,
        own: Option<&[u8]>,
        output: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        for member in 0..self.size {
            let into = &mut output[blocks.start(member)..][..blocks.len(member)];
            if member != self.me {
                self.take_few(what, member, (into.len(), 0), into, peers)?;
            } else if let Some(own) = own {
                into.copy_from_slice(own);
            }
        }
        Ok(())
    }

    /// Fills `into` from `at` on of the `shown` bytes that `member` shows, once it has.
    #[inline]
    fn take_few<P: Peers>(
        &self,
        what: What,
        member: usize,
        (shown, at): (usize, usize),
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        self.slots.wait_member(member, peers)?;
        self.slots.check::<P>(member, what, shown)?;
        self.slots.read(member, shown, at, into);
        Ok(())
    }
}
