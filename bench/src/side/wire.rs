//! What the ladder and its two sides say to each other: one JSON object a line.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sidelane_mpi::adi::Limits;

use crate::pattern::{Outcome, Pattern, Role};

/// From the ladder to a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Opens one end of a measurement. Answered by [`Answer::Opened`].
    Open(Measurement),
    /// Connects to the other end and plays the pattern. Answered by [`Answer::Done`].
    Go {
        /// Where the other end is, as it said itself.
        peer: String,
    },
    /// Closes, now that both sides have played. Not answered.
    Close,
}

/// From a side to the ladder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The end is open.
    Opened {
        /// Where it is.
        at: String,
    },
    /// The pattern is played. A driver of ours under a protocol, or bare, stays open until
    /// [`Order::Close`].
    Done(Box<Outcome>),
    /// It came to nothing. The side is ready for the next order.
    Failed {
        /// Why.
        reason: String,
    },
}

/// One measurement, as one side sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Which side.
    pub role: Role,
    /// Core to stay on.
    pub core: usize,
    /// Both sides share cores, so that an idle one has to make way.
    pub crowded: bool,
    /// What carries the messages.
    pub path: Path,
    /// What is measured.
    pub pattern: Pattern,
}

/// What carries the messages, and where this side's end of it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Kernel TCP.
    Tcp {
        /// Address of this side.
        ip: IpAddr,
        /// Whether calls sleep.
        blocking: bool,
        /// Congestion control; the system's default otherwise.
        congestion: Option<String>,
        /// Whether each write is sent at once.
        no_delay: bool,
    },
    /// Kernel UDP, polled.
    Udp {
        /// Address of this side.
        ip: IpAddr,
    },
    /// One of our layers on a driver.
    Nic {
        /// Which layer.
        layer: Layer,
        /// The driver as a string, at this side.
        nic: String,
        /// No frame larger than every path of the driver carries, even if `nic` does not say so.
        real_frames: bool,
    },
    /// One of our layers on the simulated fabric: both sides in the initiator's thread.
    Fabric {
        /// Which layer.
        layer: Layer,
    },
}

/// One of our layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// smoltcp's TCP.
    SmoltcpTcp,
    /// Bare frames.
    Raw,
    /// The protocol.
    Proto(Sealing),
    /// The protocol behind a wrapper of the driver that loses frames (`sidelane_nic::fault`).
    ProtoLosing {
        /// How many, each way.
        of_a_million: u32,
    },
    /// Active Messages on the protocol.
    Am,
    /// Active Messages, in the study of what their calls cost.
    AmCosts,
    /// Stores and gets, in the same study.
    AmBulk,
    /// MPI's messages on the protocol.
    Mpi,
    /// The same one way in windows, each with an answer, as usual tests of MPIs have it.
    MpiWindows,
    /// The same with these limits.
    MpiWith(Limits),
    /// Puts on the protocol.
    Put,
    /// Gets on the protocol.
    Get,
    /// The protocol on a driver that stamps ([`crate::breakdown`]).
    Stamped,
    /// Active Messages on it.
    StampedAm,
}

/// What protects the protocol's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sealing {
    /// A check.
    None,
    /// A tag.
    Authenticated,
    /// A tag, and encrypted messages.
    Encrypted,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initiator => "side A",
            Self::Responder => "side B",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Kind;

    #[test]
    fn orders_and_answers_read_back_as_they_were_written() {
        let pattern = Pattern { kind: Kind::Flood, size: 8, depth: None, warm_ns: 1, measure_ns: 2, limit_ns: 3 };
        let path = Path::Nic { layer: Layer::SmoltcpTcp, nic: "uring:a".into(), real_frames: true };
        let open = Order::Open(Measurement { role: Role::Responder, core: 1, crowded: false, path, pattern });
        for order in [open, Order::Go { peer: "10.0.0.1:7".into() }, Order::Close] {
            let line = serde_json::to_string(&order).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Order>(&line).unwrap(), order);
        }
        for answer in [Answer::Opened { at: "x".into() }, Answer::Done(Box::default())] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
