//! A chain: each adds its array to what the one before it shows, and shows that. The next call's chain follows at once.

use super::slots::FEW;
use super::{Host, PIECE, Peers, What};

impl Host {
    /// The combination, in the order of ranks, of the inputs of all before us and of ours in `output`. In place, the input is
    /// there.
    pub fn scan<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCAN, 1);
        if self.me == 0 {
            // The next one can begin before we have copied it.
            let long = self.offer_next(what, input.unwrap_or(output), peers)?;
            if let Some(input) = input {
                self.fits::<P>(input.len(), output.len())?;
                output.copy_from_slice(input);
            }
            return self.end_link(long, peers);
        }
        let len = output.len();
        self.slots.await_member(self.me - 1, peers)?;
        let piece = (PIECE / element).max(1) * element;
        let mut came = std::mem::take(&mut self.came);
        came.resize(came.len().max(piece.min(len)), 0);
        for (index, output) in output.chunks_mut(piece).enumerate() {
            let at = index * piece;
            if let Some(input) = input {
                output.copy_from_slice(&input[at..at + output.len()]);
            }
            let came = &mut came[..output.len()];
            self.take(what, self.me - 1, (len, at), came, self.short, peers)?;
            combine(output, came);
        }
        self.came = came;
        self.pass_on(what, output, peers)
    }

    /// As [`Self::scan`], without our input. The output stays as it is where there is nobody before us.
    pub fn exscan<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let what = What::new(What::SCAN, 0);
        if self.me == 0 {
            let long = self.offer_next(what, input.unwrap_or(output), peers)?;
            return self.end_link(long, peers);
        }
        let (len, before) = (output.len(), self.me - 1);
        if self.me + 1 == self.size {
            self.slots.await_member(before, peers)?;
            self.take(what, before, (len, 0), output, self.short, peers)?;
            return self.pass_on(what, output, peers);
        }
        let mut all = std::mem::take(&mut self.work);
        all.clear();
        all.extend_from_slice(input.unwrap_or(output));
        self.slots.await_member(before, peers)?;
        let piece = (PIECE / element).max(1) * element;
        for (index, output) in output.chunks_mut(piece).enumerate() {
            let at = index * piece;
            self.take(what, before, (len, at), output, self.short, peers)?;
            combine(&mut all[at..at + output.len()], output);
        }
        let done = self.pass_on(what, &all, peers);
        self.work = all;
        done
    }

    /// Shows the next one what it needs.
    fn pass_on<P: Peers>(&mut self, what: What, all: &[u8], peers: &mut P) -> Result<(), P::Error> {
        if self.me + 1 < self.size {
            let long = self.offer_next(what, all, peers)?;
            return self.end_link(long, peers);
        }
        self.slots.come(peers);
        self.end_link(false, peers)
    }

    fn offer_next<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> Result<bool, P::Error> {
        if bytes.len() <= FEW && self.me + 1 < self.size {
            return self.slots.show_next(what, bytes, peers).map(|()| false);
        }
        self.offer(what, bytes, self.short, peers)
    }

    fn end_link<P: Peers>(&mut self, long: bool, peers: &mut P) -> Result<(), P::Error> {
        self.slots.finish(peers);
        if long && self.me + 1 < self.size { self.slots.await_taken_by(self.me + 1, peers) } else { Ok(()) }
    }
}
