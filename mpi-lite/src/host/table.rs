//! Blocks for several readers, of lengths that only their owner knows: a table of where each is, and the blocks behind it or,
//! of long ones, where they are in their owner's memory.

use super::slots::SLOT;
use super::{DIFFER, FEW, Host, Peers, SHORT_ALL, What};
use crate::coll::Blocks;

impl Host {
    /// Shows `count` blocks of `bytes` in a call that `detail` tells from others. True if they are read out of our memory.
    pub(super) async fn show_blocks<P: Peers>(
        &mut self,
        detail: usize,
        count: usize,
        bytes: &[u8],
        blocks: Blocks<'_>,
        peers: &mut P,
    ) -> Result<bool, P::Error> {
        let (shown, long) = self.table(count, bytes, blocks);
        let done = if self.slots.show_now(what(detail, long), &shown, peers) {
            Ok(())
        } else {
            self.slots.show(what(detail, long), &shown, peers).await
        };
        self.work = shown;
        done.map(|()| long)
    }

    /// As [`Self::show_blocks`], where [`is_few`] is true.
    pub(super) fn show_blocks_few<P: Peers>(
        &mut self,
        detail: usize,
        count: usize,
        bytes: &[u8],
        blocks: Blocks<'_>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (shown, long) = self.table(count, bytes, blocks);
        let done = self.slots.show_few(what(detail, long), &shown, peers);
        self.work = shown;
        done
    }

    /// What is shown of `count` blocks of `bytes`, and whether only where they are. It was [`Self::work`].
    fn table(&mut self, count: usize, bytes: &[u8], blocks: Blocks<'_>) -> (Vec<u8>, bool) {
        let len: usize = (0..count).map(|index| blocks.len(index)).sum();
        let long = len > SHORT_ALL || count * SHORT_ENTRY + len > SLOT;
        let mut shown = std::mem::take(&mut self.work);
        if !long {
            shown.resize(count * SHORT_ENTRY + len, 0);
            fill_short(&mut shown, count, bytes, blocks);
            return (shown, false);
        }
        shown.clear();
        let address = bytes.as_ptr().expose_provenance();
        for index in 0..count {
            shown.extend_from_slice(&((address + blocks.start(index)) as u64).to_ne_bytes());
            shown.extend_from_slice(&(blocks.len(index) as u64).to_ne_bytes());
        }
        (shown, true)
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
        let (said, shown) = self.slots.head(member).ok_or(P::error(DIFFER))?;
        let long = said == what(detail, true).to_bytes();
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        let entry = if long { ENTRY } else { SHORT_ENTRY };
        if !long && said != what(detail, false).to_bytes() || shown > SLOT || (index + 1) * entry > shown {
            return Err(P::error(DIFFER));
        }
        if long {
            let mut entry = [0; ENTRY];
            self.slots.read(member, shown, index * ENTRY, &mut entry);
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| entry[at + byte]));
            self.fits::<P>(usize::try_from(word(8)).unwrap_or(usize::MAX), into.len())?;
            return peers.read(member, word(0), into);
        }
        let mut entry = [0; SHORT_ENTRY];
        self.slots.read(member, shown, index * SHORT_ENTRY, &mut entry);
        let half = |at: usize| usize::from(u16::from_ne_bytes([entry[at], entry[at + 1]]));
        let start = half(0);
        self.fits::<P>(half(2), into.len())?;
        if start + into.len() > shown {
            return Err(P::error(DIFFER));
        }
        self.slots.read(member, shown, start, into);
        Ok(())
    }
}

/// The table of `count` blocks, and the blocks, which fill `shown` together. Those that follow each other are copied at once.
fn fill_short(shown: &mut [u8], count: usize, bytes: &[u8], blocks: Blocks<'_>) {
    let (table, room) = shown.split_at_mut(count * SHORT_ENTRY);
    let follow = blocks.follow_each_other();
    let mut at = 0;
    for (index, entry) in table.as_chunks_mut::<SHORT_ENTRY>().0.iter_mut().enumerate() {
        let len = blocks.len(index);
        let start = (count * SHORT_ENTRY + at) as u16;
        let ([a, b], [c, d]) = (start.to_ne_bytes(), (len as u16).to_ne_bytes());
        *entry = [a, b, c, d];
        if !follow {
            room[at..][..len].copy_from_slice(&bytes[blocks.start(index)..][..len]);
        }
        at += len;
    }
    if follow && count > 0 {
        room.copy_from_slice(&bytes[blocks.start(0)..][..at]);
    }
}

/// Whether `count` blocks of `len` bytes together are shown by a few bytes.
#[inline]
pub(super) const fn is_few(count: usize, len: usize) -> bool {
    count * SHORT_ENTRY + len <= FEW
}

/// Whether a table of so many blocks can be shown.
pub(super) const fn fits(count: usize) -> bool {
    count <= SLOT / ENTRY
}

fn what(detail: usize, long: bool) -> What {
    What::new(What::BLOCKS + if long { 1 << 16 } else { 0 }, detail)
}

/// Where a block is in its owner's memory, and how long it is.
const ENTRY: usize = 16;

/// Where a block begins in what is shown, and how long it is.
const SHORT_ENTRY: usize = 4;
const _: () = assert!(SLOT <= u16::MAX as usize, "both are two bytes");
const _: () = assert!(FEW <= SHORT_ALL, "what is few is shown by a copy");
