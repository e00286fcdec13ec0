//! The table against a simple model: a list of what was registered.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::rma::RmaError;

const PEERS: [PeerId; 2] = [PeerId { index: 0, generation: 0 }, PeerId { index: 1, generation: 3 }];

#[derive(Clone, Debug)]
enum Step {
    Register(usize),
    Publish {
        which: usize,
        rights: u8,
        to: Option<bool>,
    },
    Unpublish(usize),
    Unregister(usize),
    Withdraw(usize),
    Hold {
        which: usize,
        at: usize,
        len: usize,
    },
    Release(usize),
    /// Comes with the newest key of a region, or an older one.
    Knock {
        which: usize,
        old_key: bool,
        offset: u64,
        len: usize,
        what: u8,
        from: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0usize..40).prop_map(Step::Register),
        3 => (any::<usize>(), 0u8..8, proptest::option::of(any::<bool>()))
            .prop_map(|(which, rights, to)| Step::Publish { which, rights, to }),
        1 => any::<usize>().prop_map(Step::Unpublish),
        1 => any::<usize>().prop_map(Step::Unregister),
        1 => any::<usize>().prop_map(Step::Withdraw),
        2 => (any::<usize>(), prop_oneof![4 => 0usize..45, 1 => Just(usize::MAX)], 0usize..45)
            .prop_map(|(which, at, len)| Step::Hold { which, at, len }),
        1 => any::<usize>().prop_map(Step::Release),
        6 => (any::<usize>(), proptest::bool::weighted(0.2), prop_oneof![0u64..45, Just(u64::MAX), Just(u64::MAX - 3)], 0usize..45, 0u8..8, any::<bool>())
            .prop_map(|(which, old_key, offset, len, what, from)| Step::Knock { which, old_key, offset, len, what, from }),
    ]
}

/// What the model remembers of a region, for ever.
struct Known {
    region: Region,
    len: usize,
    keys: Vec<u64>,
    open: Option<(u64, Rights, Option<PeerId>)>,
    uses: usize,
    winding_down: bool,
    removed: bool,
}

proptest! {
    #[test]
    fn only_who_has_the_key_gets_in_and_only_within_bounds(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut table, mut events) = (Regions::default(), VecDeque::new());
        let mut known: Vec<Known> = Vec::new();
        let mut next_key = 1;
        for step in steps {
            let pick = |which: usize| (!known.is_empty()).then(|| which % known.len());
            match step {
                Step::Register(len) => {
                    let region = table.register(Memory::Owned(vec![0; len]));
                    prop_assert!(known.iter().all(|other| other.region != region), "a name is never used again");
                    known.push(Known { region, len, keys: vec![], open: None, uses: 0, winding_down: false, removed: false });
                }
                Step::Publish { which, rights, to } => {
                    let Some(i) = pick(which) else { continue };
                    let entry = &mut known[i];
                    let to = to.map(|second| PEERS[usize::from(second)]);
                    let key = table.publish(entry.region, next_key, Rights::of_bits(rights), to);
                    prop_assert_eq!(key.is_some(), !entry.winding_down);
                    if key.is_some() {
                        entry.keys.push(next_key);
                        entry.open = Some((next_key, Rights::of_bits(rights), to));
                    }
                    next_key += 1;
                }
                Step::Unpublish(which) => {
                    let Some(i) = pick(which) else { continue };
                    prop_assert_eq!(table.unpublish(known[i].region), !known[i].winding_down);
                    known[i].open = None;
                }
                Step::Unregister(which) => {
                    let Some(i) = pick(which) else { continue };
                    prop_assert_eq!(table.unregister(known[i].region, &mut events), !known[i].winding_down);
                    known[i].open = None;
                    known[i].winding_down = true;
                }
                Step::Withdraw(which) => {
                    let Some(i) = pick(which) else { continue };
                    let entry = &mut known[i];
                    let memory = (!entry.winding_down && entry.uses == 0).then(|| Some(vec![0; entry.len]));
                    let is_removed = memory.is_some();
                    prop_assert_eq!(table.withdraw(entry.region), memory);
                    if is_removed {
                        (entry.open, entry.winding_down, entry.removed) = (None, true, true);
                    }
                }
                Step::Hold { which, at, len } => {
                    let Some(i) = pick(which) else { continue };
                    let entry = &mut known[i];
                    let held = table.hold(entry.region, at, len);
                    let expected = match at.checked_add(len) {
                        _ if entry.winding_down => Err(RmaError::NoRegion),
                        Some(end) if end <= entry.len => Ok(entry.region.index),
                        _ => Err(RmaError::Bounds),
                    };
                    prop_assert_eq!(held, expected);
                    entry.uses += usize::from(held.is_ok());
                }
                Step::Release(which) => {
                    let Some(i) = pick(which).filter(|&i| known[i].uses > 0) else { continue };
                    known[i].uses -= 1;
                    table.release(known[i].region.index, &mut events);
                }
                Step::Knock { which, old_key, offset, len, what, from } => {
                    let Some(i) = pick(which) else { continue };
                    let entry = &known[i];
                    let key = if old_key { entry.keys.first() } else { entry.keys.last() };
                    let Some(&key) = key else { continue };
                    let (what, from) = (Rights::of_bits(what), PEERS[usize::from(from)]);
                    let target = Target { region: entry.region.index, key, offset };
                    let expected = match entry.open {
                        Some((open, _, to)) if open != key || to.is_some_and(|to| to != from) => Err(OpError::NoRegion),
                        Some((_, rights, _)) if !rights.has(what) => Err(OpError::Rights),
                        Some(_) if u128::from(offset) + len as u128 > entry.len as u128 => Err(OpError::Bounds),
                        Some(_) => Ok((entry.region.index, offset as usize)),
                        None => Err(OpError::NoRegion),
                    };
                    prop_assert_eq!(table.allow(&target, len, what, from), expected);
                }
            }
            for entry in &mut known {
                if entry.winding_down && entry.uses == 0 && !entry.removed {
                    entry.removed = true;
                    let memory = Some(vec![0; entry.len]);
                    prop_assert_eq!(events.pop_front(), Some(Event::Unregistered { region: entry.region, memory }));
                }
                prop_assert_eq!(table.memory(entry.region).is_some(), !entry.winding_down);
            }
            prop_assert!(events.is_empty());
            let live = known.iter().filter(|entry| !entry.removed).count();
            prop_assert_eq!(table.entries.len() - table.free.len(), live, "places are used again");
        }
    }
}

#[test]
fn a_name_is_good_for_one_region_whoever_has_its_place() {
    let mut regions = Regions::default();
    let first = regions.register(Memory::Owned(vec![1]));
    assert!(regions.unregister(first, &mut VecDeque::new()));
    let second = regions.register(Memory::Owned(vec![2]));
    assert_eq!(second.index, first.index);
    assert_eq!((regions.signals(first), regions.memory(first)), (None, None));
    assert_eq!(regions.memory_mut(first), None);
    assert_eq!((regions.signals(second), regions.memory(second)), (Some(0), Some(&[2][..])));
}
