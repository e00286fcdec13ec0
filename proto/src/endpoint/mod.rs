//! Many connections over one [`Nic`]: the user's calls, and the turns of the loop.

mod strangers;
mod transmit;

use std::fmt;
use std::io;

use sidelane_nic::time::Instant;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use crate::conn::{Conn, TurnContext};
use crate::counters::Counters;
use crate::display::Display;
use crate::path::Path;
use crate::queue::PeerQueue;
use crate::router::Router;
use crate::seal::TAG_LEN;
use crate::send_fifo::SendFifo;
use crate::wire::{RECORD_LEN, put_message, put_message_of_two};
use crate::{Config, ConnectError, Event, PeerId, Refused, SendError};

/// Reliable, ordered, exactly-once messages to and from many peers over one NIC. Used by one thread.
///
/// `send` puts a message into the peer's FIFO; `flush` or the next `poll` puts it on the wire, together with what else
/// waits for that peer. `poll` receives, runs timers and transmits; nothing blocks but `wait`. A peer hears from us only
/// while `poll` is called: one that is not polled for [`Config::keep_alive`] times four counts as gone.
pub struct Endpoint<N: Nic> {
    pub(crate) nic: N,
    pub(crate) router: Router,
    /// Connections whose timers may be due; kept for its memory.
    due: Vec<u16>,
    /// Turns taken.
    turns: u64,
    /// A lone message was committed to the driver since its last flush.
    pub(crate) committed: bool,
    display: Display,
}

impl<N: Nic> Endpoint<N> {
    /// An endpoint without peers. It answers whoever connects.
    pub fn new(nic: N, config: Config) -> Self {
        let router = Router::new(config, nic.now(), N::RELIABLE);
        let display = Display::new(&nic, &config, None);
        Self { nic, router, due: Vec::new(), turns: 0, committed: false, display }
    }

    /// Begins a connection. Messages may be sent at once; they leave when the peer has answered. To an address with
    /// which there is a connection it returns that one.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        let now = self.nic.now();
        if let Some(conn) = self.router.peers.by_addr(to) {
            conn.ask(now, &self.router.turn.config);
            let id = conn.id;
            self.router.after_change(id.index);
            return Ok(id);
        }
        if !self.router.has_room(to) {
            return Err(ConnectError::TableFull(self.router.turn.config.peers_max));
        }
        let link = self.nic.link(to)?;
        let path = self.path();
        let token = self.router.draw_token();
        let id = self.router.peers.next_id();
        self.router.peers.insert(Conn::connecting(id, to, link, token, path, now, &self.router.turn.config));
        self.router.activate(id.index);
        Ok(id)
    }

    /// From now on answers no strangers but those at `addrs`, each of whom finds a place whatever [`Config::peers_max`] is.
    pub fn expect_only(&mut self, addrs: impl IntoIterator<Item = LinkAddr>) {
        self.router.expected = Some(addrs.into_iter().collect());
    }

    /// Copies `message` into the send FIFO, or to the heap when it needs several frames.
    #[inline]
    pub fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        match self.send_record(peer, RECORD_LEN + message.len(), |record| put_message(record, message)) {
            Err(SendError::TooLong) => self.send_copied(peer, &[], message),
            sent => sent,
        }
    }

    /// As [`Self::send`], of a message that is `front` and then `rest`: for a header that stands elsewhere than its payload.
    #[inline]
    pub fn send_two<const L: usize>(&mut self, peer: PeerId, front: &[u8; L], rest: &[u8]) -> Result<(), SendError> {
        match self.send_record(peer, RECORD_LEN + L + rest.len(), |record| put_message_of_two(record, front, rest)) {
            Err(SendError::TooLong) => self.send_copied(peer, front, rest),
            sent => sent,
        }
    }

    /// Sends a record of `len` bytes, which `write` fills where it will stand, header and all. `TooLong` when it does not fit
    /// one frame.
    #[inline]
    pub(crate) fn send_record(
        &mut self,
        peer: PeerId,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let Router { peers, turn, active, .. } = &mut self.router;
        let conn = peers.get(peer).filter(|conn| conn.takes_messages()).ok_or(SendError::NoPeer)?;
        if N::RELIABLE
            && let Some(len) = conn.lone_frame_len(len)
            && let Some(mut slot) = self.nic.tx_slot(conn.link, len)
        {
            conn.emit_lone(turn, write, &mut slot);
            slot.commit();
            self.committed = true;
        } else if len <= RECORD_LEN + conn.record_max() {
            conn.send(len, write).inspect_err(|_| turn.counters.messages_refused += 1)?;
        } else {
            return Err(SendError::TooLong);
        }
        turn.counters.messages_sent += 1;
        if !conn.queued {
            conn.queued = true;
            active.push_back(peer.index);
        }
        Ok(())
    }

    #[cold]
    fn send_copied(&mut self, peer: PeerId, front: &[u8], rest: &[u8]) -> Result<(), SendError> {
        let Router { peers, turn: TurnContext { counters, spares, .. }, .. } = &mut self.router;
        let conn = peers.get(peer).ok_or(SendError::NoPeer)?;
        let len = front.len() + rest.len();
        if len > conn.message_max() {
            return Err(SendError::TooLong);
        }
        let Some(mut buffer) = spares.take(len) else {
            counters.messages_refused += 1;
            return Err(SendError::Full);
        };
        buffer.extend_from_slice(front);
        buffer.extend_from_slice(rest);
        conn.send_large(buffer, false).map_err(|buffer| {
            spares.give(buffer);
            counters.messages_refused += 1;
            SendError::Full
        })?;
        counters.messages_sent += 1;
        self.router.activate(peer.index);
        Ok(())
    }

    /// Sends straight from `buffer`, without a copy; it comes back in [`Event::Sent`] once the peer has it all, or in
    /// [`Event::Unsent`].
    pub fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        self.send_buffer(peer, buffer, true)
    }

    /// As [`Self::send_owned`]; a buffer that was not `lent` does not come back.
    pub(crate) fn send_buffer(&mut self, peer: PeerId, buffer: Vec<u8>, lent: bool) -> Result<(), Refused> {
        let router = &mut self.router;
        let Some(conn) = router.peers.get(peer).filter(|conn| conn.takes_messages()) else {
            return Err(Refused { reason: SendError::NoPeer, buffer });
        };
        if buffer.len() > conn.message_max() {
            return Err(Refused { reason: SendError::TooLong, buffer });
        }
        if let Err(buffer) = conn.send_large(buffer, lent) {
            router.turn.counters.messages_refused += 1;
            return Err(Refused { reason: SendError::Full, buffer });
        }
        router.turn.counters.messages_sent += 1;
        router.activate(peer.index);
        Ok(())
    }

    /// Puts on the wire what waits in the FIFOs, as far as windows and credits go.
    #[inline]
    pub fn flush(&mut self) {
        if !self.router.active.is_empty() {
            self.turn_time();
            if !self.router.turn.rma.owing.is_empty() {
                self.router.tell_done();
            }
            self.transmit();
        }
    }

    /// One turn: receives a burst, runs due timers, transmits. Returns the number of frames received.
    #[inline]
    pub fn poll(&mut self) -> usize {
        let received = self.turn();
        if self.is_show_due() {
            self.show();
        }
        received
    }

    /// As [`Self::poll`], but shows no counters.
    #[inline]
    pub(crate) fn turn(&mut self) -> usize {
        let now = self.turn_time();
        let router = &mut self.router;
        if !N::RELIABLE {
            router.catch_up();
        }
        if !router.turn.rma.owing.is_empty() {
            router.tell_done();
        }
        let received = self.nic.rx_burst(BURST, |frame, from| router.handle_frame(frame, from, N::RELIABLE));
        if !self.router.strangers.is_empty() {
            self.answer_strangers(now);
        }
        if self.router.peers.earliest().is_some_and(|due| due <= now) {
            self.run_timers(now);
        }
        if !self.router.active.is_empty() {
            self.transmit();
        }
        received
    }

    /// True when it is time for [`Self::show`].
    #[inline]
    pub(crate) fn is_show_due(&self) -> bool {
        self.display.is_due(self.router.turn.now)
    }

    /// Shows the counters to other processes.
    #[cold]
    pub(crate) fn show(&mut self) {
        self.display.show(self.router.turn.now, &self.nic, &self.router, self.turns);
    }

    /// Shows, from now on, the counts of Active Messages too.
    pub(crate) fn show_with_am(&mut self) {
        self.display = Display::new(&self.nic, &self.router.turn.config, Some(crate::am::Counters::default()));
    }

    /// What is counted of Active Messages, for the next [`Self::show`].
    #[cold]
    pub(crate) fn note_am(&mut self, counters: &crate::am::Counters) {
        self.display.am = Some(*counters);
    }

    /// Shows the oldest message that waits, and takes it out of its FIFO. Peers take turns.
    #[inline]
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        if self.router.ready.is_empty() { None } else { self.router.recv_ready(|peer, message, _| take(peer, message)) }
    }

    /// Shows the oldest message that waits, and the FIFO for an answer to it; `take` says whether it put one in. False when
    /// no message waits.
    #[inline]
    pub(crate) fn recv_answering(&mut self, take: impl FnOnce(PeerId, &[u8], &mut SendFifo) -> bool) -> bool {
        if self.router.ready.is_empty() {
            return false;
        }
        let taken = self.router.recv_ready(|peer, message, fifo| (peer.index, take(peer, message, fifo)));
        if let Some((index, true)) = taken {
            self.router.turn.counters.messages_sent += 1;
            self.router.activate(index);
        }
        taken.is_some()
    }

    /// A place for a record of `len` bytes in the FIFO to `peer`, to be written before it is sent. Errors as
    /// [`Self::send_record`].
    pub(crate) fn record_slot(&mut self, peer: PeerId, len: usize) -> Result<RecordSlot<'_>, SendError> {
        let Router { peers, active, turn: TurnContext { counters, .. }, .. } = &mut self.router;
        let conn = peers.get(peer).filter(|conn| conn.takes_messages()).ok_or(SendError::NoPeer)?;
        if len > RECORD_LEN + conn.record_max() {
            return Err(SendError::TooLong);
        }
        if conn.outbox().spot(len, false).is_none() {
            counters.messages_refused += 1;
            return Err(SendError::Full);
        }
        Ok(RecordSlot { conn, active, counters })
    }

    /// Keeps half of the FIFO to `peer`, which has connected, for replies. Returns how many bytes that is, and the length of
    /// the longest record.
    pub(crate) fn reserve_for_replies(&mut self, peer: PeerId) -> Option<(usize, usize)> {
        let conn = self.router.peers.get(peer)?;
        Some((conn.outbox().reserve_half(), RECORD_LEN + conn.record_max()))
    }

    /// Longest message that may be sent to `peer`, as far as is known.
    pub(crate) fn message_max(&mut self, peer: PeerId) -> usize {
        self.router.peers.get(peer).map_or(0, |conn| conn.message_max())
    }

    /// Peers held at most.
    pub(crate) fn peers_max(&self) -> usize {
        self.router.turn.config.peers_max
    }

    /// Ends a connection on which a message was to go that its peer does not take.
    pub(crate) fn end_too_long(&mut self, peer: PeerId) {
        let Some((conn, turn)) = self.router.conn_turn(peer.index) else { return };
        if conn.id == peer && conn.takes_messages() {
            conn.end_too_long(turn);
            self.router.activate(peer.index);
            self.router.after_change(peer.index);
        }
    }

    /// True while there is a connection, open or not.
    pub(crate) fn has_peer(&mut self, peer: PeerId) -> bool {
        self.router.peers.get(peer).is_some_and(|conn| conn.takes_messages())
    }

    /// True when an event waits.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.router.turn.events.is_empty()
    }

    /// Takes the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.router.turn.events.pop_front()
    }

    /// When `poll` has to be called next even if no frame comes; `None` when no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.router.peers.earliest()
    }

    /// Sleeps until a frame may be there, a timer is due, or `deadline`. Flushes first; returns at once when something
    /// is still to be sent or taken.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let waits = |router: &Router| !router.ready.is_empty() || !router.turn.events.is_empty();
        self.sleep_unless(waits, deadline)
    }

    /// As [`Self::wait`], also while messages and events wait for being taken.
    pub(crate) fn wait_for_frames(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.sleep_unless(|_| false, deadline)
    }

    fn sleep_unless(&mut self, ready: impl FnOnce(&Router) -> bool, deadline: Option<Instant>) -> io::Result<()> {
        if !self.router.turn.rma.owing.is_empty() {
            self.router.tell_done();
        }
        self.flush();
        self.router.catch_up();
        if ready(&self.router) || !self.router.active.is_empty() {
            return Ok(());
        }
        let timer = self.poll_timeout();
        let until = match (timer, deadline) {
            (Some(timer), Some(deadline)) => Some(timer.min(deadline)),
            (timer, deadline) => timer.or(deadline),
        };
        // What was counted until now shows while we sleep.
        self.show();
        let woken = self.nic.wait(until);
        self.router.turn.now = self.nic.now();
        woken
    }

    /// Ends a connection once all that was sent is acknowledged; [`Event::Closed`] follows.
    pub fn close(&mut self, peer: PeerId) {
        self.router.turn.now = self.nic.now();
        let Some((conn, turn)) = self.router.conn_turn(peer.index) else { return };
        if conn.id == peer {
            conn.close(turn);
            self.router.activate(peer.index);
            self.router.after_change(peer.index);
        }
    }

    /// Counts since the endpoint was made.
    pub fn counters(&self) -> &Counters {
        &self.router.turn.counters
    }

    /// Connections held, including those that only linger.
    pub fn peers(&self) -> usize {
        self.router.peers.len()
    }

    /// Bytes of memory that a peer takes: its state, and its FIFOs and tables.
    pub fn peer_memory(&mut self, peer: PeerId) -> Option<(usize, usize)> {
        self.router.peers.get(peer).map(|conn| (size_of::<Conn>(), conn.memory()))
    }

    /// True when everything that was sent to `peer` is acknowledged. False too when there is no such peer.
    pub fn is_settled(&mut self, peer: PeerId) -> bool {
        self.router.peers.get(peer).is_some_and(|conn| conn.is_settled())
    }

    /// True when a message waits to be received.
    pub fn has_messages(&self) -> bool {
        !self.router.ready.is_empty()
    }

    /// The driver below.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The driver below, to change its settings.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Ends the endpoint and gives the driver back. Peers notice by their time-outs.
    pub fn into_nic(self) -> N {
        self.nic
    }

    /// Reads the clock, once a turn. A reliable driver's connections have only slow timers: for them every 32nd turn
    /// does (`bench/NOTES.md`, "Clock reads").
    #[inline]
    fn turn_time(&mut self) -> Instant {
        self.turns = self.turns.wrapping_add(1);
        if !N::RELIABLE || self.turns.is_multiple_of(CLOCK_TURNS) {
            self.router.turn.now = self.nic.now();
        }
        self.router.turn.now
    }

    #[cold]
    fn run_timers(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.router.peers.collect_due(now, &mut due);
        for index in due.drain(..) {
            let Some((conn, turn)) = self.router.conn_turn(index) else { continue };
            if self.nic.is_gone(conn.link) {
                conn.handle_link_gone(turn);
            }
            conn.handle_timeout(turn, N::RELIABLE);
            let (next, over, link) = (conn.next_timeout(), conn.is_over(), conn.link);
            if over {
                self.forget(index, link);
            } else {
                self.router.peers.note_due(index, next);
                self.router.activate(index);
            }
        }
        self.due = due;
    }

    fn forget(&mut self, index: u16, link: Link) {
        let Some(conn) = self.router.peers.remove(index) else { return };
        // The same address has the same link: one that is connected anew still needs it.
        if !self.router.peers.holds_addr(conn.addr) {
            self.nic.unlink(link);
        }
    }

    /// What is known of any path before the peer has answered.
    fn path(&self) -> Path {
        let mut caps = *self.nic.caps();
        if self.router.turn.job.is_some() {
            caps.mtu -= TAG_LEN;
            caps.mtu_safe -= TAG_LEN;
        }
        Path::new(&caps, &self.router.turn.config, N::RELIABLE)
    }
}

/// A record that is written in the FIFO before it is sent.
pub(crate) struct RecordSlot<'a> {
    conn: &'a mut Conn,
    active: &'a mut PeerQueue,
    counters: &'a mut Counters,
}

impl RecordSlot<'_> {
    /// The record's first `len` bytes, of at most as many as were asked for.
    #[inline]
    pub fn record(&mut self, len: usize) -> &mut [u8] {
        self.conn.outbox().spot(len, false).expect("there was room when this was lent")
    }

    /// Sends the record's first `len` bytes.
    #[inline]
    pub fn commit(self, len: usize) {
        self.conn.outbox().commit(len);
        self.counters.messages_sent += 1;
        if !self.conn.queued {
            self.conn.queued = true;
            self.active.push_back(self.conn.id.index);
        }
    }
}

/// All that its future depends on, but for the bytes of messages.
impl<N: Nic> fmt::Debug for Endpoint<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.router.fmt(f)
    }
}

/// Frames received, and frames sent to one peer, in one turn.
const BURST: usize = 64;
/// Turns between two looks at the clock on a reliable driver.
const CLOCK_TURNS: u64 = 32;
