//! Agreements with crashes at every step: their states alone, whatever order things happen in; and devices over the simulated fabric.

mod agreement;
mod devices;

use super::*;

#[test]
fn failures_of_members_count_until_they_are_acknowledged_and_others_never_do() {
    let known = Acknowledged::new(Group::new([3, 5]).unwrap());
    let behind = [&[][..], &[4], &[4, 5], &[5, 4]].map(|gone| known.is_behind(gone));
    assert_eq!(behind, [false, false, true, true]);
    known.count.store(2, Ordering::Relaxed);
    assert_eq!([&[4, 5][..], &[4, 5, 6], &[4, 5, 6, 3]].map(|gone| known.is_behind(gone)), [false, false, true]);
}
