//! What is long and goes between two members by pieces, which both copy (`crate::both_ends`): where the words of those are, and the room.

use super::Slots;
use crate::both_ends::{Cut, Pieces};
use crate::host::{Peers, What};

impl Slots {
    /// As [`Slots::show_address`], of room into which the root writes pieces of what we read, and those.
    pub(in crate::host) async fn show_room<P: Peers>(
        &mut self,
        what: What,
        room: &mut [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        self.read_pieces(self.ground.me, room.len()).open();
        self.show_address(what, room, peers).await
    }

    /// The pieces of this call's `len` bytes that `member` reads.
    pub(in crate::host) fn read_pieces(&self, member: usize, len: usize) -> Pieces<'_> {
        self.pieces(self.places.read_pieces(member), len)
    }

    /// Lets `member`, which has come, write pieces of what it shows to `room`, while we read others.
    pub(in crate::host) fn open_room<P: Peers>(&self, member: usize, room: &mut [u8], peers: &mut P) {
        let address = room.as_mut_ptr().expose_provenance() as u64;
        self.ground.shared.write(self.places.room(member), &address.to_ne_bytes());
        self.own_pieces(member, room.len()).open();
        self.ground.tell(peers);
    }

    /// The pieces of the `len` bytes that `member` shows in this call.
    pub(in crate::host) fn own_pieces(&self, member: usize, len: usize) -> Pieces<'_> {
        self.pieces(self.places.own_pieces(member), len)
    }

    /// Where the room is for a piece that we have taken of what we show.
    pub(in crate::host) fn room(&self) -> u64 {
        let mut address = [0; 8];
        self.ground.shared.read(self.places.room(self.ground.me), &mut address);
        u64::from_ne_bytes(address)
    }

    fn pieces(&self, words: [usize; 2], len: usize) -> Pieces<'_> {
        Pieces::new(words.map(|at| self.ground.shared.word(at)), self.call as u16, Cut::of(len))
    }
}
