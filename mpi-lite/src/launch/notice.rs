//! What MPICH's launcher sends its ranks when one has ended and it goes on without that one (`mpiexec.hydra -disable-auto-cleanup`): SIGUSR1,
//! of which they would die as well.
#![allow(unsafe_code)] // sigaction(2).

use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Client;

/// Which ranks it means: the launcher tells those of all hosts that have ended, to who asks.
#[derive(Debug)]
pub struct Notice {
    client: Client,
    /// Ranks that the launcher has named.
    known: Vec<usize>,
    /// How many of them were told.
    told: usize,
}

impl Notice {
    /// `client` is this one's while its owner has no question.
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Vec::new(), told: 0 }
    }

    /// A rank that is gone, if there is news of one. Asks the launcher when the signal has come, which answers at once.
    pub fn poll(&mut self) -> Option<usize> {
        if HAS_COME.swap(false, Ordering::Relaxed) {
            // Whose launcher does not know, or has gone, hears of it otherwise.
            let named = self.client.get(DEAD).ok().flatten().unwrap_or_default();
            for rank in named.split(',').filter_map(|rank| rank.parse().ok()) {
                if !self.known.contains(&rank) {
                    self.known.push(rank);
                }
            }
        }
        let news = self.known.get(self.told).copied();
        self.told += usize::from(news.is_some());
        news
    }
}

/// Ranks by number, with commas, in the order in which they ended (MPICH's pmiserv_cb.c).
const DEAD: &str = "PMI_dead_processes";

/// The signal has come, and nobody has asked since.
static HAS_COME: AtomicBool = AtomicBool::new(false);

/// From now on the signal is only noted, unless the program has made something of it, or will.
pub fn outlive() {
    // SAFETY: all zeroes is a valid sigaction, both are valid places, and what is called stores to an atomic.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let is_known = libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut now) == 0;
        if !is_known || now.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        // Not ignored: that would go on in programs that this one becomes or starts.
        ours.sa_sigaction = note as extern "C" fn(i32) as libc::sighandler_t;
        ours.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const ours, std::ptr::null_mut());
    }
}

extern "C" fn note(_: i32) {
    HAS_COME.store(true, Ordering::Relaxed);
}
