//! One copy by the root and one by each member; or, of what is long, one by each member, all at the same time.

use super::{Host, Peers, SHORT};

impl Host {
    /// The root's `data` to all.
    pub fn broadcast<P: Peers>(&mut self, root: usize, data: &mut [u8], peers: &mut P) -> Result<(), P::Error> {
        let short = data.len() <= SHORT;
        if self.me == root {
            if short {
                self.slots.show(data, peers)?;
            } else {
                self.show_address(data, peers)?;
            }
            self.slots.finish();
            return if short { Ok(()) } else { self.slots.await_taken(peers) };
        }
        self.slots.await_member(root, peers)?;
        if short {
            self.slots.read(root, data.len(), 0, data);
        } else {
            peers.read(root, self.address(root), data)?;
        }
        self.slots.finish();
        Ok(())
    }
}
