//! One copy by the root and one by each member; or, of what is long, one by each member, all at the same time.

use super::{Host, Peers, What};

impl Host {
    /// The root's `data` to all.
    pub async fn broadcast<P: Peers>(&mut self, root: usize, data: &mut [u8], peers: &mut P) -> Result<(), P::Error> {
        let what = What::new(What::BROADCAST, root);
        let short = self.short_common();
        if self.me == root {
            let long = !self.slots.show_now(what, data, peers) && self.offer(what, data, short, peers).await?;
            self.slots.finish(peers);
            return if long { self.slots.await_taken(peers).await } else { Ok(()) };
        }
        if !self.slots.has_shown(root) {
            self.slots.await_member(root, peers).await?;
        }
        self.take(what, root, (data.len(), 0), data, short, peers)?;
        self.slots.finish(peers);
        Ok(())
    }
}
