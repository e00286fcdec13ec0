//! When the kernel should merge a socket's datagrams (UDP_GRO).
//!
//! Merging makes bulk several times cheaper, and a lone datagram 60 to 120 ns dearer (of 1.7 to 3.9 µs, on one virtual
//! machine at two paces). So a socket merges while bulk comes and stops when lone datagrams come again.
//!
//! ```text
//! Lone --BULK_MIN datagrams with no pause between--> Bulk
//! Bulk --LONE_MIN pauses in a row without bulk------> Lone
//! ```

/// What a socket's traffic looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merging {
    /// Datagrams come one at a time; the last `streak` without a pause between.
    Lone {
        /// Below [`BULK_MIN`].
        streak: u8,
    },
    /// Many come at once; since the last time of that there were `pauses`.
    Bulk {
        /// Below [`LONE_MIN`].
        pauses: u8,
        /// Datagrams since the last pause.
        streak: u8,
    },
}

impl Merging {
    /// How a socket begins.
    pub const START: Self = Self::Lone { streak: 0 };

    /// Takes in that a datagram came.
    #[inline]
    pub fn on_datagram(self) -> Self {
        match self {
            Self::Lone { streak } if streak + 1 >= BULK_MIN => Self::Bulk { pauses: 0, streak: 0 },
            Self::Lone { streak } => Self::Lone { streak: streak + 1 },
            Self::Bulk { streak, .. } if streak + 1 >= BULK_MIN => Self::Bulk { pauses: 0, streak: 0 },
            Self::Bulk { pauses, streak } => Self::Bulk { pauses, streak: streak + 1 },
        }
    }

    /// Takes in that the last datagram was merged from several.
    #[inline]
    pub fn on_merged(self) -> Self {
        match self {
            Self::Lone { .. } => self,
            Self::Bulk { .. } => Self::Bulk { pauses: 0, streak: 0 },
        }
    }

    /// Takes in that nothing waits.
    #[inline]
    pub fn on_nothing(self) -> Self {
        match self {
            Self::Lone { .. } | Self::Bulk { streak: 0, .. } => self.without_streak(),
            Self::Bulk { pauses, .. } if pauses + 1 >= LONE_MIN => Self::START,
            Self::Bulk { pauses, .. } => Self::Bulk { pauses: pauses + 1, streak: 0 },
        }
    }

    fn without_streak(self) -> Self {
        match self {
            Self::Lone { .. } => Self::Lone { streak: 0 },
            Self::Bulk { pauses, .. } => Self::Bulk { pauses, streak: 0 },
        }
    }

    /// Whether the kernel should merge.
    #[inline]
    pub fn is_on(self) -> bool {
        matches!(self, Self::Bulk { .. })
    }
}

/// Datagrams without a pause that are bulk: more than a few lone ones that happened to queue behind a stall.
const BULK_MIN: u8 = 8;
/// Pauses without bulk that end it: two changes of the setting, a system call each, then are nothing beside.
const LONE_MIN: u8 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_pong_never_merges() {
        let mut merging = Merging::START;
        for _ in 0..1_000 {
            merging = merging.on_nothing().on_nothing().on_datagram();
            assert!(!merging.is_on());
        }
    }

    #[test]
    fn bulk_merges_and_goes_on_through_short_pauses() {
        let mut merging = Merging::START;
        for _ in 0..BULK_MIN {
            merging = merging.on_datagram();
        }
        assert!(merging.is_on());
        for _ in 0..1_000 {
            merging = merging.on_datagram().on_merged().on_nothing().on_nothing();
            assert!(merging.is_on());
        }
    }

    #[test]
    fn lone_datagrams_end_merging_and_silence_does_not() {
        let mut merging = Merging::Bulk { pauses: 0, streak: 0 };
        for _ in 0..1_000 {
            merging = merging.on_nothing();
        }
        assert!(merging.is_on());
        for pause in 0..LONE_MIN {
            assert!(merging.is_on(), "{pause}");
            merging = merging.on_datagram().on_nothing();
        }
        assert!(!merging.is_on());
    }

    #[test]
    fn bulk_that_is_not_merged_is_bulk_too() {
        let mut merging = Merging::Bulk { pauses: 0, streak: 0 };
        for round in 0..10 * LONE_MIN as usize {
            for _ in 0..if round % 100 == 0 { BULK_MIN } else { 1 } {
                merging = merging.on_datagram();
            }
            merging = merging.on_nothing();
            assert!(merging.is_on(), "{round}");
        }
    }
}
