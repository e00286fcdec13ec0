//! Blocks for several readers, of lengths that only their owner knows: a table of where each is, and the blocks behind it or,
//! of long ones, where they are in their owner's memory. Of blocks that are as long as each other no table.

use super::slots::SLOT;
use super::{DIFFER, FEW, Host, Peers, SHORT_ALL, What};
use crate::coll::Blocks;

impl Host {
    /// Shows `count` blocks of `bytes` in the call `what`. True if they are read out of our memory.
    pub(super) async fn show_blocks<P: Peers>(
        &mut self,
        what: What,
        count: usize,
        bytes: &[u8],
        blocks: Blocks<'_>,
        peers: &mut P,
    ) -> Result<bool, P::Error> {
        let equal = equal(count, bytes, blocks);
        let len = equal.map_or_else(|| (0..count).map(|index| blocks.len(index)).sum(), <[u8]>::len);
        let copied = len <= self.short_parted() || len <= SHORT_ALL && self.slots.shall_copy();
        if let Some(equal) = equal.filter(|_| copied) {
            let what = what.blocks(Form::Equal);
            if !self.slots.show_now(what, equal, peers) {
                self.slots.show(what, equal, peers).await?;
            }
            return Ok(false);
        }
        let (shown, form) = self.table((count, len), bytes, blocks, copied);
        let done = if self.slots.show_now(what.blocks(form), &shown, peers) {
            Ok(())
        } else {
            self.slots.show(what.blocks(form), &shown, peers).await
        };
        self.work = shown;
        done.map(|()| form == Form::Long)
    }

    /// As [`Self::show_blocks`], where [`is_few`] is true.
    #[inline]
    pub(super) fn show_blocks_few<P: Peers>(
        &mut self,
        what: What,
        count: usize,
        bytes: &[u8],
        blocks: Blocks<'_>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        match equal(count, bytes, blocks) {
            Some(equal) => self.slots.show_few(what.blocks(Form::Equal), equal, peers),
            None => self.show_table_few(what, count, bytes, blocks, peers),
        }
    }

    /// Out of line: most blocks are as long as each other.
    fn show_table_few<P: Peers>(
        &mut self,
        what: What,
        count: usize,
        bytes: &[u8],
        blocks: Blocks<'_>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let len = (0..count).map(|index| blocks.len(index)).sum();
        let (shown, form) = self.table((count, len), bytes, blocks, true);
        let done = self.slots.show_few(what.blocks(form), &shown, peers);
        self.work = shown;
        done
    }

    /// A table of `count` blocks of `bytes`, `len` bytes together, and these if they are to be copied and have room. It was [`Self::work`].
    fn table(
        &mut self,
        (count, len): (usize, usize),
        bytes: &[u8],
        blocks: Blocks<'_>,
        copied: bool,
    ) -> (Vec<u8>, Form) {
        let mut shown = std::mem::take(&mut self.work);
        if copied && count * SHORT_ENTRY + len <= SLOT {
            shown.resize(count * SHORT_ENTRY + len, 0);
            fill_short(&mut shown, count, bytes, blocks);
            return (shown, Form::Short);
        }
        shown.clear();
        let address = bytes.as_ptr().expose_provenance();
        for index in 0..count {
            shown.extend_from_slice(&((address + blocks.start(index)) as u64).to_ne_bytes());
            shown.extend_from_slice(&(blocks.len(index) as u64).to_ne_bytes());
        }
        (shown, Form::Long)
    }

    /// Fills `into`, which is to be as long, with block `index` of the `count` that `member` has shown.
    pub(super) fn take_block<P: Peers>(
        &self,
        what: What,
        member: usize,
        (index, count): (usize, usize),
        into: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (said, shown) = self.slots.head(member).ok_or(P::error(DIFFER))?;
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        let form = Form::ALL.into_iter().find(|form| said == what.blocks(*form).to_bytes()).ok_or(P::error(DIFFER))?;
        if shown > SLOT || (index + 1) * form.entry() > shown {
            return Err(P::error(DIFFER));
        }
        if form == Form::Equal {
            self.fits::<P>(shown, count * into.len())?;
            self.read_copied(member, (shown, index * into.len()), into);
            return Ok(());
        }
        if form == Form::Long {
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
        self.read_copied(member, (shown, start), into);
        Ok(())
    }

    /// Fills `into` from `at` on of the `shown` bytes that `member` has copied: timed where that was asked (`slots/near.rs`), unless `into`
    /// is less than any equal block is then, which tells nothing of a KiB.
    fn read_copied(&self, member: usize, (shown, at): (usize, usize), into: &mut [u8]) {
        let most = self.short_parted();
        if shown > most && into.len() * self.size > most {
            self.slots.read_timed(member, shown, at, into);
        } else {
            self.slots.read(member, shown, at, into);
        }
    }
}

/// All of `count` blocks of `bytes`, if they are short, one after the other, and as long as each other.
#[inline]
fn equal<'a>(count: usize, bytes: &'a [u8], blocks: Blocks<'_>) -> Option<&'a [u8]> {
    let (start, len) = blocks.equal(count)?;
    bytes.get(start..start + count * len).filter(|all| all.len() <= SHORT_ALL)
}

/// The table of `count` blocks, and the blocks, which fill `shown` together. Those that follow each other are copied at once. There is
/// one at least: none are taken for equal ones.
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
    if follow {
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

/// How blocks are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One after the other, as long as each other.
    Equal,
    /// Behind a table.
    Short,
    /// By a table of where they are.
    Long,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::Equal, Self::Short, Self::Long];

    /// Bytes of a table for each block.
    const fn entry(self) -> usize {
        match self {
            Self::Equal => 0,
            Self::Short => SHORT_ENTRY,
            Self::Long => ENTRY,
        }
    }
}

/// Where a block is in its owner's memory, and how long it is.
const ENTRY: usize = 16;

/// Where a block begins in what is shown, and how long it is.
const SHORT_ENTRY: usize = 4;
const _: () = assert!(SLOT <= u16::MAX as usize, "both are two bytes");
const _: () = assert!(FEW <= SHORT_ALL, "what is few is shown by a copy");
