//! Messages that wait, shown to who takes them: peers take turns.

use std::cell::Cell;

use super::Router;
use crate::conn::{Answering, Conn, TurnContext};
use crate::event::PeerId;
use crate::hint::seldom;
use crate::wire::NO_PEER;

/// Answers to what is shown, which go out also when who is shown it panics on a later message.
struct Answers<'a> {
    router: &'a mut Router,
    /// Whose messages are shown.
    to: Cell<u16>,
    /// How many to it are not sent yet.
    count: Cell<u64>,
}

impl Answers<'_> {
    #[inline]
    fn send(&mut self) {
        let count = self.count.take();
        if count > 0 {
            self.router.turn.counters.messages_sent += count;
            self.router.activate(self.to.get());
        }
    }
}

impl Drop for Answers<'_> {
    #[inline]
    fn drop(&mut self) {
        self.send();
    }
}

impl Router {
    /// Shows a message that waits, the oldest of its peer, to `take`.
    #[inline]
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        if !self.turn.lone.is_empty() {
            return self.recv_lone(|from, message, _| take(from, message));
        }
        if self.ready.is_empty() { None } else { self.recv_ready(take) }
    }

    #[inline]
    fn recv_lone<R>(&mut self, take: impl FnOnce(PeerId, &[u8], Answering<'_>) -> R) -> Option<R> {
        let TurnContext { lone, spares, counters, .. } = &mut self.turn;
        let (from, message) = lone.take()?;
        let conn = self.peers.get(from)?;
        counters.messages_received += 1;
        Some(take(from, message, conn.on_lone_taken(spares)))
    }

    #[inline]
    fn recv_ready<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        let mut take = Some(take);
        let mut once = |conn: &mut Conn, turn: &mut TurnContext, _| {
            let id = conn.id;
            conn.recv(turn, |message| take.take().expect("called once")(id, message))
        };
        self.at_front(&mut once, |_| 1)
    }

    /// Shows messages as [`Self::recv`] does, each with what an answer to its sender goes into and a cell that counts answers, until `take`
    /// has enough or none waits. How many were shown.
    #[inline]
    pub fn recv_each(&mut self, mut take: impl FnMut(PeerId, &[u8], Answering<'_>, &Cell<u64>) -> bool) -> usize {
        let answers = &mut Answers { router: self, to: Cell::new(NO_PEER), count: Cell::new(0) };
        let (mut total, goes_on) = (0, Cell::new(true));
        let mut show = |count: &Cell<u64>, from: PeerId, message: &[u8], answer: Answering<'_>| {
            goes_on.set(take(from, message, answer, count));
            goes_on.get()
        };
        if !answers.router.turn.lone.is_empty() {
            let Answers { router, to, count } = &mut *answers;
            let taken = router.recv_lone(|from, message, answer| {
                to.set(from.index);
                show(count, from, message, answer)
            });
            total += usize::from(taken.is_some());
            answers.send();
        }
        while goes_on.get() {
            let Answers { router, to, count } = &mut *answers;
            let mut run = |conn: &mut Conn, turn: &mut TurnContext, most| {
                let id = conn.id;
                to.set(id.index);
                conn.recv_run(turn, most, |message, answer| show(count, id, message, answer))
            };
            let Some(shown) = router.at_front(&mut run, |shown| *shown) else { break };
            total += shown as usize;
            answers.send();
        }
        total
    }

    /// What `take` gets from the first peer whose turn it is and that has something; it is told how many messages it may take, and
    /// `messages` tells how many it has.
    #[inline]
    fn at_front<R>(
        &mut self,
        take: &mut impl FnMut(&mut Conn, &mut TurnContext, u32) -> Option<R>,
        messages: impl Fn(&R) -> u32,
    ) -> Option<R> {
        while let Some(index) = self.ready.front() {
            let Self { peers, turn, ready, .. } = self;
            let Some(conn) = peers.at(index) else {
                ready.end_turn();
                continue;
            };
            let taken = take(conn, turn, ready.left());
            ready.on_taken(taken.as_ref().map_or(1, &messages), conn);
            if seldom(conn.is_urgent()) {
                self.activate(index);
            }
            if let Some(some) = &taken {
                self.turn.counters.messages_received += u64::from(messages(some));
                return taken;
            }
            self.after_change(index);
        }
        None
    }
}
