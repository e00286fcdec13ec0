//! Copies of a few bytes without a call: an 8-byte message is copied three times between its users, and a call of
//! `memcpy` for each takes more instructions than everything else that is done to it (`bench/NOTES.md`, "Short copies").

/// Copies `from` to `to`, which is as long.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    assert_eq!(to.len(), len, "both ends of a copy are as long");
    if (8..=16).contains(&len) {
        ends::<8>(to, from);
    } else if (17..=32).contains(&len) {
        ends::<16>(to, from);
    } else {
        to.copy_from_slice(from);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_whole() {
        for len in 0..70 {
            let from: Vec<u8> = (1..=len).collect();
            let mut to = vec![0; from.len()];
            copy(&mut to, &from);
            assert_eq!(to, from);
        }
    }
}
