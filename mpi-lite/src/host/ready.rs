//! Whether a call of few bytes has to wait for anybody. If not, a rank that does not wait makes it as one that does (`few.rs`),
//! without a future. What is true here stays so until the call is made.

use super::Host;

impl Host {
    /// Whether what this rank shows to all in this call has room.
    #[inline]
    pub fn may_show(&mut self) -> bool {
        self.slots.may_show()
    }

    /// The same of what it shows to the next member only.
    #[inline]
    pub fn may_show_next(&mut self) -> bool {
        self.slots.may_show_next()
    }

    /// Whether a member has shown what it shows in this call.
    #[inline]
    pub fn has_shown(&self, member: usize) -> bool {
        self.slots.has_shown(member)
    }

    /// Whether all others have.
    #[inline]
    pub fn have_others_shown(&self) -> bool {
        (0..self.size).all(|member| member == self.me || self.slots.has_shown(member))
    }

    /// Whether it is worth while to look for all others in this call: they have come to where all meet, or each has a core.
    #[inline]
    pub fn may_all_have_come(&self) -> bool {
        !self.slots.ground.is_crowded() || self.slots.are_we_last()
    }
}
