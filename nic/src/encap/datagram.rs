//! Frames within UDP datagrams.
//!
//! | offset | length | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 2 | payload length | |
//! | 2 | 2 | version | 1 |
//! | 4 | | payload | |
//!
//! Numbers are big-endian. A datagram holds one frame as it is sent. A kernel that merges datagrams on receipt (UDP_GRO)
//! hands over several frames in one piece, and the lengths tell them apart: asking the kernel where the seams are (a
//! control message a datagram) costs 80 ns more.

use std::ops::Range;

use super::{Reject, read_u16};

/// The header of a frame with a payload of `len` bytes.
pub fn header(len: u16) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[LEN].copy_from_slice(&len.to_be_bytes());
    bytes[VERSION].copy_from_slice(&VERSION_1.to_be_bytes());
    bytes
}

/// The payload of the first frame in `bytes`. The next frame begins behind it.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&[u8], Reject> {
    let (header, rest) = bytes.split_at_checked(HEADER_LEN).ok_or(Reject::Truncated)?;
    if read_u16(header, VERSION) != VERSION_1 {
        return Err(Reject::Foreign);
    }
    rest.get(..usize::from(read_u16(header, LEN))).ok_or(Reject::Truncated)
}

/// How many frames `bytes` hold, up to the first that cannot be read.
pub fn count(mut bytes: &[u8]) -> usize {
    let mut frames = 0;
    while let Ok(payload) = parse(bytes) {
        bytes = &bytes[HEADER_LEN + payload.len()..];
        frames += 1;
    }
    frames
}

/// Bytes before the payload.
pub const HEADER_LEN: usize = VERSION.end;

const LEN: Range<usize> = 0..2;
const VERSION: Range<usize> = 2..4;
const VERSION_1: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_reads_back_as_it_was_written() {
        let frame = [&header(3)[..], b"abc"].concat();
        assert_eq!(frame, [0, 3, 0, 1, b'a', b'b', b'c'], "offsets are part of the wire format");
        assert_eq!(parse(&frame), Ok(&b"abc"[..]));
    }

    #[test]
    fn merged_frames_are_told_apart() {
        let merged = [&header(2)[..], b"ab", &header(0)[..], &header(1)[..], b"c"].concat();
        let mut rest = &merged[..];
        let mut payloads = Vec::new();
        while !rest.is_empty() {
            let payload = parse(rest).unwrap();
            payloads.push(payload);
            rest = &rest[HEADER_LEN + payload.len()..];
        }
        assert_eq!(payloads, [&b"ab"[..], b"", b"c"]);
        assert_eq!((count(&merged), count(&merged[..merged.len() - 1]), count(&[])), (3, 2, 0));
    }

    #[test]
    fn short_and_foreign_bytes_are_rejected() {
        let frame = [&header(3)[..], b"abc"].concat();
        for len in 0..frame.len() {
            assert_eq!(parse(&frame[..len]), Err(Reject::Truncated), "{len} bytes");
        }
        assert_eq!(parse(b"GET / HTTP/1.1"), Err(Reject::Foreign));
        for at in VERSION {
            let mut other = frame.clone();
            other[at] ^= 0x40;
            assert_eq!(parse(&other), Err(Reject::Foreign));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
