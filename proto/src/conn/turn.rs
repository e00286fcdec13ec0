//! What connections are lent when it is their turn.

use std::collections::VecDeque;

use sidelane_nic::time::Instant;

use crate::Config;
use crate::counters::Counters;
use crate::event::Event;
use crate::lone::Lone;
use crate::rma::Rma;
use crate::seal::{Job, TAG_LEN};
use crate::spares::Spares;

/// What all connections of an endpoint share, and are lent whenever it is their turn.
pub(crate) struct TurnContext {
    /// When the last turn began: near enough for what a user's call sets off.
    pub now: Instant,
    /// We were away for longer than a time-out, and what has come meanwhile is still being taken in: it waited for us.
    pub was_away: bool,
    pub config: Config,
    pub counters: Counters,
    pub spares: Spares,
    /// Frames that are lacking of the long message of which the last body for a FIFO, in this turn, was a part; `None`: it was whole messages.
    pub until_whole: Option<usize>,
    /// Turns that are long though they might be short.
    long_turns: u32,
    /// The next message to be received, if it is in no FIFO.
    pub lone: Lone,
    pub events: VecDeque<Event>,
    pub rma: Rma,
    /// Where frames are sealed: never on a reliable driver.
    pub job: Option<Job>,
}

impl TurnContext {
    /// At the beginning. `plain` on a reliable driver.
    pub fn new(config: Config, now: Instant, plain: bool) -> Self {
        Self {
            now,
            was_away: false,
            job: if plain { None } else { Job::new(config.protection) },
            config,
            counters: Counters::default(),
            spares: Spares::default(),
            until_whole: None,
            long_turns: 0,
            lone: Lone::new(),
            events: VecDeque::new(),
            rma: Rma::default(),
        }
    }

    /// Frames for the turn that begins, `most` or as many as make the message whole that is under way: then its user takes it before the
    /// next one begins, which is put together in the same memory (`bench/NOTES.md`, "A turn ends with the message").
    #[inline]
    pub const fn end_with_message(&mut self, most: usize) -> usize {
        match self.until_whole.take() {
            None | Some(0) => most,
            Some(lacking) => self.shorten(most, lacking),
        }
    }

    const fn shorten(&mut self, most: usize, lacking: usize) -> usize {
        if self.long_turns > 0 {
            self.long_turns -= 1;
            return most;
        }
        if lacking < most { lacking } else { most }
    }

    /// A turn was short, and full. If it did not end with a message, others' frames were among those that it had. They must not have the
    /// short turns where another has the long ones, as on a driver that asks its peers by turns; nor does it help to end there.
    #[cold]
    pub const fn after_short(&mut self) {
        if !matches!(self.until_whole, Some(0)) {
            self.long_turns = LONG_TURNS;
        }
    }

    /// Bytes that a frame is longer than what a connection writes.
    #[inline]
    pub fn tag_len(&self) -> usize {
        if self.job.is_some() { TAG_LEN } else { 0 }
    }
}

/// Between two short turns of which others had a part: what they may lose is an eighth.
const LONG_TURNS: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_turn_that_others_had_a_part_of_is_followed_by_long_ones() {
        let mut turn = TurnContext::new(Config::default(), Instant::ZERO, true);
        let mut next = |lacking| {
            turn.until_whole = lacking;
            turn.end_with_message(32)
        };
        assert_eq!([None, Some(0), Some(5), Some(5), Some(50)].map(&mut next), [32, 32, 5, 5, 32]);
        // A part of nothing, or another's frame.
        for instead in [Some(5), None] {
            turn.until_whole = instead;
            turn.after_short();
            let mut next = || {
                turn.until_whole = Some(5);
                turn.end_with_message(32)
            };
            assert_eq!([(); LONG_TURNS as usize].map(|()| next()), [32; LONG_TURNS as usize]);
            assert_eq!(next(), 5);
        }
        turn.until_whole = Some(0);
        turn.after_short();
        turn.until_whole = Some(5);
        assert_eq!(turn.end_with_message(32), 5, "it ended with a message");
    }
}
