//! What a driver does: frames in, frames out, and sleep.

use std::cell::Cell;
use std::io;
use std::task::Waker;

use super::sockets::{Received, SocketId};
use super::sys::RawAddr;
use super::{Udp, Way};
use crate::encap::datagram;
use crate::time::Instant;
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot, clock};

impl Nic for Udp {
    const RELIABLE: bool = false;
    const NAME: &'static str = "udp";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Udp(addr) = to else { return Err(LinkError::WrongKind(to)) };
        if addr.is_ipv4() != self.sockets.addr().is_ipv4() {
            return Err(LinkError::Refused(to, io::Error::from_raw_os_error(libc::EAFNOSUPPORT)));
        }
        self.links.link(to, || {
            Ok(Way { addr, raw: RawAddr::from(addr), socket: SocketId::Main, segmentation: Cell::new(true) })
        })
    }

    fn confirm(&mut self, link: Link) {
        if let Some(way) = self.links.get_mut(link).filter(|way| way.socket == SocketId::Main) {
            way.socket = self.sockets.connect(way.addr);
        }
    }

    fn unlink(&mut self, link: Link) {
        if let Some(way) = self.links.get_mut(link) {
            self.sockets.disconnect(way.socket);
        }
        self.tx.forget(link, &mut self.counters);
        self.links.unlink(link);
    }

    /// Shows the frames of one datagram, at most `budget`; what is left of them comes next time.
    ///
    /// One datagram a call: to see that there is no second one takes a system call, which a lone message need not wait
    /// for.
    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
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

    fn has_unread(&mut self) -> bool {
        !self.unread.is_empty() || self.sockets.has_datagram()
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
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

    #[inline]
    fn flush(&mut self) {
        self.tx.flush(&self.links, &self.sockets, &mut self.counters);
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
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

    fn waker(&mut self) -> io::Result<Waker> {
        self.alarm.waker()
    }

    /// Never known: a peer that refuses today may listen tomorrow.
    fn is_gone(&self, _link: Link) -> bool {
        false
    }

    fn counters(&self) -> Counters {
        Counters { rx_dropped: self.sockets.drops(), ..self.counters }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl Udp {
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
}

/// Where a datagram begins in its buffer, so that the payload behind the header is 8-byte aligned.
pub(super) const DATAGRAM_AT: usize = 8 - datagram::HEADER_LEN;
