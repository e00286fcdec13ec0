//! Which frames are written next, and that each goes back to its pool once.

use super::*;
use crate::dpdk::eal;

#[test]
fn a_received_frame_in_one_piece_of_its_own_is_emptied_and_no_other() {
    // SAFETY: numbers, and pointers that nobody follows.
    let received =
        || sl_mbuf { segments: 1, references: 1, flags: 0x182, data_offset: 110, ..unsafe { std::mem::zeroed() } };
    let mut frame = received();
    assert!(empty(&mut frame));
    assert_eq!((frame.flags, frame.data_offset), (0, 128));
    let others = [
        sl_mbuf { segments: 2, ..received() },
        sl_mbuf { references: 2, ..received() },
        sl_mbuf { flags: 1 << 61, ..received() },
        sl_mbuf { flags: 1 << 62, ..received() },
    ];
    for mut other in others {
        let before = (other.flags, other.data_offset);
        assert!(!empty(&mut other));
        assert_eq!((other.flags, other.data_offset), before);
    }
}

/// So many frames are in a pool here: one burst, so that a single one that is missing shows.
const POOL: usize = BURST;

fn take(shim: Shim, pool: &Pool, count: usize) -> Option<Vec<*mut sl_mbuf>> {
    let mut frames = vec![NO_FRAME; count];
    // SAFETY: without a cache.
    unsafe { shim.alloc_frames(pool, CacheNumber::NONE, &mut frames) }.then_some(frames)
}

/// In pools of DPDK's own, without a device.
#[test]
fn only_the_last_frame_of_all_that_were_shown_and_of_the_own_pool_is_written_next_and_each_goes_back_once() {
    let load = sidelane_dpdk_sys::load().inspect_err(|error| println!("skipped: {error}"));
    if load.is_err() {
        return;
    }
    eal::up_without_device().unwrap();
    let shim = Shim::load().unwrap();
    let pool = |name: &str| Pool::new(shim, name, POOL as u32, 0, 64, -1).unwrap();
    let (own, other) = (pool("own"), pool("other"));
    let (mut rx, mut tx) =
        (RxBatch::new(shim, CacheNumber::NONE), TxBatch::with_room(shim, CacheNumber::NONE, 64, false));
    let of_own = take(shim, &own, 2).unwrap();
    let of_other = take(shim, &other, 1).unwrap();
    of_own.into_iter().for_each(|frame| rx.put(Frame(frame)));
    rx.show();
    assert!(!tx.take_one_shown(&own, &mut rx), "one is still to be shown");
    of_other.into_iter().for_each(|frame| rx.put(Frame(frame)));
    rx.show();
    rx.show();
    assert!(!tx.take_one_shown(&own, &mut rx), "it is of another pool");
    assert_eq!((rx.count, tx.count), (3, 0));
    // Neither is lost: both pools are whole again.
    rx.give_back();
    for pool in [&own, &other] {
        let mut all = take(shim, pool, POOL).expect("all came back");
        assert!(take(shim, pool, 1).is_none(), "and none twice");
        // SAFETY: taken just now, without a cache.
        unsafe { shim.free_frames(CacheNumber::NONE, &mut all) };
    }
    // One that somebody else holds too is not written, and ends with its other holder.
    let mut held = take(shim, &own, 1).unwrap();
    // SAFETY: it is ours.
    unsafe { (*held[0]).references = 2 };
    rx.put(Frame(held[0]));
    rx.show();
    assert!(!tx.take_one_shown(&own, &mut rx));
    rx.give_back();
    assert!(take(shim, &own, POOL).is_none(), "its other holder has it still");
    // SAFETY: this is its other holder.
    unsafe { shim.free_frames(CacheNumber::NONE, &mut held) };
    // Two of their own: the last one first, and both are no longer among those that go back.
    let frames = take(shim, &own, 3).unwrap();
    for frame in &frames {
        rx.put(Frame(*frame));
        rx.show();
    }
    for last in [frames[2], frames[1]] {
        assert!(tx.written == tx.count && tx.take_one_shown(&own, &mut rx));
        assert_eq!(tx.frames[tx.written], last);
        tx.stage(8);
    }
    assert_eq!((tx.count, rx.count), (2, 1));
    // The staged ones are forgotten, the one that was shown goes with `rx`, and one from the pool with `tx`.
    assert_eq!(tx.forget_staged(), 2);
    assert!(tx.restock(&own));
    drop((rx, tx));
    let mut all = take(shim, &own, POOL).expect("all came back");
    assert!(take(shim, &own, 1).is_none(), "and none twice");
    // SAFETY: as above.
    unsafe { shim.free_frames(CacheNumber::NONE, &mut all) };
}
