//! What a process of a soak tells: one JSON object a line.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sidelane_nic::Nic;
use sidelane_proto::{Endpoint, Reject};

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "line")]
pub enum Line {
    /// The endpoint is open.
    Ready {
        /// Its address, for the other side's `--connect`.
        at: String,
    },
    /// A peer is there. Lives are numbered from zero.
    Connected {
        /// Number of this life.
        life: u64,
        /// Its name within the endpoint; none comes twice.
        peer: String,
    },
    /// Now and then.
    Progress {
        /// Messages received from all peers.
        received: u64,
        /// Messages sent, but for those to a peer who lacks some of them: what was acknowledged, or what a reliable driver has.
        settled: u64,
        /// Memory of this process that is resident.
        rss_kib: u64,
    },
    /// A life has ended.
    Ended {
        /// Which.
        life: u64,
        /// Closed, or why it is gone.
        how: Ending,
        /// Messages taken by `send` and `send_owned`.
        sent: u64,
        /// Digest of all of them.
        sent_digest: u64,
        /// Messages received and found right.
        received: u64,
        /// Digest of all of them.
        received_digest: u64,
        /// The other side's last message was received.
        complete: bool,
    },
    /// All is done.
    Done(Counts),
    /// The attacker is done.
    Flooded(Flooded),
    /// Something was delivered wrongly, or the time was up.
    Failed {
        /// What.
        reason: String,
    },
}

/// How a life ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// As agreed.
    Closed,
    /// Without.
    Gone(String),
}

/// What protocol and driver counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Milliseconds that it took.
    pub elapsed_ms: u64,
    /// Protocol: frames taken in.
    pub frames_received: u64,
    /// Protocol: of these, such as had arrived before.
    pub duplicates: u64,
    /// Protocol: frames that came before their turn.
    pub reordered: u64,
    /// Protocol: frames written again.
    pub retransmitted: u64,
    /// Protocol: frames dropped, by reason; those that never happened are left out.
    pub rejected: BTreeMap<String, u64>,
    /// Driver: frames shown.
    pub rx_frames: u64,
    /// Driver: frames of somebody else's.
    pub rx_foreign: u64,
    /// Driver: frames that found its ring full.
    pub rx_dropped: u64,
    /// Driver: frames handed on.
    pub tx_frames: u64,
    /// Frames that the wrapper for faults lost, doubled and held back.
    pub faults: [u64; 3],
}

/// What the attacker did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flooded {
    /// Frames that the kernel refused to send.
    pub refused: u64,
    /// Frames sent.
    pub sent: u64,
    /// Of these, such as pass the endpoint's filter for certain.
    pub addressed: u64,
    /// Of these, such as pass it perhaps: damaged in front of the payload.
    pub perhaps: u64,
    /// By kind of forgery.
    pub kinds: BTreeMap<String, u64>,
    /// Live frames that it had to work with.
    pub captured: u64,
}

impl Line {
    /// Writes the line, and makes sure that it is out.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

impl Counts {
    /// Of an endpoint. Time and faults are the caller's.
    pub fn of<N: Nic>(endpoint: &Endpoint<N>) -> Self {
        let (proto, nic) = (endpoint.counters(), endpoint.nic().counters());
        let rejected = Reject::ALL.into_iter().filter(|&reason| proto.rejected(reason) > 0);
        Self {
            elapsed_ms: 0,
            frames_received: proto.frames_received,
            duplicates: proto.duplicates,
            reordered: proto.reordered,
            retransmitted: proto.retransmitted,
            rejected: rejected.map(|reason| (format!("{reason:?}"), proto.rejected(reason))).collect(),
            rx_frames: nic.rx_frames,
            rx_foreign: nic.rx_foreign,
            rx_dropped: nic.rx_dropped,
            tx_frames: nic.tx_frames,
            faults: [0; 3],
        }
    }

    /// Frames that the protocol dropped.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_as_they_were_written() {
        let mut counts = Counts::default();
        counts.rejected.insert("Check".to_owned(), 3);
        let ended = Line::Ended {
            life: 1,
            how: Ending::Gone("Silent".to_owned()),
            sent: 1,
            sent_digest: 2,
            received: 3,
            received_digest: 4,
            complete: false,
        };
        for line in [Line::Ready { at: "shm/1".to_owned() }, ended, Line::Done(counts)] {
            let mut text = Vec::new();
            line.write(&mut text).unwrap();
            assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Line>(&text).unwrap(), line);
        }
    }
}
