//! A receiver whose processor others take now and then, for as long as chance will have it, while many send to it.

use sidelane_nic::rng::Rng;
use sidelane_nic::time::{Duration, Instant};

use super::clocked::Clocked;
use super::host::Ours;
use super::{Load, Run};

/// How it receives.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// What its frames cost it, one by one; zero: it takes all that wait in no time.
    pub per_frame: Duration,
    /// Between how long and how long it runs each time.
    pub runs: [Duration; 2],
    /// And does not.
    pub rests: [Duration; 2],
    /// Senders hear that it was away.
    pub is_heard: bool,
    /// Decides when it runs and when it does not.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Descheduled {
    /// Payload taken, as a share of what the receiver's line carries in the time in which it ran.
    pub goodput: f64,
    /// Frames that senders wrote again; all for nothing, where the network lost none.
    pub again: u64,
    /// Time-outs of theirs.
    pub timeouts: u64,
    /// Frames that the receiver had seen before.
    pub duplicates: u64,
    /// Frames that the network lost.
    pub lost: u64,
    /// Connections that ended, counted at each side.
    pub gone: u64,
}

impl Load {
    /// Plays it for [`Self::span`] with such a receiver, and then looks whether everything came that was sent.
    ///
    /// # Panics
    /// When something is missing, or not there in time.
    pub fn deschedule(&self, receiver: Receiver) -> Descheduled {
        let mut run = Run::<Ours>::new(self, move |nic, seed| {
            let mut nic = Clocked::new(nic);
            if receiver.per_frame > Duration::ZERO {
                nic = nic.one_by_one(receiver.per_frame);
            }
            Ours::on(if receiver.is_heard { nic } else { nic.deaf() }, seed, true)
        });
        run.start_all();
        let (mut rng, end) = (Rng::new(receiver.seed), Instant::ZERO + self.span);
        let mut ran = Duration::ZERO;
        while run.fabric.now() < end {
            let span = draw(&mut rng, receiver.runs);
            run.step_until(run.fabric.now() + span, true);
            ran = ran + span;
            run.still = Some(0);
            run.step_until(run.fabric.now() + draw(&mut rng, receiver.rests), true);
            run.still = None;
        }
        run.drain();
        let taken: u64 = run.taken.iter().sum();
        let of_senders =
            |count: fn(&crate::Counters) -> u64| run.hosts[1..].iter().map(|host| count(host.counters())).sum();
        let fabric = run.fabric.counters();
        Descheduled {
            goodput: 8.0 * taken as f64 / (self.rate as f64 * ran.as_nanos() as f64 / 1e9),
            again: of_senders(|counters| counters.retransmitted + counters.probes_sent),
            timeouts: of_senders(|counters| counters.timeouts),
            duplicates: run.hosts[0].counters().duplicates,
            lost: fabric.lost + fabric.overflowed,
            gone: run.hosts.iter().map(|host| host.gone).sum(),
        }
    }
}

/// A span between two.
fn draw(rng: &mut Rng, [least, most]: [Duration; 2]) -> Duration {
    least + Duration::from_nanos(rng.below(most.as_nanos() - least.as_nanos() + 1))
}
