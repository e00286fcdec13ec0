//! Messages that are sent without asking and do not fit one frame: in parts that do, each of which the receiver copies from where it
//! came to where the message shall be (bench/NOTES.md 66).
//!
//! ```text
//! sender                              receiver
//! Begin (the first part)   -->        matched, or kept
//! Part .. Part             -->        complete; the send was when the last one was handed over
//! ```

use super::engine::{Engine, Stuck};
use super::envelope::Envelope;
use super::memory::Outgoing;
use super::peer::{Item, Way};
use super::port::Port;
use super::record;
use super::rendezvous::Message;
use super::request::{Error, Request, State, Status};
use super::unexpected::Found;

/// A peer's message of which parts are missing. There is one at a time: its parts follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    whose: Whose,
    /// Bytes that have come.
    at: usize,
    len: usize,
    /// Credit is held for it, as for all that is kept.
    is_held: bool,
}

/// Where the parts of a message go.
#[derive(Clone, Copy, Debug)]
enum Whose {
    /// Into the room of a receive.
    Receive(Request),
    /// To a message that waits for its receive.
    Kept(Found),
    /// Its context was revoked.
    Nobody,
}

impl Engine {
    /// Longest message that goes to a process as one record, if it may go unasked. Kept once there is a connection.
    pub fn learn_whole_max(&mut self, ports: &mut [Port], to: u32) -> usize {
        let peer = &mut self.peers[to as usize];
        let (Way::Port { port, .. }, Some(id)) = (peer.way, peer.id) else { return peer.limits.eager_max };
        let Some(frame) = ports[port].record_max(id) else { return peer.limits.eager_max };
        // In shorter frames the protocol below sends it from where it is.
        let is_parted = ports[port].gains_by_parts() && frame >= record::BEGIN_LEN + PAGE;
        peer.whole_max = peer.limits.eager_max.min(if is_parted { frame - record::EAGER_LEN } else { usize::MAX });
        peer.whole_max
    }

    /// Sends the first part of a message; the others are what is said next, before anything that waits.
    pub fn begin_parts(
        &mut self,
        ports: &mut [Port],
        request: Request,
        to: u32,
        key: Envelope,
        bytes: Outgoing,
    ) -> Result<(), Stuck> {
        let first = part_len(self.peers[to as usize].whole_max);
        let len = bytes.len() as u64;
        self.emit(ports, to, |credit| record::begin(key, credit, len), &bytes.bytes()[..first])?;
        let peer = &mut self.peers[to as usize];
        peer.credit.spend(bytes.len());
        peer.waiting.push_front(Item::Parts(request));
        self.requests.at(request.index).state = State::Parting { at: first };
        Ok(())
    }

    /// Sends the next parts of a message.
    pub fn send_parts(&mut self, ports: &mut [Port], request: Request) -> Result<(), Stuck> {
        while let Some(slot) = self.requests.get(request)
            && let State::Parting { at } = slot.state
        {
            let (process, bytes) = (slot.process, slot.outgoing);
            if at == bytes.len() {
                self.requests.complete(request.index, Status::SENT);
                break;
            }
            let peer = &self.peers[process as usize];
            if let Way::Port { port, .. } = peer.way {
                // With nothing before it the next part goes past the FIFO, where the driver is reliable.
                ports[port].flush();
            }
            let next = bytes.len().min(at + part_len(peer.whole_max));
            self.emit(ports, process, |credit| record::part(credit, at as u64), &bytes.bytes()[at..next])?;
            self.requests.at(request.index).state = State::Parting { at: next };
        }
        Ok(())
    }

    /// The first part of a message of `len` bytes has come.
    pub fn handle_begin(&mut self, process: u32, key: Envelope, len: u64, bytes: &[u8]) {
        let peer = &self.peers[process as usize];
        if peer.gone {
            // Its other parts will not come.
            self.counters.stale += 1;
            return;
        }
        let len = usize::try_from(len).ok().filter(|len| *len >= bytes.len() && peer.credit.covers(*len));
        let Some(len) = len.filter(|_| peer.incomplete.is_none()) else {
            self.counters.malformed += 1;
            return;
        };
        let mut is_held = false;
        let whose = if let Some(request) = self.matching.arrive(key) {
            self.fill_begun(request, process, key, len, bytes)
        } else if self.revoked.contains(&key.context()) {
            Whose::Nobody
        } else if self.peers[process as usize].credit.hold(len) {
            is_held = true;
            let mut buffer = self.buffers.room(len);
            buffer.extend_from_slice(bytes);
            Whose::Kept(self.keep(key, Message { process, len, bytes: buffer, send: None, address: 0 }))
        } else {
            self.counters.beyond_credit += 1;
            return;
        };
        self.advance(process, Incomplete { whose, at: 0, len, is_held }, bytes.len());
    }

    /// The next part of a message has come.
    pub fn handle_part(&mut self, process: u32, at: u64, bytes: &[u8]) {
        let peer = &self.peers[process as usize];
        if peer.gone {
            self.counters.stale += 1;
            return;
        }
        let Some(begun) = peer.incomplete.filter(|it| it.at as u64 == at && bytes.len() <= it.len - it.at) else {
            self.counters.malformed += 1;
            return;
        };
        match begun.whose {
            Whose::Receive(request) => {
                if let Some(slot) = self.requests.get(request).filter(|slot| slot.state == State::Filling) {
                    slot.incoming.fill_at(begun.at, bytes);
                }
            }
            Whose::Kept(found) => {
                if let Some((_, message)) = self.matching.unexpected.get(found) {
                    message.bytes.extend_from_slice(bytes);
                }
            }
            Whose::Nobody => {}
        }
        self.advance(process, begun, bytes.len());
    }

    /// A receive takes a message of which parts are missing.
    pub fn match_incomplete(&mut self, request: u32, process: u32, key: Envelope, len: usize, bytes: &[u8]) {
        if self.peers[process as usize].incomplete.is_none() {
            // Its sender ended before the rest came.
            return self.requests.complete(request, Status::failed(Error::ProcFailed));
        }
        let whose = self.fill_begun(request, process, key, len, bytes);
        if let Some(begun) = &mut self.peers[process as usize].incomplete {
            begun.whose = whose;
        }
    }

    /// A receive has the first `bytes` of a message of `len`.
    fn fill_begun(&mut self, request: u32, process: u32, key: Envelope, len: usize, bytes: &[u8]) -> Whose {
        let receive = self.requests.handle(request);
        let slot = self.requests.at(request);
        slot.status = Status::of_message(key, len, slot.incoming.len());
        slot.incoming.fill(bytes);
        slot.process = process;
        slot.state = State::Filling;
        Whose::Receive(receive)
    }

    /// More of a message has come; it may be all.
    fn advance(&mut self, process: u32, begun: Incomplete, more: usize) {
        let Incomplete { whose, len, is_held, .. } = begun;
        let at = begun.at + more;
        let peer = &mut self.peers[process as usize];
        if at < len {
            peer.incomplete = Some(Incomplete { at, ..begun });
            return;
        }
        peer.incomplete = None;
        match whose {
            // Its credit is held until a receive takes it.
            Whose::Kept(found) if self.matching.unexpected.get(found).is_some() => return,
            Whose::Receive(request) => {
                let slot = self.requests.get(request).filter(|slot| slot.state == State::Filling);
                if let Some(status) = slot.map(|slot| slot.status) {
                    self.requests.complete(request.index, status);
                }
            }
            Whose::Kept(_) | Whose::Nobody => {}
        }
        if is_held {
            self.release(process, len);
        } else {
            self.owe(process, len);
        }
    }
}

/// Bytes of a part where a whole message may have `whole_max`: pages, so that all are copied alike.
const fn part_len(whole_max: usize) -> usize {
    (whole_max + record::EAGER_LEN - record::BEGIN_LEN) / PAGE * PAGE
}

const PAGE: usize = 4 << 10;
