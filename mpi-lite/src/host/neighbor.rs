//! Each shows its block, or its blocks, and copies those of its neighbours.

use super::{Host, Peers, What};
use crate::coll::Blocks;

impl Host {
    /// Our `block` to all `destinations`, and one of each of `sources` to its place in `output`. `None` is nobody.
    pub async fn neighbor_allgather<P: Peers>(
        &mut self,
        (sources, destinations): (&[Option<u32>], &[Option<u32>]),
        block: &[u8],
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::NEIGHBORS, 0);
        let long = !self.slots.show_now(what, block, peers) && self.offer(what, block, self.short, peers).await?;
        for (index, source) in present(sources) {
            let into = &mut output[from.start(index)..][..from.len(index)];
            if source == self.me {
                self.fits::<P>(block.len(), into.len())?;
                into.copy_from_slice(block);
            } else {
                if !self.slots.has_shown(source) {
                    self.slots.await_member(source, peers).await?;
                }
                self.take(what, source, (into.len(), 0), into, self.short, peers)?;
            }
        }
        self.slots.finish(peers);
        if long { self.await_readers(destinations, peers).await } else { Ok(()) }
    }

    /// Block i of `input` to the i-th of a grid's neighbours, and one of it to block i of `output`: neighbours come in pairs, of
    /// which what one sends backwards comes to the other from the front.
    pub async fn neighbor_alltoall<P: Peers>(
        &mut self,
        neighbors: &[Option<u32>],
        (input, to): (&[u8], Blocks<'_>),
        (output, from): (&mut [u8], Blocks<'_>),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::NEIGHBORS, 0);
        let long = self.show_blocks(what, neighbors.len(), input, to, peers).await?;
        for (index, source) in present(neighbors) {
            let (into, its) = (&mut output[from.start(index)..][..from.len(index)], index ^ 1);
            if source == self.me {
                self.fits::<P>(to.len(its), into.len())?;
                into.copy_from_slice(&input[to.start(its)..][..to.len(its)]);
            } else {
                if !self.slots.has_shown(source) {
                    self.slots.await_member(source, peers).await?;
                }
                self.take_block(what, source, (its, neighbors.len()), into, peers)?;
            }
        }
        self.slots.finish(peers);
        if long { self.await_readers(neighbors, peers).await } else { Ok(()) }
    }

    async fn await_readers<P: Peers>(&self, readers: &[Option<u32>], peers: &mut P) -> Result<(), P::Error> {
        for (_, reader) in present(readers) {
            self.slots.await_taken_by(reader, peers).await?;
        }
        Ok(())
    }
}

pub(super) fn present(neighbors: &[Option<u32>]) -> impl Iterator<Item = (usize, usize)> {
    neighbors.iter().enumerate().filter_map(|(index, rank)| Some((index, (*rank)? as usize)))
}
