//! The buffer that is on loan for the front of a super-packet: sent at once.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use super::tx_queue::Queued;
use crate::encap::gso;
use crate::tx_buffers::Lent;
use crate::{Counters, TxSlot, socket};

/// A lent buffer for the first part of a super-packet, sent by `commit`.
pub struct LentBefore<'a> {
    pub(super) lent: Lent<'a, Queued>,
    pub(super) len: usize,
    pub(super) tail: &'a [u8],
    pub(super) in_one_piece: bool,
    pub(super) socket: BorrowedFd<'a>,
    pub(super) counters: &'a mut Counters,
}

impl Deref for LentBefore<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.lent[..self.len]
    }
}

impl DerefMut for LentBefore<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.lent[..self.len]
    }
}

impl TxSlot for LentBefore<'_> {
    /// Sends the frame; or queues it, tail and all, if the interface does not take it now. Then it goes in pieces: one of its length may
    /// be what the kernel's memory did not have.
    #[inline]
    fn commit(mut self) {
        let header: &[u8; gso::HEADER_LEN] = self.lent.lease.header.try_into().expect("a super-packet's");
        let whole = self.in_one_piece.then(|| gso::in_one_piece(header));
        let header = whole.as_ref().unwrap_or(header);
        if let Ok(()) = socket::send_parts(self.socket, [header, &self, self.tail]) {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += (self.len + self.tail.len()) as u64;
            return;
        }
        // The error is judged when it comes again, at the next flush.
        let (len, tail) = (self.len, self.tail);
        self.lent[len..].copy_from_slice(tail);
        self.lent.commit();
    }
}
