//! MPI's point-to-point over a driver, as a program uses it: non-blocking sends and receives of one tag, a window of each.
#![allow(unsafe_code)] // Sends and receives lend memory; all of it is the transport's own.

use std::collections::VecDeque;

use sidelane_mpi::adi::{
    Config, Device, Envelope, Error, Incoming, Limits, Mode, Outgoing, Pattern, Port, Process, Request, Source, Status,
    host_identity,
};
use sidelane_nic::Nic;
use sidelane_nic::time::Duration;

use super::proto::{LINGER_NS, config as endpoint_config};
use super::{Broken, Flow, Transport};
use crate::buffer::Buffer;
use crate::clock::now_ns;
use crate::pattern::Role;
use crate::side::Sealing;

/// One of two processes.
pub struct Mpi {
    device: Device,
    other: u32,
    /// What every send sends, written only while none is under way. `None` where messages alternate: then the only room has what
    /// was received, and it is sent from there, as by `p2p.c` and by most programs.
    outgoing: Option<Buffer>,
    sends: VecDeque<Request>,
    rooms: Rooms,
    size: usize,
    window: usize,
    answers: Option<Answers>,
}

/// Where receives put messages, one after the other, and again from the first. [`Transport::recv`] first of all posts as many receives as
/// there may be, as a program does that calls MPI_Recv when it has answered.
struct Rooms {
    /// One for each receive, or one that all share.
    rooms: Box<[Buffer]>,
    /// Of the oldest receive.
    first: usize,
    receives: VecDeque<Request>,
    /// Receives at once.
    window: usize,
}

/// Every [`WINDOW`] messages one way wait for an answer of a byte, as in osu_mbw_mr and osu_bw.
struct Answers {
    /// Messages of the window under way.
    messages: usize,
    byte: Box<[u8]>,
    /// What the sender waits for; `None` at the receiver.
    due: Option<Request>,
}

impl Mpi {
    /// A port for this end, and what the other end has to know of it.
    pub fn begin<N: Nic + 'static>(nic: N) -> Result<(Vec<Port>, String), Broken> {
        let port = Port::new(nic, &config(None))
            .ok_or_else(|| Broken::Driver("mpi does not run on this driver".to_owned()))?;
        let ports = vec![port];
        let process = Process::here(&host_identity(), &ports).to_string();
        Ok((ports, process))
    }

    /// The end of `role`, whose other end is `peer`, with other limits than those that are built in if they are given.
    pub fn new(
        ports: Vec<Port>,
        role: Role,
        peer: &str,
        limits: Option<Limits>,
        (size, flow): (usize, Flow),
    ) -> Result<Self, Broken> {
        let own = Process::here(&host_identity(), &ports);
        let peer = peer.parse().map_err(Broken::driver)?;
        let (number, processes) = match role {
            Role::Initiator => (0, vec![own, peer]),
            Role::Responder => (1, vec![peer, own]),
        };
        let device = Device::open(number, processes, ports, &config(limits)).map_err(Broken::driver)?;
        let window = window(size, flow);
        let outgoing = (flow != Flow::Alternating).then(|| Buffer::new(size));
        let mut mpi = Self {
            device,
            other: 1 - number,
            outgoing,
            sends: VecDeque::with_capacity(WINDOW),
            rooms: Rooms::new(if shares_room(size) { 1 } else { window }, window, size),
            size,
            window,
            answers: None,
        };
        if mpi.outgoing.is_some() {
            mpi.rooms.post(&mut mpi.device, mpi.other);
        }
        Ok(mpi)
    }

    /// Both ends within one thread.
    pub fn pair<N: Nic + 'static>((a, b): (N, N), size: usize, flow: Flow) -> Result<(Self, Self), Broken> {
        let ((ports_a, a), (ports_b, b)) = (Self::begin(a)?, Self::begin(b)?);
        let a_is = Self::new(ports_a, Role::Initiator, &b, None, (size, flow))?;
        Ok((a_is, Self::new(ports_b, Role::Responder, &a, None, (size, flow))?))
    }

    /// The same in windows of messages that go `flow`, each with an answer.
    pub fn in_windows(mut self, flow: Flow) -> Self {
        let mut answers = Answers { messages: 0, byte: vec![0; 1].into(), due: None };
        if flow == Flow::Outward {
            answers.due = Some(answers.receive(&mut self.device, self.other));
        }
        self.answers = Some(answers);
        self
    }

    /// True when the next message may go, which then counts: after a whole window only with the answer to it.
    #[inline]
    fn may_send(&mut self) -> Result<bool, Broken> {
        if self.answers.as_ref().is_some_and(|answers| answers.messages == WINDOW) && !self.take_answer()? {
            return Ok(false);
        }
        if let Some(answers) = &mut self.answers {
            answers.messages += 1;
        }
        Ok(true)
    }

    fn take_answer(&mut self) -> Result<bool, Broken> {
        if self.reap()? > 0 {
            return Ok(false);
        }
        let Some(answers) = &mut self.answers else { return Ok(false) };
        let Some(status) = answers.due.and_then(|request| self.device.poll(request)) else { return Ok(false) };
        if let Some(error) = status.error {
            return Err(broken(error));
        }
        answers.due = Some(answers.receive(&mut self.device, self.other));
        answers.messages = 0;
        Ok(true)
    }

    /// Answers where `taken` more messages end a window.
    fn answer(&mut self, taken: usize) -> Result<(), Broken> {
        // Whoever waits for answers gives none.
        let Some(answers @ Answers { due: None, .. }) = &mut self.answers else { return Ok(()) };
        answers.messages += taken;
        if answers.messages < WINDOW {
            return Ok(());
        }
        answers.messages -= WINDOW;
        // SAFETY: the box lives as long as the transport, and is never written to at the end that answers.
        let lent = unsafe { Outgoing::lend(&raw const *answers.byte) };
        let envelope = Envelope::new(CONTEXT, self.device.own(), ANSWER);
        self.sends.push_back(self.device.send(self.other, envelope, lent, Mode::Standard));
        self.flush()
    }

    /// Ends sends that are over. Returns how many are not.
    #[inline]
    fn reap(&mut self) -> Result<usize, Broken> {
        while let Some(request) = self.sends.front() {
            let Some(status) = self.device.poll(*request) else { break };
            self.sends.pop_front();
            if let Some(error) = status.error {
                return Err(broken(error));
            }
        }
        Ok(self.sends.len())
    }

    #[inline]
    fn take(&mut self, budget: usize, each: &mut impl FnMut(&[u8])) -> Result<usize, Broken> {
        let mut messages = 0;
        while messages < budget
            && let Some(receive) = self.rooms.receives.front()
            && let Some(status) = self.device.poll(*receive)
        {
            let room = self.rooms.pass();
            if let Some(error) = status.error {
                return Err(broken(error));
            }
            if status.bytes != self.size {
                return Err(Broken::Length { got: status.bytes, expected: self.size });
            }
            each(room);
            messages += 1;
        }
        self.answer(messages)?;
        Ok(messages)
    }
}

impl Rooms {
    fn new(rooms: usize, window: usize, size: usize) -> Self {
        let rooms = (0..rooms).map(|_| Buffer::new(size)).collect();
        Self { rooms, first: 0, receives: VecDeque::with_capacity(window), window }
    }

    /// Posts the receives that are lacking.
    #[inline]
    fn post(&mut self, device: &mut Device, other: u32) {
        while self.receives.len() < self.window {
            let behind = self.first + self.receives.len();
            let at = match self.rooms.len() {
                1 => 0,
                rooms if behind < rooms => behind,
                rooms => behind - rooms,
            };
            // SAFETY: the buffer stays where it is as long as its receives are under way; nobody writes to it but they, and it is looked
            // into between two calls of the device only.
            let lent = unsafe { Incoming::lend(&raw mut *self.rooms[at]) };
            self.receives.push_back(device.recv(from(other, TAG), lent));
        }
    }

    /// The oldest receive is over: shows what it has received.
    #[inline]
    fn pass(&mut self) -> &[u8] {
        self.receives.pop_front();
        let room = self.first;
        self.first = if room + 1 < self.rooms.len() { room + 1 } else { 0 };
        &self.rooms[room]
    }

    /// The only room, when nothing is received into it.
    #[inline]
    fn single(&mut self) -> Option<&mut Buffer> {
        match &mut *self.rooms {
            [room] if self.receives.is_empty() => Some(room),
            _ => None,
        }
    }
}

impl Answers {
    fn receive(&mut self, device: &mut Device, other: u32) -> Request {
        // SAFETY: the box lives as long as the transport, whose device goes first, and nobody looks into it.
        let lent = unsafe { Incoming::lend(&raw mut *self.byte) };
        device.recv(from(other, ANSWER), lent)
    }
}

/// Why a request has failed.
#[cold]
fn broken(error: Error) -> Broken {
    if error == Error::ProcFailed { Broken::PeerGone } else { Broken::driver(error) }
}

/// What comes from `other` under `tag`.
fn from(other: u32, tag: i32) -> Pattern {
    Pattern { context: CONTEXT, source: Some(Source { rank: other, process: other }), tag: Some(tag) }
}

impl Transport for Mpi {
    const ANSWERS_MANY: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let window = self.window;
        let renews = self.outgoing.as_ref().is_none_or(|outgoing| message[0] != outgoing[0]);
        if (renews || self.sends.len() == window) && self.reap()? > if renews { 0 } else { window - 1 } {
            return Ok(false);
        }
        if !self.may_send()? {
            return Ok(false);
        }
        let Some(outgoing) = self.outgoing.as_mut().or_else(|| self.rooms.single()) else { return Ok(false) };
        if renews {
            outgoing[0] = message[0];
        }
        let envelope = Envelope::new(CONTEXT, self.device.own(), TAG);
        // SAFETY: the buffer lives as long as the device, and while a send is under way it is neither written nor received into.
        let lent = unsafe { Outgoing::lend(&raw const **outgoing) };
        let send = self.device.send(self.other, envelope, lent, Mode::Standard);
        match self.device.poll(send) {
            None => self.sends.push_back(send),
            Some(Status { error: None, .. }) => {}
            Some(Status { error: Some(error), .. }) => return Err(broken(error)),
        }
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.device.flush();
        self.reap()?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        if self.outgoing.is_some() || self.reap()? == 0 {
            self.rooms.post(&mut self.device, self.other);
        }
        let waiting = self.take(budget, &mut each)?;
        if waiting > 0 {
            return Ok(waiting);
        }
        self.device.progress();
        self.take(budget, &mut each)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        let limit = deadline_ns.saturating_sub(now_ns()).min(LINGER_NS);
        let end = now_ns() + limit;
        while self.reap()? > 0 && now_ns() < end {
            self.device.progress();
        }
        self.device.close(Duration::from_nanos(limit));
        Ok(())
    }
}

fn config(limits: Option<Limits>) -> Config {
    let usual = Config::default();
    Config {
        on_host: limits.unwrap_or(usual.on_host),
        paired: limits.unwrap_or(usual.paired),
        off_host: limits.unwrap_or(usual.off_host),
        endpoint: sidelane_proto::Config { keep_alive: endpoint_config(Sealing::None).keep_alive, ..usual.endpoint },
        ..usual
    }
}

/// Messages of `size` bytes that are under way at once.
const fn window(size: usize, flow: Flow) -> usize {
    match flow {
        Flow::Alternating => 1,
        Flow::Outward | Flow::Inward if size > LONG && !shares_room(size) => WINDOW_LONG,
        Flow::Outward | Flow::Inward => WINDOW,
    }
}

/// True if all messages of a window go to one room, as those of `p2p.c`. They go by rendezvous on each driver: then the last one, which
/// is sent when those before it are over, comes in a later turn than they.
const fn shares_room(size: usize) -> bool {
    size > Limits::PAIR.eager_max
}

const CONTEXT: u32 = 1;
const TAG: i32 = 1;
/// Tag of answers.
const ANSWER: i32 = 2;
/// osu_mbw_mr's window.
const WINDOW: usize = 64;
/// Of longer messages that have rooms of their own fewer are sent and received at once, so that their rooms stay in the cache.
const LONG: usize = 64 << 10;
const WINDOW_LONG: usize = 4;

#[cfg(test)]
mod tests {
    use sidelane_nic::mem::{self, Fabric};

    use super::*;

    #[test]
    fn a_lone_message_is_sent_on_by_who_received_it() {
        const SIZE: usize = 100;
        let fabric = Fabric::new(0);
        let nics = (fabric.nic(mem::Config::default()), fabric.nic(mem::Config::default()));
        let (mut a, mut b) = Mpi::pair(nics, SIZE, Flow::Alternating).unwrap();
        let pass = |from: &mut Mpi, to: &mut Mpi| {
            assert!(from.send(&[1]).unwrap());
            let mut received = None;
            for _ in 0..1_000 {
                from.flush().unwrap();
                fabric.advance_to(fabric.now() + Duration::from_micros(10));
                from.recv(1, &mut [], |_| panic!("nobody sent it")).unwrap();
                to.recv(1, &mut [], |message| received = Some(message[SIZE - 1])).unwrap();
                if received.is_some() {
                    break;
                }
            }
            received.unwrap()
        };
        a.rooms.rooms[0][SIZE - 1] = 7;
        for _ in 0..3 {
            assert_eq!((pass(&mut a, &mut b), pass(&mut b, &mut a)), (7, 7));
        }
    }

    #[test]
    fn a_receive_fails_by_its_own_name_and_only_a_dead_peer_is_gone() {
        let fabric = Fabric::new(0);
        let [a, b] = [0, 1].map(|_| Mpi::begin(fabric.nic(mem::Config::default())).unwrap());
        let mut long = Mpi::new(a.0, Role::Initiator, &b.1, None, (200, Flow::Alternating)).unwrap();
        let mut short = Mpi::new(b.0, Role::Responder, &a.1, None, (100, Flow::Alternating)).unwrap();
        assert!(long.send(&[1]).unwrap());
        let turns = (0..1_000).map(|_| {
            long.flush().unwrap();
            fabric.advance_to(fabric.now() + Duration::from_micros(10));
            long.recv(1, &mut [], |_| ()).unwrap();
            short.recv(1, &mut [], |_| panic!("it has no room for that"))
        });
        let error = turns.filter_map(Result::err).next().unwrap();
        assert_eq!(error.to_string(), Broken::driver(Error::Truncated).to_string());
        assert!(matches!(broken(Error::ProcFailed), Broken::PeerGone));
    }
}
