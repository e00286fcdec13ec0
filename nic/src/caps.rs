//! What a driver can do: the layers above adapt to this and never to a driver's name.

use crate::LinkAddr;
use crate::time::Duration;

/// Fixed when the driver is opened.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// This endpoint's own address: what peers pass to [`crate::Nic::link`].
    pub addr: LinkAddr,
    /// Largest frame payload in bytes that may be sent at once. Above [`Caps::mtu_safe`] only because the driver
    /// segments or its path carries super-frames.
    pub mtu: usize,
    /// Largest frame payload that every path of this driver carries. Equal to `mtu` where nothing is special.
    pub mtu_safe: usize,
    /// Frames that the receive side holds before it drops. A sender that keeps fewer in flight loses none here.
    pub rx_frames: usize,
    /// Most frames worth handing over between two flushes.
    pub burst: usize,
    /// How long a silence on this driver's path is no proof of a loss: a kernel's stalls, or hardware's.
    /// Floor of the retransmission time-out.
    pub rto_floor: Duration,
    /// How long frames may wait at the two ends, for a processor or in a socket's buffer, while nothing on the path is
    /// congested. `None`: nothing can be. A full path refuses frames at the sender, since there is no queue on it that
    /// others fill too: memory shared with the peer.
    pub host_delay: Option<Duration>,
}

impl Caps {
    /// Least `mtu_safe` of any driver, so that no protocol with a header has to ask.
    pub const MTU_MIN: usize = 128;
}
