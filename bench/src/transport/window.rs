//! Holds back a sender on a path that drops what overruns it: the receiver returns how much it took.
//! Counted in the units that both ends see alike: frames, or bytes where the kernel cuts and joins datagrams.

use super::Flow;

/// What holds back the messages we send, and what we return for those that we receive.
pub(super) struct Windows {
    pub(super) send: Option<SendWindow>,
    pub(super) recv: Option<RecvWindow>,
}

impl Windows {
    /// Nothing is held back: the path pushes back by itself.
    pub(super) fn none() -> Self {
        Self { send: None, recv: None }
    }

    /// For a path that holds `window` units, of which a message has `message`. Messages that are answered need no window
    /// as long as a whole one fits: no more than fit are unanswered ([`super::Transport::unanswered_max`]).
    pub(super) fn new(flow: Flow, window: usize, message: usize) -> Self {
        let both_ways = flow == Flow::Alternating && message > window;
        Self {
            send: (both_ways || flow == Flow::Outward).then(|| SendWindow::new(window)),
            recv: (both_ways || flow == Flow::Inward).then(|| RecvWindow::new(window)),
        }
    }

    /// Whether what came is a report and no part of a message, where `expected` bytes of one would come next.
    #[inline]
    pub(super) fn is_report(&self, len: usize, expected: usize) -> bool {
        match (&self.send, &self.recv) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(_)) => len == REPORT_LEN && expected != REPORT_LEN,
        }
    }
}

/// The largest piece of at most `piece` bytes into which `size` can be cut so that no rest looks like a report.
pub(super) fn cut(size: usize, piece: usize) -> usize {
    let piece = piece.min(size);
    (REPORT_LEN + 1..=piece).rev().find(|piece| size % piece != REPORT_LEN).unwrap_or(piece)
}

/// The sender's half.
pub(super) struct SendWindow {
    sent: u64,
    /// As the receiver last said; never more than `sent`.
    taken: u64,
    size: u64,
}

/// The receiver's half.
pub(super) struct RecvWindow {
    taken: u64,
    reported: u64,
    every: u64,
}

impl SendWindow {
    pub(super) fn new(size: usize) -> Self {
        assert!(size > 0, "a window of nothing lets nothing through");
        Self { sent: 0, taken: 0, size: size as u64 }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.sent - self.taken < self.size
    }

    #[inline]
    pub(super) fn on_sent(&mut self, units: usize) {
        self.sent += units as u64;
    }

    /// Takes back what found no room.
    #[inline]
    pub(super) fn on_unsent(&mut self, units: usize) {
        self.sent -= units as u64;
    }

    /// Takes in a count. A late one is harmless: counts are absolute. One beyond what was sent is not ours.
    #[inline]
    pub(super) fn on_report(&mut self, report: &[u8]) {
        if let Some(taken) = parse(report)
            && taken <= self.sent
        {
            self.taken = self.taken.max(taken);
        }
    }
}

impl RecvWindow {
    /// Reports at every quarter of the sender's window, so that three reports may be lost before it stands.
    pub(super) fn new(size: usize) -> Self {
        Self { taken: 0, reported: 0, every: (size as u64 / 4).max(1) }
    }

    #[inline]
    pub(super) fn on_taken(&mut self, units: usize) {
        self.taken += units as u64;
    }

    /// The report that is due, if one is. Due until [`RecvWindow::on_reported`].
    #[inline]
    pub(super) fn report(&self) -> Option<[u8; REPORT_LEN]> {
        (self.taken - self.reported >= self.every).then(|| self.taken.to_le_bytes())
    }

    #[inline]
    pub(super) fn on_reported(&mut self) {
        self.reported = self.taken;
    }
}

/// Bytes of a report: the count, little endian.
pub(super) const REPORT_LEN: usize = 8;

fn parse(report: &[u8]) -> Option<u64> {
    report.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_stops_at_its_window_and_goes_on_with_a_report() {
        let (mut sender, mut receiver) = (SendWindow::new(8), RecvWindow::new(8));
        for _ in 0..8 {
            assert!(sender.is_open());
            sender.on_sent(1);
        }
        assert!(!sender.is_open());
        receiver.on_taken(1);
        assert_eq!(receiver.report(), None);
        receiver.on_taken(1);
        sender.on_report(&receiver.report().unwrap());
        receiver.on_reported();
        assert_eq!(receiver.report(), None);
        assert!(sender.is_open());
    }

    #[test]
    fn alternating_messages_have_windows_only_when_one_is_longer_than_that() {
        let of = |flow, message| {
            let windows = Windows::new(flow, 4, message);
            (windows.send.is_some(), windows.recv.is_some())
        };
        assert_eq!(of(Flow::Alternating, 4), (false, false));
        assert_eq!(of(Flow::Alternating, 5), (true, true));
        assert_eq!(of(Flow::Outward, 1), (true, false));
        assert_eq!(of(Flow::Inward, 1), (false, true));
    }

    #[test]
    fn no_rest_of_a_message_looks_like_a_report() {
        assert_eq!(cut(8, 100), 8);
        assert_eq!(cut(1000, 100), 100);
        assert_eq!(cut(1008, 100), 99);
        for (size, piece) in [(16, 8), (2808, 1400), (1 << 20, 1432)] {
            let cut = cut(size, piece);
            assert!(cut <= piece && (size % cut != REPORT_LEN || size < 3 * REPORT_LEN), "{size} by {cut}");
        }
    }

    #[test]
    fn late_repeated_short_and_foreign_reports_change_nothing() {
        let mut sender = SendWindow::new(4);
        (0..4).for_each(|_| sender.on_sent(1));
        for foreign in [5u64.to_le_bytes().as_slice(), &[1, 2], &[]] {
            sender.on_report(foreign);
            assert!(!sender.is_open());
        }
        sender.on_report(&3u64.to_le_bytes());
        sender.on_report(&1u64.to_le_bytes());
        assert_eq!(sender.taken, 3);
    }
}
