//! Messages that are announced: their bytes go where the receive wants them, once there is one.
//!
//! ```text
//! sender                                        receiver
//! Announce (and its first bytes, if any)    -->  matched, or queued until it is
//!                      <-- Accept with a key     enough is missing to be put
//! put .. put, Finished -->                       complete
//!                      <-- Accept without        little is missing
//! Data .. Data         -->                       complete
//!                      <-- Taken                 nothing is missing, or all was read from the sender's memory (`shared_copy`)
//! ```
//! All of a message goes with its announcement where it fits that frame, and else nothing, unless `sidelane tune` found that some of it
//! gains (`Limits::prefix`): asking takes no longer than those bytes would.

use std::ops::Range;

use super::engine::{Engine, Stuck};
use super::envelope::Envelope;
use super::memory::Outgoing;
use super::peer::{Item, Peer, Way};
use super::port::Port;
use super::pull;
use super::record::{self, Accept, Announce, Note};
use super::request::{Error, Request, Slot, State, Status};
use sidelane_nic::copy::copy;
use sidelane_proto::{RemoteKey, RmaError};

/// A message that came before its receive.
#[derive(Debug)]
pub(super) struct Message {
    pub process: u32,
    /// Bytes of all of it.
    pub len: usize,
    /// Those that are here.
    pub bytes: Vec<u8>,
    /// The sender's request, of a message that was announced; of others what is missing is on its way.
    pub send: Option<u64>,
    /// Where the bytes that are not here are in its memory; 0 if that is not known.
    pub address: u64,
}

impl Message {
    /// More of it is to come.
    pub const fn is_incomplete(&self) -> bool {
        self.bytes.len() < self.len
    }

    /// Bytes whose credit is given back when it is taken. `None`: it has taken none, or gives it back when its last part has come.
    pub const fn held(&self) -> Option<usize> {
        match self.send {
            None if self.is_incomplete() => None,
            Some(_) if self.bytes.is_empty() => None,
            _ => Some(self.bytes.len()),
        }
    }
}

impl Engine {
    /// Tells the receiver of a message, and gives it the first bytes.
    pub fn announce(
        &mut self,
        ports: &mut [Port],
        request: Request,
        to: u32,
        key: Envelope,
        bytes: Outgoing,
    ) -> Result<(), Stuck> {
        let whole_max = self.learn_whole_max(ports, to);
        let peer = &self.peers[to as usize];
        // One that waits for its receive comes as a whole, where it fits the frame that announces it.
        let fits = bytes.len() + record::ANNOUNCE_LEN <= whole_max + record::EAGER_LEN;
        let most = if fits { bytes.len() } else { peer.limits.prefix };
        let prefix = peer.credit.most(most.min(bytes.len()));
        let told = self.single_copy && self.is_on_host(ports, to);
        let announce = Announce {
            send: request.to_bits(),
            len: bytes.len() as u64,
            address: if told && prefix < bytes.len() { bytes.address() + prefix as u64 } else { 0 },
        };
        self.emit(ports, to, |credit| record::announce(key, credit, announce), &bytes.bytes()[..prefix])?;
        if prefix > 0 {
            self.peers[to as usize].credit.spend(prefix);
        }
        self.requests.at(request.index).state = State::Announced { cancelling: false };
        Ok(())
    }

    fn is_on_host(&self, ports: &[Port], process: u32) -> bool {
        matches!(self.peers[process as usize].way, Way::Port { port, .. } if ports[port].is_on_host())
    }

    /// A message is announced, and its first bytes are here.
    pub fn handle_announce(&mut self, process: u32, key: Envelope, announce: Announce, bytes: &[u8]) {
        if let Some(request) = self.matching.arrive(key) {
            if !bytes.is_empty() {
                self.owe(process, bytes.len());
            }
            return self.match_announced(request, process, key, announce, bytes);
        }
        if self.revoked.contains(&key.context()) {
            if !bytes.is_empty() {
                self.owe(process, bytes.len());
            }
            return self.say(process, Item::Note { note: Note::Refused, request: announce.send });
        }
        if !bytes.is_empty() && !self.peers[process as usize].credit.hold(bytes.len()) {
            self.counters.beyond_credit += 1;
            return;
        }
        let (len, bytes) = (announce.len as usize, self.buffers.copy(bytes));
        let message = Message { process, len, bytes, send: Some(announce.send), address: announce.address };
        self.keep(key, message);
    }

    /// A receive takes a message that was kept.
    pub fn match_kept(&mut self, request: u32, key: Envelope, message: Message) {
        let (is_incomplete, held) = (message.is_incomplete(), message.held());
        let Message { process, len, bytes, send, address } = message;
        if let Some(held) = held.filter(|_| process != self.own) {
            self.release(process, held);
        }
        match send {
            _ if process == self.own => self.match_own(request, key, &bytes, send),
            None if is_incomplete => self.match_incomplete(request, process, key, len, &bytes),
            None => self.fill(request, key, &bytes),
            Some(send) => {
                self.match_announced(request, process, key, Announce { send, len: len as u64, address }, &bytes);
            }
        }
        self.buffers.give(bytes);
    }

    fn match_announced(&mut self, request: u32, process: u32, key: Envelope, announce: Announce, bytes: &[u8]) {
        let slot = self.requests.at(request);
        let (len, here) = (announce.len as usize, bytes.len().min(slot.incoming.len()));
        let status = Status::of_message(key, len, slot.incoming.len());
        let wanted = status.bytes;
        let mut room = slot.incoming;
        copy(&mut room.bytes_mut()[..here], &bytes[..here]);
        slot.process = process;
        slot.status = status;
        slot.state = State::Receiving { missing: wanted - here, region: None };
        let missing = &mut room.bytes_mut()[here..wanted];
        let Peer { gone, limits, .. } = self.peers[process as usize];
        // The number of a process that is gone may be another's.
        let pulls = !gone && missing.len() >= limits.pull_min;
        if pulls && self.share_copy(request, announce, wanted - here) {
            return;
        }
        if missing.is_empty() || pulls && self.pull(process, announce.address, missing) {
            self.say(process, Item::Note { note: Note::Taken, request: announce.send });
            return self.requests.complete(request, status);
        }
        if gone {
            return self.requests.complete(request, Status::failed(Error::ProcFailed));
        }
        let handle = self.requests.handle(request);
        self.say(process, Item::Accept { receive: handle, send: announce.send });
    }

    /// Reads what is missing from the sender's memory. False where that cannot be done.
    fn pull(&mut self, process: u32, address: u64, room: &mut [u8]) -> bool {
        let peer = &mut self.peers[process as usize];
        let pulled = address != 0
            && self.single_copy
            && pull::pull(&mut peer.pull, &self.processes[process as usize], address, room).is_ok();
        self.counters.pulled += u64::from(pulled);
        pulled
    }

    /// Tells a sender what is wanted of its message, and how.
    pub fn accept(&mut self, ports: &mut [Port], from: u32, request: Request, send: u64) -> Result<(), Stuck> {
        let slot =
            self.requests.get(request).filter(|slot| matches!(slot.state, State::Receiving { region: None, .. }));
        let Some(Slot { state: State::Receiving { missing, .. }, status, incoming: room, .. }) = slot else {
            // Revoked since it was matched: its sender waits for an answer all the same.
            return self.emit(ports, from, |credit| record::note(credit, Note::Refused, send), &[]);
        };
        let (missing, wanted, room) = (*missing, status.bytes, *room);
        let at = wanted - missing;
        let peer = &self.peers[from as usize];
        let mut accept = Accept { send, receive: request.to_bits(), at: at as u64, want: missing as u64, key: None };
        let mut exposed = None;
        if missing >= peer.limits.put_min
            && let (Way::Port { port, .. }, Some(id)) = (peer.way, peer.id)
            && let Some((region, key)) = ports[port].expose(room, at..wanted, id)
        {
            accept.key = Some(key);
            exposed = Some((port, region));
        }
        let sent = self.emit(ports, from, |credit| record::accept(credit, accept), &[]);
        if sent.is_err()
            && let Some((port, region)) = exposed
        {
            ports[port].withdraw(region);
        } else if let Some((_, region)) = exposed {
            self.counters.put += 1;
            self.requests.at(request.index).state = State::Receiving { missing, region: Some(region) };
        } else {
            self.counters.streamed += 1;
        }
        sent
    }

    /// Asks the receiver to forget an announced message. Its answer ends the send, or that it has taken the message.
    pub fn cancel_announced(&mut self, request: u32) {
        let slot = self.requests.at(request);
        let process = slot.process;
        slot.state = State::Announced { cancelling: true };
        let send = self.requests.handle(request).to_bits();
        self.say(process, Item::Note { note: Note::Cancel, request: send });
    }

    /// The receiver wants the rest of a message.
    pub fn handle_accept(&mut self, process: u32, accept: Accept) {
        let request = Request::from_bits(accept.send);
        let slot = self.requests.get(request).filter(|slot| slot.process == process);
        let Some(slot) = slot.filter(|slot| matches!(slot.state, State::Announced { .. })) else {
            self.counters.stale += 1;
            return;
        };
        let (at, len) = (accept.at as usize, accept.want as usize);
        if at.checked_add(len).is_none_or(|end| end > slot.outgoing.len()) {
            self.counters.malformed += 1;
            return;
        }
        slot.state = State::Streaming { at, end: at + len, to: accept.receive };
        self.say(
            process,
            match accept.key {
                None => Item::Stream(request),
                Some(key) => Item::Put { send: request, receive: accept.receive, at, len, key },
            },
        );
    }

    /// Sends the next parts of a message.
    pub fn stream(&mut self, ports: &mut [Port], request: Request) -> Result<(), Stuck> {
        loop {
            let Some(slot) = self.requests.get(request) else { return Ok(()) };
            let State::Streaming { at, end, to } = slot.state else { return Ok(()) };
            if at == end {
                self.requests.complete(request.index, Status::SENT);
                return Ok(());
            }
            let (process, bytes) = (slot.process, slot.outgoing);
            let next = end.min(at + PART_MAX);
            self.emit(ports, process, |credit| record::data(credit, to, at as u64), &bytes.bytes()[at..next])?;
            self.requests.at(request.index).state = State::Streaming { at: next, end, to };
        }
    }

    /// Puts the rest of a message into the receiver's memory, and says that it is there.
    pub fn put(
        &mut self,
        ports: &mut [Port],
        request: Request,
        receive: u64,
        range: Range<usize>,
        key: &RemoteKey,
    ) -> Result<(), Stuck> {
        let Some(slot) = self.requests.get(request) else { return Ok(()) };
        let (process, bytes) = (slot.process, slot.outgoing);
        let peer = &self.peers[process as usize];
        let (Way::Port { port, .. }, Some(id)) = (peer.way, peer.id) else { return Err(Stuck::Gone) };
        // Of what goes to and fro each of the two so begins with what it has touched last.
        let backwards = self.own > process
            && range.len() >= BACKWARDS_MIN
            && ports[port].record_max(id).is_some_and(|frame| frame >= BACKWARDS_FRAME);
        match ports[port].put(id, key, bytes, range, backwards) {
            Ok(region) => {
                self.requests.at(request.index).state = State::Putting { region };
                self.putting.insert((port, region), request.index);
                let finished = Item::Note { note: Note::Finished, request: receive };
                // A message goes out behind the puts before it.
                self.peers[process as usize].waiting.push_front(finished);
                Ok(())
            }
            Err(RmaError::Full) => Err(Stuck::Full),
            Err(RmaError::NoPeer) => Err(Stuck::Gone),
            Err(RmaError::NoRegion | RmaError::Bounds | RmaError::Misaligned) => {
                self.counters.malformed += 1;
                self.requests.complete(request.index, Status::failed(Error::ProcFailed));
                Ok(())
            }
        }
    }

    /// A part of a message has come.
    pub fn handle_data(&mut self, process: u32, receive: u64, at: u64, bytes: &[u8]) {
        let request = Request::from_bits(receive);
        let slot = self.requests.get(request).filter(|slot| slot.process == process);
        let Some(slot) = slot else {
            self.counters.stale += 1;
            return;
        };
        let State::Receiving { missing, region: None } = slot.state else {
            self.counters.malformed += 1;
            return;
        };
        let (wanted, mut room) = (slot.status.bytes, slot.incoming);
        if at != (wanted - missing) as u64 || bytes.len() > missing {
            self.counters.malformed += 1;
            return;
        }
        let at = wanted - missing;
        copy(&mut room.bytes_mut()[at..at + bytes.len()], bytes);
        let missing = missing - bytes.len();
        if missing > 0 {
            slot.state = State::Receiving { missing, region: None };
        } else {
            let status = slot.status;
            self.requests.complete(request.index, status);
        }
    }

    /// The other side says something of a request of ours.
    pub fn handle_note(&mut self, process: u32, note: Note, request: u64) {
        let request = Request::from_bits(request);
        let Some(slot) = self.requests.get(request).filter(|slot| slot.process == process) else {
            self.counters.stale += 1;
            return;
        };
        let status = match (note, slot.state) {
            (Note::Taken, State::Announced { .. }) => Status::SENT,
            // Refused: also by who has freed the communicator, before it heard of the cancel.
            (Note::Cancelled | Note::Refused, State::Announced { cancelling: true })
                if !self.revoked.contains(&slot.key.context()) =>
            {
                Status { cancelled: true, ..Status::SENT }
            }
            (Note::Cancelled, State::Announced { cancelling: true }) | (Note::Refused, State::Announced { .. }) => {
                Status::failed(Error::Revoked)
            }
            (Note::Finished, State::Receiving { region: Some(_), .. }) => {
                return self.closing.push(request.index);
            }
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        self.requests.complete(request.index, status);
    }

    /// The sender wants a message back, if no receive has it.
    pub fn handle_cancel(&mut self, process: u32, send: u64) {
        let found =
            self.matching.unexpected.filter(|_, message| message.process == process && message.send == Some(send));
        let Some((_, message)) = found.first().and_then(|found| self.matching.unexpected.take(*found)) else { return };
        if let Some(held) = message.held() {
            self.release(process, held);
        }
        self.buffers.give(message.bytes);
        self.say(process, Item::Note { note: Note::Cancelled, request: send });
    }
}

/// Bytes of a part: a frame's worth on most drivers.
const PART_MAX: usize = 16 << 10;
/// Least that is put backwards: less stays in a core's own cache from one message to the next, whichever way it goes.
const BACKWARDS_MIN: usize = 1 << 20;
/// Frames that it takes: across shorter ones the processor reads ahead, and backwards it does not (memif and vhost lose 5 and 7 % of 4 MiB;
/// bench/NOTES.md 85).
const BACKWARDS_FRAME: usize = 32 << 10;
