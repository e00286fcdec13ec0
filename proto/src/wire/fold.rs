//! CRC-32C of a frame of Ethernet's size by carry-less products of 64 bytes at a time (Gopal et al., "Fast CRC Computation for
//! Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
//!
//! The bytes are a polynomial; what stands 64 bytes further on is worth x^512 times less, so 64 bytes times x^512 modulo the
//! CRC's polynomial may be added to the next 64. The first, incomplete 64 bytes are filled up with zeros in front, which add
//! nothing, so that none are left over at the end: byte for byte those would cost as much as all the rest.
#![allow(unsafe_code, reason = "reads whole vectors from slices, and calls what is compiled for AVX-512 after asking")]

use std::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128, _mm512_castsi512_si128,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_set_epi64,
    _mm512_set4_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

/// The CRC of RFC 3720, 12.1; `None` where the processor cannot.
///
/// # Panics
/// Of fewer bytes than `LEN_MIN`.
#[inline]
pub(super) fn crc32c(bytes: &[u8]) -> Option<u32> {
    let can = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("sse4.2");
    // SAFETY: The processor was asked just now.
    can.then(|| unsafe { fold(bytes) })
}

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2")]
fn fold(bytes: &[u8]) -> u32 {
    assert!(bytes.len() >= LEN_MIN, "there are three vectors, the first of which may have a single byte");
    // 1 to 64 bytes, then whole vectors.
    let front = (bytes.len() - 1) % VECTOR + 1;
    let zeros = VECTOR - front;
    let (vectors, _) = bytes[front..].as_chunks::<VECTOR>();
    // SAFETY: the mask leaves out the `zeros` bytes before the slice, which are then not touched, and reads its first `front`.
    let first = unsafe { _mm512_maskz_loadu_epi8(u64::MAX << zeros, bytes.as_ptr().wrapping_sub(zeros).cast()) };
    // A CRC begins with all ones, added to the first four bytes, wherever these stand.
    let ones = |at: usize| load(ONES[at..].first_chunk().expect("the table has two vectors beyond the first"));
    let mut folded = [
        _mm512_xor_si512(first, ones(front)),
        _mm512_xor_si512(load(&vectors[0]), ones(front + VECTOR)),
        load(&vectors[1]),
    ];
    let (threes, rest) = vectors[2..].as_chunks::<3>();
    for three in threes {
        for (folded, vector) in folded.iter_mut().zip(three) {
            *folded = carry(*folded, times(3 * VECTOR), load(vector));
        }
    }
    let mut last = carry(folded[0], times(VECTOR), folded[1]);
    last = carry(last, times(VECTOR), folded[2]);
    for vector in rest {
        last = carry(last, times(VECTOR), load(vector));
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

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: as many bytes as a vector has, which may stand anywhere.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
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
/// The first vector may have one byte only.
const LEN_MIN: usize = 2 * VECTOR + 1;
/// The truth table of a ^ b ^ c.
const XOR_OF_THREE: i32 = 0x96;
/// A vector that begins `n` bytes on has its ones `n` bytes before the end of the first.
static ONES: [u8; 3 * VECTOR] = {
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

    #[test]
    fn every_length_agrees_with_the_crate() {
        let bytes: Vec<u8> = (0..3_000u32).map(|i| (i * i * 31 + i) as u8).collect();
        for at in [0, 1, 4, 63] {
            for len in LEN_MIN..2_900 {
                let bytes = &bytes[at..at + len];
                let other = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
                let Some(crc) = crc32c(bytes) else { return println!("skipped: wants AVX-512 and VPCLMULQDQ") };
                assert_eq!(crc, other, "{len} bytes from {at} on");
            }
        }
    }
}
