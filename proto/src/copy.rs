//! Copies of a few bytes: without a call, and in pieces that the processor can forward.
//!
//! An 8-byte message is copied three times between its users. A call of `memcpy` for each takes more instructions than
//! everything else that is done to it; and a load that spans two stores still in the store buffer waits until both are in
//! the cache (AMD's and Intel's optimisation manuals, "store-to-load forwarding"). So bytes are written in the pieces in
//! which they will be read (`bench/NOTES.md`, "Short copies").

use sidelane_nic::copy::copy;

/// Copies `from` to `to`, which is as long, for a reader that begins at the front: the check, and the copy into a frame.
#[inline]
pub(crate) fn copy_words(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "both ends of a copy are as long");
    if from.len() > SHORT_MAX {
        copy(to, from);
        return;
    }
    // No loop: the compiler makes a call of `memcpy` of one.
    let (to, from) = piece::<32>(to, from);
    let (to, from) = piece::<16>(to, from);
    let (to, from) = piece::<8>(to, from);
    let (to, from) = piece::<4>(to, from);
    let (to, from) = piece::<2>(to, from);
    piece::<1>(to, from);
}

/// Copies the first `N` bytes if the length, which is below twice that, has them. What is left to copy.
#[inline]
fn piece<'a, const N: usize>(to: &'a mut [u8], from: &'a [u8]) -> (&'a mut [u8], &'a [u8]) {
    if from.len() >= N && to.len() >= N {
        let (to, to_rest) = to.split_at_mut(N);
        let (from, from_rest) = from.split_at(N);
        to.copy_from_slice(from);
        return (to_rest, from_rest);
    }
    (to, from)
}

/// Copies `from` to `to`, which is as long, for a reader that wants the last bytes in one piece: a message's user.
#[inline]
pub(crate) fn copy_ends(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "both ends of a copy are as long");
    match from.len() {
        8..=16 => ends::<8>(to, from),
        17..=32 => ends::<16>(to, from),
        _ => copy(to, from),
    }
}

/// The first `N` bytes and the last `N`, which may overlap.
#[inline]
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(&first), Some(&last)) = (from.first_chunk::<N>(), from.last_chunk::<N>())
        && let Some(place) = to.first_chunk_mut::<N>()
    {
        *place = first;
        if let Some(place) = to.last_chunk_mut::<N>() {
            *place = last;
        }
    }
}

/// As far as the pieces go; what is longer is a call's.
const SHORT_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_whole() {
        for len in 0..70 {
            let from: Vec<u8> = (1..=len).collect();
            for copy in [copy_words, copy_ends] {
                let mut to = vec![0; from.len()];
                copy(&mut to, &from);
                assert_eq!(to, from);
            }
        }
    }
}
