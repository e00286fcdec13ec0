//! The loop that moves time on, of tests whose endpoints are on one simulated fabric.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Fabric, LineModel, LinkModel};
use sidelane_nic::time::{Duration, Instant};

/// 10 Gbit/s, 5 us each way.
pub fn good_link() -> LinkModel {
    LinkModel {
        line: LineModel { rate_bits_per_s: Some(10_000_000_000), queue_limit_bytes: None },
        delay: Duration::from_micros(5),
        mtu: None,
        faults: Faults::NONE,
    }
}

/// Some endpoints on one fabric.
pub trait VirtualTime: Sized {
    fn fabric(&self) -> &Fabric;

    /// Lets each do what it can now; whether one did.
    fn turn(&mut self) -> bool;

    /// When the next timer is due of those that take turns.
    fn next_timeout(&self) -> Option<Instant>;

    /// Comes after the last turn at one point in time.
    fn at_rest(&mut self) {}

    fn now(&self) -> Instant {
        self.fabric().now()
    }

    /// Moves on until `done` says so, at most for `span`; whether it did.
    fn run(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now() + span;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if self.now() >= until {
                return false;
            }
            self.advance(until);
        }
    }

    /// Moves on to when something is due next. Compiled once, not for each `done`.
    fn advance(&mut self, until: Instant) {
        let next = self.next_timeout().into_iter().chain(self.fabric().next_arrival()).min().unwrap_or(until);
        self.fabric().advance_to(next.max(self.now()).min(until));
    }

    /// Lets `span` pass.
    fn pass(&mut self, span: Duration) {
        self.run(span, |_| false);
    }

    /// Lets everybody do what can be done now.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let busy = self.turn();
            if !busy && self.next_timeout().is_none_or(|due| due > self.now()) {
                return self.at_rest();
            }
        }
        panic!("the endpoints never come to rest at one point in time");
    }
}

/// Many times what tests need at one point in time.
const TURNS_MAX: usize = 100_000;
