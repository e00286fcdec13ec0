//! One copy by the root and one by each member; or, of what is long, one by each member, all at the same time.

use super::{Host, Peers, What};

impl Host {
    /// The root's `data` to all.
    pub fn broadcast<P: Peers>(&mut self, root: usize, data: &mut [u8], peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::BROADCAST, root);
        if self.me == root {
            let long = self.offer(what, data, self.short, peers)?;
            self.slots.finish(peers);
            return if long { self.slots.await_taken(peers) } else { Ok(()) };
        }
        self.slots.await_member(root, peers)?;
        self.take(what, root, (data.len(), 0), data, self.short, peers)?;
        self.slots.finish(peers);
        Ok(())
    }
}
