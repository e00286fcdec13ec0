//! What is known of the way to one peer: sizes, delays and limits, ours and theirs.

use sidelane_nic::Caps;
use sidelane_nic::time::Duration;

use crate::Config;
use crate::congestion::Slack;
use crate::in_flight::WINDOW_MAX;
use crate::seal::TAG_LEN;
use crate::wire::{FULL_LEN, Hello, PLAIN_LEN, RECORD_LEN};

/// Sizes in bytes of whole frames, unless said otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// Largest frame that our driver sends and takes.
    pub frame_max: usize,
    /// Largest frame that needs nothing special of the path.
    frame_safe: usize,
    /// Largest frame that the path is known to carry to the peer.
    pub mtu: usize,
    /// Largest body that fits every frame.
    pub body_max: usize,
    /// Largest message that is one record.
    pub record_max: usize,
    /// Length of the peer's Hello as it arrived here.
    pub seen_len: usize,
    /// Frames that the peer may have in flight to us.
    pub window: u16,
    /// Capacity of our receive FIFO.
    pub recv_capacity: usize,
    /// Longest message that both sides take; that we take, until `settle`.
    pub message_max: usize,
    /// Longest message that the peer takes, by its last Hello, which need not be its.
    peer_message_max: u32,
    /// Longest message that we take.
    pub own_message_max: usize,
    /// How long we keep an ack back.
    pub ack_delay: Duration,
    /// How long the peer keeps an ack back.
    pub peer_ack_delay: Duration,
    /// Shortest wait before a tail-loss probe.
    pub probe_floor: Duration,
    /// Floor of the driver's time-outs.
    pub rto_floor: Duration,
    /// How long frames wait at the ends; `None`: there is nothing on the path that could be congested.
    host_delay: Option<Duration>,
    header: usize,
}

/// Every path is taken to carry frames of this length: IPv6's least MTU (RFC 8200, 5) less encapsulation.
const MTU_MIN: usize = 1200;
/// Body that every frame can have, on whatever driver.
const BODY_MIN: usize = 64;
const _: () = assert!(FULL_LEN + BODY_MIN + TAG_LEN <= Caps::MTU_MIN, "every driver's frames have that room");
/// Everybody takes messages of this length: they are sent before a peer can say otherwise.
const MESSAGE_MIN: usize = BODY_MIN - RECORD_LEN;
/// Nobody takes longer messages, whatever is set.
const MESSAGE_MAX: usize = i32::MAX as usize;
/// Largest FIFO: half of what the credit field spans, so that the order of two limits is never in doubt.
const RECV_FIFO_MAX: usize = (i16::MAX as usize) * CREDIT_UNIT as usize;

impl Path {
    /// What our driver and settings say.
    pub fn new(caps: &Caps, config: &Config, plain: bool) -> Self {
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        let frame_max = caps.mtu.min(header + u16::MAX as usize);
        let mtu = caps.mtu.min(MTU_MIN);
        let own_message_max = config.message_max.clamp(MESSAGE_MIN, MESSAGE_MAX);
        Self {
            frame_max,
            frame_safe: caps.mtu_safe,
            mtu,
            // Until `settle`, only what fits any MTU, and what everybody takes.
            body_max: BODY_MIN,
            record_max: MESSAGE_MIN,
            seen_len: 0,
            window: (caps.rx_frames / 2).clamp(1, WINDOW_MAX as usize) as u16,
            // Two frames at least, or a sender could wait for credit that never comes.
            recv_capacity: config.recv_fifo.max(2 * frame_max + CREDIT_UNIT as usize).min(RECV_FIFO_MAX),
            message_max: own_message_max,
            peer_message_max: u32::MAX,
            own_message_max,
            // A tenth of the floor: short against any time-out, long against any reply.
            ack_delay: Duration::from_nanos(caps.rto_floor.as_nanos() / 10),
            peer_ack_delay: Duration::from_nanos(caps.rto_floor.as_nanos() / 10),
            // A probe costs one frame, so it may come sooner than a time-out that costs the window.
            probe_floor: Duration::from_nanos(caps.rto_floor.as_nanos() / 4),
            rto_floor: caps.rto_floor,
            host_delay: caps.host_delay,
            header,
        }
    }

    /// Takes in what the peer says. A frame of `proven_len` has made the way; the way back is taken to be the same.
    pub fn learn(&mut self, hello: &Hello, proven_len: usize) {
        self.seen_len = proven_len;
        self.mtu = proven_len.max(MTU_MIN).min(hello.mtu as usize).min(self.frame_max).max(self.header + BODY_MIN);
        self.peer_message_max = hello.message_max;
        self.peer_ack_delay = Duration::from_nanos(u64::from(hello.ack_delay).min(ACK_DELAY_MAX_NS));
    }

    /// The peer has confirmed what both sides learned: from now on records fill a frame, and what is longer than it takes is refused.
    pub fn settle(&mut self) {
        self.message_max = self.own_message_max.min(self.peer_message_max as usize).max(MESSAGE_MIN);
        self.body_max = self.mtu - self.header;
        self.record_max = (self.body_max - RECORD_LEN).min(self.message_max);
    }

    /// True on a reliable driver.
    pub const fn is_plain(&self) -> bool {
        self.header == PLAIN_LEN
    }

    /// The queueing delay that means nothing yet; `None` where none means anything.
    pub fn slack(&self, config: &Config) -> Option<Slack> {
        let host = self.host_delay.filter(|_| config.congestion_control)?;
        // A probe would not be sent for such a delay either.
        Some(Slack { host, path: self.probe_floor })
    }

    /// Length of the Hello at its `tries`-th repetition: the largest frame first, then what should always pass, then
    /// the bare body.
    pub fn hello_len(&self, tries: u32) -> usize {
        match tries {
            0..2 => self.frame_max,
            2..4 => self.frame_safe.min(self.frame_max),
            _ if tries.is_multiple_of(2) => 0,
            _ => self.frame_safe.min(self.frame_max),
        }
    }

    /// Capacity of the send FIFO.
    pub fn send_fifo(&self, config: &Config) -> usize {
        config.send_fifo.max(2 * self.frame_max).min(SEND_FIFO_MAX)
    }
}

/// Largest send FIFO: a place in it, or behind it, has 32 bits ([`crate::send_fifo::Run`]).
const SEND_FIFO_MAX: usize = 1 << 31;

/// No peer makes us wait longer for an ack before we ask.
const ACK_DELAY_MAX_NS: u64 = 10_000_000;
/// Credit travels in these units, so that 16 bits span 4 MiB; half of that is the largest FIFO.
pub(crate) const CREDIT_UNIT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sidelane_nic::LinkAddr;

    proptest! {
        /// Whatever a driver claims, a user sets and a peer says, the sizes fit each other.
        #[test]
        fn sizes_fit(
            (mtu, mtu_safe, rx_frames, plain) in (100usize..100_000, 100usize..2_000, 1usize..5_000, any::<bool>()),
            (recv_fifo, send_fifo, own_max) in (0usize..4 << 20, prop_oneof![0usize..1 << 20, Just(usize::MAX)], 0usize..100_000),
            (peer_mtu, seen_len) in (0u32..100_000, 0u32..100_000),
            (ack_delay, message_max) in (any::<u32>(), 0u32..100_000),
        ) {
            let addr = LinkAddr::Mem { node: 0 };
            let caps = Caps { addr, mtu, mtu_safe: mtu_safe.min(mtu), rx_frames, burst: 1, rto_floor: Duration::from_millis(1), host_delay: None };
            let config = Config { recv_fifo, send_fifo, message_max: own_max, ..Config::default() };
            let header = if plain { PLAIN_LEN } else { FULL_LEN };
            let mut path = Path::new(&caps, &config, plain);
            prop_assert!(path.frame_max <= mtu && path.frame_max <= header + 65_535);
            prop_assert!(path.recv_capacity >= 2 * path.frame_max && path.recv_capacity <= RECV_FIFO_MAX);
            prop_assert!(path.send_fifo(&config) >= 2 * path.frame_max);
            prop_assert!(u32::try_from(path.send_fifo(&config).saturating_add(path.frame_max)).is_ok());
            prop_assert!((1..=WINDOW_MAX as u16).contains(&path.window) && usize::from(path.window) <= rx_frames.max(2) / 2);
            prop_assert!((0..20).all(|tries| path.hello_len(tries) <= path.frame_max));
            prop_assert_eq!(path.hello_len(0), path.frame_max);
            prop_assert_eq!(path.mtu, mtu.min(MTU_MIN), "until the peer has said what it takes");
            let least = path.record_max;
            let hello = Hello {
                token: 1, echo: 0, mtu: peer_mtu, credit: 0, ack_delay, seen_len: 0, message_max, index: 0, window: 1,
            };
            path.learn(&hello, seen_len as usize);
            prop_assert_eq!((path.record_max, path.message_max), (least, own_max.max(least)), "until both sides are sure");
            path.settle();
            prop_assert_eq!(header + path.body_max, path.mtu);
            prop_assert_eq!(path.message_max, own_max.min(message_max as usize).max(least));
            prop_assert_eq!(path.record_max, (path.body_max - RECORD_LEN).min(path.message_max));
            prop_assert!(path.mtu <= path.frame_max && path.record_max >= least);
            prop_assert!(path.mtu <= (peer_mtu as usize).max(header + BODY_MIN));
            prop_assert!(path.mtu <= (seen_len as usize).max(MTU_MIN));
            prop_assert_eq!(path.peer_ack_delay, Duration::from_nanos(u64::from(ack_delay).min(ACK_DELAY_MAX_NS)));
        }
    }
}
