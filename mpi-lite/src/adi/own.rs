//! Messages of a process to itself.

use super::engine::Engine;
use super::envelope::Envelope;
use super::memory::{Incoming, Outgoing};
use super::rendezvous::Message;
use super::request::{Error, Request, State, Status};

impl Engine {
    /// Begins a send to this process. A short message is copied if no receive waits; a long one stays where it is.
    pub fn send_own(&mut self, key: Envelope, bytes: Outgoing, sync: bool) -> Request {
        if let Some(receive) = self.matching.arrive(key) {
            self.fill(receive, key, bytes.bytes());
            return Request::SENT;
        }
        let (process, len) = (self.own, bytes.len());
        let peer = &mut self.peers[process as usize];
        let revoked = self.revoked.contains(&key.context());
        if !revoked && !sync && len <= peer.limits.eager_max && peer.credit.hold(len) {
            let message = Message { process, len, bytes: self.buffers.copy(bytes.bytes()), send: None, address: 0 };
            self.matching.unexpected.push(key, message);
            return Request::SENT;
        }
        let request = self.requests.begin(process, key, bytes, Incoming::EMPTY);
        if revoked {
            self.requests.complete(request.index, Status::failed(Error::Revoked));
        } else {
            self.requests.at(request.index).state = State::Own;
            let message = Message { process, len, bytes: Vec::new(), send: Some(request.to_bits()), address: 0 };
            self.matching.unexpected.push(key, message);
        }
        request
    }

    /// A receive takes such a message, of which `bytes` were copied.
    pub fn match_own(&mut self, receive: u32, key: Envelope, bytes: &[u8], send: Option<u64>) {
        let Some(send) = send.map(Request::from_bits) else {
            self.release_own(bytes.len());
            return self.fill(receive, key, bytes);
        };
        if let Some(slot) = self.requests.get(send) {
            let bytes = slot.outgoing;
            self.requests.complete(send.index, Status::SENT);
            self.fill(receive, key, bytes.bytes());
        }
    }
    /// A message to oneself that was kept is kept no more.
    pub fn release_own(&mut self, bytes: usize) {
        let credit = &mut self.peers[self.own as usize].credit;
        credit.release(bytes);
        credit.paid(credit.due());
    }
}
