//! CRC-32C of a frame of Ethernet's size by carry-less products of 64 bytes at a time (Gopal et al., "Fast CRC Computation for
//! Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
//!
//! The bytes are a polynomial; what stands 64 bytes further on is worth x^512 times less, so 64 bytes times x^512 modulo the
//! CRC's polynomial may be added to the next 64. The first, incomplete 64 bytes are filled up with zeros in front, which add
//! nothing, so that none are left over at the end: byte for byte those would cost as much as all the rest.
//!
//! A frame that is copied anyway is copied here, which takes no longer than the copy alone (`bench/NOTES.md`, "The frame check").
#![allow(
    unsafe_code,
    reason = "reads and writes whole vectors of slices, and calls what is compiled for AVX-512 after asking"
)]

use std::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128, _mm512_and_si512,
    _mm512_castsi512_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set_epi64, _mm512_set1_epi32, _mm512_set4_epi64,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use sidelane_nic::prefetch;

/// The CRC of RFC 3720, 12.1, of what has the CRC `before` (0: of nothing) and `bytes` behind it; `None` where the processor
/// cannot.
///
/// # Panics
/// Of fewer bytes than [`LEN_MIN`].
#[inline]
pub(super) fn crc32c(before: u32, bytes: &[u8]) -> Option<u32> {
    // SAFETY: The processor was asked just now.
    can().then(|| unsafe { fold::<false>(before, bytes, &mut []) })
}

/// As [`crc32c`], and copies `bytes` to `to`, which is as long: each vector is loaded once for both.
#[inline]
pub(super) fn crc32c_copying(before: u32, bytes: &[u8], to: &mut [u8]) -> Option<u32> {
    // SAFETY: The processor was asked just now.
    can().then(|| unsafe { fold::<true>(before, bytes, to) })
}

#[inline]
fn can() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2")]
fn fold<const COPY: bool>(before: u32, bytes: &[u8], to: &mut [u8]) -> u32 {
    assert!(bytes.len() >= LEN_MIN, "there are three vectors, the first of which may have a single byte");
    assert!(!COPY || to.len() == bytes.len(), "both ends of a copy are as long");
    // 1 to 64 bytes, then whole vectors.
    let front = (bytes.len() - 1) % VECTOR + 1;
    let zeros = VECTOR - front;
    let (vectors, _) = bytes[front..].as_chunks::<VECTOR>();
    let front_mask = u64::MAX << zeros;
    // SAFETY: the mask leaves out the `zeros` bytes before the slice, which are then not touched, and reads its first `front`.
    let first = unsafe { _mm512_maskz_loadu_epi8(front_mask, bytes.as_ptr().wrapping_sub(zeros).cast()) };
    if COPY {
        // SAFETY: as above; `to` is as long.
        unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().wrapping_sub(zeros).cast(), front_mask, first) };
    }
    let (to_vectors, _) = to.get_mut(front..).unwrap_or_default().as_chunks_mut::<VECTOR>();
    let mut next = |at: usize| {
        let vector = load(&vectors[at]);
        if COPY {
            store(&mut to_vectors[at], vector);
        }
        vector
    };
    // A CRC begins with all ones, or goes on from the one before: added to the first four bytes, wherever these stand.
    let begin = _mm512_set1_epi32((!before).rotate_left(8 * (zeros as u32 % 4)).cast_signed());
    let begin = |at: usize| {
        let mask = load(BEGIN[at..].first_chunk().expect("the table has two vectors beyond the first"));
        _mm512_and_si512(begin, mask)
    };
    let mut folded = [_mm512_xor_si512(first, begin(front)), _mm512_xor_si512(next(0), begin(front + VECTOR)), next(1)];
    let mut at = 2;
    while at + 3 <= vectors.len() {
        for folded in &mut folded {
            fetch_ahead(vectors, at);
            *folded = carry(*folded, times(3 * VECTOR), next(at));
            at += 1;
        }
    }
    let mut last = carry(folded[0], times(VECTOR), folded[1]);
    last = carry(last, times(VECTOR), folded[2]);
    while at < vectors.len() {
        last = carry(last, times(VECTOR), next(at));
        at += 1;
    }
    // Each quarter is worth less than the one before by its length.
    let [a, b] = factors(48);
    let [c, d] = factors(32);
    let [e, f] = factors(16);
    let products = carry(last, _mm512_set_epi64(0, 0, f, e, d, c, b, a), _mm512_set4_epi64(0, 0, 0, 0));
    let quarters = _mm_xor_si128(
        _mm_xor_si128(_mm512_castsi512_si128(products), _mm512_extracti32x4_epi32::<1>(products)),
        _mm_xor_si128(_mm512_extracti32x4_epi32::<2>(products), _mm512_extracti32x4_epi32::<3>(last)),
    );
    let low = _mm_crc32_u64(0, _mm_cvtsi128_si64(quarters).cast_unsigned());
    !(_mm_crc32_u64(low, _mm_extract_epi64::<1>(quarters).cast_unsigned()) as u32)
}

/// `far` brought to the place of `near`, by its factors, and added.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn carry(far: __m512i, factors: __m512i, near: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(far, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(far, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, near)
}

/// Of long frames: the processor by itself fetches ahead within a page of 4 KiB only (`bench/NOTES.md`, "The frame check").
#[inline]
fn fetch_ahead(vectors: &[[u8; VECTOR]], at: usize) {
    if let Some(vector) = vectors.get(at + AHEAD) {
        prefetch::to_read(vector);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: as many bytes as a vector has, which may stand anywhere.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; VECTOR], vector: __m512i) {
    // SAFETY: as many bytes as a vector has, which may stand anywhere.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

/// Factors for what stands `bytes` before its place, in each quarter of a vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn times(bytes: usize) -> __m512i {
    let [low, high] = factors(bytes);
    _mm512_set4_epi64(high, low, high, low)
}

/// Factors of the lower and the upper eight of 16 bytes that stand `bytes` before their place.
#[inline(always)]
const fn factors(bytes: usize) -> [i64; 2] {
    match bytes {
        16 => const { factors_of(16) },
        32 => const { factors_of(32) },
        48 => const { factors_of(48) },
        64 => const { factors_of(64) },
        192 => const { factors_of(192) },
        _ => panic!("no such distance"),
    }
}

const fn factors_of(bytes: usize) -> [i64; 2] {
    // In bit-reflected form a product comes out one place too low, and the CRC instruction multiplies by x^32 once more: 64 - 32 - 1
    // for the half that is further away, and -32 - 1 for the nearer.
    [power(8 * bytes + 31), power(8 * bytes - 33)]
}

/// x^`exponent` modulo the polynomial of CRC-32C, its highest coefficient in the lowest bit.
const fn power(exponent: usize) -> i64 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut power = 1u32 << 31;
    let mut at = 0;
    while at < exponent {
        power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
        at += 1;
    }
    power as i64
}

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Vectors, 2 KiB in all, between the one that is folded and the one that is fetched meanwhile.
const AHEAD: usize = 32;
/// The first vector may have one byte only.
pub(super) const LEN_MIN: usize = 2 * VECTOR + 1;
/// The truth table of a ^ b ^ c.
const XOR_OF_THREE: i32 = 0x96;
/// Where the first four bytes are: in a vector that begins `n` bytes on, `n` bytes before the end of the first.
static BEGIN: [u8; 3 * VECTOR] = {
    let mut bytes = [0; 3 * VECTOR];
    let mut at = VECTOR;
    while at < VECTOR + 4 {
        bytes[at] = 0xff;
        at += 1;
    }
    bytes
};

#[cfg(test)]
mod tests {
    use super::*;

    const SKIPPED: &str = "skipped: wants AVX-512 and VPCLMULQDQ";

    fn bytes() -> Vec<u8> {
        (0..3_000u32).map(|i| (i * i * 31 + i) as u8).collect()
    }

    #[test]
    fn every_length_agrees_with_the_crate() {
        let bytes = bytes();
        for at in [0, 1, 4, 63] {
            for len in LEN_MIN..2_900 {
                let bytes = &bytes[at..at + len];
                let other = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
                let Some(crc) = crc32c(0, bytes) else { return println!("{SKIPPED}") };
                assert_eq!(crc, other, "{len} bytes from {at} on");
            }
        }
    }

    #[test]
    fn a_copy_goes_on_from_what_stands_before_and_touches_nothing_else() {
        let bytes = bytes();
        for before in [0, 1, 2, 3, 28, 32] {
            for len in LEN_MIN..LEN_MIN + 700 {
                let (front, part) = bytes[..before + len].split_at(before);
                let whole = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..before + len]) as u32;
                let before_crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, front) as u32;
                let mut place = vec![0xee; len + 130];
                let copied = crc32c_copying(before_crc, part, &mut place[65..65 + len]);
                let Some(crc) = copied else { return println!("{SKIPPED}") };
                assert_eq!(crc, whole, "{len} bytes behind {before}");
                assert_eq!(&place[65..65 + len], part);
                assert!(place[..65].iter().chain(&place[65 + len..]).all(|byte| *byte == 0xee));
                assert_eq!(crc32c(before_crc, part), Some(whole));
            }
        }
    }
}
