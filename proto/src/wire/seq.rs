//! Sequence numbers, which wrap.

/// The number of a frame within one direction of a connection. Ordered by the shorter way round (RFC 1982).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub(crate) struct Seq(pub u32);

impl Seq {
    /// The number `n` further on.
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// How far on this is from `earlier`; negative when it is behind.
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert_eq!(Seq(2).since(Seq(u32::MAX)), 3);
        assert_eq!(Seq(u32::MAX).since(Seq(2)), -3);
        assert_eq!(Seq(u32::MAX).plus(3), Seq(2));
    }
}
