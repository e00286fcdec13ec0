//! A chain: each adds its array to what the one before it shows, and shows that. The next call's chain follows at once.

use super::{Host, PIECE, Peers, SHORT};

impl Host {
    /// The combination, in the order of ranks, of the inputs of all before us, and of ours if it is `inclusive`, in `output`,
    /// which stays as it is where they are none. In place, the input is there.
    pub fn scan<P: Peers>(
        &mut self,
        inclusive: bool,
        input: Option<&[u8]>,
        output: &mut [u8],
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let len = output.len();
        let short = len <= SHORT;
        // What the next one needs: all up to us. Where that is not our result, it takes other memory.
        let mut all = std::mem::take(&mut self.work);
        all.clear();
        all.extend_from_slice(input.unwrap_or(output));
        if self.me > 0 {
            let before = self.me - 1;
            self.slots.await_member(before, peers)?;
            let piece = (PIECE / element).max(1) * element;
            let mut came = std::mem::take(&mut self.came);
            came.resize(piece.min(len), 0);
            for at in (0..len).step_by(piece) {
                let came = &mut came[..piece.min(len - at)];
                if short {
                    self.slots.read(before, len, at, came);
                } else {
                    peers.read(before, self.address(before) + at as u64, came)?;
                }
                combine(&mut all[at..at + came.len()], came);
                if !inclusive {
                    output[at..at + came.len()].copy_from_slice(came);
                }
            }
            self.came = came;
        }
        if inclusive {
            output.copy_from_slice(&all);
        }
        self.work = all;
        let is_last = self.me + 1 == self.size;
        match (short, is_last) {
            (_, true) => self.slots.come(),
            (true, false) => self.slots.show(&self.work, peers)?,
            (false, false) => self.show_address(&raw const self.work[..], peers)?,
        }
        self.slots.finish();
        if short || is_last { Ok(()) } else { self.slots.await_taken_by(self.me + 1, peers) }
    }
}
