//! What may befall a frame on its way.

use crate::rng::Rng;
use crate::time::Duration;

/// Probabilities (0.0 to 1.0) of what may befall a frame, each drawn on its own, and how long the delays are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The frame vanishes.
    pub loss: f64,
    /// A second copy of it follows, with a fate of its own.
    pub duplicate: f64,
    /// It is held back for up to [`Faults::reorder_span`] while later frames pass it.
    pub reorder: f64,
    /// Longest time that a reordered frame is held back.
    pub reorder_span: Duration,
    /// It is late by up to [`Faults::delay_span`], and so are those behind it, since none passes it.
    pub delay: f64,
    /// Longest time that a delayed frame is late.
    pub delay_span: Duration,
    /// One to four of its bits are turned.
    pub corrupt: f64,
    /// Its end is cut off.
    pub truncate: f64,
}

/// When a frame comes that has drawn its fate.
pub(crate) enum Lateness {
    OnTime,
    /// Frames behind it wait.
    Delayed(Duration),
    /// Frames behind it pass it.
    HeldBack(Duration),
}

impl Faults {
    /// Nothing goes wrong. The spans are set, so that raising one probability is enough.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_span: Duration::from_micros(50),
        delay: 0.0,
        delay_span: Duration::from_micros(200),
        corrupt: 0.0,
        truncate: 0.0,
    };

    /// True when no fault can be drawn.
    pub fn is_none(&self) -> bool {
        let Self { loss, duplicate, reorder, delay, corrupt, truncate, .. } = *self;
        [loss, duplicate, reorder, delay, corrupt, truncate].iter().all(|&probability| probability <= 0.0)
    }

    /// How many copies of a frame travel on: none, one, or two.
    pub(crate) fn copies(&self, rng: &mut Rng) -> usize {
        if rng.chance(self.loss) { 0 } else { 1 + usize::from(rng.chance(self.duplicate)) }
    }

    /// When one copy comes.
    pub(crate) fn lateness(&self, rng: &mut Rng) -> Lateness {
        if rng.chance(self.reorder) {
            Lateness::HeldBack(up_to(self.reorder_span, rng))
        } else if rng.chance(self.delay) {
            Lateness::Delayed(up_to(self.delay_span, rng))
        } else {
            Lateness::OnTime
        }
    }

    /// Damages one copy in place, or not. Returns the length that is left, when anything was done to it.
    pub(crate) fn damage(&self, bytes: &mut [u8], rng: &mut Rng) -> Option<usize> {
        let corrupt = rng.chance(self.corrupt);
        let truncate = rng.chance(self.truncate);
        if bytes.is_empty() || !(corrupt || truncate) {
            return None;
        }
        if corrupt {
            for _ in 0..=rng.below(4) {
                let bit = rng.below(bytes.len() as u64 * 8);
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
        Some(if truncate { rng.below(bytes.len() as u64) as usize } else { bytes.len() })
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

fn up_to(span: Duration, rng: &mut Rng) -> Duration {
    Duration::from_nanos(1 + rng.below(span.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_faults_change_nothing() {
        let (faults, mut rng) = (Faults::NONE, Rng::new(1));
        assert!(faults.is_none());
        for _ in 0..100 {
            assert_eq!(faults.copies(&mut rng), 1);
            assert!(matches!(faults.lateness(&mut rng), Lateness::OnTime));
            assert_eq!(faults.damage(&mut [1, 2, 3], &mut rng), None);
        }
    }

    #[test]
    fn certain_faults_always_happen() {
        let mut rng = Rng::new(2);
        assert_eq!(Faults { loss: 1.0, ..Faults::NONE }.copies(&mut rng), 0);
        assert_eq!(Faults { duplicate: 1.0, ..Faults::NONE }.copies(&mut rng), 2);
        for _ in 0..100 {
            let mut bytes = [0; 64];
            let faults = Faults { corrupt: 1.0, ..Faults::NONE };
            assert_eq!(faults.damage(&mut bytes, &mut rng), Some(64));
            assert!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>() <= 4);
            let left = Faults { truncate: 1.0, ..Faults::NONE }.damage(&mut bytes, &mut rng);
            assert!(left.unwrap() < 64);
        }
    }

    #[test]
    fn an_empty_frame_cannot_be_damaged() {
        let faults = Faults { corrupt: 1.0, truncate: 1.0, ..Faults::NONE };
        assert_eq!(faults.damage(&mut [], &mut Rng::new(3)), None);
    }

    #[test]
    fn a_frame_is_late_within_its_span() {
        let faults = Faults { reorder: 1.0, reorder_span: Duration::from_nanos(9), ..Faults::NONE };
        let mut rng = Rng::new(4);
        for _ in 0..100 {
            let Lateness::HeldBack(by) = faults.lateness(&mut rng) else { panic!("not held back") };
            assert!((1..=9).contains(&by.as_nanos()));
        }
    }
}
