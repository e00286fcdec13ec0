//! The loops over arrays of elements, in a form that the compiler makes vector instructions of.

use super::Element;

/// `into[i] = f(from[i], into[i])`.
#[inline]
pub(super) fn fold<T: Element<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
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
