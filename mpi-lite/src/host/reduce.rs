//! Each shows its array. Of short ones the root combines all, and of two long ones too; of more long ones each combines a part of
//! all, and the root copies the parts.

use super::{Host, PIECE, Peers, SHORT_ALL, What};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `input`, of elements of `element` bytes, combined in the order of ranks in the `output` of `root`. In
    /// place, the root's input is there.
    pub fn reduce<P: Peers>(
        &mut self,
        root: usize,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::REDUCE, root);
        let shown = input.or(output.as_deref()).unwrap_or_default();
        let len = shown.len();
        if len <= SHORT_ALL {
            // The root's is combined from its slot, like everybody's.
            self.slots.show(what, shown, peers)?;
            if let Some(output) = output {
                self.slots.await_members(0..self.size, peers)?;
                self.slots.combine::<P>(what, len, 0, output, combine)?;
            }
            self.slots.finish(peers);
            return Ok(());
        }
        if self.size != 2 {
            return self.reduce_parts(what, input, output, element, combine, peers);
        }
        let Some(output) = output else {
            self.slots.show_address(what, shown, peers)?;
            self.slots.finish(peers);
            return self.slots.await_taken_by(root, peers);
        };
        self.slots.await_member(1 - root, peers)?;
        self.combine_read((what, len), 0, (input, output), element, combine, peers)?;
        self.slots.finish(peers);
        Ok(())
    }

    fn reduce_parts<P: Peers>(
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
        self.slots.show_address(what, shown, peers)?;
        self.slots.await_all(peers)?;
        let parts = Blocks::cut(len, element, self.size);
        let (at, own) = (parts.start(self.me), parts.len(self.me));
        let mut part = std::mem::take(&mut self.work);
        part.resize(own, 0);
        let given = Some(&shown[at..at + own]);
        self.combine_read((what, len), at, (given, &mut part), element, combine, peers)?;
        self.slots.finish(peers);
        self.slots.show_address(what, &raw const part[..], peers)?;
        // Nobody reads our array any more.
        self.slots.await_all(peers)?;
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
        self.slots.await_taken(peers)?;
        self.work = part;
        Ok(())
    }

    /// What all members have in their memory, from `at` on of the `len` bytes that they have shown the address of, combined in
    /// `into`. What of it is ours is `own`, or in `into`.
    pub(super) fn combine_read<P: Peers>(
        &mut self,
        (what, len): (What, usize),
        at: usize,
        (own, into): (Option<&[u8]>, &mut [u8]),
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let others = (0..self.size).filter(|member| *member != self.me);
        others.clone().try_for_each(|member| self.slots.check::<P>(member, what, len))?;
        let addresses: Vec<u64> =
            (0..self.size).map(|member| if member == self.me { 0 } else { self.slots.address(member) }).collect();
        let piece = (PIECE / element).max(1) * element;
        let (mut room, mut kept) = (std::mem::take(&mut self.came), Vec::new());
        room.resize(room.len().max(piece.min(into.len())), 0);
        let mut done = 0;
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
            let from = (at + done) as u64;
            for member in (0..self.size).rev() {
                let first = member + 1 == self.size;
                match (first, member == self.me) {
                    (true, true) => into.copy_from_slice(own),
                    (true, false) => peers.read(member, addresses[member] + from, into)?,
                    (false, true) => combine(into, own),
                    (false, false) => {
                        peers.read(member, addresses[member] + from, came)?;
                        combine(into, came);
                    }
                }
            }
            done += into.len();
        }
        self.came = room;
        Ok(())
    }
}
