//! The loops over arrays of elements, in a form that the compiler makes vector instructions of: of arrays of numbers that are worth
//! the question, those that this processor has.
#![allow(unsafe_code)] // Calls of what is compiled for more than every processor has, behind the question whether this one has it.

use super::Element;

/// `into[i] = f(from[i], into[i])`.
#[inline]
pub(super) fn fold<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
    #[cfg(target_arch = "x86_64")]
    if into.len() >= WIDE_MIN {
        if has_avx512() {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { fold_avx512(into, from, f) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { fold_avx2(into, from, f) };
        }
    }
    each(into, from, f);
}

/// All that [`fold_avx512`] is compiled for: AVX-512F has the compiler take the last three for given.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn fold_avx512<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
    each(into, from, f);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_avx2<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
    each(into, from, f);
}

#[inline(always)]
fn each<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
    for (old, new) in into.as_chunks_mut::<N>().0.iter_mut().zip(from.as_chunks::<N>().0) {
        *old = f(T::load(*new), T::load(*old)).store();
    }
}

/// The same for complex numbers of `N` bytes a part.
#[inline]
pub(super) fn fold_complex<T: Element<N>, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    f: impl Fn([T; 2], [T; 2]) -> [T; 2],
) {
    let (into, _) = into.as_chunks_mut::<N>().0.as_chunks_mut::<2>();
    let (from, _) = from.as_chunks::<N>().0.as_chunks::<2>();
    for (old, new) in into.iter_mut().zip(from) {
        *old = f(new.map(T::load), old.map(T::load)).map(T::store);
    }
}

/// Bytes from which on wider instructions are asked for: 1 KiB of `u32` is added in 20 ns without them and in 10 with.
#[cfg(target_arch = "x86_64")]
const WIDE_MIN: usize = 512;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::element::{Integral, Real};
    use super::*;

    fn numbers(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 167 + seed + at / 251) as u8).collect()
    }

    fn are_alike<T: Element<N>, const N: usize>(f: impl Fn(T, T) -> T + Copy) {
        for bytes in [0, N, WIDE_MIN - N, WIDE_MIN, WIDE_MIN + N, 1_040, 1_104] {
            let (into, from) = (numbers(bytes, 3), numbers(bytes, 90));
            let mut expected = into.clone();
            each(&mut expected, &from, f);
            let check = |fold: unsafe fn(&mut [u8], &[u8], _), what: &str| {
                let mut result = into.clone();
                // SAFETY: asked for by the caller.
                unsafe { fold(&mut result, &from, f) };
                assert!(result == expected, "{what}, elements of {N} bytes, {bytes} bytes");
            };
            if is_x86_feature_detected!("avx2") {
                check(fold_avx2::<T, N>, "AVX2");
            }
            if has_avx512() {
                check(fold_avx512::<T, N>, "AVX-512");
            }
            check(fold::<T, N>, "what the processor has");
        }
    }

    fn arithmetic<T: Real<N>, const N: usize>() {
        are_alike(T::plus);
        are_alike(T::times);
        are_alike(T::minus);
        are_alike(|a: T, b| if a > b { a } else { b });
    }

    fn bits<T: Integral<N>, const N: usize>() {
        arithmetic::<T, N>();
        are_alike(|a: T, b| a & b);
        are_alike(|a: T, b| T::truth((a != T::ZERO) != (b != T::ZERO)));
    }

    #[test]
    fn wider_instructions_give_the_same() {
        bits::<u8, _>();
        bits::<i16, _>();
        bits::<u32, _>();
        bits::<i64, _>();
        arithmetic::<f32, _>();
        arithmetic::<f64, _>();
    }
}
