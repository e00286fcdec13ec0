//! What the compiler cannot know: which way is seldom taken.
//!
//! A message's code runs cold, between two turns of the kernel: what is seldom done should not stand between what always is
//! (`bench/NOTES.md` 48).

/// `condition`, which is seldom true: what is done then stands out of the way.
#[inline(always)]
pub(crate) const fn seldom(condition: bool) -> bool {
    if condition {
        cold();
    }
    condition
}

/// Where this stands is seldom reached.
#[cold]
pub(crate) const fn cold() {}
