//! Each shows its array. Of short ones the root combines all, and of long ones too while that is soon done; else each combines a
//! part of all, and the root copies the parts.

use super::{Host, PIECE, Peers, What, whole};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `input`, of elements of `element` bytes, combined in the order of ranks in the `output` of `root`. In
    /// place, the root's input is there.
    pub async fn reduce<P: Peers>(
        &mut self,
        root: usize,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::REDUCE, root);
        let len = input.or(output.as_deref()).unwrap_or_default().len();
        if len <= self.short_parted() {
            return self.reduce_short((what, input, output), element, combine, peers).await;
        }
        if len.saturating_mul(self.size - 1) > ALONE {
            return self.reduce_parts(what, input, output, element, combine, peers).await;
        }
        self.reduce_long(what, input, output, element, combine, peers).await
    }

    async fn reduce_short<P: Peers>(
        &mut self,
        (what, input, output): (What, Option<&[u8]>, Option<&mut [u8]>),
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let Some(output) = output else {
            if !self.slots.show_now(what, input.unwrap_or_default(), peers) {
                self.slots.show(what, input.unwrap_or_default(), peers).await?;
            }
            self.slots.finish(peers);
            return Ok(());
        };
        if input.is_none() {
            // What is combined there is read from the slot.
            if !self.slots.show_now(what, output, peers) {
                self.slots.show(what, output, peers).await?;
            }
        }
        self.slots.await_members(0..self.me, peers).await?;
        self.slots.await_members(self.me + 1..self.size, peers).await?;
        self.slots.combine::<P>((what, output.len()), 0, (input, output), element, combine)?;
        self.slots.finish(peers);
        Ok(())
    }

    async fn reduce_long<P: Peers>(
        &mut self,
        what: What,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let Some(output) = output else {
            let long = self.offer(what, input.unwrap_or_default(), self.short_parted(), peers).await?;
            self.slots.finish(peers);
            return if long { self.slots.await_taken_by(what.detail as usize, peers).await } else { Ok(()) };
        };
        self.slots.await_members(0..self.me, peers).await?;
        self.slots.await_members(self.me + 1..self.size, peers).await?;
        self.combine_read((what, output.len()), 0, (input, output), element, combine, peers)
    }

    async fn reduce_parts<P: Peers>(
        &mut self,
        what: What,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let shown = input.or(output.as_deref()).unwrap_or_default();
        let len = shown.len();
        self.slots.show_address(what, shown, peers).await?;
        self.slots.await_all(peers).await?;
        let parts = Blocks::cut(len, element, self.size);
        let (at, own) = (parts.start(self.me), parts.len(self.me));
        let mut part = std::mem::take(&mut self.work);
        part.resize(own, 0);
        let given = Some(&shown[at..at + own]);
        self.combine_read((what, len), at, (given, &mut part), element, combine, peers)?;
        self.slots.show_address(what, &raw const part[..], peers).await?;
        // Nobody reads our array any more.
        self.slots.await_all(peers).await?;
        if let Some(output) = output {
            for member in 0..self.size {
                let into = &mut output[parts.start(member)..][..parts.len(member)];
                if member == self.me {
                    into.copy_from_slice(&part);
                } else {
                    self.slots.check::<P>(member, what, into.len())?;
                    peers.read(member, self.slots.address(member), into)?;
                }
            }
        }
        self.slots.finish(peers);
        self.slots.await_taken(peers).await?;
        self.work = part;
        Ok(())
    }

    /// What all members offer, from `at` on of `len` bytes, which are too many to be copied whatever that costs, combined in `into`.
    /// What of it is ours is `own`, or in `into`. With that we have finished the call: the others go on as soon as all of theirs is
    /// read, while the last of it is combined.
    pub(super) fn combine_read<P: Peers>(
        &mut self,
        (what, len): (What, usize),
        at: usize,
        (own, into): (Option<&[u8]>, &mut [u8]),
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let piece = whole(element, PIECE);
        let (mut room, mut kept) = (std::mem::take(&mut self.came), Vec::new());
        room.resize(room.len().max(piece.min(into.len())), 0);
        let last_read = usize::from(self.me == 0);
        let (total, mut done) = (into.len(), 0);
        for into in into.chunks_mut(piece) {
            let came = &mut room[..into.len()];
            let own = match own {
                Some(own) => &own[done..][..into.len()],
                None => {
                    kept.clear();
                    kept.extend_from_slice(into);
                    &kept
                }
            };
            let from = at + done;
            for member in (0..self.size).rev() {
                let first = member + 1 == self.size;
                if member == self.me {
                    if first {
                        into.copy_from_slice(own)
                    } else {
                        combine(into, own)
                    }
                    continue;
                }
                let place = if first { &mut *into } else { &mut *came };
                self.take(what, member, (len, from), place, 0, peers)?;
                if member == last_read && done + into.len() == total {
                    self.slots.finish(peers);
                }
                if !first {
                    combine(into, came);
                }
            }
            done += into.len();
        }
        if total == 0 {
            self.slots.finish(peers);
        }
        self.came = room;
        Ok(())
    }
}

/// Bytes that the root reads and combines alone: to meet twice for parts, and to read these too, is dearer (measured:
/// `bench/NOTES.md`, 33).
pub(super) const ALONE: usize = 4 << 20;
