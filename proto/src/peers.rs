//! The table of peers: connections by index, by address, and by when their timers are due.

use std::collections::HashMap;
use std::fmt;

use sidelane_nic::time::Instant;
use sidelane_nic::{Link, LinkAddr};

use crate::conn::Conn;
use crate::event::PeerId;

/// Connections of one endpoint. An index is used again, but never with the same generation.
#[derive(Default)]
pub(crate) struct Peers {
    entries: Vec<Entry>,
    free: Vec<u16>,
    by_addr: HashMap<LinkAddr, u16>,
    /// Connections that wind down while a newer one has their address. Seldom any.
    overtaken: Vec<u16>,
    /// Lower bound of when each connection's next timer fires; kept apart so that a scan reads little.
    due: Vec<Instant>,
    /// Lower bound of all of `due`.
    earliest: Option<Instant>,
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    conn: Option<Conn>,
}

impl Peers {
    /// Connections held.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The connection at `index`.
    #[inline]
    pub fn at(&mut self, index: u16) -> Option<&mut Conn> {
        self.entries.get_mut(usize::from(index))?.conn.as_mut()
    }

    /// The connection that `id` names, if it is still that one.
    #[inline]
    pub fn get(&mut self, id: PeerId) -> Option<&mut Conn> {
        let entry = self.entries.get_mut(usize::from(id.index))?;
        if entry.generation != id.generation {
            return None;
        }
        entry.conn.as_mut()
    }

    /// The same, if it takes messages.
    #[inline]
    pub fn taking(&mut self, id: PeerId) -> Option<&mut Conn> {
        self.get(id).filter(|conn| conn.takes_messages())
    }

    /// Shows all connections.
    pub fn each(&mut self, show: impl FnMut(&mut Conn)) {
        self.entries.iter_mut().filter_map(|entry| entry.conn.as_mut()).for_each(show);
    }

    /// The connection with the peer at `addr`, unless it only winds down: then the address may be connected anew.
    pub fn by_addr(&mut self, addr: LinkAddr) -> Option<&mut Conn> {
        let index = *self.by_addr.get(&addr)?;
        self.at(index).filter(|conn| !conn.is_winding_down())
    }

    /// True if any connection holds `addr`, winding down or not.
    pub fn holds_addr(&self, addr: LinkAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }

    /// True if the last connection with `addr` goes by `link`. A driver may give another one to an address whose peer is gone.
    pub fn holds_link(&self, addr: LinkAddr, link: Link) -> bool {
        let index = self.by_addr.get(&addr).map(|index| usize::from(*index));
        index.and_then(|index| self.entries[index].conn.as_ref()).is_some_and(|conn| conn.link == link)
    }

    /// The name that the next [`Self::insert`] will give.
    pub fn next_id(&mut self) -> PeerId {
        if self.free.is_empty() {
            self.free.push(u16::try_from(self.entries.len()).expect("fewer peers than NO_PEER"));
            self.entries.push(Entry::default());
            self.due.push(Instant::FAR_FUTURE);
        }
        let index = self.free[self.free.len() - 1];
        PeerId { index, generation: self.entries[usize::from(index)].generation }
    }

    /// Puts in a connection that was made with the name from [`Self::next_id`].
    pub fn insert(&mut self, conn: Conn) {
        let index = self.free.pop().expect("next_id found a free entry");
        debug_assert_eq!(index, conn.id.index);
        self.overtaken.extend(self.by_addr.insert(conn.addr, index));
        let next = conn.next_timeout();
        self.entries[usize::from(index)].conn = Some(conn);
        self.note_due(index, next);
    }

    /// Forgets a connection.
    pub fn remove(&mut self, index: u16) -> Option<Conn> {
        let entry = &mut self.entries[usize::from(index)];
        let conn = entry.conn.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.due[usize::from(index)] = Instant::FAR_FUTURE;
        self.free.push(index);
        if self.by_addr.get(&conn.addr) == Some(&index) {
            self.by_addr.remove(&conn.addr);
            self.give_back_addr(conn.addr);
        } else {
            self.overtaken.retain(|other| *other != index);
        }
        Some(conn)
    }

    /// A connection ended before the one that it had overtaken, which still answers at their address.
    fn give_back_addr(&mut self, addr: LinkAddr) {
        let holds = |index: &u16| self.entries[usize::from(*index)].conn.as_ref().is_some_and(|conn| conn.addr == addr);
        if let Some(place) = self.overtaken.iter().rposition(holds) {
            let index = self.overtaken.remove(place);
            self.by_addr.insert(addr, index);
        }
    }

    /// The timers of the connection at `index` changed: the next one fires at `next`.
    #[inline]
    pub fn note_due(&mut self, index: u16, next: Instant) {
        let Some(due) = self.due.get_mut(usize::from(index)) else { return };
        if next < *due {
            *due = next;
            self.earliest = Some(self.earliest.map_or(next, |earliest| earliest.min(next)));
        }
    }

    /// Lower bound of when a timer fires; `None` when none runs.
    #[inline]
    pub fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Collects the connections whose timers may be due into `out`, and takes stock of the rest. A linear scan: with
    /// 10,000 peers it reads 80 kB, at most once for each timer that fires.
    pub fn collect_due(&mut self, now: Instant, out: &mut Vec<u16>) {
        let mut earliest = Instant::FAR_FUTURE;
        for (index, due) in self.due.iter_mut().enumerate() {
            if *due <= now {
                *due = Instant::FAR_FUTURE;
                out.push(index as u16);
            } else {
                earliest = earliest.min(*due);
            }
        }
        self.earliest = (earliest != Instant::FAR_FUTURE).then_some(earliest);
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_nic::Caps;
    use sidelane_nic::time::Duration;

    use super::*;
    use crate::Config;
    use crate::path::Path;

    /// One more connection with the peer at `node`.
    fn add(peers: &mut Peers, node: u32) -> u16 {
        let (id, addr, config) = (peers.next_id(), LinkAddr::Mem { node }, Config::default());
        let rto_floor = Duration::from_millis(1);
        let caps = Caps { addr, mtu: 512, mtu_safe: 512, rx_frames: 64, burst: 64, rto_floor, host_delay: None };
        let path = Path::new(&caps, &config, false);
        peers.insert(Conn::connecting(id, addr, Link(node), 1, path, Instant::ZERO, &config));
        id.index
    }

    #[test]
    fn the_earliest_timer_is_known_whoever_spoke_last() {
        let mut peers = Peers::default();
        let (first, second) = (add(&mut peers, 1), add(&mut peers, 2));
        let at = Instant::from_nanos;
        peers.note_due(first, at(5));
        peers.note_due(second, at(9));
        assert_eq!(peers.earliest(), Some(at(5)));
        let mut due = Vec::new();
        peers.collect_due(at(5), &mut due);
        assert_eq!((due, peers.earliest()), (vec![first], Some(at(9))));
    }

    #[test]
    fn who_was_overtaken_and_ended_is_not_remembered() {
        let mut peers = Peers::default();
        let (first, second) = (add(&mut peers, 1), add(&mut peers, 1));
        assert_eq!(peers.overtaken, [first]);
        peers.remove(first);
        assert_eq!((&peers.overtaken[..], peers.by_addr.get(&LinkAddr::Mem { node: 1 })), (&[][..], Some(&second)));
        assert!(peers.remove(second).is_some() && !peers.holds_addr(LinkAddr::Mem { node: 1 }));
    }
}
