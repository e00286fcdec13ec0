//! What a user may set. Every bound has a name and a default.

use sidelane_nic::time::Duration;

use crate::seal::Protection;

/// Settings of an [`crate::Endpoint`]. Of these the two sides of a connection tell each other how long messages may be, and by their
/// credit how long the receive FIFO is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the send FIFO kept for each peer, at most 2 GiB.
    pub send_fifo: usize,
    /// Bytes of the receive FIFO kept for each peer; what a peer may send beyond what was taken. At least two of the driver's frames,
    /// and at most 2 MiB - 64, which is half of what credit can tell: more or less counts as that.
    pub recv_fifo: usize,
    /// Peers that an endpoint holds at most; never more than 65,535.
    pub peers_max: usize,
    /// How long an endpoint that connects waits for an answer.
    pub connect_timeout: Duration,
    /// Silence after which a peer is asked whether it lives, and four times which it counts as gone.
    pub keep_alive: Duration,
    /// Fewer frames fly while queues stand on the way. Without it, as many as the peer takes: for two hosts with a cable
    /// between them.
    pub congestion_control: bool,
    /// Most bytes of one message, either way; both sides keep to the smaller of theirs. Less than 60 counts as 60, which fits any
    /// frame, and more than 2 GiB - 1 as that.
    pub message_max: usize,
    /// Shows the counters to other processes of this user (`sidelane stat`); costs a descriptor and a page of memory.
    pub display: bool,
    /// What tokens and regions' keys are drawn from: the system's random numbers, anew for each endpoint, unless a seed is given. Give
    /// one only where a run is to be repeated: an endpoint that lives anew with its old seed is taken for the old one, and who knows
    /// the seed knows its keys.
    pub seed: Option<u64>,
    /// What protects frames. With a key, tokens come from the system's random numbers whatever `seed` is.
    pub protection: Protection,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_fifo: 256 << 10,
            recv_fifo: 1 << 20,
            peers_max: 10_000,
            connect_timeout: Duration::from_millis(10_000),
            // Four of them, and a stall of the machine, fit into a second.
            keep_alive: Duration::from_millis(225),
            congestion_control: true,
            message_max: i32::MAX as usize,
            display: true,
            seed: None,
            protection: Protection::Checked,
        }
    }
}
