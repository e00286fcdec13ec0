//! A chain: each adds its array to what the one before it shows, and shows that. The next call's chain follows at once. Long arrays
//! go piece by piece, so that a piece is on its way while the one before it still is.

use super::{FEW, Host, PIECE, Peers, What, whole};
use crate::coll::Reduction;

impl Host {
    /// The combination, in the order of ranks, of the inputs of all before us and of ours in `output`. In place, the input is
    /// there. Where the order is free, the two operands may be exchanged: of a `NaN` and a number either may be the larger.
    pub async fn scan<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        reduction: Reduction,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let (what, piece) = (What::new(What::SCAN, 1), whole(reduction.element, PIECE));
        let (mut at, mut by_address) = (0, false);
        while at == 0 || at < output.len() {
            let end = output.len().min(at + piece);
            let input = input.map(|input| &input[at..end]);
            let (link, output) = ((what, reduction.commutative), &mut output[at..end]);
            by_address |= self.scan_link(link, input, output, &mut combine, peers).await?;
            at += piece;
        }
        self.end_chain(by_address, peers).await
    }

    /// One link's part of a piece. True if what it passes on is to stay until it is taken.
    async fn scan_link<P: Peers>(
        &mut self,
        (what, commutative): (What, bool),
        input: Option<&[u8]>,
        output: &mut [u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<bool, P::Error> {
        if self.me == 0 {
            // The next one can begin before we have copied it.
            let shown = input.unwrap_or(output);
            let by_address = !self.passes_now(what, shown, peers) && self.offer_next(what, shown, peers).await?;
            if let Some(input) = input {
                output.copy_from_slice(input);
            }
            self.slots.finish(peers);
            return Ok(by_address);
        }
        let (len, before) = (output.len(), self.me - 1);
        // Where the order is free what was before us comes to where the result is, and nothing is copied.
        let own = input.filter(|_| commutative);
        if let Some(input) = input.filter(|_| !commutative) {
            output.copy_from_slice(input);
        }
        if !self.slots.has_shown(before) {
            self.slots.await_member(before, peers).await?;
        }
        if let Some(own) = own {
            self.take(what, before, (len, 0), output, self.short, peers)?;
            combine(output, own);
        } else {
            let mut came = std::mem::take(&mut self.came);
            came.resize(came.len().max(len), 0);
            self.take(what, before, (len, 0), &mut came[..len], self.short, peers)?;
            combine(output, &came[..len]);
            self.came = came;
        }
        self.pass_on(what, output, peers).await
    }

    /// As [`Self::scan`], without our input. The output stays as it is where there is nobody before us.
    pub async fn exscan<P: Peers>(
        &mut self,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        // Between two nothing is combined, and one piece is read the soonest.
        let most = if self.size == 2 { output.len() } else { PIECE };
        let (what, piece) = (What::new(What::SCAN, 0), whole(element, most));
        // What is passed on of a long array stays until it is taken.
        let mut all = std::mem::take(&mut self.work);
        all.clear();
        if self.me > 0 && self.me + 1 < self.size {
            all.extend_from_slice(input.unwrap_or(output));
        }
        let (mut at, mut by_address) = (0, false);
        while at == 0 || at < output.len() {
            let end = output.len().min(at + piece);
            if self.me == 0 {
                by_address |= self.pass_on(what, &input.unwrap_or(output)[at..end], peers).await?;
            } else {
                let (output, before) = (&mut output[at..end], self.me - 1);
                if !self.slots.has_shown(before) {
                    self.slots.await_member(before, peers).await?;
                }
                self.take(what, before, (output.len(), 0), output, self.short, peers)?;
                let all = all.get_mut(at..end).unwrap_or_default();
                if !all.is_empty() {
                    combine(all, output);
                }
                by_address |= self.pass_on(what, all, peers).await?;
            }
            at += piece;
        }
        let done = self.end_chain(by_address, peers).await;
        self.work = all;
        done
    }

    /// Nothing that was passed on is needed any more.
    async fn end_chain<P: Peers>(&mut self, by_address: bool, peers: &mut P) -> Result<(), P::Error> {
        if by_address { self.slots.await_taken_by(self.me + 1, peers).await } else { Ok(()) }
    }

    /// Shows the next one what it needs, if there is one, and ends the call. True if that is to stay until it is taken.
    async fn pass_on<P: Peers>(&mut self, what: What, all: &[u8], peers: &mut P) -> Result<bool, P::Error> {
        let last = self.me + 1 == self.size;
        let by_address = !last && !self.passes_now(what, all, peers) && self.offer_next(what, all, peers).await?;
        self.slots.finish(peers);
        Ok(by_address)
    }

    #[inline]
    fn passes_now<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> bool {
        self.me + 1 < self.size && self.slots.show_next_now(what, bytes, peers)
    }

    async fn offer_next<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> Result<bool, P::Error> {
        if self.me + 1 == self.size {
            return Ok(false);
        }
        if bytes.len() <= FEW {
            return self.slots.show_next(what, bytes, peers).await.map(|()| false);
        }
        self.offer(what, bytes, self.short, peers).await
    }
}
