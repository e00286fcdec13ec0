//! The receiving end of the numbering against a simple model: a map of what arrived.

use std::collections::BTreeMap;

use super::{Kept, Reorder, Turn};
use crate::in_flight::WINDOW_MAX;
use crate::wire::Seq;
use proptest::prelude::*;

const HELD_MAX: usize = 200;

proptest! {
    #[test]
    fn every_frame_passes_once_and_in_order(first: u32, arrivals in proptest::collection::vec((-5i64..300, 0usize..60), 1..400)) {
        let mut reorder = Reorder::new(Seq(first), HELD_MAX);
        // Numbers counted from `first`, and never wrapping.
        let (mut due, mut kept) = (0i64, BTreeMap::new());
        for (ahead, len) in arrivals {
            // Mostly near the number that is due.
            let number = due + if ahead < 290 { ahead % 12 } else { ahead };
            let seq = Seq(first.wrapping_add(number as u32));
            let turn = match number - due {
                0 => Turn::Now,
                ahead if ahead < 0 || kept.contains_key(&number) => Turn::Duplicate,
                ahead if ahead >= i64::from(WINDOW_MAX) => Turn::Beyond,
                _ => Turn::Early,
            };
            prop_assert_eq!(reorder.turn(seq), turn);
            let held: usize = kept.values().map(Vec::len).sum();
            match turn {
                Turn::Early => {
                    let body = vec![number as u8; len];
                    let fits = held + len <= HELD_MAX;
                    prop_assert_eq!(reorder.keep(seq, &body), fits);
                    if fits {
                        kept.insert(number, body);
                    }
                }
                Turn::Now => {
                    // As a connection does it: the frame, then those that waited behind it.
                    while let Some(following) = reorder.take_following() {
                        reorder.advance();
                        due += 1;
                        prop_assert_eq!(Some(following), kept.remove(&due).map(Kept::Body));
                    }
                    reorder.advance();
                    due += 1;
                    prop_assert!(!kept.contains_key(&due));
                }
                Turn::Duplicate | Turn::Beyond => {}
            }
            prop_assert_eq!(reorder.next(), Seq(first.wrapping_add(due as u32)));
            prop_assert_eq!(reorder.has_gap(), !kept.is_empty());
            let sack = (0..32).filter(|bit| kept.contains_key(&(due + 1 + bit))).fold(0u32, |bits, bit| bits | 1 << bit);
            prop_assert_eq!(reorder.sack(), sack);
        }
    }
}
