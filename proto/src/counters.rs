//! What an endpoint has seen and done, counted by reason.

/// Makes an enum of reasons, each with its counter's name.
macro_rules! reasons {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $reason:ident = $counter:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name { $($(#[$doc])* $reason,)+ }

        impl $name {
            /// All reasons, in the order of their counters.
            pub const ALL: [Self; [$($counter),+].len()] = [$(Self::$reason),+];

            /// The name of its counter.
            pub const fn counter(self) -> &'static str {
                match self { $(Self::$reason => $counter),+ }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a frame was dropped. Each is a field of [`Counters::rejected`].
    // A word: else what is parsed or refused is packed into bytes at odd places and loaded across them, 5 ns (bench/NOTES.md 73).
    #[repr(usize)]
    pub enum Reject {
        /// Too short for what it claims to be.
        Truncated = "rejected.truncated",
        /// Of another version of the protocol, or no frame of ours.
        Version = "rejected.version",
        /// Of a kind that this version does not know.
        Kind = "rejected.kind",
        /// Carries an authentication tag where there is no key, or none where there is one.
        Tag = "rejected.tag",
        /// To a connection that is not there, or not open yet.
        NoPeer = "rejected.no-peer",
        /// To an earlier life of this connection.
        Epoch = "rejected.epoch",
        /// Its check is wrong: damaged on the way, or forged.
        Check = "rejected.check",
        /// Its sequence number or ack lies outside the window: nobody who follows the rules sends that.
        Window = "rejected.window",
        /// The frame as such is sound, and what stands in it is not.
        Malformed = "rejected.malformed",
        /// Its sender went beyond its credit, and there is no room.
        Overrun = "rejected.overrun",
        /// A message longer than this endpoint takes.
        TooLong = "rejected.too-long",
        /// A Hello, and there is no room for another peer; or a frame of a stranger, of whom too many wait for an answer.
        TableFull = "rejected.table-full",
        /// A Hello, and the driver knows that its sender has gone since.
        SenderGone = "rejected.sender-gone",
        /// A Hello from the address of a peer that seems to live. The peer is asked.
        Challenged = "rejected.challenged",
        /// One-sided operations on a region that is not here, or not for this peer, or with another key.
        NoRegion = "rejected.no-region",
        /// One-sided operations that the region's key does not allow.
        Rights = "rejected.rights",
        /// One-sided operations beyond the end of a region.
        Bounds = "rejected.bounds",
        /// Its authentication tag is wrong: altered, or written by somebody without the job's key.
        Forged = "rejected.forged",
        /// Its running number was seen before, or is too old to tell, or it is a Hello of our own: somebody, or the network, sent the frame
        /// again.
        Replay = "rejected.replay",
        /// Of a stranger, and from an address where nobody is expected ([`crate::Endpoint::expect_only`]).
        NotExpected = "rejected.not-expected",
    }
}

/// Counts since the endpoint was made. Each frame that the driver shows counts once: `frames_received` and
/// [`Self::rejected_total`] make up what [`crate::Endpoint::poll`] returned, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that `send` and `send_owned` took.
    pub messages_sent: u64,
    /// Messages that `recv` gave out.
    pub messages_received: u64,
    /// Of these, those that were taken where the driver had received them ([`crate::Endpoint::poll_offering`]).
    pub messages_in_place: u64,
    /// Frames written, of any kind, those that were written again among them.
    pub frames_sent: u64,
    /// Frames that were taken in, of any kind: those of a connection, and what strangers may ask.
    pub frames_received: u64,
    /// Acks without records that were sent.
    pub acks_sent: u64,
    /// Frames written again because they count as lost.
    pub retransmitted: u64,
    /// Frames written again to find out (tail-loss probes).
    pub probes_sent: u64,
    /// Times that nothing was acknowledged for so long that a peer was probed, or asked.
    pub timeouts: u64,
    /// Frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived before their turn and were kept.
    pub reordered: u64,
    /// Of these, frames of one-sided operations whose bytes were placed at once.
    pub placed_early: u64,
    /// Times that a peer's credit was used up with messages waiting.
    pub credit_stalls: u64,
    /// Times that the driver had no transmit buffer.
    pub nic_full: u64,
    /// Times that `send` or `send_owned` found no room.
    pub messages_refused: u64,
    /// Pings sent.
    pub pings_sent: u64,
    /// Hellos sent: connections begun, and what was said again for want of an answer.
    pub hellos_sent: u64,
    /// Resets sent to those who believe in a connection that is not here.
    pub resets_sent: u64,
    /// Peers that are gone, for whatever reason but a close.
    pub peers_gone: u64,
    /// Times that the endpoint was not polled for longer than a keep-alive.
    pub absences: u64,
    /// Puts that were handed over, signals among them.
    pub puts: u64,
    /// Gets that were handed over.
    pub gets: u64,
    /// Atomics that were handed over.
    pub atomics: u64,
    /// Times that an operation found no room.
    pub operations_refused: u64,
    /// Operations that ended with [`crate::Event::OpFailed`].
    pub operations_failed: u64,
    /// Operations of peers that were carried out, or failed at them.
    pub operations_taken: u64,
    /// Frames dropped, by [`Reject`] as index.
    pub rejected: [u64; Reject::ALL.len()],
}

impl Counters {
    /// Frames dropped for `reason`.
    pub fn rejected(&self, reason: Reject) -> u64 {
        self.rejected[reason as usize]
    }

    /// Frames dropped for any reason.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// Shows every count with its name.
    pub fn each(&self, mut show: impl FnMut(&'static str, u64)) {
        // A pattern without `..`, so that a count which is added above cannot be forgotten here.
        macro_rules! fields {
            ($($name:ident)*) => {
                let Self { $($name,)* rejected: _ } = self;
                $(show(stringify!($name), *$name);)*
            };
        }
        fields!(messages_sent messages_received messages_in_place messages_refused frames_sent frames_received acks_sent retransmitted
            probes_sent timeouts duplicates reordered placed_early credit_stalls nic_full pings_sent hellos_sent
            resets_sent peers_gone absences puts gets atomics operations_refused operations_failed operations_taken);
        for (reason, count) in Reject::ALL.into_iter().zip(self.rejected) {
            show(reason.counter(), count);
        }
    }

    /// A frame that counted as taken in was refused when its turn came.
    #[cold]
    pub(crate) fn reject_after_all(&mut self, reason: Reject) {
        self.frames_received -= 1;
        self.reject(reason);
    }

    #[cold]
    pub(crate) fn reject(&mut self, reason: Reject) {
        self.rejected[reason as usize] += 1;
    }
}
