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
    /// Frames that are lacking of the message of which the last frame was a part; 0 if it was none.
    pub until_whole: usize,
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
            until_whole: 0,
            lone: Lone::new(),
            events: VecDeque::new(),
            rma: Rma::default(),
        }
    }

    /// Frames for the turn that begins, `most` or as many as make the message whole that is under way: then its user takes it before the
    /// next one begins, which is put together in the same memory (`bench/NOTES.md`, "A turn ends with the message").
    #[inline]
    pub fn end_with_message(&mut self, most: usize) -> usize {
        match std::mem::take(&mut self.until_whole) {
            0 => most,
            lacking => most.min(lacking),
        }
    }

    /// Bytes that a frame is longer than what a connection writes.
    #[inline]
    pub fn tag_len(&self) -> usize {
        if self.job.is_some() { TAG_LEN } else { 0 }
    }
}
