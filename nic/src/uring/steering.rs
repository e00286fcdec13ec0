//! Whether the socket of small frames has its filter now.
//!
//! A filter, of whatever length, costs a lone frame 45 to 50 ns of 1.2 to 1.9 µs (`bench/NOTES.md`, 48). So an endpoint goes
//! without while nobody else's frames come; the first one of theirs that it receives puts the filter back, for twice as many frames
//! as before.
//!
//! ```text
//! filtered --`wait` frames of ours--> open
//! open --somebody else's frame--> filtered, with twice the `wait`
//! ```

/// What is known of an interface's other frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// Frames of ours from the filter's beginning to its end.
    wait: u32,
    /// Those that are still to come; none while there is no filter.
    left: u32,
}

impl Steering {
    /// With a filter, as every socket begins.
    pub const START: Self = Self { wait: WAIT_MIN, left: WAIT_MIN };

    /// A frame of ours came. True when the filter is to be taken off.
    #[inline]
    pub fn on_ours(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.left == 0
    }

    /// A frame came that is somebody else's, or nobody's. True when the filter is to be put back.
    pub fn on_others(&mut self) -> bool {
        if self.left > 0 {
            // It stood in the ring behind the one that put the filter back.
            return false;
        }
        self.wait = self.wait.saturating_mul(2);
        self.left = self.wait;
        true
    }
}

/// As many as make up for the two system calls, 1 µs each, many times over.
const WAIT_MIN: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_of_others_doubles_how_long_the_filter_stays() {
        let mut steering = Steering::START;
        for wait in [1_000, 2_000, 4_000] {
            assert!((1..wait).all(|_| !steering.on_ours()));
            assert!(steering.on_ours(), "after {wait} frames");
            assert!(!steering.on_ours());
            assert!(steering.on_others());
            assert!(!steering.on_others(), "there is a filter again");
        }
    }
}
