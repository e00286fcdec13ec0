//! What a user may set, and what depends on the driver.

use sidelane_nic::time::Duration;

/// Settings of a [`super::Device`]. All processes of a job have the same.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of the endpoint on each port.
    pub endpoint: sidelane_proto::Config,
    /// For peers on this host.
    pub on_host: Limits,
    /// For all others.
    pub off_host: Limits,
    /// Bytes that a peer may send before a receive takes them.
    pub credit: usize,
    /// Long messages between processes of one host are read from the sender's memory, where the system allows it.
    pub single_copy: bool,
    /// Turns without news before a waiting process lets others run, and before it sleeps. See [`super::idle`].
    pub patience: Patience,
}

/// From which size on a message goes another way, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message that is sent without asking.
    pub eager_max: usize,
    /// Bytes of a longer one that go along with its announcement.
    pub prefix: usize,
    /// Least that is put into the receiver's memory; less is sent as messages.
    pub put_min: usize,
    /// Least that is read from the sender's memory, where that can be done.
    pub pull_min: usize,
}

/// How long a process that waits keeps its core.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Turns before it lets others run.
    pub spin: u32,
    /// Turns, letting others run after each, before it sleeps.
    pub yields: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: endpoint(),
            on_host: Limits { eager_max: 8 << 10, prefix: 4 << 10, put_min: 16 << 10, pull_min: 4 << 10 },
            off_host: Limits { eager_max: 32 << 10, prefix: 16 << 10, put_min: 16 << 10, pull_min: usize::MAX },
            credit: 256 << 10,
            single_copy: true,
            patience: Patience { spin: 2_000, yields: 100 },
        }
    }
}

/// FIFOs are taken from the system page by page as they fill, and start over at their beginning when they run empty, so
/// 64 processes on one host that all talk to each other cost what really waits.
fn endpoint() -> sidelane_proto::Config {
    sidelane_proto::Config {
        send_fifo: 128 << 10,
        recv_fifo: 256 << 10,
        // A process that computes does not poll, and is not dead for it: launchers notice the death of a process sooner.
        keep_alive: Duration::from_millis(150_000),
        connect_timeout: Duration::from_millis(60_000),
        ..sidelane_proto::Config::default()
    }
}
