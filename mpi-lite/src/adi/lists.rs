//! Lists of numbers by what they match on: what both matching queues are made of.
//!
//! A hash table of list heads, whose nodes are linked through a table indexed by the numbers themselves. The head that was
//! used last is looked at first, so that a program that keeps to one source and tag never hashes. Lists that became
//! empty keep their place until the table is full.

use super::envelope::Envelope;

/// Which parts a receive leaves open: bit 0 the source, bit 1 the tag.
pub(super) type Class = usize;
pub(super) const CLASSES: usize = 4;
pub(super) const EXACT: Class = 0;

/// In place of an open source: ranks are below.
const ANY_SOURCE: u32 = u32::MAX;
/// In place of an open tag: no message may have it.
const ANY_TAG: i32 = i32::MIN;

/// Envelopes as keys of lists. A part that a receive leaves open has a value that no message has.
impl Envelope {
    /// True where something stands that only receives have.
    #[inline]
    pub(super) const fn has_wildcard(self) -> bool {
        self.source() == ANY_SOURCE || self.tag() == ANY_TAG
    }

    /// The key of receives of `class` that take a message with this one.
    #[inline]
    pub(super) const fn masked(self, class: Class) -> Self {
        Self::new(
            self.context(),
            if class & 1 == 0 { self.source() } else { ANY_SOURCE },
            if class & 2 == 0 { self.tag() } else { ANY_TAG },
        )
    }

    /// The key and class of a receive.
    #[inline]
    pub(super) fn of_receive(context: u32, source: Option<u32>, tag: Option<i32>) -> (Self, Class) {
        let class = usize::from(source.is_none()) | usize::from(tag.is_none()) << 1;
        (Self::new(context, source.unwrap_or(ANY_SOURCE), tag.unwrap_or(ANY_TAG)), class)
    }

    #[inline]
    const fn hash(self) -> u64 {
        // Multiplied by odd constants of splitmix64 and folded: tags and ranks are small numbers in rows.
        let (context, low) = self.to_words();
        let mixed = (low ^ (context as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 32
    }
}

/// First-in, first-out lists of numbers, one for each key. A number is in one list at most.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// A power of two of them, or none yet.
    heads: Vec<Head>,
    /// Heads that were ever used since the table was last rebuilt.
    used: usize,
    /// Which head was looked at last.
    last: usize,
    links: Vec<Links>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    key: Envelope,
    first: u32,
    last: u32,
    used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

const NONE: u32 = u32::MAX;
const UNUSED: Head = Head { key: Envelope::new(0, 0, 0), first: NONE, last: NONE, used: false };
const UNLINKED: Links = Links { next: NONE, previous: NONE };
const HEADS_MIN: usize = 64;

impl Lists {
    /// Numbers in all lists.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Appends `number` to the list of `key`.
    #[inline]
    pub fn push(&mut self, key: Envelope, number: u32) {
        let at = match self.find(key) {
            Some(at) => at,
            None => self.add(key),
        };
        if self.links.len() <= number as usize {
            self.links.resize(number as usize + 1, UNLINKED);
        }
        let head = &mut self.heads[at];
        let previous = std::mem::replace(&mut head.last, number);
        self.links[number as usize] = Links { next: NONE, previous };
        if previous == NONE {
            head.first = number;
        } else {
            self.links[previous as usize].next = number;
        }
        self.len += 1;
    }

    /// The oldest number in the list of `key`.
    #[inline]
    pub fn first(&mut self, key: Envelope) -> Option<u32> {
        let at = self.find(key)?;
        let first = self.heads[at].first;
        (first != NONE).then_some(first)
    }

    /// Removes the oldest number in the list of `key`.
    #[inline]
    pub fn pop(&mut self, key: Envelope) -> Option<u32> {
        let at = self.find(key)?;
        let head = &mut self.heads[at];
        let first = head.first;
        head.first = self.links.get(first as usize)?.next;
        match self.links.get_mut(head.first as usize) {
            Some(next) => next.previous = NONE,
            None => head.last = NONE,
        }
        self.len -= 1;
        Some(first)
    }

    /// Removes `number`, which is in the list of `key`.
    #[inline]
    pub fn remove(&mut self, key: Envelope, number: u32) {
        let Some(at) = self.find(key) else {
            debug_assert!(false, "what is in a list has a head");
            return;
        };
        let Links { next, previous } = self.links[number as usize];
        if previous == NONE {
            self.heads[at].first = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next == NONE {
            self.heads[at].last = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
        self.len -= 1;
    }

    #[inline]
    fn find(&mut self, key: Envelope) -> Option<usize> {
        if let Some(head) = self.heads.get(self.last)
            && head.key == key
            && head.used
        {
            return Some(self.last);
        }
        self.search(key)
    }

    fn search(&mut self, key: Envelope) -> Option<usize> {
        if self.heads.is_empty() {
            return None;
        }
        let mask = self.heads.len() - 1;
        let mut at = key.hash() as usize & mask;
        loop {
            let head = &self.heads[at];
            if !head.used {
                return None;
            }
            if head.key == key {
                self.last = at;
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// A new head for `key`, which has none.
    fn add(&mut self, key: Envelope) -> usize {
        if (self.used + 1) * 2 > self.heads.len() {
            self.rebuild();
        }
        self.used += 1;
        self.last = self.place(key);
        self.heads[self.last] = Head { key, used: true, ..UNUSED };
        self.last
    }

    /// Where the head of `key`, which has none, goes.
    fn place(&self, key: Envelope) -> usize {
        let mask = self.heads.len() - 1;
        let mut at = key.hash() as usize & mask;
        while self.heads[at].used {
            at = (at + 1) & mask;
        }
        at
    }

    /// Forgets empty lists, and grows if few were.
    #[cold]
    fn rebuild(&mut self) {
        let kept: Vec<_> = self.heads.iter().copied().filter(|head| head.used && head.first != NONE).collect();
        let wanted = (kept.len() * 4).next_power_of_two().max(HEADS_MIN);
        self.heads.clear();
        self.heads.resize(wanted, UNUSED);
        self.used = kept.len();
        for head in kept {
            let at = self.place(head.key);
            self.heads[at] = head;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs may number their messages by tags.
    #[test]
    fn lists_that_became_empty_take_no_room_for_ever() {
        let mut lists = Lists::default();
        for tag in 0..10_000 {
            let key = Envelope::new(0, 0, tag);
            lists.push(key, 0);
            assert_eq!(lists.pop(key), Some(0));
        }
        assert_eq!(lists.heads.len(), HEADS_MIN);
    }
}
