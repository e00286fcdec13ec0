//! Holds back a sender on a path that drops what overruns it: the receiver returns how much it took.
//! Counted in the units that both ends see alike: frames, or bytes where the kernel cuts and joins datagrams.

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
