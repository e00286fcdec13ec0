//! A driver's links: what is prepared once per peer, found by number on the hot path and by address before it.

use std::collections::HashMap;

use crate::{Link, LinkAddr, LinkError};

/// Links with a `T` each. Numbers of forgotten links are used again.
pub(crate) struct LinkTable<T> {
    slots: Vec<Option<(LinkAddr, T)>>,
    by_addr: HashMap<LinkAddr, Link>,
    free: Vec<Link>,
}

impl<T> LinkTable<T> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), by_addr: HashMap::new(), free: Vec::new() }
    }

    /// The link to `to`, prepared by `prepare` if there is none yet.
    pub fn link(&mut self, to: LinkAddr, prepare: impl FnOnce() -> Result<T, LinkError>) -> Result<Link, LinkError> {
        if let Some(link) = self.by_addr.get(&to) {
            return Ok(*link);
        }
        if self.free.is_empty() && self.slots.len() == LINKS_MAX {
            return Err(LinkError::TableFull(LINKS_MAX));
        }
        let entry = Some((to, prepare()?));
        let link = match self.free.pop() {
            Some(link) => {
                self.slots[link.0 as usize] = entry;
                link
            }
            None => {
                self.slots.push(entry);
                Link((self.slots.len() - 1) as u32)
            }
        };
        self.by_addr.insert(to, link);
        Ok(link)
    }

    /// Forgets `link`; one that is forgotten already stays so.
    pub fn unlink(&mut self, link: Link) {
        if let Some((addr, _)) = self.slots.get_mut(link.0 as usize).and_then(Option::take) {
            if self.by_addr.get(&addr) == Some(&link) {
                self.by_addr.remove(&addr);
            }
            self.free.push(link);
        }
    }

    /// From now on the address gets another link; who has the old one keeps it.
    pub fn supersede(&mut self, to: LinkAddr, is_old: impl FnOnce(&T) -> bool) {
        if let Some(link) = self.by_addr.get(&to)
            && self.get(*link).is_some_and(is_old)
        {
            self.by_addr.remove(&to);
        }
    }

    #[inline]
    pub fn get(&self, link: Link) -> Option<&T> {
        Some(&self.slots.get(link.0 as usize)?.as_ref()?.1)
    }

    #[inline]
    pub fn get_mut(&mut self, link: Link) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(link.0 as usize)?.as_mut()?.1)
    }
}

/// Six times the peers that an endpoint is built for; beyond it somebody forgets to unlink.
pub(crate) const LINKS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(node: u32) -> LinkAddr {
        LinkAddr::Mem { node }
    }

    #[test]
    fn a_superseded_link_is_kept_beside_its_successor() {
        let mut table = LinkTable::new();
        let old = table.link(addr(1), || Ok('a')).unwrap();
        table.supersede(addr(1), |kept| *kept != 'a');
        assert_eq!(table.link(addr(1), || Ok('b')).unwrap(), old);
        table.supersede(addr(1), |kept| *kept == 'a');
        let new = table.link(addr(1), || Ok('b')).unwrap();
        assert!(new != old && table.get(old) == Some(&'a') && table.get(new) == Some(&'b'));
        table.unlink(old);
        assert_eq!(table.link(addr(1), || Ok('c')).unwrap(), new);
        assert_eq!(table.get(old), None);
    }

    #[test]
    fn same_address_gives_same_link_and_is_prepared_once() {
        let mut table = LinkTable::new();
        let link = table.link(addr(1), || Ok('a')).unwrap();
        assert_eq!(table.link(addr(1), || unreachable!()).unwrap(), link);
        assert_ne!(table.link(addr(2), || Ok('b')).unwrap(), link);
    }

    #[test]
    fn forgotten_links_are_gone_and_their_numbers_come_back() {
        let mut table = LinkTable::new();
        let link = table.link(addr(1), || Ok('a')).unwrap();
        table.unlink(link);
        table.unlink(link);
        assert_eq!(table.get_mut(link), None);
        assert_eq!(table.link(addr(2), || Ok('b')).unwrap(), link);
        assert_eq!(table.get_mut(link), Some(&mut 'b'));
        let again = table.link(addr(1), || Ok('c')).unwrap();
        assert!(again != link && table.get(again) == Some(&'c'), "the address is prepared anew");
    }

    #[test]
    fn a_full_table_takes_none_but_those_it_has_until_one_is_forgotten() {
        let mut table = LinkTable::new();
        let links: Vec<Link> = (0..LINKS_MAX as u32).map(|node| table.link(addr(node), || Ok(node)).unwrap()).collect();
        let one_more = |table: &mut LinkTable<u32>| table.link(addr(LINKS_MAX as u32), || Ok(0));
        assert!(matches!(one_more(&mut table), Err(LinkError::TableFull(LINKS_MAX))));
        assert_eq!(table.link(addr(7), || unreachable!()).unwrap(), links[7]);
        table.unlink(links[7]);
        assert_eq!(one_more(&mut table).unwrap(), links[7]);
    }

    #[test]
    fn refused_preparation_leaves_nothing_behind() {
        let mut table = LinkTable::new();
        let refused = table.link(addr(1), || Err::<char, _>(LinkError::WrongKind(addr(1))));
        assert!(refused.is_err());
        assert!(table.link(addr(1), || Ok('a')).is_ok());
    }
}
