//! Frames on their way out: the queue of what was committed, and the doorbell.
//!
//! ```text
//! free --lend, commit--> queued --flush--> free        sent, or refused for good
//!                          ^  '-----------.
//!                          '--------------'            the interface takes none now: again at the next flush
//! ```
//!
//! A lone frame goes out by `send`, which saves the submission queue's bookkeeping; several go out in one io_uring
//! submission, which saves a system call a frame; or as trains ([`super::trains`]) where the interface cuts in software.
#![allow(unsafe_code)] // io_uring submission entries hold raw pointers into our buffers.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::trains::{self, Trains};
use super::tx_slot::LentBefore;
use crate::encap::{gso, train};
use crate::time::{Duration, Instant};
use crate::tx_buffers::{self, Filled, Lent, TxBuffers};
use crate::{Counters, clock, socket};

/// The transmit side of one interface: small frames, and super-packets where there are any.
pub struct TxQueue {
    /// Committed and not yet sent, in order. Never longer than there are buffers.
    queue: Vec<Queued>,
    /// By [`Kind`].
    lanes: [Option<Lane>; 2],
    /// `None` where the system forbids io_uring: then every frame goes by `send`.
    ring: Option<IoUring>,
    /// How small frames of one peer's go out together, where that is faster than one by one.
    trains: Option<Trains>,
}

/// Which of the two forms a frame has, and so which socket and buffers are its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Fits the interface's MTU.
    Small = 0,
    /// A super-packet.
    Large = 1,
}

/// One socket and the buffers of frames that go out by it.
struct Lane {
    socket: OwnedFd,
    buffers: TxBuffers,
}

/// A frame that was committed.
#[derive(Clone, Copy)]
pub struct Queued {
    kind: Kind,
    frame: Filled,
    fate: Fate,
    /// When it was first not taken, or one before it was; and flushes since.
    since: Option<Instant>,
    tries: u16,
}

/// What became of a frame that was handed to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Sent,
    /// Not taken now, or not tried yet.
    Later,
    Refused,
}

impl TxQueue {
    /// A queue with a lane for small frames, and one for large where super-packets go.
    pub fn new(small: LaneConfig, large: Option<LaneConfig>, trains: Option<Trains>) -> Self {
        let buffers = usize::from(small.buffers + large.as_ref().map_or(0, |lane| lane.buffers));
        let lanes = [Some(Lane::new(small)), large.map(Lane::new)];
        let ring = open_ring(buffers);
        Self { queue: Vec::with_capacity(buffers), lanes, ring, trains }
    }

    /// Lends a buffer with `header` in it for a frame with `payload_len` bytes behind; `None` when all are queued.
    #[inline]
    pub fn lend(&mut self, kind: Kind, header: &[u8], payload_len: usize) -> Option<Lent<'_, Queued>> {
        let lane = self.lanes[kind as usize].as_mut()?;
        let lease = lane.buffers.lend(header, payload_len)?;
        Some(Lent { lease, to: kind, queue: &mut self.queue })
    }

    /// As [`Self::lend`], for a super-packet that ends in `tail`, in one piece of the kernel's memory or in several. `None` also when
    /// others wait that were committed before it.
    #[inline]
    pub fn lend_before<'a>(
        &'a mut self,
        header: &[u8; gso::HEADER_LEN],
        len: usize,
        tail: &'a [u8],
        in_one_piece: bool,
        counters: &'a mut Counters,
    ) -> Option<LentBefore<'a>> {
        let lane = self.lanes[Kind::Large as usize].as_mut()?;
        if !self.queue.is_empty() {
            return None;
        }
        let lease = lane.buffers.lend(header, len + tail.len())?;
        let lent = Lent { lease, to: Kind::Large, queue: &mut self.queue };
        Some(LentBefore { lent, len, tail, in_one_piece, socket: lane.socket.as_fd(), counters })
    }

    /// When to flush again, where the interface did not take everything. A socket that is writable says nothing of that: the
    /// interface's queue may be full, or the other end's.
    pub fn again_after(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(PAUSE)
    }

    /// Hands everything queued to the kernel. The errors are the ones that say that the interface is gone or down.
    #[inline]
    pub fn flush(&mut self, counters: &mut Counters) -> Result<(), InterfaceDown> {
        match self.queue.as_mut_slice() {
            [] => return Ok(()),
            [lone] => {
                let lane = self.lanes[lone.kind as usize].as_mut().expect("a queued frame has a lane");
                if let Ok(()) = socket::send(lane.socket.as_fd(), lane.buffers.bytes(lone.frame)) {
                    counters.tx_frames += 1;
                    counters.tx_bytes += lone.frame.payload_len() as u64;
                    lane.buffers.free(lone.frame);
                    self.queue.clear();
                    return Ok(());
                }
                // Rare: the error is judged when it comes again, below. One of an earlier time does not.
            }
            _ => {}
        }
        self.flush_many(counters)
    }

    fn flush_many(&mut self, counters: &mut Counters) -> Result<(), InterfaceDown> {
        let mut down = Ok(());
        if self.trains.is_some() {
            self.send_trains(&mut down);
            self.ask_for_trains();
        } else if self.ring.is_some() && self.queue.len() > 1 {
            self.submit(&mut down);
        } else {
            self.send_each(0..self.queue.len(), &mut down);
        }
        self.settle(counters);
        down
    }

    /// One io_uring submission for the whole queue.
    fn submit(&mut self, down: &mut Result<(), InterfaceDown>) {
        let ring = self.ring.as_mut().expect("checked by the caller");
        let mut submission = ring.submission();
        for (at, queued) in self.queue.iter_mut().enumerate() {
            let lane = self.lanes[queued.kind as usize].as_ref().expect("a queued frame has a lane");
            let frame = lane.buffers.bytes(queued.frame);
            // Completes while it is submitted (MSG_DONTWAIT), and silently when all is well.
            let entry = opcode::Send::new(types::Fd(lane.socket.as_raw_fd()), frame.as_ptr(), frame.len() as u32)
                .flags(libc::MSG_DONTWAIT)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(at as u64);
            queued.fate = Fate::Sent;
            // SAFETY: the buffer lives as long as `self`, stays queued (so is not lent) until this submission is over,
            // and a send that may not wait is over when `submit` returns.
            // The ring has at least as many entries as there are buffers, so one is free.
            unsafe { submission.push(&entry) }.expect("a ring entry per buffer");
        }
        drop(submission);
        let taken = loop {
            match ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break 0,
                Ok(taken) => break taken,
            }
        };
        let mut unsent = Vec::new();
        for completion in ring.completion() {
            let (at, errno) = (completion.user_data() as usize, -completion.result());
            let Some(queued) = self.queue.get_mut(at) else { continue };
            if errno == libc::ENETDOWN {
                unsent.push(at);
            } else {
                queued.fate = queued.fate_by(errno, down);
            }
        }
        if taken < self.queue.len() {
            // The kernel ran out of memory for requests. What it did not take must not be sent by a later submission,
            // when the buffers have other content: without the ring there is none.
            tracing::warn!("io_uring took {taken} of {} frames; going on with plain sends", self.queue.len());
            self.ring = None;
            self.send_each(taken..self.queue.len(), down);
        }
        for at in unsent {
            // That the interface was down once is told once.
            self.send_each(at..at + 1, down);
        }
    }

    /// One `send` per queued frame of these, as long as the interface takes them. False once it does not.
    fn send_each(&mut self, which: Range<usize>, down: &mut Result<(), InterfaceDown>) -> bool {
        // Those that io_uring did not take count as sent up to here.
        self.queue[which.clone()].iter_mut().for_each(|queued| queued.fate = Fate::Later);
        for queued in &mut self.queue[which] {
            let lane = self.lanes[queued.kind as usize].as_ref().expect("a queued frame has a lane");
            queued.fate =
                match send_though_it_was_down(|| socket::send(lane.socket.as_fd(), lane.buffers.bytes(queued.frame))) {
                    Ok(()) => Fate::Sent,
                    Err(error) => queued.fate_by(error.raw_os_error().unwrap_or(0), down),
                };
            if queued.fate == Fate::Later {
                return false;
            }
        }
        true
    }

    /// Frames that can travel together do, the others go one by one; in order, as long as the interface takes them.
    fn send_trains(&mut self, down: &mut Result<(), InterfaceDown>) {
        let (mut at, mut clock) = (0, None);
        while let Some(trains) = self.trains.as_mut()
            && at < self.queue.len()
        {
            let buffers = &self.lanes[Kind::Small as usize].as_ref().expect("small frames have a lane").buffers;
            let frames = self.queue[at..].iter().map(|queued| queued.frame);
            let count = Trains::together(buffers, frames.clone());
            let now = || *clock.get_or_insert_with(clock::monotonic);
            let goes = trains.go(buffers.bytes(self.queue[at].frame), count, now);
            let sent = goes.then(|| send_though_it_was_down(|| trains.send(buffers, frames.clone().take(count))));
            let fate = match sent {
                Some(Err(error)) if trains::is_refusal(&error) => {
                    self.give_trains_up(&error);
                    break;
                }
                Some(Ok(())) => Fate::Sent,
                Some(Err(error)) => self.queue[at].fate_by(error.raw_os_error().unwrap_or(0), down),
                None if self.send_each(at..at + count, down) => {
                    at += count;
                    continue;
                }
                None => return,
            };
            for queued in &mut self.queue[at..at + count] {
                queued.fate = fate;
            }
            if fate == Fate::Later {
                return;
            }
            at += count;
        }
        self.send_each(at..self.queue.len(), down);
    }

    /// Asks peers of what was just sent whether more of it may go as trains.
    #[inline]
    fn ask_for_trains(&mut self) {
        if let Some(trains) = &mut self.trains
            && let Err(error) = trains.send_probes()
        {
            self.give_trains_up(&error);
        }
    }

    #[cold]
    fn give_trains_up(&mut self, refusal: &io::Error) {
        tracing::debug!("a train was refused ({refusal}): frames go out one by one");
        self.trains = None;
    }

    /// Takes in a piece of a train that is no frame.
    #[cold]
    pub fn on_probe(&mut self, header: &train::Header, payload: &[u8]) {
        if let Some(trains) = &mut self.trains {
            trains.on_probe(header, payload);
        }
    }

    /// Answers peers that have asked whether trains get to us. Called after pieces of trains, which theirs are.
    #[inline]
    pub fn answer(&mut self, now: Instant) {
        if let Some(trains) = &mut self.trains {
            trains.answer(now);
        }
    }

    /// Takes what has met its fate out of the queue.
    fn settle(&mut self, counters: &mut Counters) {
        let mut clock = None;
        let mut moves = [false; 2];
        self.queue.retain_mut(|queued| {
            match queued.fate {
                Fate::Later => {
                    if queued.since.is_none() || moves[queued.kind as usize] {
                        (queued.since, queued.tries) = (Some(*clock.get_or_insert_with(clock::monotonic)), 0);
                    }
                    queued.tries = queued.tries.saturating_add(1);
                    return true;
                }
                Fate::Refused => counters.tx_failed += 1,
                Fate::Sent => {
                    moves[queued.kind as usize] = true;
                    counters.tx_frames += 1;
                    counters.tx_bytes += queued.frame.payload_len() as u64;
                }
            }
            let lane = self.lanes[queued.kind as usize].as_mut().expect("a queued frame has a lane");
            lane.buffers.free(queued.frame);
            false
        });
    }
}

/// The interface is down or gone; the frames that met this are counted as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceDown;

/// What one lane is made of.
pub struct LaneConfig {
    /// Where its frames go out.
    pub socket: OwnedFd,
    /// How many may be queued.
    pub buffers: u16,
    /// Longest payload.
    pub payload_max: usize,
}

impl Lane {
    fn new(config: LaneConfig) -> Self {
        Self { socket: config.socket, buffers: TxBuffers::new(config.buffers, config.payload_max) }
    }
}

impl tx_buffers::Queued for Queued {
    type Destination = Kind;

    fn new(kind: Kind, frame: Filled) -> Self {
        Self { kind, frame, fate: Fate::Later, since: None, tries: 0 }
    }
}

impl Queued {
    /// What becomes of it when the kernel answers `errno`.
    #[cold]
    fn fate_by(&self, errno: i32, down: &mut Result<(), InterfaceDown>) -> Fate {
        match errno {
            // The socket's send buffer or the interface's queue is full; or, on a veth, the other end's is, or it has dropped the frame,
            // being down or narrower; or an interface has no carrier.
            libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM if !self.is_hopeless() => Fate::Later,
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV => {
                *down = Err(InterfaceDown);
                Fate::Refused
            }
            _ => Fate::Refused,
        }
    }

    fn is_hopeless(&self) -> bool {
        let since = self.since.filter(|_| self.tries >= TRIES_MIN);
        since.is_some_and(|since| clock::monotonic().since(since) >= PATIENCE)
    }
}

/// Sends once more what met the news that the interface is down: a socket tells that once, and be it of long ago.
#[inline]
fn send_though_it_was_down(mut send: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    match send() {
        Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => send(),
        sent => sent,
    }
}

fn open_ring(entries: usize) -> Option<IoUring> {
    let open = || -> io::Result<IoUring> {
        // SUBMIT_ALL (Linux 5.18): one refused frame does not hold back the ones behind it. Not SINGLE_ISSUER: the
        // driver may move to another thread, and for sends that complete inline it gains nothing. Nor are the sockets registered: the
        // kernel takes a ring down later, when a worker has its turn, and would keep them open so long (`bench/NOTES.md` 88).
        let ring = IoUring::builder().setup_submit_all().build(entries.next_power_of_two() as u32)?;
        if !ring.params().is_feature_skip_cqe_on_success() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(ring)
    };
    match open() {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::warn!("no io_uring ({error}): every frame takes a system call of its own. {}", advice(&error));
            None
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "Its memory counts as locked: `ulimit -l unlimited` lifts the limit, `LimitMEMLOCK=infinity` that of a service"
        }
        _ => {
            "Wants Linux 5.18; where it is forbidden, `sysctl kernel.io_uring_disabled=0` or the container's seccomp \
             profile allow it"
        }
    }
}

/// A frame that is not taken for so long, nor any before it, never will be: a super-packet after its offload was switched off looks just
/// so, and whatever the other end of a veth drops. Eight times what one takes on the slowest Ethernet (10 Mbit/s).
const PATIENCE: Duration = Duration::from_millis(10);
/// Nor has time passed that this process was away.
const TRIES_MIN: u16 = 16;
/// Sleep between two tries: half as long as 32 frames, a burst, take on slow (1 Gbit/s) Ethernet.
const PAUSE: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests;
