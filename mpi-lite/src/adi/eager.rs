//! Messages that are sent without asking, and the beginning of all others.

use super::credit::Credit;
use super::engine::{Engine, Stuck};
use super::envelope::Envelope;
use super::memory::Outgoing;
use super::peer::Item;
use super::port::Port;
use super::record;
use super::rendezvous::Message;
use super::request::{Error, Request, State, Status};
use super::unexpected::Found;

impl Engine {
    /// Begins a send to another process; it goes out at once where nothing is before it.
    #[inline]
    pub fn send(&mut self, ports: &mut [Port], to: u32, key: Envelope, bytes: Outgoing, sync: bool) -> Request {
        let peer = &mut self.peers[to as usize];
        if !sync
            && self.revoked.is_empty()
            && peer.waiting.is_empty()
            && bytes.len() <= peer.whole_max
            && peer.credit.allows(bytes.len())
            && self.emit(ports, to, |credit| record::eager(key, credit), bytes.bytes()).is_ok()
        {
            self.peers[to as usize].credit.spend(bytes.len());
            return Request::SENT;
        }
        self.send_later(ports, to, key, bytes, sync)
    }

    fn send_later(&mut self, ports: &mut [Port], to: u32, key: Envelope, bytes: Outgoing, sync: bool) -> Request {
        let request = self.requests.begin(to, key, bytes, super::memory::Incoming::EMPTY);
        if self.revoked.contains(&key.context()) {
            self.requests.complete(request.index, Status::failed(Error::Revoked));
        } else if self.peers[to as usize].gone {
            self.requests.complete(request.index, Status::failed(Error::ProcFailed));
        } else {
            self.requests.at(request.index).state = State::Queued { sync };
            self.say(to, Item::Send(request));
            self.settle(ports);
        }
        request
    }

    /// Sends a message that waited: whole, if it may go so, or its announcement.
    pub fn begin_send(&mut self, ports: &mut [Port], request: Request) -> Result<(), Stuck> {
        let Some(slot) = self.requests.get(request) else { return Ok(()) };
        let State::Queued { sync } = slot.state else { return Ok(()) };
        let (to, key, bytes) = (slot.process, slot.key, slot.outgoing);
        let peer = &self.peers[to as usize];
        if sync || bytes.len() > peer.limits.eager_max || !peer.credit.allows(bytes.len()) {
            return self.announce(ports, request, to, key, bytes);
        }
        if bytes.len() > peer.whole_max && bytes.len() > self.learn_whole_max(ports, to) {
            return self.begin_parts(ports, request, to, key, bytes);
        }
        self.emit(ports, to, |credit| record::eager(key, credit), bytes.bytes())?;
        self.peers[to as usize].credit.spend(bytes.len());
        self.requests.complete(request.index, Status::SENT);
        Ok(())
    }

    /// A whole message has come. Straight into the receive's room, if one waits.
    #[inline]
    pub fn handle_eager(&mut self, process: u32, key: Envelope, bytes: &[u8]) {
        let Some(request) = self.matching.arrive(key) else { return self.keep_eager(process, key, bytes) };
        self.owe(process, bytes.len());
        self.fill(request, key, bytes);
    }

    fn keep_eager(&mut self, process: u32, key: Envelope, bytes: &[u8]) {
        if self.revoked.contains(&key.context()) {
            return self.owe(process, bytes.len());
        }
        if !self.peers[process as usize].credit.hold(bytes.len()) {
            self.counters.beyond_credit += 1;
            return;
        }
        let message = Message { process, len: bytes.len(), bytes: self.buffers.copy(bytes), send: None, address: 0 };
        self.keep(key, message);
    }

    /// A message waits for its receive.
    pub fn keep(&mut self, key: Envelope, message: Message) -> Found {
        self.called |= key.context() == self.watched;
        self.matching.unexpected.push(key, message)
    }

    /// Ends a receive with a message that is all here.
    #[inline]
    pub fn fill(&mut self, request: u32, key: Envelope, bytes: &[u8]) {
        let slot = self.requests.at(request);
        slot.incoming.fill(bytes);
        let status = Status::of_message(key, bytes.len(), slot.incoming.len());
        self.requests.complete(request, status);
    }

    /// A message of the peer's is taken: its credit goes back.
    #[inline]
    pub fn owe(&mut self, process: u32, bytes: usize) {
        let credit = &mut self.peers[process as usize].credit;
        credit.owe(bytes);
        if credit.is_urgent() {
            self.tell_credit(process, Credit::units(bytes));
        }
    }

    /// The same of one that waited.
    pub fn release(&mut self, process: u32, bytes: usize) {
        let credit = &mut self.peers[process as usize].credit;
        credit.release(bytes);
        if credit.is_urgent() {
            self.tell_credit(process, Credit::units(bytes));
        }
    }

    /// Says so once: when what was just added made it urgent.
    #[cold]
    fn tell_credit(&mut self, process: u32, added: u32) {
        if self.peers[process as usize].credit.became_urgent(added) {
            self.say(process, Item::Credit);
        }
    }
}
