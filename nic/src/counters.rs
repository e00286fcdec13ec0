//! What a driver has seen, counted by reason. Nothing is lost without one of these moving.

/// Counts since the driver was opened. Frames, unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Shown to the layer above.
    pub rx_frames: u64,
    /// Payload bytes shown to the layer above.
    pub rx_bytes: u64,
    /// Arrived, but not in our encapsulation, too short, or not for this endpoint.
    pub rx_foreign: u64,
    /// Dropped before us because our receive ring was full; on pairs of `dpdk`, what peers that have gone left beyond
    /// 512 frames that nobody had received. On `udp` also what was unread when its link was forgotten, where that had a
    /// socket of its own; on `uring` packets that wait in a socket's queue, of which there was no room for it or less than it says.
    pub rx_dropped: u64,
    /// Committed by the layer above and handed on: none of those that failed, nor of those that wait.
    pub tx_frames: u64,
    /// Payload bytes handed on.
    pub tx_bytes: u64,
    /// Times that no transmit buffer was free.
    pub tx_full: u64,
    /// Committed and never sent: refused for good by the system (interface down, no route), or for a peer that was gone. On `udp` also refusals by peers' hosts and
    /// routers: they come late, one for several frames that count as handed on.
    pub tx_failed: u64,
    /// Times that [`crate::Nic::wait`] went to sleep. Ten a second of an idle endpoint on an interface, which looks whether that is still there.
    pub waits: u64,
    /// Times that a peer slept and had to be woken. Only where that is the driver's own doing: `shm`.
    pub wakes: u64,
    /// Times that peers who called had to wait until the process had a free descriptor. Only on `shm`.
    pub peers_put_off: u64,
    /// Calls of peers that were turned away, since the driver's table is full; they call again. Only on `shm`.
    pub peers_refused: u64,
}

impl Counters {
    /// Shows every count with its name.
    pub fn each(&self, mut show: impl FnMut(&'static str, u64)) {
        // A pattern without `..`, so that a count which is added above cannot be forgotten here.
        macro_rules! fields {
            ($($name:ident)*) => {
                let Self { $($name),* } = *self;
                $(show(concat!("nic.", stringify!($name)), $name);)*
            };
        }
        fields!(rx_frames rx_bytes rx_foreign rx_dropped tx_frames tx_bytes tx_full tx_failed waits wakes peers_put_off peers_refused);
    }
}
