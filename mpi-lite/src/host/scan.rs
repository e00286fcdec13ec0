//! Each shows its array and combines those up to its own.

use super::{Host, Peers, SHORT};

impl Host {
    /// The combination, in the order of ranks, of the inputs of the first `members` (up to us, with us or without) in `output`,
    /// which stays as it is where they are none. In place, the input is there.
    pub fn scan<P: Peers>(
        &mut self,
        members: usize,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let given = input.unwrap_or(output);
        if given.len() <= SHORT {
            self.slots.show(given, peers)?;
            self.slots.await_members(0..members, peers)?;
            self.slots.combine(0..members, 0, output, combine);
            self.slots.finish();
            return Ok(());
        }
        self.show_address(given, peers)?;
        self.slots.await_all(peers)?;
        // Not to the output yet: in place, others still read there.
        let mut result = std::mem::take(&mut self.work);
        result.resize(output.len(), 0);
        let combined = self.combine_read(0..members, 0, (given, &mut result), element, combine, peers);
        self.work = result;
        combined?;
        self.slots.finish();
        self.slots.await_taken(peers)?;
        if members > 0 {
            output.copy_from_slice(&self.work);
        }
        Ok(())
    }
}
