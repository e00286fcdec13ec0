//! Many connections over one [`Nic`]: their begin and end, and the turns of the loop.

mod messages;
mod strangers;
mod transmit;

pub(crate) use messages::RecordSlot;

use std::collections::HashSet;
use std::fmt;
use std::io;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Arrival, Link, LinkAddr, Nic};

use crate::conn::Conn;
use crate::counters::Counters;
use crate::display::Display;
use crate::lone::{Taker, nobody};
use crate::path::Path;
use crate::router::Router;
use crate::seal::TAG_LEN;
use crate::wire::NO_PEER;
use crate::{Config, ConnectError, Event, PeerId};

/// Reliable, ordered, exactly-once messages to and from many peers over one NIC. Used by one thread.
///
/// `send` puts a message into the peer's FIFO; `flush` or the next `poll` puts it on the wire, together with what else
/// waits for that peer. `poll` receives, runs timers and transmits; nothing blocks but `wait`. A peer hears from us only
/// while `poll` is called: one that is not polled for [`Config::keep_alive`] times four counts as gone for them. They do
/// not for it: a span without `poll` is not their silence.
pub struct Endpoint<N: Nic> {
    pub(crate) nic: N,
    pub(crate) router: Router,
    /// Connections whose timers may be due; kept for its memory.
    due: Vec<u16>,
    /// Frames received in one turn at most.
    burst: usize,
    /// Turns taken.
    turns: u64,
    /// Who takes no turn for longer was away: a time-out of the driver's.
    away_floor: Duration,
    /// What comes after this did not wait for who was away.
    late_until: Instant,
    /// A lone message was committed to the driver since its last flush.
    pub(crate) committed: bool,
    /// A connection may transmit more, and it was not the driver that had no room.
    has_more: bool,
    display: Display,
}

impl<N: Nic> Endpoint<N> {
    /// An endpoint without peers. It answers whoever connects.
    pub fn new(nic: N, config: Config) -> Self {
        let router = Router::new(config, nic.caps().addr, nic.now(), N::RELIABLE);
        let display = Display::new(&nic, &config, None);
        let away_floor = nic.caps().rto_floor.min(config.keep_alive);
        let burst = if nic.caps().mtu < LARGE { BURST } else { BURST / 2 };
        Self {
            nic,
            router,
            due: Vec::new(),
            burst,
            turns: 0,
            away_floor,
            late_until: Instant::ZERO,
            committed: false,
            has_more: false,
            display,
        }
    }

    /// Begins a connection. Messages may be sent at once; they leave when the peer has answered. To an address with
    /// which there is a connection it returns that one, unless the driver knows that its peer has died: then it ends, and who
    /// has the address now is met anew.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        let now = self.nic.now();
        if let Some(conn) = self.router.peers.by_addr(to) {
            let (id, link) = (conn.id, conn.link);
            if !self.nic.is_gone(link) {
                conn.ask(now, &self.router.turn.config);
                self.nic.confirm(link);
                self.router.after_change(id.index);
                return Ok(id);
            }
            self.end_of_link(id.index);
        }
        if !self.router.has_room(to) {
            return Err(ConnectError::TableFull(self.router.turn.config.peers_max.min(usize::from(NO_PEER))));
        }
        let link = self.nic.link(to)?;
        self.nic.confirm(link);
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

    /// From now on whoever is connected to has so long to answer ([`Config::connect_timeout`]).
    pub fn set_connect_timeout(&mut self, timeout: Duration) {
        self.router.turn.config.connect_timeout = timeout;
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
        self.poll_offering(&mut nobody)
    }

    /// As [`Self::poll`]. A message longer than 60 bytes that came alone in its frame, and before which nothing of its peer's and no
    /// event waits, is offered to `taker` where the driver received it, which saves a copy; it is received when that returns true,
    /// and else waits as any other. Never offered is what came before its turn, and what came sealed.
    ///
    /// On drivers that share memory with the peer, the peer may write the bytes while they are looked at: what is judged by them
    /// is copied first. When `taker` panics, the endpoint is not to be used any more: whether the message was received is not known.
    #[inline]
    pub fn poll_offering(&mut self, taker: Taker<'_>) -> usize {
        let received = self.turn(taker);
        if self.is_show_due() {
            self.show();
        }
        received
    }

    /// As [`Self::poll`], but shows no counters.
    #[inline]
    pub(crate) fn turn(&mut self, taker: Taker<'_>) -> usize {
        let now = self.turn_time();
        let router = &mut self.router;
        if !N::RELIABLE {
            router.catch_up();
        }
        if !router.turn.rma.owing.is_empty() {
            router.tell_done();
        }
        router.turn.lone.begin_turn(!router.ready.is_empty());
        let burst = router.turn.end_with_message(self.burst);
        let received = if N::RELIABLE {
            self.nic.rx_burst(burst, |frame, from| router.handle_frame(frame, from, true, taker))
        } else {
            self.nic.rx_arrivals(burst, |arrival, from| match arrival {
                Arrival::Whole(frame) => router.handle_frame(frame, from, false, taker),
                Arrival::Begun(begun) => router.handle_begun(begun, from, taker),
            })
        };
        if burst < self.burst && received == burst {
            router.turn.after_short();
        }
        if !self.router.strangers.is_empty() {
            self.answer_strangers(now);
        }
        if self.router.peers.earliest().is_some_and(|due| due <= now) {
            self.run_timers(now);
        }
        if !self.router.active.is_empty() {
            self.transmit();
        }
        if !N::RELIABLE && self.router.turn.was_away {
            self.look_for_what_waited(received == burst);
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
        self.display.show(self.router.turn.now, &self.nic.counters(), &self.router, self.turns);
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

    /// Longest message that may be sent to `peer`, as far as is known.
    pub(crate) fn message_max(&mut self, peer: PeerId) -> usize {
        self.router.peers.get(peer).map_or(0, |conn| conn.message_max())
    }

    /// Longest message that goes to `peer` in one frame. `None` while there is no open connection.
    pub fn record_max(&mut self, peer: PeerId) -> Option<usize> {
        self.router.peers.get(peer).filter(|conn| conn.is_open()).map(|conn| conn.record_max())
    }

    /// Peers held at most: those who are expected come beside the others.
    pub(crate) fn peers_max(&self) -> usize {
        let expected = self.router.expected.as_ref().map_or(0, HashSet::len);
        (self.router.turn.config.peers_max + expected).min(usize::from(NO_PEER))
    }

    /// The peers that messages may be sent to.
    #[cold]
    pub(crate) fn living(&mut self) -> Vec<PeerId> {
        let mut living = Vec::new();
        self.router.peers.each(|conn| living.extend(conn.takes_messages().then_some(conn.id)));
        living
    }

    /// True while there is a connection, open or not.
    pub(crate) fn has_peer(&mut self, peer: PeerId) -> bool {
        self.router.peers.taking(peer).is_some()
    }

    /// True when an event waits.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.router.turn.events.is_empty()
    }

    /// Takes the next event. Who called is confirmed to the driver ([`Nic::confirm`]) when [`Event::Connected`] is taken.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.router.turn.events.pop_front()?;
        if let Event::Connected { peer, .. } = event {
            self.confirm(peer);
        }
        Some(event)
    }

    /// Puts back the last event that was taken.
    pub(crate) fn give_back(&mut self, event: Event) {
        self.router.turn.events.push_front(event);
    }

    /// The peer knows our token: no stranger has only written its address.
    #[cold]
    fn confirm(&mut self, peer: PeerId) {
        if let Some(conn) = self.router.peers.get(peer) {
            self.nic.confirm(conn.link);
        }
    }

    /// When `poll` has to be called next even if no frame comes; `None` when no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.router.peers.earliest()
    }

    /// Sleeps until a frame may be there, a timer is due, or `deadline`. Flushes first; returns at once when something
    /// is still to be sent or taken, and on a reliable driver when the flush has sent something: then there may be room where there was none.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let waits = |router: &Router| router.has_messages() || !router.turn.events.is_empty();
        self.sleep_unless(waits, deadline)
    }

    /// As [`Self::wait`], also while messages and events wait for being taken. Returns at once when the flush has added an event.
    pub(crate) fn wait_for_frames(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let waiting = self.router.turn.events.len();
        self.sleep_unless(|router| router.turn.events.len() > waiting, deadline)
    }

    fn sleep_unless(&mut self, ready: impl FnOnce(&Router) -> bool, deadline: Option<Instant>) -> io::Result<()> {
        let sent_before = self.router.turn.counters.frames_sent;
        if !self.router.turn.rma.owing.is_empty() {
            self.router.tell_done();
        }
        self.flush();
        if !N::RELIABLE {
            self.router.catch_up();
        }
        // What a reliable driver has taken has left its room at once: no frame will come that tells whoever waits for some.
        let made_room = N::RELIABLE && self.router.turn.counters.frames_sent != sent_before;
        let waits_for_room = !self.router.active.is_empty() || !self.router.strangers.is_empty();
        // A reliable driver has no room where the other side is slow, or not there yet: that may be for long.
        if ready(&self.router) || made_room || waits_for_room && (!N::RELIABLE || std::mem::take(&mut self.has_more)) {
            return Ok(());
        }
        let look_again = waits_for_room.then(|| self.nic.now() + ROOM_LATE_MAX);
        let until = [self.poll_timeout(), deadline, look_again].into_iter().flatten().min();
        // What was counted until now shows while we sleep.
        self.show();
        // Were we away before, what is there already came late; a sleep is no absence.
        if !N::RELIABLE {
            self.read_clock();
        }
        let woken = self.nic.wait(until);
        self.read_clock_after(self.router.turn.config.keep_alive);
        woken
    }

    /// Ends a connection once all that was sent is acknowledged; [`Event::Closed`] follows.
    pub fn close(&mut self, peer: PeerId) {
        self.read_clock();
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

    /// Counts of what found no room, messages and operations: who tries again what was refused puts them back.
    pub(crate) const fn refusals(&mut self) -> [&mut u64; 2] {
        let counters = &mut self.router.turn.counters;
        [&mut counters.messages_refused, &mut counters.operations_refused]
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
        self.router.has_messages()
    }

    /// The driver below.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The driver below, to change its settings.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Ends the endpoint and gives the driver back. Peers notice by their time-outs. A reliable driver's have none and are told
    /// now; one for which the driver has no room learns it when its next frame finds another endpoint.
    pub fn into_nic(mut self) -> N {
        if N::RELIABLE {
            self.reset_all();
        }
        self.nic
    }

    /// Reads the clock, once a turn. A reliable driver's connections have only slow timers: for them every 32nd turn
    /// does (`bench/NOTES.md`, "Clock reads").
    #[inline]
    fn turn_time(&mut self) -> Instant {
        self.turns = self.turns.wrapping_add(1);
        if !N::RELIABLE || self.turns.is_multiple_of(CLOCK_TURNS) {
            self.read_clock();
        }
        self.router.turn.now
    }

    /// Reads the clock. While somebody has time for us that is at least once a keep-alive: a connection has timers.
    #[inline]
    fn read_clock(&mut self) {
        self.read_clock_after(self.away_floor);
    }

    /// As [`Self::read_clock`]. Who has no reading for longer than `absence` was away.
    #[inline]
    fn read_clock_after(&mut self, absence: Duration) {
        let now = self.nic.now();
        let away = now.since(self.router.turn.now);
        self.router.turn.now = now;
        if !N::RELIABLE && away > absence {
            let late = away.min(self.away_floor.saturating_mul(LATE_FLOORS));
            self.late_until = self.late_until.max(now + late);
            self.router.on_away(away);
        }
    }

    /// We were away. What comes is late for that, as long as more of it waits; but a receiver that is slower than its senders
    /// never comes to the end of what waits.
    #[cold]
    fn look_for_what_waited(&mut self, full: bool) {
        let is_late = self.router.turn.now < self.late_until;
        self.router.turn.was_away = is_late && (full || self.nic.has_unread());
    }

    #[cold]
    fn run_timers(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.router.peers.collect_due(now, &mut due);
        for index in due.drain(..) {
            let Some((conn, turn)) = self.router.conn_turn(index) else { continue };
            // Of some drivers it is a system call to ask, and a timer is due all the time.
            if conn.is_silent(now) && self.nic.is_gone(conn.link) {
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
        // One that is connected anew may need it still.
        if !self.router.peers.holds_link(conn.addr, link) {
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

/// All that its future depends on, but for the bytes of messages.
impl<N: Nic> fmt::Debug for Endpoint<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.router.fmt(f)
    }
}

/// Longest sleep while the driver has no room: not every driver wakes for that.
const ROOM_LATE_MAX: Duration = Duration::from_millis(1);

/// Time-outs that it takes at most to take in the windows that came while we were away, however long that was.
const LATE_FLOORS: u64 = 4;
/// Frames received, and frames sent to one peer, in one turn at most. Of large frames half as many are received: the peer hears of
/// its credit at a turn's end, and should not have to wait for it (`bench/NOTES.md`, "A turn is over before the credit").
const BURST: usize = 64;
/// A burst of frames of this length is a quarter of a receive FIFO of the default size.
const LARGE: usize = 4096;
/// Turns between two looks at the clock on a reliable driver.
const CLOCK_TURNS: u64 = 32;
