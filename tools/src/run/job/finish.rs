//! A job's end, when all ranks have ended: nothing of theirs is left, and all that they wrote was read.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use sidelane::lab::process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{FOREVER, Job};
use crate::run::sources::Event;
use crate::run::verdict::Verdict;

impl Job {
    /// Kills what ranks have left behind: all of it has become our child.
    pub(super) fn end_leftovers(&mut self) {
        if let Err(error) = process::kill_children_but(&self.others.alive()) {
            self.tell(format!("sidelane run: cannot end what ranks left behind: {error}\n"));
        }
    }

    /// Ends what was started of a job that cannot be.
    pub(super) fn give_up(mut self) {
        self.kill();
        // Whoever has run out of descriptors needs some to see what is left.
        self.ranks.clear();
        self.end_leftovers();
        let until = Instant::now() + LAST_WORDS;
        while self.streams > 0 {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Drained) => self.streams -= 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.guard.dismiss();
    }

    /// Waits until everything that the ranks wrote has been written, and says how the job ended: behind all that, unless its reader
    /// takes longer than a moment, as `| less` does. A reader may take its time, until the job's is up or a signal comes, but gets a
    /// moment in any case.
    pub(super) fn finish_output(&mut self) {
        let message = |job: &Self| job.verdict.as_ref().and_then(Verdict::message);
        let moment = Instant::now() + LAST_WORDS;
        let until = if message(self).is_some() { Some(moment) } else { self.patience() };
        self.drain(until);
        if let Some(message) = message(self) {
            self.tell(message);
            self.drain(self.patience());
        }
    }

    /// How long readers are waited for from now on.
    fn patience(&self) -> Option<Instant> {
        let moment = Instant::now() + LAST_WORDS;
        if self.signalled.is_some() || self.is_one_left {
            Some(moment)
        } else {
            self.out_of_time.map(|end| end.max(moment))
        }
    }

    /// Waits until all streams are at their end, it is `until`, or a signal comes.
    fn drain(&mut self, until: Option<Instant>) {
        while self.streams > 0 {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                let verdict = self.signalled.map_or(self.timed_out(), |signal| Verdict::Interrupted { signal });
                self.verdict.get_or_insert(verdict);
                return;
            }
            match self.events.recv_timeout(until.map_or(FOREVER, |until| until - now)) {
                Ok(Event::Signal(signal)) if [SIGINT, SIGTERM, SIGHUP].contains(&signal) => {
                    self.signalled = Some(signal);
                    self.verdict.get_or_insert(Verdict::Interrupted { signal });
                    return;
                }
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the job has a sender itself"),
            }
        }
    }
}

/// What ranks wrote before they ended is in pipes of 64 KiB each: time enough for whoever reads at all.
const LAST_WORDS: Duration = Duration::from_secs(1);
