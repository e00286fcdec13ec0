//! What two endpoints tell each other to open a connection, and the tokens by which they know it later.

use super::{u16_at, u32_at, u64_at};
use crate::counters::Reject;

mod field {
    use std::ops::Range;
    pub const TOKEN: Range<usize> = 0..8;
    pub const ECHO: Range<usize> = 8..16;
    pub const MTU: Range<usize> = 16..20;
    pub const CREDIT: Range<usize> = 20..24;
    pub const ACK_DELAY: Range<usize> = 24..28;
    pub const SEEN_LEN: Range<usize> = 28..32;
    pub const INDEX: Range<usize> = 32..34;
    pub const WINDOW: Range<usize> = 34..36;
    pub const MESSAGE_MAX: Range<usize> = 36..40;
}

/// Length of a Hello's or HelloAck's body without its padding.
pub(crate) const HELLO_LEN: usize = 40;
/// Length of a Ping's or Reset's body.
pub(crate) const PING_LEN: usize = 16;
const _: () = assert!(field::MESSAGE_MAX.end == HELLO_LEN);

/// Body of Hello and HelloAck. A Hello is padded with zeros to the length that its sender wants to use: that it
/// arrives proves the path MTU (as in RFC 8899).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Drawn at random by the sender for this life of the connection; never zero.
    pub token: u64,
    /// Token of the Hello that is answered; zero in a Hello.
    pub echo: u64,
    /// Largest frame that the sender takes.
    pub mtu: u32,
    /// Bytes of the sender's receive FIFO: how far the stream may run at first.
    pub credit: u32,
    /// Longest time in nanoseconds that the sender keeps an ack back.
    pub ack_delay: u32,
    /// Length of the Hello frame that is answered; zero in a Hello.
    pub seen_len: u32,
    /// Longest message in bytes that the sender takes.
    pub message_max: u32,
    /// Index of the connection at the sender.
    pub index: u16,
    /// Frames that the sender wants to be in flight to it at most.
    pub window: u16,
}

/// Body of Ping and Reset: which connection is meant, in both sides' terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tokens {
    /// Token of the frame's sender.
    pub from: u64,
    /// Token of the frame's receiver.
    pub to: u64,
}

impl Hello {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, Reject> {
        if body.len() < HELLO_LEN {
            return Err(Reject::Truncated);
        }
        let hello = Self {
            token: u64_at(body, field::TOKEN.start),
            echo: u64_at(body, field::ECHO.start),
            mtu: u32_at(body, field::MTU.start),
            credit: u32_at(body, field::CREDIT.start),
            ack_delay: u32_at(body, field::ACK_DELAY.start),
            seen_len: u32_at(body, field::SEEN_LEN.start),
            message_max: u32_at(body, field::MESSAGE_MAX.start),
            index: u16_at(body, field::INDEX.start),
            window: u16_at(body, field::WINDOW.start),
        };
        if hello.token == 0 || hello.window == 0 || hello.index == super::NO_PEER {
            return Err(Reject::Malformed);
        }
        Ok(hello)
    }

    /// Writes the body and zeroes the padding behind it.
    pub fn emit(&self, body: &mut [u8]) {
        body.fill(0);
        body[field::TOKEN].copy_from_slice(&self.token.to_le_bytes());
        body[field::ECHO].copy_from_slice(&self.echo.to_le_bytes());
        body[field::MTU].copy_from_slice(&self.mtu.to_le_bytes());
        body[field::CREDIT].copy_from_slice(&self.credit.to_le_bytes());
        body[field::ACK_DELAY].copy_from_slice(&self.ack_delay.to_le_bytes());
        body[field::SEEN_LEN].copy_from_slice(&self.seen_len.to_le_bytes());
        body[field::MESSAGE_MAX].copy_from_slice(&self.message_max.to_le_bytes());
        body[field::INDEX].copy_from_slice(&self.index.to_le_bytes());
        body[field::WINDOW].copy_from_slice(&self.window.to_le_bytes());
    }
}

impl Tokens {
    /// In a Reset of a reliable driver: to whoever sent a frame to a connection that is not here, whose tokens nobody knows.
    pub const UNKNOWN: Self = Self { from: 0, to: 0 };

    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, Reject> {
        if body.len() != PING_LEN {
            return Err(Reject::Truncated);
        }
        Ok(Self { from: u64_at(body, 0), to: u64_at(body, 8) })
    }

    /// Writes the body.
    pub fn emit(&self, body: &mut [u8]) {
        body[..8].copy_from_slice(&self.from.to_le_bytes());
        body[8..PING_LEN].copy_from_slice(&self.to.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_reads_back_as_it_was_written(token in 1u64.., echo: u64, mtu: u32, credit: u32, ack_delay: u32, seen_len: u32, message_max: u32, index in 0u16..u16::MAX, window in 1u16.., padding in 0usize..32) {
            let hello = Hello { token, echo, mtu, credit, ack_delay, seen_len, message_max, index, window };
            let mut body = vec![0xee; HELLO_LEN + padding];
            hello.emit(&mut body);
            prop_assert_eq!(Hello::parse(&body), Ok(hello));
            prop_assert!(body[HELLO_LEN..].iter().all(|byte| *byte == 0));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Hello::parse(&bytes);
            let _ = Tokens::parse(&bytes);
        }
    }

    #[test]
    fn who_has_no_token_no_window_or_no_index_is_refused() {
        let sound = Hello {
            token: 1,
            echo: 0,
            mtu: 1_500,
            credit: 0,
            ack_delay: 0,
            seen_len: 0,
            message_max: 0,
            index: super::super::NO_PEER - 1,
            window: 1,
        };
        let parsed = |hello: Hello| {
            let mut body = [0; HELLO_LEN];
            hello.emit(&mut body);
            Hello::parse(&body).map(drop)
        };
        assert_eq!(parsed(sound), Ok(()));
        for wrong in
            [Hello { token: 0, ..sound }, Hello { window: 0, ..sound }, Hello { index: super::super::NO_PEER, ..sound }]
        {
            assert_eq!(parsed(wrong), Err(Reject::Malformed), "{wrong:?}");
        }
    }
}
