//! Copies of a few bytes: without a call, and in pieces that the processor can forward.
//!
//! An 8-byte message is copied three times between its users. A call of `memcpy` for each takes more instructions than
//! everything else that is done to it; and a load that spans two stores still in the store buffer waits until both are in
//! the cache (AMD's and Intel's optimisation manuals, "store-to-load forwarding"). So bytes are written in the pieces in
//! which they will be read (`bench/NOTES.md`, "Short copies").

/// Copies `from` to `to`, which is as long, for a reader that begins at the front: the check, and the copy into a frame.
#[inline]
pub(crate) fn copy_words(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "both ends of a copy are as long");
    if from.len() > SHORT_MAX {
        to.copy_from_slice(from);
        return;
    }
    let (words, rest) = from.as_chunks::<8>();
    let (to_words, to_rest) = to.as_chunks_mut::<8>();
    for (to, from) in to_words.iter_mut().zip(words) {
        *to = *from;
    }
    if let (Some((to, to_rest)), Some((from, rest))) = (to_rest.split_first_chunk_mut::<4>(), rest.split_first_chunk())
    {
        *to = *from;
        copy_bytes(to_rest, rest);
    } else {
        copy_bytes(to_rest, rest);
    }
}

/// Copies `from` to `to`, which is as long, for a reader that wants the last bytes in one piece: a message's user.
#[inline]
pub(crate) fn copy_ends(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "both ends of a copy are as long");
    match from.len() {
        8..=16 => ends::<8>(to, from),
        17..=32 => ends::<16>(to, from),
        _ => to.copy_from_slice(from),
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

#[inline]
fn copy_bytes(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Above this a call is worth it.
const SHORT_MAX: usize = 40;

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
