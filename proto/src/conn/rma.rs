//! One-sided operations of a connection: how their frames go out and come in. What they mean is [`OneSided`]'s.

use super::{Conn, Owed, Phase, Plan, TurnContext, settle};
use crate::Config;
use crate::counters::Reject;
use crate::hint::seldom;
use crate::lone::{Taker, nobody, offer};
use crate::reorder::Kept;
use crate::rma::{Memory, OneSided, OpSpan, PutHow};
use crate::send_fifo::{Run, Span};
use crate::wire::{FULL_LEN, Kind, Operation, PLAIN_LEN, Seq, Tail, Target, is_operations, put_flags, split_messages};

impl Conn {
    /// Bytes of body that fit any frame of this connection.
    #[inline]
    pub fn body_max(&self) -> usize {
        self.path.body_max
    }

    /// This connection's operations.
    #[inline]
    pub fn one_sided(&mut self, config: &Config) -> &mut OneSided {
        let path = &self.path;
        self.one_sided.get_or_insert_with(|| Box::new(OneSided::new(path.send_fifo(config), path.frame_max)))
    }

    /// An operation may have been handed over.
    #[inline]
    pub fn note_operations(&mut self) {
        if self.one_sided.as_ref().is_some_and(|one_sided| one_sided.has_unsent()) {
            self.owed.add(Owed::OPERATIONS);
        } else {
            self.owed.remove(Owed::OPERATIONS);
            if let Some(one_sided) = &mut self.one_sided {
                one_sided.precedence.forget();
            }
        }
    }

    /// See [`OneSided::fence`].
    pub fn fence(&mut self) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.fence();
        }
    }

    /// See [`OneSided::is_done`].
    #[inline]
    pub fn is_op_done(&self, number: u64) -> bool {
        self.one_sided.as_ref().is_none_or(|one_sided| one_sided.is_done(number))
    }

    /// True while the bytes of put `number` are needed where they are.
    pub fn needs_source_of(&self, number: u64) -> bool {
        self.one_sided.as_ref().is_some_and(|one_sided| one_sided.outbox.needs_source_of(number))
    }

    /// See [`OneSided::is_settled`].
    pub(super) fn operations_are_settled(&self) -> bool {
        self.one_sided.as_ref().is_none_or(|one_sided| one_sided.is_settled())
    }

    /// True while the peer is owed answers, or a Done, which may not go out behind our Close.
    pub(super) fn owes_answers(&self) -> bool {
        self.one_sided.as_ref().is_some_and(|one_sided| one_sided.owes_answers())
    }

    /// The turn has come to tell the peer what is done.
    pub fn push_done(&mut self, turn: &mut TurnContext) {
        let serves = self.serves();
        let Some(one_sided) = &mut self.one_sided else { return };
        if serves && !one_sided.push_done() {
            turn.rma.owing.push(self.id.index);
        }
        self.note_operations();
    }

    // Sending.

    /// As [`Conn::lone_frame_len`], of an operation whose record has `len` bytes.
    #[inline]
    pub fn lone_operation_len(&mut self, len: usize) -> Option<usize> {
        let free = self.phase == Phase::Open
            && !self.queued
            && self.owed == Owed::NONE
            && self.one_sided.as_ref().is_some_and(|one_sided| one_sided.has_nothing_to_say());
        free.then_some(PLAIN_LEN + len)
    }

    /// Writes the frame with a lone put.
    #[inline]
    pub fn emit_lone_put(
        &mut self,
        turn: &mut TurnContext,
        to: Target,
        bytes: &[u8],
        how: PutHow,
        frame: &mut [u8],
    ) -> u64 {
        let one_sided = self.one_sided.as_mut().expect("`lone_operation_len` saw it");
        let flags = one_sided.flags(how.signal, how.silent);
        Operation::Put { to, flags: flags | put_flags::LAST, bytes }.emit(&mut frame[PLAIN_LEN..]);
        let number = one_sided.issue_put(flags);
        self.finish_plain(turn, frame);
        number
    }

    /// The next frame where operations wait, if the window takes one: with some of them, which need none of the peer's credit, or with
    /// messages whose turn it is.
    #[inline]
    pub(super) fn poll_operations(&mut self, turn: &mut TurnContext, plain: bool) -> Option<Plan> {
        if !plain && !self.window_has_room() {
            return None;
        }
        let room = self.path.mtu - if plain { PLAIN_LEN } else { FULL_LEN };
        let one_sided = self.one_sided.as_mut()?;
        one_sided.serve(turn);
        if self.fifo.has_unsent() && one_sided.outbox.has_unsent() {
            let bytes = one_sided.precedence.messages_first(self.fifo.progress(), one_sided.outbox.progress());
            if bytes > 0
                && let Some(span) = self.next_messages(room, bytes)
            {
                return Some(Plan::New { span });
            }
        }
        let outbox = &self.one_sided.as_ref()?.outbox;
        let span = outbox.next_span(room)?;
        // Messages that wait go along, where every operation before them does.
        if let OpSpan::Run { at, len } = span
            && self.fifo.has_unsent()
            && outbox.ends_with(span)
            && let Some((messages_at, messages_len)) = self.fifo.next_run((room - len).min(self.credit()))
        {
            let (operations, messages) = (Run::new(at, len), Run::new(messages_at, messages_len));
            return Some(Plan::New { span: Span::Both { operations, messages } });
        }
        Some(Plan::New { span: Span::Operations(span) })
    }

    /// Bytes of messages that the peer has room for.
    fn credit(&self) -> usize {
        usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX)
    }

    /// The next frame's messages, of the next `bytes` in the FIFO and as far as the credit goes.
    fn next_messages(&self, room: usize, bytes: u64) -> Option<Span> {
        match self.fifo.next_span(room.min(self.credit()))? {
            Span::Run { len, .. } if len as u64 > bytes => self.fifo.next_span(bytes as usize),
            span => Some(span),
        }
    }

    /// Writes the front of a frame with operations, and what of their bytes `frame` has room for; they are then considered sent.
    pub(super) fn write_operations(&mut self, turn: &mut TurnContext, span: OpSpan, body: &mut [u8]) {
        let one_sided = self.one_sided.as_mut().expect("a span is of its outbox");
        one_sided.outbox.write(span, body, &turn.rma.regions);
    }

    /// As [`Conn::emit_new`], of operations.
    #[inline]
    pub(super) fn emit_operations(&mut self, turn: &mut TurnContext, span: OpSpan, frame: &mut [u8], plain: bool) {
        self.write_operations(turn, span, &mut frame[if plain { PLAIN_LEN } else { FULL_LEN }..]);
        self.finish_operations(turn, span, frame, Tail::Here, plain);
    }

    /// The body of a new frame with operations is written, but for its tail.
    #[inline]
    pub(super) fn finish_operations(
        &mut self,
        turn: &mut TurnContext,
        span: OpSpan,
        frame: &mut [u8],
        tail: Tail,
        plain: bool,
    ) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.outbox.advance(span);
        }
        if plain {
            self.release_operations(turn, span);
            self.active_at = turn.now;
            self.emit_plain_header(Kind::Data, frame);
        } else {
            self.finish_sent(turn, Span::Operations(span), frame, tail);
        }
        self.note_operations();
    }

    /// As [`Self::emit_operations`], with messages behind them.
    #[inline(never)]
    pub(super) fn emit_both(&mut self, turn: &mut TurnContext, span: Span, frame: &mut [u8], plain: bool) {
        let Span::Both { operations, messages } = span else { unreachable!("told by its plan") };
        self.write_both(turn, operations, messages, &mut frame[if plain { PLAIN_LEN } else { FULL_LEN }..]);
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.outbox.advance(operations.operations());
        }
        self.position += messages.messages().body_len() as u64;
        self.fifo.advance(messages.messages());
        if plain {
            self.release_operations(turn, operations.operations());
            settle(self.fifo.release(messages.messages()), self.id, &mut turn.spares, &mut turn.events);
            self.active_at = turn.now;
            self.emit_plain_header(Kind::Data, frame);
            self.finish_close(turn);
        } else {
            self.finish_sent(turn, span, frame, Tail::Here);
        }
        self.note_operations();
    }

    /// Writes the body of a frame with both.
    pub(super) fn write_both(&mut self, turn: &mut TurnContext, operations: Run, messages: Run, body: &mut [u8]) {
        let (front, back) = body.split_at_mut(operations.operations().body_len());
        self.write_operations(turn, operations.operations(), front);
        self.fifo.write(messages.messages(), back);
    }

    /// A span of operations is acknowledged.
    #[inline]
    pub(super) fn release_operations(&mut self, turn: &mut TurnContext, span: OpSpan) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.outbox.release(span, &mut turn.rma.regions, &mut turn.spares, &mut turn.events);
        }
    }

    /// Lends out the bytes of a span while its frame is sent from where they are, until [`Self::put_source`].
    pub fn take_source(&mut self, turn: &mut TurnContext, span: OpSpan) -> Option<(Memory, usize)> {
        self.one_sided.as_mut()?.outbox.take_source(span, &mut turn.rma.regions)
    }

    /// Takes the bytes of a span back.
    pub fn put_source(&mut self, turn: &mut TurnContext, span: OpSpan, memory: Memory) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.outbox.put_source(span, memory, &mut turn.rma.regions);
        }
    }

    // Receiving.

    /// Takes in the body of the frame whose turn it is: true when the peer may perhaps send more for it.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        turn: &mut TurnContext,
        body: &[u8],
        plain: bool,
        taker: Taker<'_>,
    ) -> Result<bool, Reject> {
        if seldom(is_operations(body)) {
            return self.take_in_operations(turn, body, plain);
        }
        if self.inbox.is_idle() && self.take_lone(turn, body, taker) {
            self.inbox.pass(body.len());
            return Ok(true);
        }
        let may_grant = self.inbox.accept(body, self.path.own_message_max, &mut turn.spares)?;
        turn.until_whole = may_grant.then(|| self.inbox.lacking(body.len()));
        if may_grant && self.inbox.is_closed() {
            self.on_close_arrived(turn);
        }
        Ok(may_grant)
    }

    /// Where the bytes of the frame whose turn it is go, which has a body of `len` bytes that begins with `front`: if that follows from
    /// this side's state alone.
    pub(super) fn place<'a>(&'a mut self, turn: &'a mut TurnContext, front: &[u8], len: usize) -> Option<&'a mut [u8]> {
        if is_operations(front) {
            return self.one_sided.as_mut()?.place(&mut turn.rma.regions, self.id, front, len);
        }
        self.inbox.place(front, len)
    }

    /// As [`Self::take_in`], of a body whose bytes are where [`Self::place`] said.
    #[inline]
    pub(super) fn take_in_placed(&mut self, turn: &mut TurnContext, front: &[u8], len: usize) -> Result<bool, Reject> {
        if is_operations(front) {
            let id = self.id;
            self.one_sided(&turn.config).on_placed_put(turn, id);
            self.note_operations();
            return Ok(false);
        }
        self.inbox.accept_placed(len)?;
        turn.until_whole = Some(self.inbox.lacking(len));
        Ok(true)
    }

    /// Takes in a message past the FIFO, in which nothing stands before it.
    #[inline(always)]
    fn take_lone(&mut self, turn: &mut TurnContext, body: &[u8], taker: Taker<'_>) -> bool {
        if turn.lone.put(self.id, body) {
            self.has_lone = true;
            return true;
        }
        let taken = !self.has_lone && turn.events.is_empty() && offer(self.id, body, taker);
        turn.counters.messages_received += u64::from(taken);
        turn.counters.messages_in_place += u64::from(taken);
        taken
    }

    /// As [`Self::take_in`], of a frame that was kept until its turn.
    pub(super) fn take_in_kept(&mut self, turn: &mut TurnContext, kept: &Kept) -> Result<(), Reject> {
        match kept {
            Kept::Body(body) => self.take_in(turn, body, false, &mut nobody).map(drop),
            Kept::Placed(placed) => {
                let id = self.id;
                self.one_sided(&turn.config).on_placed(turn, id, *placed);
                self.note_operations();
                Ok(())
            }
        }
    }

    #[inline(never)]
    fn take_in_operations(&mut self, turn: &mut TurnContext, body: &[u8], plain: bool) -> Result<bool, Reject> {
        let (id, serves, stalled) = (self.id, self.serves(), self.backoff > 0);
        let (operations, messages) = split_messages(body)?;
        let one_sided = self.one_sided(&turn.config);
        // A reliable driver's frame does not come again, so there only who breaks the rules finds so many.
        if one_sided.is_crowded(plain || stalled) {
            return Err(Reject::Overrun);
        }
        let mut may_grant = false;
        if !messages.is_empty() {
            // Before anything is done, whether all of it can be.
            one_sided.check(operations)?;
            may_grant = self.inbox.accept(messages, self.path.own_message_max, &mut turn.spares)?;
        }
        self.one_sided(&turn.config).take_in(turn, id, serves, operations)?;
        self.note_operations();
        if may_grant && self.inbox.is_closed() {
            self.on_close_arrived(turn);
        }
        Ok(may_grant)
    }

    /// Keeps a frame until its turn: its body, or where its bytes can be placed at once only that. False when there is no
    /// room.
    #[cold]
    pub(super) fn keep_early(&mut self, turn: &mut TurnContext, seq: Seq, body: &[u8]) -> bool {
        if is_operations(body) {
            let id = self.id;
            if let Some(placed) = self.one_sided(&turn.config).place_early(turn, id, body) {
                self.reorder.keep_placed(seq, placed);
                return true;
            }
        }
        self.reorder.keep(seq, body)
    }

    /// The peer's Close has arrived, though perhaps the user has not come so far: nothing of ours is answered any more.
    #[cold]
    pub(super) fn on_close_arrived(&mut self, turn: &mut TurnContext) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.fail_all(self.id, turn);
        }
    }

    /// True while answers may be sent: not behind our Close.
    fn serves(&self) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::Closing => self.owed.has(Owed::CLOSE),
            _ => false,
        }
    }
}
