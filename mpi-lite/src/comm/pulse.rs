//! A sign of life for a process that computes: a thread of its own, which takes the ports' turns while nobody is in a call.
//!
//! Peers on other hosts ask a silent process whether it lives, and it answers only when its ports are polled. The thread polls
//! them some times a second, unless a call does so anyway: then the lock is taken, and the thread goes away again. Messages are
//! not matched and calls not moved on by it, so it touches no memory of the program's but what was lent to the device; and calls
//! cost nothing more: it visits ([`crate::biased`]).

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::Communicator;
use super::local::Local;

impl Communicator {
    /// From now on this process tells others that it lives while it is in no call, as long as there is a communicator: silence
    /// then means death, and may be taken for it soon ([`crate::adi::Config::noticing_silence`]). For processes with peers on
    /// other hosts; without any nothing is begun.
    pub fn with_pulse(self) -> Self {
        let is_alone = self.local().lock().device.ports().iter().all(crate::adi::Port::is_on_host);
        if !is_alone {
            let local = Arc::downgrade(self.local());
            let begun = thread::Builder::new().name("sidelane-pulse".to_owned()).spawn(move || beat(&local));
            if let Err(error) = begun {
                tracing::warn!(%error, "no thread tells other hosts that this process lives while it computes");
            }
        }
        self
    }
}

fn beat(local: &Weak<Local>) {
    loop {
        thread::sleep(BEAT);
        let Some(local) = local.upgrade() else { return };
        local.beat();
    }
}

impl Local {
    fn beat(&self) {
        // Else somebody is in a call, which takes turns, but while it runs a user's operator.
        if let Some(mut state) = self.visit() {
            state.device.stay_alive();
        }
    }
}

/// Often enough that a question, which is asked after half a second of silence and then four times as often (`proto`'s
/// `Config::keep_alive`), has more than ten beats to be answered in.
const BEAT: Duration = Duration::from_millis(100);
