//! One suite for all drivers: what every [`Nic`] promises, as cases that are run against a real one.
//!
//! A driver says in a [`Setup`] how its endpoints are opened; [`run`] does the rest. A case that needs what the setup or
//! the driver does not have is skipped, with the reason in the [`Report`]. On a driver that may lose frames a case that
//! missed some is tried again, so that a kernel short of memory fails no test; wrong, foreign or swapped frames fail at
//! once. Where not even one frame arrives all further cases are skipped, since each would wait for seconds.
//!
//! ```
//! use sidelane_nic::conformance::{self, Setup};
//! use sidelane_nic::mem::{Config, Fabric, MemNic};
//!
//! struct Simulated;
//!
//! impl Setup for Simulated {
//!     type Nic = MemNic;
//!     fn open(&mut self, count: usize) -> Result<Vec<MemNic>, String> {
//!         let fabric = Fabric::new(1);
//!         Ok((0..count).map(|_| fabric.nic(Config::default())).collect())
//!     }
//! }
//!
//! conformance::run(&mut Simulated).assert_passed();
//! ```

mod delivery;
mod erased;
mod peers;
mod rings;
mod threads;
mod traffic;
mod waiting;

use std::fmt;

use erased::{Driver, Erased, Stage};

use crate::{LinkAddr, Nic};

/// How the endpoints of one driver are opened.
pub trait Setup {
    /// The driver.
    type Nic: Nic + 'static;

    /// Opens `count` endpoints that can reach one another, with nothing on its way to any of them.
    /// `Err` says why that cannot be done here; the case is then skipped.
    fn open(&mut self, count: usize) -> Result<Vec<Self::Nic>, String>;

    /// An address of the right kind at which nobody is.
    fn absent(&mut self) -> Option<LinkAddr> {
        None
    }

    /// True where frames overtake one another on their way between the endpoints, which no driver can help.
    fn may_overtake(&self) -> bool {
        false
    }

    /// Told of each case when it has ended.
    fn ended(&mut self, case: &Ended) {
        let _ = case;
    }

    /// Sends `bytes` past the driver, straight at the endpoint at `victim`, as a hostile neighbour would. False: there is no
    /// such way.
    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        let _ = (victim, bytes);
        false
    }
}

/// What came of each case, in the order of the suite.
#[derive(Debug, Default)]
pub struct Report {
    /// All of them.
    pub cases: Vec<Ended>,
    /// Not one frame came.
    deaf: bool,
}

/// A case that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What the driver promises.
    pub name: &'static str,
    /// Whether it does so.
    pub outcome: Outcome,
    /// What was missing at each try before the last.
    pub missed: Vec<String>,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The driver keeps the promise.
    Passed,
    /// The case cannot be run here.
    Skipped(String),
    /// The driver breaks the promise.
    Failed(String),
}

impl Outcome {
    /// True of a promise that is broken.
    pub fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Why a case stopped early.
#[derive(Debug)]
enum Stop {
    Skipped(String),
    Failed(String),
    /// Frames did not come. No proof of a fault on a driver that may lose them.
    Missing(String),
}

type Verdict = Result<(), Stop>;

/// A promise, and what tries it.
type Case<D> = (&'static str, fn(&mut dyn Stage<D>) -> Verdict);

const CASES: [Case<dyn Driver>; 23] = [
    ("caps make sense", peers::caps_make_sense),
    ("the same address gives the same link", peers::same_address_same_link),
    ("an address of another kind is refused", peers::foreign_address_is_refused),
    (ARRIVES, delivery::frame_arrives),
    ("every size arrives unaltered", delivery::every_size_arrives),
    ("frames that end elsewhere arrive in their turn", delivery::tails_arrive_in_turn),
    ("a frame larger than the MTU finds no slot", delivery::larger_than_mtu_finds_no_slot),
    ("frames arrive in order and once", delivery::in_order_and_once),
    ("the sender's address can be answered", delivery::sender_can_be_answered),
    ("frames go to their endpoint only", delivery::endpoints_are_separated),
    ("a silent wire shows nothing", delivery::silence_shows_nothing),
    ("counters count", delivery::counters_count),
    ("a dropped slot sends nothing", rings::dropped_slot_sends_nothing),
    ("a burst arrives with one flush", rings::burst_arrives_with_one_flush),
    ("the budget is kept", rings::budget_is_kept),
    ("a full ring recovers", rings::full_ring_recovers),
    ("a wait ends at its deadline", waiting::wait_ends_at_deadline),
    ("a wait flushes and finds the frame that is there", waiting::wait_finds_what_is_there),
    ("a wake-up ends the next wait", waiting::wake_up_ends_the_next_wait),
    ("a peer that is not there is no error", peers::absent_peer_is_no_error),
    ("a peer that goes is no error", peers::gone_peer_is_no_error),
    ("a link can be forgotten and made again", peers::link_can_be_made_again),
    ("garbage harms nobody", peers::garbage_harms_nobody),
];

const CASES_OF_THREADS: [Case<dyn Driver + Send>; 4] = [
    ("a frame wakes a waiting thread", threads::frame_wakes_waiter),
    ("a thread wakes another that waits", threads::waker_wakes_waiter),
    ("a driver moves between threads", threads::driver_moves_between_threads),
    ("floods between threads arrive intact", threads::floods_arrive_intact),
];

/// Without this one the others would only wait, each for seconds.
const ARRIVES: &str = "a frame arrives";

/// Runs every case that one thread can run.
pub fn run<S: Setup>(setup: &mut S) -> Report {
    run_all(&mut Erased { setup, erase: |nic| Box::new(nic) as Box<dyn Driver> })
}

/// Runs the cases in which two threads have an endpoint each.
pub fn run_threads<S: Setup<Nic: Send>>(setup: &mut S) -> Report {
    run_all_of_threads(&mut Erased { setup, erase: |nic| Box::new(nic) as Box<dyn Driver + Send> })
}

// Neither is generic, so that no crate but this one compiles the cases.

fn run_all(stage: &mut dyn Stage<dyn Driver>) -> Report {
    run_cases(stage, &CASES)
}

fn run_all_of_threads(stage: &mut dyn Stage<dyn Driver + Send>) -> Report {
    run_cases(stage, &CASES_OF_THREADS)
}

fn run_cases<D: ?Sized>(stage: &mut dyn Stage<D>, cases: &[Case<D>]) -> Report {
    let mut report = Report::default();
    for &(name, case) in cases {
        let mut missed = Vec::new();
        let outcome = loop {
            if !report.frames_arrive() {
                break Outcome::Skipped("no frame arrives".to_owned());
            }
            break match case(stage) {
                Ok(()) => Outcome::Passed,
                Err(Stop::Skipped(reason)) => Outcome::Skipped(reason),
                Err(Stop::Missing(what)) if !stage.is_reliable() && missed.len() + 1 < ATTEMPTS_MAX => {
                    missed.push(what);
                    continue;
                }
                Err(Stop::Failed(reason)) => Outcome::Failed(reason),
                Err(Stop::Missing(reason)) => {
                    report.deaf |= name == ARRIVES;
                    Outcome::Failed(reason)
                }
            };
        };
        let ended = Ended { name, outcome, missed };
        stage.ended(&ended);
        report.cases.push(ended);
    }
    report
}

/// Tries that a case with missing frames has on a driver that may lose them.
const ATTEMPTS_MAX: usize = 5;

impl Report {
    /// False: not even one did, so nothing behind that was tried.
    pub fn frames_arrive(&self) -> bool {
        !self.deaf
    }

    /// Prints the report, and panics unless every case passed or was skipped.
    pub fn assert_passed(&self) {
        println!("{self}");
        let failed = self.cases.iter().filter(|case| case.outcome.has_failed()).count();
        assert_eq!(failed, 0, "the driver breaks its contract:\n{self}");
    }

    /// As [`Self::assert_passed`], and panics if a case was skipped: a driver that cannot be opened a second time would pass, too.
    pub fn assert_all_passed(&self) {
        self.assert_passed();
        let is_skipped = |case: &&Ended| matches!(case.outcome, Outcome::Skipped(_));
        let skipped: Vec<_> = self.cases.iter().filter(is_skipped).map(Ended::to_string).collect();
        assert!(skipped.is_empty(), "not tried:\n{}", skipped.join("\n"));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cases.iter().try_for_each(|case| writeln!(f, "{case}"))
    }
}

/// A line, and one for each try before the last.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Passed => write!(f, "passed   {}", self.name)?,
            Outcome::Skipped(reason) => write!(f, "skipped  {}: {reason}", self.name)?,
            Outcome::Failed(reason) => write!(f, "FAILED   {}: {reason}", self.name)?,
        }
        for (number, what) in (1..).zip(&self.missed) {
            write!(f, "\n         try {number}: {what}")?;
        }
        Ok(())
    }
}
