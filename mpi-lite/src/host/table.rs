//! Blocks for several readers, of lengths that only their owner knows: a table of where each is, and the blocks behind it or,
//! of long ones, where they are in their owner's memory.

use super::slots::SLOT;
use super::{DIFFER, Host, Peers, SHORT_ALL, What};
use crate::coll::Blocks;

impl Host {
    /// Shows `count` blocks of `bytes` in a call that `detail` tells from others. True if they are read out of our memory.
    pub(super) fn show_blocks<P: Peers>(
        &mut self,
        detail: usize,
        count: usize,
        bytes: &[u8],
        blocks: Blocks,
        peers: &mut P,
    ) -> Result<bool, P::Error> {
        let table = count * ENTRY;
        let len: usize = (0..count).map(|index| blocks.len(index)).sum();
        let long = len > SHORT_ALL || table + len > SLOT;
        let mut shown = std::mem::take(&mut self.work);
        shown.clear();
        let address = bytes.as_ptr().expose_provenance();
        let mut behind = table;
        for index in 0..count {
            let len = blocks.len(index);
            let start = if long { address + blocks.start(index) } else { behind };
            shown.extend_from_slice(&(start as u64).to_ne_bytes());
            shown.extend_from_slice(&(len as u64).to_ne_bytes());
            behind += len;
        }
        if !long {
            (0..count).for_each(|index| shown.extend_from_slice(&bytes[blocks.start(index)..][..blocks.len(index)]));
        }
        let done = self.slots.show(what(detail, long), &shown, peers);
        self.work = shown;
        done.map(|()| long)
    }

    /// Fills `into`, which is to be as long, with block `index` of what `member` has shown.
    pub(super) fn take_block<P: Peers>(
        &self,
        detail: usize,
        member: usize,
        index: usize,
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (said, shown) = self.slots.head(member);
        let long = said == what(detail, true).to_bytes();
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        if !long && said != what(detail, false).to_bytes() || shown > SLOT || (index + 1) * ENTRY > shown {
            return Err(P::error(DIFFER));
        }
        let mut entry = [0; ENTRY];
        self.slots.read(member, shown, index * ENTRY, &mut entry);
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| entry[at + byte]));
        let (start, len) = (word(0), word(8));
        self.fits::<P>(usize::try_from(len).unwrap_or(usize::MAX), into.len())?;
        if long {
            return peers.read(member, start, into);
        }
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        if start.checked_add(into.len()).is_none_or(|end| end > shown) {
            return Err(P::error(DIFFER));
        }
        self.slots.read(member, shown, start, into);
        Ok(())
    }
}

/// Whether a table of so many blocks can be shown.
pub(super) const fn fits(count: usize) -> bool {
    count <= SLOT / ENTRY
}

fn what(detail: usize, long: bool) -> What {
    What::new(What::BLOCKS + if long { 1 << 16 } else { 0 }, detail)
}

/// Where a block begins and how long it is.
const ENTRY: usize = 16;
