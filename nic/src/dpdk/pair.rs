//! A pair: memif or vhost between two processes of ours, which loses nothing by itself.
//!
//! Where these could lose a frame while their link is up, they do not (DPDK 22.11, rte_eth_memif.c, rte_eth_vhost.c, virtio_rxtx.c): a full
//! ring refuses it at the sender (eth_memif_tx and eth_vhost_tx end at the last free slot, virtio_xmit_pkts_inorder at the last descriptor),
//! and a receiver without mbufs leaves it in the ring (eth_memif_rx, virtio_dev_tx_split and virtio_recv_pkts_inorder end there, and come
//! back to it). Rings are as ordered as memory is. The ends remain:
//!
//! - What a peer had sent when it closed or was killed is received all the same: the shim takes it out of the ring before
//!   DPDK takes the ring down. It keeps what two such rings hold; of what a third peer leaves before anybody receives the rest is counted as
//!   dropped.
//! - A peer that is gone stays gone for the links that were made for it, also when the next one is there already: lives are
//!   counted. No frame goes to another life than it was committed for.
//! - Whoever closes stays until the ring has taken what it committed, as long as the other lives, [`LINGER`] at most. A peer
//!   that fetches nothing for so long lacks the last frames, and then sees the link go.
//! - The ends of a pair have the same MTU, and neither is `shared` or `lossy`: it is part of the number or name by which they
//!   find each other, so that others do not. Then the client's opening fails.
//! - A server has one client at a time; another is turned away.
//! - A process that was forked and did not execute another program keeps its parent's end open: a parent that is killed is gone
//!   only when that child is.
//! - Nothing in a frame is checked, so the other end has to be a process of our own user, as with `shm`: others are turned
//!   away, by the shim, and at vhost by the socket's mode and owner before that. So a switch can't be at the other end either.

use std::ops::Deref;

use super::{Config, Dpdk, OpenError};
use crate::time::Duration;
use crate::{Link, Nic, clock, forward};

/// One end of a reliable pair.
pub struct Pair(Dpdk);

impl Pair {
    /// Opens an end. The client's waits for the server's, 2.5 s at most. vhost's hears of a server that is stopped (SIGSTOP) in that time, too;
    /// of one that is stopped after it has answered, when that goes on.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        if !config.is_pair() {
            return Err(OpenError::NoPair(config.device.clone()));
        }
        Dpdk::open_as_it_is(config).map(Self)
    }
}

/// To ask about it.
impl Deref for Pair {
    type Target = Dpdk;

    fn deref(&self) -> &Dpdk {
        &self.0
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.0.drain(clock::monotonic() + LINGER);
    }
}

impl Nic for Pair {
    const RELIABLE: bool = true;
    const NAME: &'static str = "dpdk";

    forward!(0: caps, link, unlink, rx_burst, tx_slot, flush, wait, waker, counters, diagnosis, now);

    fn is_gone(&self, link: Link) -> bool {
        self.0.peer_is_gone(link)
    }
}

/// As long as a client waits for its server.
const LINGER: Duration = Duration::from_millis(2_500);
