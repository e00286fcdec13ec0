//! The hot path: frames in, frames out, and sleep.

use super::Udp;
use super::sockets::Received;
use super::tx_queue::Queued;
use crate::encap::datagram;
use crate::time::Instant;
use crate::tx_buffers::Lent;
use crate::{Link, LinkAddr, clock};

impl Udp {
    /// Shows the frames of one datagram, at most `budget`; what is left of them comes next time.
    ///
    /// One datagram a call: to see that there is no second one takes a system call, which a lone message need not wait
    /// for.
    #[inline]
    pub(super) fn receive(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        if budget == 0 || self.unread.is_empty() && !self.receive_datagram() {
            return 0;
        }
        let mut shown = 0;
        while shown < budget && !self.unread.is_empty() {
            match datagram::parse(&self.datagram[self.unread.clone()]) {
                Ok(payload) => {
                    self.unread.start += datagram::HEADER_LEN + payload.len();
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += payload.len() as u64;
                    each(payload, LinkAddr::Udp(self.unread_from));
                    shown += 1;
                }
                Err(_) => {
                    // Where one frame cannot be read, the next cannot be found.
                    self.unread = 0..0;
                    self.counters.rx_foreign += 1;
                }
            }
        }
        if shown > 1 {
            self.sockets.on_merged();
        }
        shown
    }

    #[inline]
    fn receive_datagram(&mut self) -> bool {
        match self.sockets.receive(&mut self.datagram[DATAGRAM_AT..]) {
            Received::Datagram(0, _) => self.counters.rx_foreign += 1,
            Received::Datagram(len, from) => {
                self.unread = DATAGRAM_AT..DATAGRAM_AT + len;
                self.unread_from = from;
                return true;
            }
            Received::Refusal => self.counters.tx_failed += 1,
            Received::Nothing => {}
        }
        false
    }

    /// Lends a buffer with the frame's header in it.
    #[inline]
    pub(super) fn lend(&mut self, link: Link, len: usize) -> Option<Lent<'_, Queued>> {
        if len > self.caps.mtu {
            return None;
        }
        self.links.get_mut(link)?;
        let lent = self.tx.lend(link, &datagram::header(len as u16), len);
        if lent.is_none() {
            self.counters.tx_full += 1;
        }
        lent
    }

    /// Sleeps until a datagram comes or the deadline passes.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> std::io::Result<()> {
        self.tx.flush(&self.links, &self.sockets, &mut self.counters);
        let limit = deadline.map(|deadline| deadline.since(clock::monotonic()));
        if !self.unread.is_empty() || limit.is_some_and(|limit| limit.as_nanos() == 0) {
            return Ok(());
        }
        self.counters.waits += 1;
        // A datagram that is there already ends the sleep at once.
        let is_full = |socket| self.tx.waits_for(socket, &self.links);
        self.counters.tx_failed += self.sockets.poll(is_full, self.alarm.event(), limit)?;
        Ok(())
    }
}

/// Where a datagram begins in its buffer, so that the payload behind the header is 8-byte aligned.
pub(super) const DATAGRAM_AT: usize = 8 - datagram::HEADER_LEN;
