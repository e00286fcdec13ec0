//! One-sided operations on our protocol: messages that are put into the receiver's memory, or got out of the sender's.

use std::collections::VecDeque;

use sidelane_nic::share::{Shared, Ticket};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Endpoint, Event, Op, PeerId, PutHow, Region, RemoteKey, Rights, RmaError};

use super::{Broken, Flow, Proto, Transport};
use crate::clock::now_ns;

/// What both ways have in common: a region here, one there, and signals that tell how far the other end is.
struct Ends<N: Nic> {
    endpoint: Endpoint<N>,
    peer: PeerId,
    /// Places for messages, one after another, and behind them the number of the last message of all, counted from 1.
    own: Region,
    /// Nothing is sent before it has come.
    theirs: Option<RemoteKey>,
    slots: usize,
    size: usize,
    flow: Flow,
    sent: usize,
    /// Signals of the other end that were taken note of.
    seen: u64,
    closed: bool,
}

/// The sender puts each message into the receiver's region, with a signal. Where both ends share memory, large ones are
/// written straight into the receiver's, and the put is the signal alone.
pub struct Put<N: Nic> {
    ends: Ends<N>,
    /// The other end's memory, and ours, laid out as regions are.
    mapped: Option<Shared>,
    shared: Option<Shared>,
    /// What large messages are put from.
    source: Region,
    /// Puts that are not in place, where more than one is under way.
    under_way: VecDeque<Op>,
    /// The other end's ticket has come.
    met: bool,
}

/// The receiver gets each message out of the sender's region, which a signal says is there, and answers by a signal. A
/// ping-pong is the get alone, of which a half would mean nothing: its round trips count as whole ones.
pub struct Get<N: Nic> {
    ends: Ends<N>,
    under_way: VecDeque<Op>,
    /// Messages that were asked for.
    asked: usize,
    /// The other end's last message was a message.
    over: bool,
}

impl<N: Nic> Ends<N> {
    fn new(proto: Proto<N>, size: usize, flow: Flow) -> Result<Self, Broken> {
        let (mut endpoint, peer) = proto.into_parts();
        let slots = (SLOT_BYTES / size).clamp(2, SLOTS_MAX);
        // Not zeros: pages of a zeroed allocation are all one page until they are written, and a get only reads.
        let mut memory = vec![0x5a; slots * size];
        memory.extend([0; END_LEN]);
        let own = endpoint.register(memory);
        let key = endpoint.publish(own, Rights::ALL, Some(peer)).map_err(Broken::driver)?;
        endpoint.send(peer, &key.to_bytes()).map_err(Broken::driver)?;
        Ok(Self { endpoint, peer, own, theirs: None, slots, size, flow, sent: 0, seen: 0, closed: false })
    }

    /// Where message `number` stands in either region.
    #[inline]
    fn place(&self, number: usize) -> usize {
        self.size * (number % self.slots)
    }

    /// One turn. Returns how many gets have landed.
    #[inline]
    fn poll(&mut self) -> Result<usize, Broken> {
        self.endpoint.poll();
        let mut landed = 0;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Got { .. } => landed += 1,
                Event::Closed { .. } => self.closed = true,
                Event::Gone { .. } | Event::OpFailed { .. } => return Err(Broken::PeerGone),
                _ => {}
            }
        }
        if self.theirs.is_none() {
            let key = self.endpoint.recv(|_, message| message.try_into().map(RemoteKey::from_bytes));
            self.theirs = key.transpose().map_err(Broken::driver)?;
        }
        Ok(landed)
    }

    #[inline]
    fn signals(&self) -> u64 {
        self.endpoint.signals(self.own).unwrap_or(0)
    }

    fn finish(&mut self, deadline_ns: u64) {
        let deadline_ns = deadline_ns.min(now_ns() + super::proto::LINGER_NS);
        self.endpoint.close(self.peer);
        while !self.closed && now_ns() < deadline_ns {
            if self.poll().is_err() {
                // The other end closed first and has left, which is no failure of what was measured.
                break;
            }
            self.endpoint.recv(|_, _| ());
            crate::idle::relax();
        }
    }
}

impl<N: Nic> Put<N> {
    /// One end, over a connection that stands.
    pub fn new(proto: Proto<N>, size: usize, flow: Flow) -> Result<Self, Broken> {
        let mut ends = Ends::new(proto, size, flow)?;
        let source = ends.endpoint.register(vec![0x5a; size]);
        let on_host = matches!(ends.endpoint.nic().caps().addr, LinkAddr::Shm { .. });
        let shared = (on_host && size > COPIED_MAX).then(|| Shared::new(ends.slots * size).ok()).flatten();
        let ticket = shared.as_ref().map_or([0; Ticket::LEN], |shared| shared.ticket().to_bytes());
        ends.endpoint.send(ends.peer, &ticket).map_err(Broken::driver)?;
        Ok(Self { ends, mapped: None, shared, source, under_way: VecDeque::new(), met: false })
    }

    /// The other end's ticket comes behind its key. A ticket that does not work leaves puts as they are.
    #[inline(never)]
    fn meet(&mut self) -> bool {
        if self.ends.theirs.is_none() {
            return false;
        }
        let ticket = self.ends.endpoint.recv(|_, message| message.try_into().map(Ticket::from_bytes));
        self.met = ticket.is_some();
        if let Some(Ok(ticket)) = ticket.filter(|_| self.shared.is_some()) {
            self.mapped = Shared::of(ticket).ok();
        }
        self.met
    }

    #[inline]
    fn take(&mut self, budget: usize, mut each: impl FnMut(&[u8])) -> usize {
        let Ends { endpoint, own, slots, size, seen, .. } = &mut self.ends;
        let signals = endpoint.signals(*own).unwrap_or(0);
        let taken = (signals - *seen).min(budget as u64);
        let (places, end) =
            endpoint.region(*own).unwrap_or(&[0; END_LEN]).split_last_chunk().unwrap_or((&[], &[0; END_LEN]));
        for _ in 0..taken {
            // It was put before the last message's signal.
            if *seen + 1 == u64::from_le_bytes(*end) {
                each(&[LAST]);
            } else {
                // What the other end wrote into memory that both share cannot be shown, and patterns look at no more than the
                // first byte, which is that of these places.
                let at = *seen as usize % *slots * *size;
                each(&places[at..at + *size]);
            }
            *seen += 1;
        }
        taken as usize
    }
}

impl<N: Nic> Transport for Put<N> {
    const ANSWERS_MANY: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        if !self.met && !self.meet() {
            return Ok(false);
        }
        let Self { ends, mapped, source, under_way, .. } = self;
        let Some(key) = ends.theirs else { return Ok(false) };
        let alternating = ends.flow == Flow::Alternating;
        while under_way.front().is_some_and(|op| ends.endpoint.is_done(*op)) {
            under_way.pop_front();
        }
        if under_way.len() >= ends.slots {
            return Ok(false);
        }
        let to = ends.place(ends.sent) as u64;
        if message[0] == LAST {
            let number = (ends.sent as u64 + 1).to_le_bytes();
            match ends.endpoint.put(ends.peer, &key, (ends.slots * ends.size) as u64, &number, SILENT) {
                Ok(_) => {}
                Err(RmaError::Full) => return Ok(false),
                Err(error) => return Err(Broken::driver(error)),
            }
        }
        // Where each message is the answer to one, that one has told that the last is in place.
        let how = PutHow { signal: true, silent: alternating, backwards: false };
        let put = if let Some(mapped) = mapped {
            mapped.write(to as usize, message);
            ends.endpoint.put(ends.peer, &key, 0, &[], how)
        } else if message.len() > COPIED_MAX {
            ends.endpoint.put_from(ends.peer, &key, to, *source, 0..ends.size, how)
        } else {
            ends.endpoint.put(ends.peer, &key, to, message, how)
        };
        match put {
            Ok(op) if !alternating => under_way.push_back(op),
            Ok(_) => {}
            Err(RmaError::Full) => return Ok(false),
            Err(error) => return Err(Broken::driver(error)),
        }
        ends.sent += 1;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.ends.endpoint.flush();
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let waiting = self.take(budget, &mut each);
        if waiting > 0 {
            return Ok(waiting);
        }
        self.ends.poll()?;
        Ok(self.take(budget, &mut each))
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        self.ends.finish(deadline_ns);
        Ok(())
    }
}

impl<N: Nic> Get<N> {
    /// One end, over a connection that stands.
    pub fn new(proto: Proto<N>, size: usize, flow: Flow) -> Result<Self, Broken> {
        let ends = Ends::new(proto, size, flow)?;
        Ok(Self { ends, under_way: VecDeque::new(), asked: 0, over: false })
    }

    /// Asks for message `number`. False when there is no room.
    fn ask(&mut self, number: usize) -> Result<bool, Broken> {
        let ends = &mut self.ends;
        let Some(key) = ends.theirs else { return Ok(false) };
        let at = ends.place(number);
        match ends.endpoint.get(ends.peer, &key, at as u64, ends.own, at..at + ends.size) {
            Ok(op) => self.under_way.push_back(op),
            Err(RmaError::Full) => return Ok(false),
            Err(error) => return Err(Broken::driver(error)),
        }
        self.asked += 1;
        Ok(true)
    }

    /// Shows what has landed, and asks for what the other end has ready.
    fn take_landed(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<usize, Broken> {
        let landed = self.ends.poll()?;
        for _ in 0..landed {
            self.under_way.pop_front();
            let at = self.ends.place(self.asked - self.under_way.len() - 1);
            each(&self.ends.endpoint.region(self.ends.own).unwrap_or(&[])[at..at + self.ends.size]);
            if self.ends.flow == Flow::Inward
                && let Some(key) = self.ends.theirs
            {
                self.ends.endpoint.signal(self.ends.peer, &key).map_err(Broken::driver)?;
            }
        }
        if self.ends.flow == Flow::Inward {
            while (self.asked as u64) < self.ends.signals() && self.ask(self.asked)? {}
            self.ends.endpoint.flush();
        }
        Ok(landed)
    }

    /// The other end's last message, the one that is sent; its key came before.
    fn take_end(&mut self) -> bool {
        let came = self.ends.theirs.is_some() && !self.over && self.ends.endpoint.recv(|_, _| ()).is_some();
        self.over |= came;
        came
    }
}

impl<N: Nic> Transport for Get<N> {
    const ANSWERS_MANY: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        if self.ends.flow == Flow::Alternating {
            if message[0] != LAST {
                return self.ask(self.asked);
            }
            return self.ends.endpoint.send(self.ends.peer, &[LAST]).map(|()| true).map_err(Broken::driver);
        }
        let free = self.ends.sent - (self.ends.signals() as usize) < self.ends.slots;
        let Some(key) = self.ends.theirs.filter(|_| free) else { return Ok(false) };
        let at = self.ends.place(self.ends.sent);
        let (endpoint, own) = (&mut self.ends.endpoint, self.ends.own);
        if let Some(memory) = endpoint.region_mut(own) {
            memory[at] = message[0];
        }
        match endpoint.signal(self.ends.peer, &key) {
            Ok(_) => self.ends.sent += 1,
            Err(RmaError::Full) => return Ok(false),
            Err(error) => return Err(Broken::driver(error)),
        }
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.ends.endpoint.flush();
        Ok(())
    }

    fn recv(&mut self, _budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let landed = self.take_landed(&mut each)?;
        if landed == 0 && self.ends.flow == Flow::Alternating && self.take_end() {
            each(&[LAST]);
            return Ok(1);
        }
        Ok(landed)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        // Who closes answers no more gets: not before the other end has everything.
        while self.ends.flow == Flow::Outward
            && (self.ends.signals() as usize) < self.ends.sent
            && now_ns() < deadline_ns
        {
            if self.ends.poll().is_err() {
                break;
            }
            crate::idle::relax();
        }
        self.ends.finish(deadline_ns);
        Ok(())
    }
}

/// First byte of the last message.
const LAST: u8 = 1;
const SILENT: PutHow = PutHow { signal: false, silent: true, backwards: false };
/// Bytes of the last message's number.
const END_LEN: usize = 8;
/// Larger messages are put from a region, smaller ones copied.
const COPIED_MAX: usize = 4 << 10;
/// Bytes of a region's places, so that those of large messages stay in the cache.
const SLOT_BYTES: usize = 2 << 20;
/// Places for small messages: what is in flight on the fastest of drivers.
const SLOTS_MAX: usize = 1024;
