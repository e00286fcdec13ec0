//! Frames on a driver, with nothing above it: what the layers on top are measured against.
//! A message longer than a frame is cut; there are no headers, so a lost frame ends the measurement.

use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use super::window::{REPORT_LEN, Windows, cut};
use super::{Broken, Flow, Transport};

/// One end of a path over a driver.
pub struct Raw<N: Nic> {
    nic: N,
    link: Link,
    peer: LinkAddr,
    size: usize,
    /// Bytes of every frame of a message but its last one.
    chunk: usize,
    /// Bytes of the message under way that were committed.
    sent: usize,
    /// Bytes committed since the last flush.
    staged: usize,
    /// Bytes of the message under way that were received.
    filled: usize,
    windows: Windows,
}

impl<N: Nic> Raw<N> {
    /// A path to `peer`, whose driver is of the same kind and opened alike.
    pub fn new(mut nic: N, peer: LinkAddr, size: usize, flow: Flow) -> Result<Self, Broken> {
        let link = nic.link(peer).map_err(Broken::driver)?;
        nic.confirm(link);
        let chunk = cut(size, nic.caps().mtu);
        let window = (nic.caps().rx_frames / 2).min(WINDOW_BYTES / chunk).max(1);
        let windows = if N::RELIABLE { Windows::none() } else { Windows::new(flow, window, size.div_ceil(chunk)) };
        Ok(Self { nic, link, peer, size, chunk, sent: 0, staged: 0, filled: 0, windows })
    }

    #[inline]
    fn send_report(&mut self, frames: usize) {
        let Some(window) = &mut self.windows.recv else { return };
        window.on_taken(frames);
        let Some(report) = window.report() else { return };
        // Without a slot the report stays due, and goes with the next frames.
        if let Some(mut slot) = self.nic.tx_slot(self.link, REPORT_LEN) {
            slot.copy_from_slice(&report);
            slot.commit();
            window.on_reported();
        }
        self.nic.flush();
    }
}

impl<N: Nic> Transport for Raw<N> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        while self.sent < message.len() {
            if let Some(window) = &mut self.windows.send {
                if !window.is_open() {
                    return Ok(false);
                }
                window.on_sent(1);
            }
            let end = message.len().min(self.sent + self.chunk);
            let Some(mut slot) = self.nic.tx_slot(self.link, end - self.sent) else {
                if let Some(window) = &mut self.windows.send {
                    window.on_unsent(1);
                }
                return Ok(false);
            };
            slot.copy_from_slice(&message[self.sent..end]);
            slot.commit();
            self.staged += end - self.sent;
            self.sent = end;
            if self.staged >= FLUSH_BYTES {
                self.flush()?;
            }
        }
        self.sent = 0;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.staged = 0;
        self.nic.flush();
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let Self { peer, size, chunk, ref mut filled, ref mut windows, .. } = *self;
        // Messages are counted, and frames of one that is longer than a frame come in bursts. With a budget of zero a
        // driver still sees to its connections.
        let pieces = budget > 0 && chunk < size;
        let budget = if windows.send.is_some() || pieces { RX_BURST } else { budget.min(RX_BURST) };
        let (mut frames, mut messages, mut broken) = (0, 0, None);
        self.nic.rx_burst(budget, |frame, from| {
            if from != peer || broken.is_some() {
                return;
            }
            let expected = chunk.min(size - *filled);
            if windows.is_report(frame.len(), expected) {
                windows.send.as_mut().expect("only a sender takes reports").on_report(frame);
                return;
            }
            if frame.len() != expected || into.len() < size {
                broken = Some(Broken::Length { got: frame.len(), expected });
                return;
            }
            frames += 1;
            into[*filled..*filled + expected].copy_from_slice(frame);
            *filled += expected;
            if *filled == size {
                *filled = 0;
                messages += 1;
                each(&into[..size]);
            }
        });
        if let Some(broken) = broken {
            return Err(broken);
        }
        self.send_report(frames);
        Ok(messages)
    }

    fn unanswered_max(&self) -> usize {
        if N::RELIABLE { usize::MAX } else { (self.nic.caps().rx_frames / self.size.div_ceil(self.chunk)).max(1) }
    }

    fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
        self.nic.flush();
        Ok(())
    }
}

/// Frames of one receive call: the drivers' own burst is of this order.
const RX_BURST: usize = 64;
/// Bytes between two flushes: a super-packet of uring, or what udp makes a train of. More, and the receiver would not copy
/// out while we copy in.
const FLUSH_BYTES: usize = 60 << 10;
/// Bytes under way at most. Beyond about 1 MiB a ring leaves the second-level cache and halves the bandwidth.
const WINDOW_BYTES: usize = 512 << 10;
