//! The loops over arrays of elements, in a form that the compiler makes vector instructions of: those of the processor, if the
//! array is worth asking for them.
#![allow(unsafe_code)] // Calls of what is compiled for more than every processor has, behind the question whether this one has it.

use super::Element;

/// `into[i] = f(from[i], into[i])`.
#[inline]
pub(super) fn fold<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
    #[cfg(target_arch = "x86_64")]
    if into.len() >= WIDE_MIN {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor has them, and with them AVX-512F, which both are extensions of.
            return unsafe { fold_avx512(into, from, f) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { fold_avx2(into, from, f) };
        }
    }
    each(into, from, f);
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

/// Bytes from which on wider instructions are asked for.
#[cfg(target_arch = "x86_64")]
const WIDE_MIN: usize = 512;
