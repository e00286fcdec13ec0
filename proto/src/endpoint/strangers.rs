//! Frames from those with whom there is no connection: each is answered when the burst that brought it is over.

use sidelane_nic::time::Instant;
use sidelane_nic::{LinkAddr, LinkError, Nic, TxSlot};

use super::Endpoint;
use crate::conn::{Conn, open_header};
use crate::counters::Reject;
use crate::router::{STRANGERS_MAX, Stranger};
use crate::seal::TAG_LEN;
use crate::wire::{FULL_LEN, Hello, Kind, NO_PEER, PING_LEN, PLAIN_LEN, Tokens, flags};

impl<N: Nic> Endpoint<N> {
    #[cold]
    pub(super) fn answer_strangers(&mut self, now: Instant) {
        let mut strangers = std::mem::take(&mut self.router.strangers);
        for stranger in strangers.drain(..) {
            match stranger {
                Stranger::Hello { from, hello, seen_len } => {
                    if let Err(reason) = self.answer_hello(now, from, &hello, seen_len) {
                        self.router.turn.counters.reject_after_all(reason);
                    }
                }
                Stranger::Lost { from, tokens } => {
                    // Nobody asks a second time where nothing is lost, but room is kept for others.
                    let waits = !self.send_reset(from, tokens) && N::RELIABLE;
                    if waits && self.router.strangers.len() < PUT_OFF_MAX {
                        self.router.strangers.push(Stranger::Lost { from, tokens });
                    } else if waits && tokens != Tokens::UNKNOWN {
                        // A frame for nobody, whose sender would be told to ask, is counted already.
                        self.router.turn.counters.reject_after_all(Reject::TableFull);
                    }
                }
            }
        }
        strangers.append(&mut self.router.strangers);
        self.router.strangers = strangers;
    }

    fn answer_hello(&mut self, now: Instant, from: LinkAddr, hello: &Hello, seen_len: usize) -> Result<(), Reject> {
        // Our own, which somebody sends back: no peer has answered, and with a key both directions would have the same one. Who dials
        // itself has meant it.
        let own = self.nic.caps().addr;
        if self.router.peers.at(hello.index).is_some_and(|conn| conn.answers_to(hello.token) && conn.addr != own) {
            return Err(Reject::Replay);
        }
        if let Some(conn) = self.router.peers.by_addr(from) {
            let (index, link, known) = (conn.id.index, conn.link, conn.knows(hello.token));
            if conn.is_unconfirmed() && !known {
                // The earlier Hello was never confirmed: the newer one stands.
                self.forget(index, link);
            } else if !known && self.nic.is_gone(link) {
                // It lives anew, and the driver knows that its last life is over: nobody is left to be asked.
                self.end_of_link(index);
            } else {
                let answered = conn.handle_hello(now, hello, seen_len);
                self.router.activate(index);
                self.router.after_change(index);
                return answered;
            }
        }
        if !self.router.has_room(from) {
            return Err(Reject::TableFull);
        }
        let link = self.nic.link_back(from).map_err(|error| match error {
            LinkError::Gone(_) => Reject::SenderGone,
            _ => Reject::TableFull,
        })?;
        let path = self.path();
        let token = self.router.draw_token();
        let id = self.router.peers.next_id();
        let config = &self.router.turn.config;
        self.router.peers.insert(Conn::accepted(id, from, link, token, path, now, config, hello, seen_len));
        self.router.activate(id.index);
        Ok(())
    }

    /// The driver knows that the peer of a connection has died: whoever has its address now is a stranger.
    #[cold]
    pub(super) fn end_of_link(&mut self, index: u16) {
        let Some((conn, turn)) = self.router.conn_turn(index) else { return };
        conn.handle_link_gone(turn);
        let (over, link) = (conn.is_over(), conn.link);
        if over {
            self.forget(index, link);
        } else {
            self.router.after_change(index);
        }
    }

    /// Tells every peer that this endpoint ends, as far as the driver has room.
    pub(super) fn reset_all(&mut self) {
        let mut held = Vec::new();
        self.router.peers.each(|conn| held.extend(conn.reset_tokens().map(|tokens| (conn.addr, tokens))));
        for (addr, tokens) in held {
            self.send_reset(addr, tokens);
        }
    }

    /// False when the driver has no room. To a peer of which there was a frame once; one that is gone needs none.
    fn send_reset(&mut self, to: LinkAddr, tokens: Tokens) -> bool {
        let header = if N::RELIABLE { PLAIN_LEN } else { FULL_LEN };
        let Ok(link) = self.nic.link_back(to) else { return true };
        let job = self.router.turn.job.as_ref();
        let (len, tag) = (header + PING_LEN, if job.is_some() { (TAG_LEN, flags::TAG) } else { (0, 0) });
        let mut sent = false;
        if let Some(mut slot) = self.nic.tx_slot(link, len + tag.0) {
            sent = true;
            self.router.turn.counters.frames_sent += 1;
            self.router.turn.counters.resets_sent += 1;
            tokens.emit(&mut slot[header..len]);
            open_header(Kind::Reset, NO_PEER, tokens.to as u16, tag.1, &mut slot[..len], N::RELIABLE);
            if let Some(job) = job {
                job.seal_opening(&mut slot);
            }
            slot.commit();
        }
        self.nic.flush();
        if !self.router.peers.holds_addr(to) {
            self.nic.unlink(link);
        }
        sent
    }
}

/// Answers that wait for room.
const PUT_OFF_MAX: usize = STRANGERS_MAX / 2;
