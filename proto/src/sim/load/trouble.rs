//! Nodes that stand still, whose clocks leap, or that come late: how soon all flows again, and that nothing is lost of it.

use std::fmt::Write as _;

use sidelane_nic::time::{Duration, Instant};

use super::host::{Host, Ours};
use super::{Load, Run, Shape};

/// What happens to nodes that are under load.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// These take no turns for so long, and then go on: a stopped process, a machine that sleeps.
    Still(Who, Duration),
    /// The clock of these leaps by so many nanoseconds.
    Leap(Who, i64),
    /// The second half of the senders begins only now.
    Late,
}

/// Whom it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Of all senders.
    Receiver,
    /// The first.
    Sender,
    /// All at once.
    Everybody,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Time from its end until a message of every sender had come a round trip later at the soonest: one that was sent since.
    pub again: Duration,
    /// Connections that ended, counted at each side.
    pub gone: u64,
    /// From its end on, for [`Load::span`], not from when all were back: as in [`super::Measured`].
    pub goodput: f64,
    /// As in [`super::Measured`].
    pub fairness: f64,
}

impl Load {
    /// Plays it with a trouble at a fifth of the time, goes on for the whole of it, and then looks whether everything came that was
    /// sent on connections that lived.
    ///
    /// # Panics
    /// When something is missing, or not there in time.
    pub fn suffer(&self, trouble: Trouble) -> Recovery {
        let mut run = Run::<Ours>::new(self, |nic, seed| Ours::new(nic, seed, true));
        if matches!(trouble, Trouble::Late) {
            run.pairs.truncate(run.pairs.len() / 2);
        }
        run.start_all();
        let begin = Instant::ZERO + Duration::from_nanos(self.span.as_nanos() / 5);
        run.step_until(begin, false);
        run.strike(trouble);
        let from = run.fabric.now();
        run.counts_from = from + self.delay + self.delay;
        run.step_until(from + self.span, true);
        let recovery = run.recovery(from);
        run.drain();
        recovery
    }
}

impl Run<'_, Ours> {
    fn strike(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Still(Who::Everybody, span) => self.fabric.advance_to(self.fabric.now() + span),
            Trouble::Still(who, span) => {
                self.still = Some(who.nodes(self.hosts.len()).start);
                self.step_until(self.fabric.now() + span, false);
                self.still = None;
            }
            Trouble::Leap(who, nanos) => {
                let nodes = who.nodes(self.hosts.len());
                self.hosts[nodes].iter_mut().for_each(|host| host.leap(nanos));
            }
            Trouble::Late => {
                for (from, to) in self.load.pairs().split_off(self.pairs.len()) {
                    self.hosts[from as usize].dial(from, to, self.load.message);
                    self.pairs.push((from, to));
                }
            }
        }
    }

    fn recovery(&mut self, from: Instant) -> Recovery {
        let nodes = self.load.nodes() as usize;
        let first = self.pairs.iter().map(|&(from, to)| self.first[to as usize * nodes + from as usize]);
        let again = first.max().expect("there are senders");
        assert!(again != Instant::FAR_FUTURE, "a sender has not come back in {:?}", self.load.span);
        let gone = self.hosts.iter().map(|host| host.gone).sum();
        let measured = self.measured();
        Recovery { again: again.since(from), gone, goodput: measured.goodput, fairness: measured.fairness }
    }

    /// Nothing more is sent; what was is delivered.
    pub(super) fn drain(&mut self) {
        let limit = self.fabric.now() + DRAIN_MAX;
        self.hosts.iter_mut().for_each(Ours::stop);
        while !self.hosts.iter_mut().all(Ours::is_settled) {
            assert!(self.fabric.now() < limit, "not everything is delivered {DRAIN_MAX:?} later");
            self.step(limit, false);
        }
        // What has arrived is taken.
        self.step(limit, false);
        for &(from, to) in &self.pairs {
            let (sent, got) = (self.hosts[from as usize].sent_to(to), self.hosts[to as usize].got_from(from));
            // Of one that was dialled so late that nothing was sent any more there is nothing to say.
            assert!(sent == 0 || sent == got, "{got} of {sent} messages of {from} to {to} came");
        }
    }
}

impl Who {
    fn nodes(self, count: usize) -> std::ops::Range<usize> {
        match self {
            Self::Receiver => 0..1,
            Self::Sender => 1..2,
            Self::Everybody => 0..count,
        }
    }
}

/// All of them, as text. The same each time.
pub(super) fn table(base: &Load, part: &str) -> String {
    let load = |senders, rate| Load { shape: Shape::ManyToOne(senders), rate, first_rate: rate, ..*base };
    // Where others go on sending meanwhile: less of it.
    let (fast, slow) = (load(4, base.rate), load(4, base.rate / 10));
    // A Hello is said again every 64 ms by then.
    let long = Load { span: Duration::from_millis(100), ..slow };
    let still = |who, millis| Trouble::Still(who, Duration::from_millis(millis));
    let leap = |who, millis: i64| Trouble::Leap(who, millis * 1_000_000);
    let troubles = [
        ("4 to 1, receiver still for 100 ms", fast, still(Who::Receiver, 100)),
        ("4 to 1, receiver still for 500 ms", fast, still(Who::Receiver, 500)),
        ("4 to 1, receiver still for 5 s", long, still(Who::Receiver, 5_000)),
        ("128 to 1, receiver still for 500 ms", load(128, base.rate), still(Who::Receiver, 500)),
        ("4 to 1, a sender still for 100 ms", slow, still(Who::Sender, 100)),
        ("4 to 1, a sender still for 1 s", slow, still(Who::Sender, 1_000)),
        ("4 to 1, all still for 5 s", fast, still(Who::Everybody, 5_000)),
        ("4 to 1, receiver's clock +5 s", fast, leap(Who::Receiver, 5_000)),
        ("4 to 1, a sender's clock +5 s", fast, leap(Who::Sender, 5_000)),
        ("4 to 1, a sender's clock -100 ms", fast, leap(Who::Sender, -100)),
        ("16 to 1, 8 of them late", load(16, base.rate), Trouble::Late),
    ];
    let mut table = String::new();
    for (name, load, trouble) in troubles.into_iter().filter(|(name, ..)| name.contains(part)) {
        let Recovery { again, gone, goodput, fairness } = load.suffer(trouble);
        let _ = writeln!(
            table,
            "{name:<38}{:>9.3} ms{gone:>7}{:>9.1} %{fairness:>8.3}",
            again.as_nanos() as f64 / 1e6,
            100.0 * goodput
        );
    }
    table
}

/// What fills all FIFOs of all senders takes half a second at 1 Gbit/s.
const DRAIN_MAX: Duration = Duration::from_millis(2_000);
