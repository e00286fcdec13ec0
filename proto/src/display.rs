//! An endpoint's counters where other processes can read them.

use sidelane_nic::page::{Field, Page};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};

use crate::router::Router;
use crate::{Config, Counters, am};

/// A page of shared memory into which the counters are copied now and then, so that counting itself stays what it is:
/// an addition to the endpoint's own memory.
pub(crate) struct Display {
    page: Option<Page>,
    /// When the page is to be written next; never, where there is none.
    due: Instant,
    /// What is counted of Active Messages, where the endpoint speaks them.
    pub am: Option<am::Counters>,
    /// Kept for its memory.
    values: Vec<u64>,
}

impl Display {
    /// A page for the endpoint on `nic`, unless `config` wants none or the time is not that of other processes.
    pub fn new<N: Nic>(nic: &N, config: &Config, am: Option<am::Counters>) -> Self {
        Self::of(N::NAME, nic.caps().addr, nic.now(), config, am)
    }

    /// For all drivers: compiled once.
    fn of(driver: &str, addr: LinkAddr, now: Instant, config: &Config, am: Option<am::Counters>) -> Self {
        if !config.display || matches!(addr, LinkAddr::Mem { .. }) {
            return Self { page: None, due: Instant::FAR_FUTURE, am, values: Vec::new() };
        }
        let mut fields = vec![Field { name: "peers", counts: false }, Field { name: "turns", counts: true }];
        let counter = |name, _| fields.push(Field { name, counts: true });
        each(&Counters::default(), am.as_ref(), &sidelane_nic::Counters::default(), counter);
        let page = Page::new(&fields, &[("driver", driver), ("address", &addr.to_string())]);
        if let Err(error) = &page {
            tracing::debug!(%error, "no page for counters");
        }
        let due = if page.is_ok() { now } else { Instant::FAR_FUTURE };
        Self { page: page.ok(), due, am, values: Vec::with_capacity(fields.len()) }
    }

    /// True when [`Self::show`] is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Writes the page.
    #[cold]
    pub fn show(&mut self, now: Instant, nics: &sidelane_nic::Counters, router: &Router, turns: u64) {
        let Some(page) = &mut self.page else { return };
        self.values.clear();
        self.values.extend([router.peers.len() as u64, turns]);
        each(&router.turn.counters, self.am.as_ref(), nics, |_, value| self.values.push(value));
        page.publish(&self.values);
        self.due = now + PERIOD;
    }
}

fn each(
    ours: &Counters,
    am: Option<&am::Counters>,
    nics: &sidelane_nic::Counters,
    mut show: impl FnMut(&'static str, u64),
) {
    ours.each(&mut show);
    if let Some(am) = am {
        am.each(&mut show);
    }
    nics.each(&mut show);
}

/// Far shorter than anybody looks, and so long that the driver may ask its system for counts each time.
const PERIOD: Duration = Duration::from_millis(10);
