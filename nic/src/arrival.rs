//! Frames as a driver shows them: whole, or their beginning, while the rest waits to be told where it goes.

/// A frame that has arrived.
pub enum Arrival<'a> {
    /// All of it, in the driver's memory.
    Whole(&'a [u8]),
    /// Its beginning.
    Begun(Begun<'a>),
}

/// A frame whose beginning is in the driver's memory. The rest is copied once, to wherever it is wanted; what nobody asks for is dropped.
pub struct Begun<'a> {
    head: &'a [u8],
    len: usize,
    rest: &'a mut dyn Rest,
}

/// Where a driver has the rest of a frame. One of the two is called, once at most.
pub trait Rest {
    /// Copies the frame's bytes from its byte `at` on, of which there are as many as `into` is long. False when they are not to be had;
    /// what is in `into` is then anything.
    fn fetch(&mut self, at: usize, into: &mut [u8]) -> bool;

    /// The whole frame, in the driver's memory. `None` when it is not to be had.
    fn whole(&mut self) -> Option<&[u8]>;
}

impl<'a> Arrival<'a> {
    /// The whole frame. `None` when it is not to be had: then it counts as lost.
    #[inline]
    pub fn whole(self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(frame) => Some(frame),
            Self::Begun(begun) => begun.whole(),
        }
    }
}

impl<'a> Begun<'a> {
    /// A frame of `len` bytes that begins with `head`, which is shorter.
    pub fn new(head: &'a [u8], len: usize, rest: &'a mut dyn Rest) -> Self {
        assert!(head.len() < len, "a frame that is here is whole");
        Self { head, len, rest }
    }

    /// Its first bytes.
    pub const fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Bytes of the whole frame, more than its head has.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies its last bytes to `into`, from within its head on or from behind it. False when they are not to be had: then it counts as
    /// lost, and what is in `into` is anything.
    ///
    /// # Panics
    /// If the frame is not as long.
    pub fn fetch(self, into: &mut [u8]) -> bool {
        self.rest.fetch(self.len - into.len(), into)
    }

    /// The whole frame. `None` when it is not to be had: then it counts as lost.
    pub fn whole(self) -> Option<&'a [u8]> {
        self.rest.whole()
    }
}
