//! Each shows its array. Of short ones the root combines all; of long ones each combines a part of all, and the root copies
//! the parts.

use std::ops::Range;

use super::{Host, PIECE, Peers, SHORT_ALL};
use crate::coll::Blocks;

impl Host {
    /// Everybody's `input`, of elements of `element` bytes, combined in the order of ranks in the root's `output`. In place,
    /// the root's input is there.
    pub fn reduce<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: Option<&mut [u8]>,
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let shown = input.or(output.as_deref()).unwrap_or_default();
        let len = shown.len();
        if len <= SHORT_ALL {
            // The root's is combined from its slot, like everybody's.
            self.slots.show(shown, peers)?;
            if let Some(output) = output {
                self.slots.await_members(0..self.size, peers)?;
                self.slots.combine(0..self.size, len, 0, output, combine);
            }
            self.slots.finish();
            return Ok(());
        }
        self.show_address(shown, peers)?;
        self.slots.await_all(peers)?;
        let parts = Blocks::cut(len, element, self.size);
        let mut part = std::mem::take(&mut self.work);
        part.resize(parts.len(self.me), 0);
        let members = 0..self.size;
        let combined = self.combine_read(members, parts.start(self.me), (shown, &mut part), element, combine, peers);
        self.work = part;
        combined?;
        self.slots.finish();
        self.show_address(&raw const self.work[..], peers)?;
        // Nobody reads our array any more.
        self.slots.await_all(peers)?;
        if let Some(output) = output {
            for member in 0..self.size {
                let into = &mut output[parts.start(member)..][..parts.len(member)];
                if member == self.me {
                    into.copy_from_slice(&self.work);
                } else {
                    peers.read(member, self.address(member), into)?;
                }
            }
        }
        self.slots.finish();
        self.slots.await_taken(peers)
    }

    /// What these members have in their memory, from `at` on of what they have shown the address of, combined in `into`; ours is
    /// in `own`.
    pub(super) fn combine_read<P: Peers>(
        &self,
        members: Range<usize>,
        at: usize,
        (own, into): (&[u8], &mut [u8]),
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let piece = (PIECE / element).max(1) * element;
        let mut came = vec![0; piece.min(into.len())];
        let mut at = at;
        for into in into.chunks_mut(piece) {
            let (came, own) = (&mut came[..into.len()], &own[at..][..into.len()]);
            let mut members = members.clone().rev();
            match members.next() {
                Some(last) if last == self.me => into.copy_from_slice(own),
                Some(last) => peers.read(last, self.address(last) + at as u64, into)?,
                None => {}
            }
            for member in members {
                if member == self.me {
                    combine(into, own);
                } else {
                    peers.read(member, self.address(member) + at as u64, came)?;
                    combine(into, came);
                }
            }
            at += into.len();
        }
        Ok(())
    }
}
