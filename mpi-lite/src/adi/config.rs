//! What a user may set, and what depends on the driver.

use serde::{Deserialize, Serialize};
use sidelane_nic::time::Duration;

/// Settings of a [`super::Device`]. All processes of a job have the same.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of the endpoint on each port.
    pub endpoint: sidelane_proto::Config,
    /// For peers on this host.
    pub on_host: Limits,
    /// For the peer at the other end of a pair of DPDK's (memif, vhost).
    pub paired: Limits,
    /// For all others.
    pub off_host: Limits,
    /// Bytes that a peer may send before a receive takes them.
    pub credit: usize,
    /// Long messages between processes of one host are read from the sender's memory, where the system allows it.
    pub single_copy: bool,
    /// Turns without news before a waiting process lets others run, and before it sleeps.
    pub patience: Patience,
    /// The same on a host with more processes of the job than cores.
    pub patience_crowded: Patience,
}

/// From which size on a message goes another way, in bytes. `examples/curve.rs` measures all ways at all sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Longest message that is sent without asking.
    pub eager_max: usize,
    /// Bytes of a longer one that go along with its announcement.
    pub prefix: usize,
    /// Least that is put into the receiver's memory; less is sent as messages. [`Limits::NEVER`]: all is.
    #[serde(default = "never", skip_serializing_if = "is_never")]
    pub put_min: usize,
    /// Least that is read from the sender's memory, where that can be done. [`Limits::NEVER`]: nothing is.
    #[serde(default = "never", skip_serializing_if = "is_never")]
    pub pull_min: usize,
}

impl Limits {
    /// No message is so long.
    pub const NEVER: usize = usize::MAX;
    /// On `shm`: eager in two parts at most, then read from the sender's memory, which writes some of it itself (half round trips of 65 KiB,
    /// 256 KiB, 1 and 4 MiB on far cores 5.8, 16, 80 and 279 us; put 7.5, 17, 87 and 376; bench/NOTES.md 83). Where that cannot be it is put,
    /// by which both processors copy at once too, at the cost of asking (66). A prefix gains nothing there.
    pub const SHARED_MEMORY: Self = Self { eager_max: 64 << 10, prefix: 0, put_min: 28 << 10, pull_min: 64 << 10 };
    /// On memif and vhost with frames of 9 KB: in parts, up to where a put is as quick (half round trips of 129, 256 and 384 KiB on memif 14.6,
    /// 27 and 43 us; put 16.4, 34 and 43; bench/NOTES.md 84).
    pub const PAIR: Self = Self { eager_max: 384 << 10, ..Self::NETWORK };
    /// On `uring` over a veth (at 32, 48 and 60 KiB: eager 7.9, 10.6 and 12.4 us; put 8.6, 10.4 and 11.9, and with a prefix of 4 KiB
    /// 9.5, 11.7 and 13.3). A prefix is copied three times, and a put not once more than it must be (bench/NOTES.md 81).
    pub const NETWORK: Self = Self { eager_max: 60 << 10, prefix: 0, put_min: 16 << 10, pull_min: Self::NEVER };
}

/// As serde wants it.
const fn never() -> usize {
    Limits::NEVER
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
const fn is_never(least: &usize) -> bool {
    *least == Limits::NEVER
}

/// How long a process that waits keeps its core.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Turns before it lets others run, of drivers that look into memory: fewer where a turn takes a system call.
    pub spin: u32,
    /// Turns, letting others run after each, before it sleeps.
    pub yields: u32,
}

impl Patience {
    /// Turns before it sleeps.
    #[inline]
    pub(crate) const fn turns(self) -> u32 {
        self.spin.saturating_add(self.yields)
    }
}

impl Config {
    /// Settings by which a process on another host counts as gone when nothing was heard of it for `silence`. Only for processes
    /// that are polled also while they compute (`comm`'s pulse).
    pub fn noticing_silence(self, silence: Duration) -> Self {
        let endpoint = sidelane_proto::Config {
            // Four of them (`proto`'s `Config::keep_alive`).
            keep_alive: Duration::from_nanos(silence.as_nanos() / 4),
            // Whoever is connected to may just be starting, or be far behind.
            connect_timeout: silence.saturating_mul(5),
            ..self.endpoint
        };
        Self { endpoint, ..self }
    }

    /// Of a port to other processes of this host only. They answer when they call, and may compute before.
    pub(crate) fn on_this_host(self) -> Self {
        let connect_timeout = self.endpoint.connect_timeout.max(COMPUTES_MAX);
        Self { endpoint: sidelane_proto::Config { connect_timeout, ..self.endpoint }, ..self }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: endpoint(),
            on_host: Limits::SHARED_MEMORY,
            paired: Limits::PAIR,
            off_host: Limits::NETWORK,
            // In units of 32 B more than FIFOs hold of the shortest messages, 20 B each on the way: who receives more slowly than it is sent
            // to fills those first. Without credit each message is announced, which made a flood of 8 B half as quick (bench/NOTES.md 70).
            credit: 640 << 10,
            single_copy: true,
            // 0.3 ms. Half of it is longer than a MiB is copied: see `comm/collective/queue.rs`.
            patience: Patience { spin: 4_000, yields: 100 },
            // 16 processes on 2 cores, a barrier (`examples/crowd.rs`): 78 us with 200 yields, with 20 turns spun 85, with 200 263, with
            // 2,000 1,766; 182 without a yield. With 1,000 yields it takes no longer than with 200, and begun calls of 8 ranks a tenth less.
            patience_crowded: Patience { spin: 0, yields: 1_000 },
        }
    }
}

/// A process that nobody has heard of for so long is gone, if nothing else tells: one that computes is silent too.
const COMPUTES_MAX: Duration = Duration::from_millis(600_000);

/// FIFOs are taken from the system page by page as they fill, and start over at their beginning when they run empty, so
/// 64 processes on one host that all talk to each other cost what really waits.
fn endpoint() -> sidelane_proto::Config {
    sidelane_proto::Config {
        send_fifo: 128 << 10,
        recv_fifo: 256 << 10,
        // A process that computes does not poll, and is not dead for it: launchers notice the death of a process sooner.
        keep_alive: Duration::from_nanos(COMPUTES_MAX.as_nanos() / 4),
        connect_timeout: COMPUTES_MAX,
        ..sidelane_proto::Config::default()
    }
}
