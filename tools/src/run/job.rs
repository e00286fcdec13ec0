//! The loop that ties a job's parts: what the ranks say, how they end, what the user wants.

mod finish;
mod start;

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use sidelane::lab::process::Known;
use sidelane_mpi::launch::{Server, ServerEvent};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use super::blame::{Blame, Failed};
use super::descriptors::Inherited;
use super::guard::Guard;
use super::output::Sink;
use super::rank::{self, Rank};
use super::sources::{self, Event};
use super::stop;
use super::verdict::{End, Verdict};
use super::{Failure, JobSpec};

/// A job that runs.
pub struct Job {
    spec: JobSpec,
    /// How many descriptors each rank may have.
    descriptors: Inherited,
    ranks: Vec<Member>,
    server: Server,
    guard: Guard,
    /// What is not the ranks': the guard, and what a shell that became this command has started, however far below us. It becomes
    /// our child when its parent ends.
    others: Known,
    stop: stop::Wanted,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    errors: Arc<Sink>,
    /// Streams that have not come to their end.
    streams: usize,
    /// A rank may not be killed, and goes on.
    is_one_left: bool,
    /// When its time is up, if it has a limit.
    out_of_time: Option<Instant>,
    ending: Ending,
    /// The signal by which the user has wanted the end: who does not read the output is not waited for then.
    signalled: Option<i32>,
    verdict: Option<Verdict>,
    /// The first failure that the others went on after.
    survived: Option<Verdict>,
    /// Who ended as it should not: another may have ended before, and be the reason.
    blame: Option<Blame>,
}

/// A rank, and what is known of it.
struct Member {
    rank: Rank,
    host: String,
    /// When it had closed its connection: nothing that it said is still to be heard.
    heard_out: Option<Instant>,
    /// The guard ends its group.
    guarded: bool,
    state: State,
}

/// How far a rank's process is.
///
/// ```text
/// Running --reaped--> Ended --heard out, or time is up--> Judged
/// ```
#[derive(Debug, Clone, Copy)]
enum State {
    Running,
    Ended {
        status: ExitStatus,
        since: Instant,
    },
    /// And how it failed, if it did.
    Judged(Option<End>),
}

/// How far the ranks' end was brought about.
///
/// ```text
/// No --first signal--> Interrupted --second signal--> Killed
///                      Interrupted --time is up, others wait for who has ended, ...-> Asked
/// No --a rank failed, time is up, ...----------------> Asked --grace is over, or a signal--> Killed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// The user's signal was handed on, and ranks do with it what they like, as long as they like.
    Interrupted(i32),
    /// They were asked to end.
    Asked(Instant),
    Killed,
}

impl Job {
    /// Runs until nothing of the job is left; returns how it ends, as [`code_of`](crate::interrupt::code_of) has it.
    pub fn run(mut self) -> Result<i32, Failure> {
        let mut looked = Instant::now();
        while self.blame.is_some() || self.ranks.iter().any(|member| !matches!(member.state, State::Judged(_))) {
            match self.events.recv_timeout(self.next_deadline(looked)) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the job has a sender itself"),
            }
            let now = Instant::now();
            looked = now;
            self.ranks.iter_mut().for_each(|member| member.rank.pmi.go_on());
            self.judge(now);
            self.end_if_one_cannot_be_heard(now);
            self.end_if_time_is_up(now);
            if matches!(self.ending, Ending::Asked(since) if now >= since + GRACE) {
                self.kill();
            }
        }
        self.end_leftovers();
        self.finish_output();
        self.guard.dismiss();
        Ok(self.verdict.or(self.survived).map_or(0, |verdict| verdict.exit_code()))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Line { rank, line } => {
                self.server.handle_line(rank, &line);
                self.answer();
            }
            Event::Closed { rank } => self.ranks[rank].heard_out = Some(Instant::now()),
            Event::Unwritten(error) if error.kind() == io::ErrorKind::BrokenPipe => self.end_for(Verdict::Unread),
            Event::Unwritten(error) => self.end_for(Verdict::Unwritten(error.to_string())),
            Event::Drained => self.streams -= 1,
            Event::Signal(signal) => self.handle_signal(signal),
        }
    }

    fn handle_signal(&mut self, signal: i32) {
        match signal {
            SIGCHLD => {
                while let Some((pid, status)) = rank::reap() {
                    // Others are what ranks have left behind.
                    let mut running = self.ranks.iter_mut().filter(|member| matches!(member.state, State::Running));
                    if let Some(member) = running.find(|member| member.rank.pid == pid) {
                        member.state = State::Ended { status, since: Instant::now() };
                    }
                }
                self.release_groups();
            }
            SIGTSTP if !self.stop.is_set() => {}
            SIGTSTP => {
                self.signal_all(libc::SIGSTOP);
                stop::as_by_default(&self.stop);
                // Also when it was not done. Who lets us go on does not reach the ranks' groups, so they are told once.
                self.signal_all(SIGCONT);
            }
            // What the ranks are to do at these only they know.
            SIGUSR1 | SIGUSR2 => {
                self.signal_all(signal);
            }
            _ => self.interrupt(signal),
        }
    }

    fn interrupt(&mut self, signal: i32) {
        self.signalled = Some(signal);
        match self.ending {
            Ending::No => {
                self.ending = Ending::Interrupted(signal);
                self.signal_all(signal);
                // Somebody may have stopped one.
                self.signal_all(SIGCONT);
            }
            Ending::Interrupted(_) | Ending::Asked(_) | Ending::Killed => {
                self.verdict.get_or_insert(Verdict::Interrupted { signal });
                self.kill();
            }
        }
    }

    /// Groups whose last member was just reaped: from now on their numbers may be others'.
    fn release_groups(&mut self) {
        let ended = self.ranks.iter_mut().filter(|member| !matches!(member.state, State::Running));
        for member in ended.filter(|member| member.guarded && !member.rank.has_group()) {
            member.guarded = false;
            self.guard.forget(member.rank.pid);
        }
    }

    /// Sends what the server answers, and does what it asks for.
    fn answer(&mut self) {
        while let Some((rank, line)) = self.server.poll_reply() {
            let Member { rank: to, host, .. } = &mut self.ranks[rank];
            if to.pmi.say(line.as_bytes()).is_err() {
                let (host, what) = (host.clone(), "it does not read what it is told".to_owned());
                self.end_for(Verdict::Violated { rank, host, what });
            }
        }
        while let Some(event) = self.server.poll_event() {
            let host = |rank: usize| self.ranks[rank].host.clone();
            let verdict = match event {
                ServerEvent::Abort { rank, code, why } => Verdict::Aborted { rank, host: host(rank), code, why },
                ServerEvent::Violation { rank, what } => {
                    Verdict::Violated { rank, host: host(rank), what: what.to_string() }
                }
            };
            self.end_for(verdict);
        }
    }

    /// Decides what the ends of ranks mean, once all that they have said was heard.
    fn judge(&mut self, now: Instant) {
        let mut failed = Vec::new();
        for rank in 0..self.ranks.len() {
            let member = &mut self.ranks[rank];
            let State::Ended { status, since } = member.state else { continue };
            if member.heard_out.is_none() && now < since + HEARING {
                continue;
            }
            let failure = End::of(status, self.server.is_counted_on(rank));
            member.state = State::Judged(failure);
            let Some(how) = failure else { continue };
            // Whoever waits for it in MPI_Init cannot go on.
            if self.spec.keep_going && self.ending == Ending::No && !self.server.is_waited_for(rank) {
                self.go_on_without(rank, how);
            } else {
                failed.push(Failed { rank, how, seen: since });
            }
        }
        if self.verdict.is_some() {
            // Who ends from now on has followed.
            self.blame = None;
            self.end_if_one_is_missed();
            return;
        }
        if failed.is_empty() {
            failed.extend(self.missed().map(|(how, rank)| Failed { rank, how, seen: now }));
        }
        for failed in failed {
            match &mut self.blame {
                Some(blame) => blame.add(failed),
                None => self.blame = Some(Blame::new(now, failed)),
            }
        }
        let Some(blame) = self.blame.take_if(|blame| now >= blame.due()) else { return };
        match self.ending {
            // What the user's signal has ended has not failed, and others may still be at what they do because of it.
            Ending::Interrupted(signal) => {
                self.verdict = Some(Verdict::Interrupted { signal });
                self.end_if_one_is_missed();
            }
            _ => {
                let first = blame.first();
                self.end_for(self.failure(first.rank, first.how, blame.others()));
            }
        }
    }

    /// After a user's signal to clean up may take its time, but nobody comes any more whom the others wait for in MPI_Init.
    fn end_if_one_is_missed(&mut self) {
        if let (Ending::Interrupted(signal), Some(_)) = (self.ending, self.missed()) {
            self.end_for(Verdict::Interrupted { signal });
        }
    }

    /// A rank that goes on without its connection never says what others count on. With `--keep-going` they may still hear of its
    /// end, unless they wait for it already.
    fn end_if_one_cannot_be_heard(&mut self, now: Instant) {
        let is_needed = |rank| {
            let counts = !self.spec.keep_going && self.server.is_counted_on(rank);
            counts || self.server.is_waited_for(rank) && !self.server.is_done(rank)
        };
        let is_silent = |member: &Member| {
            matches!(member.state, State::Running) && member.heard_out.is_some_and(|since| now >= since + LEAVING)
        };
        let silent = self.ranks.iter().enumerate().find(|(rank, member)| is_silent(member) && is_needed(*rank));
        if let (Ending::No, Some((rank, member))) = (self.ending, silent) {
            let what = "it closed its connection before MPI_Finalize".to_owned();
            self.end_for(Verdict::Violated { rank, host: member.host.clone(), what });
        }
    }

    fn end_if_time_is_up(&mut self, now: Instant) {
        if !self.is_ending() && self.out_of_time.is_some_and(|end| now >= end) {
            self.end_for(self.timed_out());
        }
    }

    /// Whom others wait for in vain, and how it ended: badly, or well, but had better not. It can be so at any time after.
    fn missed(&self) -> Option<(End, usize)> {
        let well = |rank| if self.server.is_done(rank) { End::Absent } else { End::Early };
        let ended = self.ranks.iter().enumerate().filter_map(|(rank, member)| match member.state {
            State::Judged(failure) if self.server.is_waited_for(rank) => Some((failure.unwrap_or(well(rank)), rank)),
            _ => None,
        });
        ended.min_by_key(|(how, rank)| (how.order(), *rank))
    }

    /// Says that a rank has failed, and lets the others do with that what they can.
    fn go_on_without(&mut self, rank: usize, how: End) {
        let failure = self.failure(rank, how, Vec::new());
        let words = failure.words().unwrap_or_default();
        self.tell(format!("sidelane run: {words}; the others go on\n"));
        self.survived.get_or_insert(failure);
        self.server.handle_gone(rank);
        self.answer();
    }

    fn failure(&self, rank: usize, how: End, others: Vec<usize>) -> Verdict {
        Verdict::RankFailed { rank, host: self.ranks[rank].host.clone(), how, others }
    }

    /// Ends the job. The first reason counts: the others follow from it.
    fn end_for(&mut self, verdict: Verdict) {
        self.verdict.get_or_insert(verdict);
        if !self.is_ending() {
            self.ending = Ending::Asked(Instant::now());
            self.signal_all(SIGTERM);
            self.signal_all(SIGCONT);
        }
    }

    /// The ranks were asked to end, or killed. A signal of the user's alone may mean something else to them.
    fn is_ending(&self) -> bool {
        matches!(self.ending, Ending::Asked(_) | Ending::Killed)
    }

    /// Kills the ranks that run. Who may not be killed is not waited for.
    fn kill(&mut self) {
        self.ending = Ending::Killed;
        for (rank, error) in self.signal_all(libc::SIGKILL) {
            let member = &mut self.ranks[rank];
            member.state = State::Judged(None);
            self.others.add(member.rank.pid);
            self.is_one_left = true;
            self.tell(format!("sidelane run: cannot end rank {rank}: {error}\n"));
        }
    }

    /// Signals the ranks that run; returns those that may not be signalled, and why.
    fn signal_all(&self, signal: i32) -> Vec<(usize, io::Error)> {
        let running = self.ranks.iter().enumerate().filter(|(_, member)| matches!(member.state, State::Running));
        running.filter_map(|(rank, member)| Some((rank, member.rank.signal(signal).err()?))).collect()
    }

    /// How long the loop may sleep, which has `looked` at all then.
    fn next_deadline(&self, looked: Instant) -> Duration {
        let now = Instant::now();
        let heard = self.ranks.iter().filter_map(|member| match member.state {
            State::Ended { since, .. } => Some(since + HEARING),
            _ => None,
        });
        let killing = match self.ending {
            Ending::Asked(since) => Some(since + GRACE),
            _ => None,
        };
        // Once only: nobody may need that rank.
        let leaving =
            self.ranks.iter().filter_map(|member| Some(member.heard_out? + LEAVING)).filter(|at| *at > looked);
        let blaming = self.blame.as_ref().map(Blame::due);
        let timeout = self.out_of_time.filter(|_| !self.is_ending());
        let may_read = |member: &Member| matches!(member.state, State::Running) && member.rank.pmi.are_kept();
        let reading = self.ranks.iter().any(may_read).then(|| now + READING);
        let next = heard.chain(killing).chain(leaving).chain(blaming).chain(timeout).chain(reading).min();
        next.map_or(FOREVER, |at| at.saturating_duration_since(now))
    }

    /// Says a line of our own among the ranks' errors, and does not wait until it is read: the loop has to hear signals.
    fn tell(&mut self, line: String) {
        // Without another thread nobody could be told of that either.
        if sources::say(self.sender.clone(), line, Arc::clone(&self.errors)).is_ok() {
            self.streams += 1;
        }
    }

    fn timed_out(&self) -> Verdict {
        Verdict::TimedOut { seconds: self.spec.timeout.unwrap_or_default().as_secs_f64() }
    }
}

/// A rank may exit right behind its last words to the launcher; those come by another way than the news of its end. Its
/// connection's end says that all was heard, unless what it has started still holds that.
const HEARING: Duration = Duration::from_millis(100);

/// A rank that fails may close its connection some time before it ends (it cleans up, or the kernel does, of what is dear to release),
/// and its end says more of why.
const LEAVING: Duration = Duration::from_secs(3);

/// How soon it is looked again whether a rank has read something of what it was told, and there is room for the rest.
const READING: Duration = Duration::from_millis(10);

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(1);

/// Nothing is due; the loop looks again anyway.
const FOREVER: Duration = Duration::from_secs(3600);
