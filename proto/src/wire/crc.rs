//! CRC-32C of frames: short runs with the processor's instruction, longer ones by folding, which can copy them too; on other
//! processors by a crate.
//!
//! For a 32-byte frame the crates take 160 instructions and more to set up; the instruction alone takes 20
//! (`bench/NOTES.md`, "The frame check").
#![allow(unsafe_code, reason = "calls a function compiled for SSE 4.2 after asking the processor")]

#[cfg(target_arch = "x86_64")]
use super::fold;

/// The CRC of RFC 3720, 12.1.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_behind(0, bytes)
}

/// The CRC of what has the CRC `before` (0: of nothing) and `bytes` behind it.
#[inline]
pub(super) fn crc32c_behind(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: The processor was asked just now.
        return unsafe { short(before, bytes) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() > SHORT_MAX
        && let Some(crc) = fold::crc32c(before, bytes)
    {
        return crc;
    }
    by_crate(before, bytes)
}

/// As [`crc32c_behind`], on any processor.
fn by_crate(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// As [`crc32c_behind`], and copies `bytes` to `to`, which is as long.
#[inline]
pub(super) fn crc32c_copying(before: u32, bytes: &[u8], to: &mut [u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() > SHORT_MAX
        && let Some(crc) = fold::crc32c_copying(before, bytes, to)
    {
        return crc;
    }
    to.copy_from_slice(bytes);
    crc32c_behind(before, to)
}

/// One dependent instruction per 8 bytes, 3 cycles each: above this length folding wins.
const SHORT_MAX: usize = 256;
#[cfg(target_arch = "x86_64")]
const _: () = assert!(SHORT_MAX + 1 >= fold::LEN_MIN, "what is not short can be folded");

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn short(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    // A frame's check covers it from its fourth byte on: after one half word come whole ones at their natural places.
    let mut narrow = !before;
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
    use proptest::prelude::*;

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

    /// Around each length where the way changes: a vector, three of them, what is short, and the largest frames.
    fn lens() -> impl Strategy<Value = usize> {
        let around = |len: usize| len.saturating_sub(3)..len + 4;
        prop_oneof![0usize..1_200, around(1_500), around(4_096), around(8_192), around(9_000), around(65_536)]
    }

    proptest! {
        #[test]
        fn a_copy_with_its_check_is_a_copy_and_a_check(
            len in lens(), from in 0usize..64, to in 0usize..64, before: u32, seed: u64,
        ) {
            let mut source = vec![0; from + len];
            sidelane_nic::rng::Rng::new(seed).fill(&mut source);
            let bytes = &source[from..];
            let mut target = vec![0xee; to + len + 64];
            let crc = crc32c_copying(before, bytes, &mut target[to..to + len]);
            prop_assert_eq!(crc, by_crate(before, bytes));
            prop_assert_eq!(crc, crc32c_behind(before, bytes));
            prop_assert!(&target[to..to + len] == bytes);
            prop_assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0xee), "nothing beside it");
        }
    }
}
