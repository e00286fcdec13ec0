//! Frames on their way out: the queue of what was committed, cut into runs that leave as one datagram each.
//!
//! A run is a stretch of the queue to one peer whose frames are equally long, but for the last, which may be shorter:
//! that is what UDP_SEGMENT can cut apart again. A lone frame leaves by `send`, one run by `sendmsg`, several in one
//! io_uring submission.
#![allow(unsafe_code)] // Messages hold raw pointers into our buffers.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::IoUring;

use super::Way;
use super::messages::{Messages, Run};
use super::sockets::{SocketId, Sockets};
use crate::link_table::LinkTable;
use crate::time::{Duration, Instant};
use crate::tx_buffers::{self, Filled, Lent, TxBuffers};
use crate::{Counters, Link, clock};

/// The transmit side of one endpoint.
pub struct TxQueue {
    /// Committed and not yet sent, in order. Never longer than there are buffers.
    queue: Vec<Queued>,
    buffers: TxBuffers,
    messages: Messages,
    /// `None` where the system forbids io_uring: then every run is a system call.
    ring: Option<IoUring>,
}

#[derive(Clone, Copy)]
pub struct Queued {
    link: Link,
    frame: Filled,
    fate: Fate,
    /// When there was first no room for it, or its socket last took another; and flushes since.
    since: Option<Instant>,
    tries: u16,
}

/// What became of a frame that was handed to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Sent,
    /// No room now.
    Later,
    Refused,
}

impl TxQueue {
    /// A queue of `buffers` frames with payloads of up to `payload_max` bytes.
    pub fn new(buffers: u16, payload_max: usize) -> Self {
        let count = usize::from(buffers);
        Self {
            queue: Vec::with_capacity(count),
            buffers: TxBuffers::new(buffers, payload_max),
            messages: Messages::new(count),
            ring: open_ring(count),
        }
    }

    /// Lends a buffer with `header` in it for a frame with `payload_len` bytes behind; `None` when all are queued.
    #[inline]
    pub fn lend(&mut self, link: Link, header: &[u8], payload_len: usize) -> Option<Lent<'_, Queued>> {
        let lease = self.buffers.lend(header, payload_len)?;
        Some(Lent { lease, to: link, queue: &mut self.queue })
    }

    /// True when the last flush has left frames of this socket, which had no room for them.
    pub fn waits_for(&self, socket: SocketId, links: &LinkTable<Way>) -> bool {
        self.queue.iter().any(|queued| links.get(queued.link).is_some_and(|way| way.socket == socket))
    }

    /// Gives up what is queued for a link that is forgotten: the next one has its number.
    pub fn forget(&mut self, link: Link, counters: &mut Counters) {
        let Self { queue, buffers, .. } = self;
        queue.retain(|queued| {
            let stays = queued.link != link;
            if !stays {
                counters.tx_failed += 1;
                buffers.free(queued.frame);
            }
            stays
        });
    }

    /// Hands everything queued to the kernel.
    #[inline]
    pub fn flush(&mut self, links: &LinkTable<Way>, sockets: &Sockets, counters: &mut Counters) {
        let mut told = None;
        match self.queue.as_slice() {
            [] => return,
            [lone] => {
                if let Some(way) = links.get(lone.link) {
                    let bytes = self.buffers.bytes(lone.frame);
                    let sent = match sockets.get(way.socket) {
                        (socket, true) => socket.send(bytes),
                        (socket, false) => socket.send_to(bytes, way.addr),
                    };
                    match sent {
                        Ok(_) => {
                            counters.tx_frames += 1;
                            counters.tx_bytes += lone.frame.payload_len() as u64;
                            self.buffers.free(lone.frame);
                            self.queue.clear();
                            return;
                        }
                        // Judged below.
                        Err(error) => told = Some(errno_of(&error)),
                    }
                }
            }
            _ => {}
        }
        self.flush_many(told, links, sockets, counters);
    }

    /// `told`: the error that the kernel has told already, to a lone frame.
    fn flush_many(&mut self, told: Option<i32>, links: &LinkTable<Way>, sockets: &Sockets, counters: &mut Counters) {
        self.form_runs(links, sockets);
        if let Some(errno) = told {
            self.send_run(0, Some(errno), links, counters);
        } else if self.messages.runs().len() > 1 && self.ring.is_some() {
            self.submit(links, counters);
        } else {
            self.send_each(0, links, counters);
        }
        self.settle(counters);
    }

    /// Cuts the queue into runs. Frames on a link that there is not stay out of them, and are refused.
    fn form_runs(&mut self, links: &LinkTable<Way>, sockets: &Sockets) {
        self.messages.clear();
        for queued in &mut self.queue {
            self.messages.push_piece(self.buffers.bytes(queued.frame));
            queued.fate = Fate::Later;
        }
        let mut start = 0;
        while let Some(first) = self.queue.get(start) {
            let way = links.get(first.link);
            let end = start + if way.is_some_and(|way| way.segmentation.get()) { self.run_len(start) } else { 1 };
            if let Some(way) = way {
                let (socket, connected) = sockets.get(way.socket);
                let run = Run { start, end, fd: socket.as_raw_fd() };
                self.messages.push_run(run, (!connected).then_some(&way.raw));
            } else {
                set_fate(&mut self.queue[start..end], Fate::Refused);
            }
            start = end;
        }
    }

    /// How many frames from `start` on leave as one datagram.
    fn run_len(&self, start: usize) -> usize {
        let len_of = |queued: &Queued| self.buffers.bytes(queued.frame).len();
        let first = &self.queue[start];
        let segment = len_of(first);
        let mut total = segment;
        let mut count = 1;
        for next in &self.queue[start + 1..] {
            let len = len_of(next);
            if next.link != first.link || len > segment || count == SEGMENTS_MAX || total + len > DATAGRAM_MAX {
                break;
            }
            total += len;
            count += 1;
            if len < segment {
                break;
            }
        }
        count
    }

    /// One io_uring submission for all runs.
    fn submit(&mut self, links: &LinkTable<Way>, counters: &mut Counters) {
        let ring = self.ring.as_mut().expect("checked by the caller");
        let mut submission = ring.submission();
        for (run, entry) in self.messages.entries() {
            set_fate(&mut self.queue[run.start..run.end], Fate::Sent);
            // SAFETY: the message and all that it points to belong to `self` and to the link table, which are not written
            // until the submission is over; a send that may not wait is over when `submit` returns.
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
            unsent.push((completion.user_data() as usize, -completion.result()));
        }
        if taken < self.messages.runs().len() {
            // The kernel ran out of memory for requests. What it did not take must not be sent by a later submission,
            // when the buffers have other content: without the ring there is none.
            tracing::warn!("io_uring took {taken} of {} messages; going on without it", self.messages.runs().len());
            self.ring = None;
            self.send_each(taken, links, counters);
        }
        for (at, errno) in unsent {
            if at < self.messages.runs().len() {
                self.send_run(at, Some(errno), links, counters);
            }
        }
    }

    /// One system call per run, from the `from`th on, as long as the run's socket takes them.
    fn send_each(&mut self, from: usize, links: &LinkTable<Way>, counters: &mut Counters) {
        let messages = &self.messages;
        // Those that io_uring did not take count as sent up to here.
        for run in &messages.runs()[from..] {
            set_fate(&mut self.queue[run.start..run.end], Fate::Later);
        }
        let mut full = Vec::new();
        for at in from..self.messages.runs().len() {
            let fd = self.messages.runs()[at].fd;
            if !full.contains(&fd) && self.send_run(at, None, links, counters) == Fate::Later {
                full.push(fd);
            }
        }
    }

    /// A system call for the run `at` that place, for which the kernel may have `told` an error already; and another one where that may be
    /// about an earlier run.
    fn send_run(&mut self, at: usize, told: Option<i32>, links: &LinkTable<Way>, counters: &mut Counters) -> Fate {
        let run = self.messages.runs()[at];
        // SAFETY: what its message points to belongs to `self` and to the link table, both borrowed by the caller for the whole flush.
        let send = || unsafe { self.messages.send(at) }.err().map_or(0, |error| errno_of(&error));
        let mut errno = told.unwrap_or_else(send);
        if errno != 0 && !is_for_want_of_room(errno) {
            // What ICMP says of an earlier datagram is told once, and sends nothing. What is about this one is told again; so is what ICMP has
            // said twice, and then this one is lost, as on the way.
            let earlier = std::mem::replace(&mut errno, send());
            counters.tx_failed += u64::from(errno != earlier);
        }
        let frames = &mut self.queue[run.start..run.end];
        let fate = if errno == 0 { Fate::Sent } else { fate_of(errno, frames, links) };
        set_fate(frames, fate);
        fate
    }

    /// Takes what has met its fate out of the queue.
    fn settle(&mut self, counters: &mut Counters) {
        if self.messages.runs().iter().any(|run| self.queue[run.start].fate == Fate::Later) {
            self.give_up_hopeless();
        }
        self.queue.retain(|queued| {
            match queued.fate {
                Fate::Later => return true,
                Fate::Refused => counters.tx_failed += 1,
                Fate::Sent => {
                    counters.tx_frames += 1;
                    counters.tx_bytes += queued.frame.payload_len() as u64;
                }
            }
            self.buffers.free(queued.frame);
            false
        });
    }

    /// Refuses what has waited too long for room on a socket that takes nothing.
    #[cold]
    fn give_up_hopeless(&mut self) {
        let (now, runs) = (clock::monotonic(), self.messages.runs());
        let sent = runs.iter().filter(|run| self.queue[run.start].fate == Fate::Sent);
        let moves: Vec<_> = sent.map(|run| run.fd).collect();
        for run in runs {
            for queued in self.queue[run.start..run.end].iter_mut().filter(|queued| queued.fate == Fate::Later) {
                if queued.since.is_none() || moves.contains(&run.fd) {
                    (queued.since, queued.tries) = (Some(now), 0);
                }
                queued.tries = queued.tries.saturating_add(1);
                let is_over = queued.since.is_some_and(|since| now.since(since) >= PATIENCE);
                if is_over && queued.tries >= TRIES_MIN {
                    queued.fate = Fate::Refused;
                }
            }
        }
    }
}

impl tx_buffers::Queued for Queued {
    type Destination = Link;

    #[inline]
    fn new(link: Link, frame: Filled) -> Self {
        Self { link, frame, fate: Fate::Later, since: None, tries: 0 }
    }
}

fn set_fate(frames: &mut [Queued], fate: Fate) {
    for queued in frames {
        queued.fate = fate;
    }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The socket's send buffer or the interface's queue is full, or the kernel has no memory.
fn is_for_want_of_room(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM)
}

/// `frames`: those in the datagram that met this error.
fn fate_of(errno: i32, frames: &[Queued], links: &LinkTable<Way>) -> Fate {
    match errno {
        _ if is_for_want_of_room(errno) => Fate::Later,
        // Too old a kernel, an interface that cannot checksum, or a path narrower than the interface (udp(7)).
        libc::EIO | libc::EINVAL | libc::EMSGSIZE if frames.len() > 1 => {
            if let Some(way) = links.get(frames[0].link).filter(|way| way.segmentation.replace(false)) {
                tracing::debug!("segmentation refused (error {errno}): frames to {} go out one by one", way.addr);
            }
            Fate::Later
        }
        _ => Fate::Refused,
    }
}

fn open_ring(entries: usize) -> Option<IoUring> {
    let open = || -> io::Result<IoUring> {
        // SUBMIT_ALL (Linux 5.18): one refused datagram does not hold back the ones behind it.
        let ring = IoUring::builder().setup_submit_all().build(entries.next_power_of_two() as u32)?;
        if !ring.params().is_feature_skip_cqe_on_success() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(ring)
    };
    open().inspect_err(|error| tracing::debug!("no io_uring ({error}): every datagram takes a system call")).ok()
}

/// Segments that every kernel with UDP_SEGMENT takes (`UDP_MAX_SEGMENTS`; 128 since Linux 6.8).
pub const SEGMENTS_MAX: usize = 64;

/// IP's 16 bits of length less its header and UDP's.
pub const DATAGRAM_MAX: usize = 65_535 - 20 - 8;

/// A frame whose socket takes nothing for so long is given up as failed: others need its buffer. Twice what a datagram of 64 KiB takes
/// on the slowest Ethernet (10 Mbit/s), which makes room only when all of it has gone.
const PATIENCE: Duration = Duration::from_millis(100);
/// Nor has time passed that this process was away, or slept.
const TRIES_MIN: u16 = 16;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::{TxSlot, socket};

    #[test]
    fn frames_behind_one_that_must_wait_are_not_sent() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        // More than a socket's queue holds (/proc/sys/net/unix/max_dgram_qlen: 10, or as much memory).
        const FRAMES: u16 = 600;
        let mut tx = TxQueue::new(FRAMES, 1);
        queue_on(&vec![&ours; usize::from(FRAMES)], &mut tx);
        // As when io_uring has taken none of them.
        tx.queue.iter_mut().for_each(|queued| queued.fate = Fate::Sent);
        let mut counters = Counters::default();
        tx.send_each(0, &LinkTable::new(), &mut counters);
        tx.settle(&mut counters);
        let came = std::iter::from_fn(|| theirs.recv(&mut [0; 1]).ok()).count();
        assert!(came > 0 && came < usize::from(FRAMES));
        assert_eq!((counters.tx_frames as usize, tx.queue.len()), (came, usize::from(FRAMES) - came));
    }

    /// A frame for each of these sockets, those that wait among them, to be sent one by one.
    fn queue_on(sockets: &[&UnixDatagram], tx: &mut TxQueue) {
        while tx.queue.len() < sockets.len() {
            tx.lend(Link(0), &[], 1).unwrap().commit();
        }
        tx.messages.clear();
        for queued in &tx.queue {
            tx.messages.push_piece(tx.buffers.bytes(queued.frame));
        }
        for (start, socket) in sockets.iter().enumerate() {
            tx.messages.push_run(Run { start, end: start + 1, fd: socket.as_raw_fd() }, None);
        }
    }

    #[test]
    fn a_full_socket_keeps_its_own_frames_only_and_they_are_given_up_once_nothing_moves() {
        let ((full, far), (free, _near)) = (UnixDatagram::pair().unwrap(), UnixDatagram::pair().unwrap());
        full.set_nonblocking(true).unwrap();
        while full.send(&[0]).is_ok() {}
        let mut tx = TxQueue::new(8, 1);
        let mut counters = Counters::default();
        let mut flush = |sockets: &[&UnixDatagram], tx: &mut TxQueue| {
            queue_on(sockets, tx);
            tx.send_each(0, &LinkTable::new(), &mut counters);
            tx.settle(&mut counters);
            (counters.tx_frames, counters.tx_failed, tx.queue.len())
        };
        assert_eq!(flush(&[&full, &free, &full, &free], &mut tx), (2, 0, 2), "the other socket's went");
        let long_ago = Some(Instant::from_nanos(clock::monotonic().as_nanos() / 2));
        let mut again = |tries, sockets: &[&UnixDatagram], tx: &mut TxQueue| {
            tx.queue.iter_mut().for_each(|queued| (queued.since, queued.tries) = (long_ago, tries));
            flush(sockets, tx)
        };
        assert_eq!(again(TRIES_MIN - 2, &[&full, &full], &mut tx), (2, 0, 2), "they were seldom tried");
        far.recv(&mut [0]).unwrap();
        assert_eq!(again(TRIES_MIN, &[&full, &full], &mut tx), (3, 0, 1), "another went");
        assert!(tx.queue[0].since > long_ago);
        assert_eq!(again(TRIES_MIN, &[&full], &mut tx), (3, 1, 0));
    }

    #[test]
    fn frames_of_a_forgotten_link_leave_their_buffers() {
        let mut tx = TxQueue::new(2, 1);
        let fill = |tx: &mut TxQueue| (0..2).for_each(|link| tx.lend(Link(link), &[], 1).unwrap().commit());
        let mut counters = Counters::default();
        fill(&mut tx);
        assert!(tx.lend(Link(0), &[], 1).is_none());
        (0..2).for_each(|link| tx.forget(Link(link), &mut counters));
        assert_eq!(counters.tx_failed, 2);
        fill(&mut tx);
    }

    #[test]
    fn frames_to_one_peer_and_of_one_length_leave_as_one_datagram() {
        let run_of = |frames: &[(u32, usize)]| {
            let mut tx = TxQueue::new(frames.len() as u16, 9_000);
            frames.iter().for_each(|(link, len)| tx.lend(Link(*link), &[], *len).unwrap().commit());
            tx.run_len(0)
        };
        assert_eq!(run_of(&[(1, 10); 5]), 5);
        assert_eq!(run_of(&[(1, 10), (1, 10), (2, 10), (1, 10)]), 2, "to another");
        assert_eq!(run_of(&[(1, 10), (1, 10), (1, 9), (1, 9)]), 3, "a shorter one is the last");
        assert_eq!(run_of(&[(1, 10), (1, 11)]), 1);
        assert_eq!(run_of(&[(1, 10); 100]), SEGMENTS_MAX);
        assert_eq!(run_of(&[(1, 9_000); 10]), DATAGRAM_MAX / 9_000);
    }

    #[test]
    fn frames_on_a_link_that_there_is_not_are_refused() {
        let (sockets, mut counters) = (Sockets::bind(([127, 0, 0, 1], 0).into()).unwrap(), Counters::default());
        let mut tx = TxQueue::new(2, 1);
        for frames in [1, 2] {
            (0..frames).for_each(|_| tx.lend(Link(0), &[], 1).unwrap().commit());
            tx.flush(&LinkTable::new(), &sockets, &mut counters);
            assert!(tx.queue.is_empty());
        }
        assert_eq!((counters.tx_frames, counters.tx_failed), (0, 3));
    }

    #[test]
    fn frames_behind_a_run_that_is_to_go_one_by_one_wait_for_it() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        // Refuses a datagram of two such frames, as a path that is too narrow does (EMSGSIZE).
        socket::set_int_option(ours.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 8 << 10).unwrap();
        let mut tx = TxQueue::new(3, 30_000);
        for len in [30_000, 30_000, 1] {
            tx.lend(Link(0), &[], len).unwrap().commit();
        }
        tx.messages.clear();
        for queued in &tx.queue {
            tx.messages.push_piece(tx.buffers.bytes(queued.frame));
        }
        for (start, end) in [(0, 2), (2, 3)] {
            tx.messages.push_run(Run { start, end, fd: ours.as_raw_fd() }, None);
        }
        let mut counters = Counters::default();
        tx.send_each(0, &LinkTable::new(), &mut counters);
        tx.settle(&mut counters);
        assert!(theirs.recv(&mut [0; 1]).is_err(), "one went before those in front of it");
        assert_eq!((tx.queue.len(), counters.tx_failed), (3, 0));
    }
}
