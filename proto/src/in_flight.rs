//! Frames that were sent and are not acknowledged: which of them are lost, and when that is known.
//!
//! Selective repeat: a frame keeps its number when it is written again. Losses are found by time, not by counting
//! (RACK, RFC 8985): a frame is lost when one that was sent later has arrived and the reordering window has passed.

use std::collections::VecDeque;

use sidelane_nic::time::{Duration, Instant};

use crate::rtt::Rtt;
use crate::send_fifo::Span;
use crate::wire::Seq;

/// Frames that may be in flight to one peer at most.
pub(crate) const WINDOW_MAX: u32 = 256;

/// Frames behind the one that is due of which an ack tells whether they have arrived.
pub(crate) const SACK_MAX: usize = u32::BITS as usize;

/// The window of one direction.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    /// Number of the front of `frames`: everything before it is acknowledged.
    first: Seq,
    frames: VecDeque<Sent>,
    /// Frames marked lost and not written again yet.
    lost: usize,
    /// Frames that the receiver holds ahead of their turn.
    sacked: usize,
    /// When the latest frame was sent that is known to have arrived.
    newest_at: Instant,
    /// Its number.
    newest_seq: Seq,
    /// The reordering window in quarters of the smallest round-trip time; grows when it proved too small.
    reorder_quarters: u8,
    /// Recoveries that may yet begin before the window is as narrow as at first: none of them proved it too small.
    reorder_persist: u8,
    /// A recovery is under way until everything before this is acknowledged. 2^31 frames later one may seem to be, for as many: the
    /// window stays as it is.
    recovers_until: Seq,
    /// The round trip that [`Self::detect`] counts from.
    arrived_rtt: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    span: Span,
    at: Instant,
    state: State,
    /// Its ack measures nothing: it was written more than once (Karn), or [`InFlight::measure_nothing`].
    again: bool,
    /// Nothing but silence speaks against it, and the peer's absence has not explained that yet: [`InFlight::wait_for_all`].
    may_wait: bool,
}

/// ```text
///            newer one arrived,
///            window passed            written again, or the peer was away
/// Flying ----------------------> Lost -------------> Flying
///    |                            |
///    +---- in a SACK ----> Arrived <+      (out of the window when the cumulative ack passes)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flying,
    Lost,
    Arrived,
}

/// What an ack said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckVerdict {
    /// Older than one that came before. Frames overtake each other, so this is nobody's fault.
    Stale,
    /// Acknowledges what was never sent.
    Impossible,
    /// `progress`: something new was acknowledged.
    Fresh { progress: bool },
}

impl InFlight {
    /// Nothing in flight; the next frame is `first`.
    pub const fn new(first: Seq) -> Self {
        Self {
            first,
            frames: VecDeque::new(),
            lost: 0,
            sacked: 0,
            newest_at: Instant::ZERO,
            newest_seq: first,
            reorder_quarters: 1,
            reorder_persist: 0,
            recovers_until: first,
            arrived_rtt: Duration::ZERO,
        }
    }

    /// Number of the next new frame.
    #[inline]
    pub fn next_seq(&self) -> Seq {
        self.first.plus(self.frames.len() as u32)
    }

    /// Frames that occupy the window.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Frames believed to be on the way.
    #[inline]
    pub fn flying(&self) -> usize {
        self.frames.len() - self.sacked - self.lost
    }

    /// True when nothing is outstanding.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// A new frame with `span` was written at `now`.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, span: Span) {
        debug_assert!(self.frames.len() < WINDOW_MAX as usize);
        self.frames.push_back(Sent { span, at: now, state: State::Flying, again: false, may_wait: true });
    }

    /// True if `ack` is neither older than one that came before nor acknowledges what was never sent.
    #[inline]
    pub fn covers(&self, ack: Seq) -> bool {
        (0..=self.frames.len() as i32).contains(&ack.since(self.first))
    }

    /// Takes in an ack. `release` gets the span of every frame that leaves the window, in order.
    #[inline]
    pub fn on_ack(
        &mut self,
        now: Instant,
        ack: Seq,
        sack: u32,
        rtt: &mut Rtt,
        mut release: impl FnMut(Span),
    ) -> AckVerdict {
        let passed = ack.since(self.first);
        if passed < 0 {
            return AckVerdict::Stale;
        }
        if passed as usize > self.frames.len() {
            return AckVerdict::Impossible;
        }
        let mut measured = None;
        for _ in 0..passed {
            let frame = self.frames.pop_front().expect("passed is at most the length");
            match frame.state {
                State::Flying => {}
                State::Lost => self.lost -= 1,
                State::Arrived => self.sacked -= 1,
            }
            if frame.state != State::Arrived && !frame.again {
                measured = Some(now.since(frame.at));
            }
            self.note_arrival(now, frame.at, frame.again, self.first, rtt);
            self.first = self.first.plus(1);
            release(frame.span);
        }
        let mut progress = passed > 0;
        if sack != 0 {
            progress |= self.on_sack(now, sack, rtt, &mut measured);
        }
        if let Some(sample) = measured {
            rtt.sample(sample);
        }
        AckVerdict::Fresh { progress }
    }

    /// The commonest case of [`Self::on_ack`], in a third of its instructions: `ack` passes one frame, which was written once.
    /// Its span; `None` leaves everything as it was.
    #[inline]
    pub fn on_lone_ack(&mut self, now: Instant, ack: Seq, rtt: &mut Rtt) -> Option<Span> {
        let &Sent { span, at, state: State::Flying, again: false, .. } = self.frames.front()? else { return None };
        let (newest_at, newest_seq) = (self.newest_at, self.newest_seq);
        if ack.since(self.first) != 1 || at < newest_at || (at == newest_at && self.first.since(newest_seq) <= 0) {
            return None;
        }
        self.frames.pop_front();
        (self.newest_at, self.newest_seq) = (at, self.first);
        self.arrived_rtt = now.since(at);
        self.first = ack;
        rtt.sample(self.arrived_rtt);
        Some(span)
    }

    /// Marks frames that must be lost by now. Returns when to look again: the reordering window of a frame that
    /// may only be late. `None` when no frame is overtaken.
    pub fn detect(&mut self, now: Instant, rtt: &Rtt) -> Option<Instant> {
        if self.sacked == 0 {
            return None;
        }
        let quarter = rtt.min().as_nanos() / 4;
        // RFC 8985 (6.2.1): the reordering window is at most the smoothed round-trip time.
        let slack = Duration::from_nanos((quarter * u64::from(self.reorder_quarters)).min(rtt.smoothed().as_nanos()));
        let (newest_at, newest_seq) = (self.newest_at, self.newest_seq);
        let mut look_again: Option<Instant> = None;
        let before = self.lost;
        for (i, frame) in self.frames.iter_mut().enumerate() {
            let seq = self.first.plus(i as u32);
            if frame.state != State::Flying {
                continue;
            }
            if frame.at > newest_at || (frame.at == newest_at && seq.since(newest_seq) > 0) {
                continue;
            }
            let lost_at = frame.at + self.arrived_rtt + slack;
            if lost_at <= now {
                frame.state = State::Lost;
                frame.may_wait = false;
                self.lost += 1;
            } else {
                look_again = Some(look_again.map_or(lost_at, |t| t.min(lost_at)));
            }
        }
        if self.lost > before {
            self.recover();
        }
        look_again
    }

    /// Everything that has not arrived counts as lost: the time-out passed, and a probe brought nothing.
    pub fn give_up_all(&mut self) {
        // The front is the number that is due at the receiver. If that held it before, it had no room when its turn came
        // (RFC 2018, 8: what a SACK said does not hold for ever).
        if let Some(front) = self.frames.front_mut().filter(|front| front.state == State::Arrived) {
            front.state = State::Flying;
            self.sacked -= 1;
        }
        for frame in &mut self.frames {
            if frame.state == State::Flying {
                frame.state = State::Lost;
                self.lost += 1;
            }
        }
        self.recover();
    }

    /// Undoes [`Self::give_up_all`], as far as nothing was written again: the peer was away, and takes in only now what had arrived.
    /// Once for each frame: what is missing all the same is written at the next time-out, however often the peer is away. What
    /// later frames have proved lost stays so.
    pub fn wait_for_all(&mut self) {
        for frame in self.frames.iter_mut().filter(|frame| frame.state == State::Lost && frame.may_wait) {
            frame.state = State::Flying;
            frame.may_wait = false;
            self.lost -= 1;
        }
    }

    /// Frames that are lost and have not been written again.
    #[inline]
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// True when a frame is lost and has not been written again.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// The oldest frame that is lost and has to be written again.
    #[inline]
    pub fn next_lost(&self) -> Option<(Seq, Span)> {
        if self.lost == 0 {
            return None;
        }
        self.find_from_front(|state| state == State::Lost)
    }

    /// The newest frame that has not arrived: what a tail-loss probe sends.
    pub fn newest_missing(&self) -> Option<(Seq, Span)> {
        let (i, frame) = self.frames.iter().enumerate().rev().find(|(_, frame)| frame.state != State::Arrived)?;
        Some((self.first.plus(i as u32), frame.span))
    }

    /// Frame `seq` was written again.
    pub fn on_resent(&mut self, now: Instant, seq: Seq) {
        let frame = &mut self.frames[seq.since(self.first) as usize];
        if frame.state == State::Lost {
            self.lost -= 1;
        }
        frame.state = State::Flying;
        frame.again = true;
        frame.at = now;
    }

    /// The peer got a frame twice: we took for lost what was only late. The window widens (RFC 8985, 6.2.1).
    pub fn on_spurious(&mut self) {
        self.reorder_quarters = (self.reorder_quarters + 1).min(REORDER_QUARTERS_MAX);
        self.reorder_persist = REORDER_PERSIST;
    }

    /// Frames are lost: a recovery begins, unless they belong to one.
    fn recover(&mut self) {
        if self.first.since(self.recovers_until) < 0 {
            return;
        }
        self.recovers_until = self.next_seq();
        match self.reorder_persist {
            0 => self.reorder_quarters = 1,
            _ => self.reorder_persist -= 1,
        }
    }

    /// What is in flight now says nothing of the path, whenever its acks come: nobody was here to take them in.
    pub fn measure_nothing(&mut self) {
        self.frames.iter_mut().for_each(|frame| frame.again = true);
    }

    /// Gives memory back if nothing is outstanding.
    pub fn shrink(&mut self) {
        if self.frames.is_empty() {
            self.frames.shrink_to_fit();
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.frames.capacity() * size_of::<Sent>()
    }

    fn on_sack(&mut self, now: Instant, sack: u32, rtt: &mut Rtt, measured: &mut Option<Duration>) -> bool {
        let mut progress = false;
        let mut bits = sack;
        while bits != 0 {
            let i = 1 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(frame) = self.frames.get_mut(i) else { break };
            if frame.state == State::Arrived {
                continue;
            }
            if frame.state == State::Lost {
                self.lost -= 1;
            }
            frame.state = State::Arrived;
            self.sacked += 1;
            progress = true;
            let (at, again) = (frame.at, frame.again);
            if !again {
                *measured = Some(now.since(at));
            }
            self.note_arrival(now, at, again, self.first.plus(i as u32), rtt);
        }
        progress
    }

    #[inline]
    fn note_arrival(&mut self, now: Instant, at: Instant, again: bool, seq: Seq, rtt: &Rtt) {
        // RFC 8985 (6.2): an ack that comes sooner than any round trip after a retransmission is for the original.
        if again && now.since(at) < rtt.min() {
            return;
        }
        let (newest_at, newest_seq) = (self.newest_at, self.newest_seq);
        if at > newest_at || (at == newest_at && seq.since(newest_seq) > 0) {
            (self.newest_at, self.newest_seq) = (at, seq);
            self.arrived_rtt = now.since(at);
        }
    }

    #[cold]
    fn find_from_front(&self, wanted: impl Fn(State) -> bool) -> Option<(Seq, Span)> {
        let (i, frame) = self.frames.iter().enumerate().find(|(_, frame)| wanted(frame.state))?;
        Some((self.first.plus(i as u32), frame.span))
    }
}

/// RFC 8985 (6.2.1) caps the window by the smoothed round trip; 16 quarters are four of the smallest ones.
const REORDER_QUARTERS_MAX: u8 = 16;

/// RFC 8985 (6.2, step 4): after 16 recoveries without a frame that came twice the window is what it was.
const REORDER_PERSIST: u8 = 16;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
