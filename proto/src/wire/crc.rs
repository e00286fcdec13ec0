//! CRC-32C of frames: short runs with the processor's instruction, longer ones by folding, the longest by a crate's.
//!
//! For a 32-byte frame the crates take 160 instructions and more to set up; the instruction alone takes 20
//! (`bench/NOTES.md`, "The frame check").
#![allow(unsafe_code, reason = "calls a function compiled for SSE 4.2 after asking the processor")]

#[cfg(target_arch = "x86_64")]
use super::fold;

/// The CRC of RFC 3720, 12.1.
#[inline]
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: The processor was asked just now.
        return unsafe { short(bytes) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= MEDIUM_MAX
        && let Some(crc) = fold::crc32c(bytes)
    {
        return crc;
    }
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC of both parts, one after the other.
pub(super) fn crc32c_parts(front: &[u8], tail: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(front);
    digest.update(tail);
    digest.finalize() as u32
}

/// One dependent instruction per 8 bytes, 3 cycles each: above this length folding wins.
const SHORT_MAX: usize = 256;
/// The crate takes up to 384 bytes at an end by one dependent instruction per 8 bytes, which is nothing beside so many.
const MEDIUM_MAX: usize = 8_192;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn short(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    // A frame's check covers it from its fourth byte on: after one half word come whole ones at their natural places.
    let mut narrow = u32::MAX;
    let mut rest = bytes;
    if let Some((&half, behind)) = rest.split_first_chunk() {
        narrow = _mm_crc32_u32(narrow, u32::from_le_bytes(half));
        rest = behind;
    }
    let mut wide = u64::from(narrow);
    while let Some((&word, behind)) = rest.split_first_chunk() {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(word));
        rest = behind;
    }
    narrow = wide as u32;
    if let Some((&half, behind)) = rest.split_first_chunk() {
        narrow = _mm_crc32_u32(narrow, u32::from_le_bytes(half));
        rest = behind;
    }
    for &byte in rest {
        narrow = _mm_crc32_u8(narrow, byte);
    }
    !narrow
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn known_values() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    #[test]
    fn short_and_long_agree_at_every_length() {
        let bytes: Vec<u8> = (0..600u32).map(|i| (i * 31) as u8).collect();
        for len in 0..bytes.len() {
            let long = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..len]) as u32;
            assert_eq!(crc32c(&bytes[..len]), long, "{len}");
        }
    }
}
