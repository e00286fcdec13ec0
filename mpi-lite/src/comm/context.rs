//! Context ids, which tell the messages of communicators apart: numbers that all members of a new one have free.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::agreeing::Key;

/// Of one communicator's contexts, what a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Point to point.
    Point = 0,
    /// Collectives.
    Collective = 1,
    /// What some of the members agree on, with tags of the program's (`MPI_Comm_create_group`).
    Creation = 2,
    /// Partitioned messages.
    Partitioned = 3,
    /// How the leaders of two groups meet, with tags of the program's too (`MPI_Intercomm_create`).
    Leaders = 4,
    /// What those agree on then, with tags that each has chosen for what it hears.
    Offers = 5,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Point, Self::Collective, Self::Creation, Self::Partitioned, Self::Leaders, Self::Offers];
}

/// What some members of a communicator agree on, apart from the program's messages and from the other topics.
#[derive(Clone, Copy)]
pub(super) struct Topic {
    pub kind: Kind,
    pub tag: i32,
}

/// The ids in use here. A communicator's is the same in all its processes.
///
/// An id is a place, of which there are few, and a generation: when a communicator was given up of which something may still be said
/// elsewhere, its place is used again in the next generation, so that nothing of the old one is taken for the new one's.
#[derive(Debug, Clone)]
pub(super) struct ContextIds {
    free: Mask,
    /// Given up by the program; what it has begun there may not be over.
    retired: Vec<u32>,
    /// In which generation places are free, where that is not the first one.
    generations: HashMap<u32, u32>,
    /// What processes are agreeing on that have all come.
    met: BTreeSet<Key>,
    /// Which of those may take any that is free.
    offered_to: Option<Key>,
}

/// One bit a place, set where it is free. Masks of several processes are agreed upon by "and".
pub(super) type Mask = [u64; WORDS];

/// Of a mask.
const WORDS: usize = PLACES / 64;

/// What processes say to agree on an id: a mask, and what is true of all of them ([`OFFERED`], [`FIRST`], [`SOUND`]).
pub(super) type Offer = [u64; WORDS + 1];

/// Of who has not heard from somebody: nobody gets an id.
pub(super) const NOTHING: Offer = [0; WORDS + 1];

/// A process has offered all that it has.
const OFFERED: u64 = 1;
/// All its places are in their first generation.
const FIRST: u64 = 2;
/// It has heard all that it had to hear.
const SOUND: u64 = 4;

/// Communicators that a process may be in at a time.
const PLACES: usize = 4096;
/// How often a place can be given up for good: as many as are agreed upon in one mask.
const GENERATIONS: u32 = PLACES as u32;

/// Of what is said about the communicators themselves: behind those of all ids.
pub(super) const FAILURES: u32 = on_wire(PLACES as u32 * GENERATIONS, Kind::Point);

/// Of the communicators that there are from the start.
pub(super) const WORLD: u32 = 0;
pub(super) const OWN: u32 = 1;
/// Behind those of all places, and what is said about failures.
pub(super) const SESSIONS: u32 = PLACES as u32 * GENERATIONS + 1;

/// Whether it has a place.
pub(super) const fn is_agreed_on(id: u32) -> bool {
    id > OWN && id != SESSIONS
}

/// What processes have found out together by their offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// All have come.
    Met,
    Id(u32),
    /// A place, whose generation has to be agreed upon as well.
    Place(u32),
    /// Somebody is agreeing on another one: all try again.
    NotNow,
    /// All are in use.
    None,
    /// Somebody was not heard from.
    Failed,
}

/// What an offer is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// Nothing: it says that this process has come.
    Meeting,
    /// Free places.
    Places,
    /// Generations of this place.
    Generations(u32),
}

impl About {
    /// What all offers, combined by "and", come to; the same in all processes.
    pub fn found(self, all: &Offer) -> Found {
        let sound = all[WORDS] & SOUND != 0;
        match (self, lowest(all)) {
            _ if !sound => Found::Failed,
            (Self::Meeting, _) => Found::Met,
            (Self::Places, Some(place)) if all[WORDS] & FIRST != 0 => Found::Id(place),
            (Self::Places, Some(place)) => Found::Place(place),
            (Self::Places, None) if all[WORDS] & OFFERED == 0 => Found::NotNow,
            (Self::Generations(place), Some(generation)) => Found::Id(generation * PLACES as u32 + place),
            (_, None) => Found::None,
        }
    }
}

impl Found {
    /// Whether those who have found it offer once more.
    pub const fn goes_on(self) -> bool {
        matches!(self, Self::Met | Self::Place(_) | Self::NotNow)
    }
}

impl ContextIds {
    pub fn new() -> Self {
        let mut free = [u64::MAX; WORDS];
        free[0] = !(1 << WORLD | 1 << OWN);
        Self { free, retired: Vec::new(), generations: HashMap::new(), met: BTreeSet::new(), offered_to: None }
    }

    /// What this process says about it. Places, of those who have met, to the lowest, and to one at a time until [`Self::withdraw`] or
    /// [`Self::leave`]; to others nothing.
    pub fn offer(&mut self, key: Key, about: About) -> Offer {
        let mut offer = NOTHING;
        offer[WORDS] = SOUND;
        match about {
            About::Meeting => {}
            About::Places => {
                if self.offered_to.is_none() && self.met.first() == Some(&key) {
                    self.offered_to = Some(key);
                    offer[..WORDS].copy_from_slice(&self.free);
                    offer[WORDS] |= OFFERED | if self.generations.is_empty() { FIRST } else { 0 };
                }
            }
            // All from one on. Offers combined by "and" begin with the latest.
            About::Generations(place) => {
                let first = self.generation_of(place);
                (first..GENERATIONS).for_each(|generation| offer[generation as usize / 64] |= 1 << (generation % 64));
            }
        }
        offer
    }

    /// All have come.
    pub fn meet(&mut self, key: Key) {
        self.met.insert(key);
    }

    /// Nothing was agreed upon yet.
    pub fn withdraw(&mut self, key: Key) {
        self.offered_to.take_if(|offered| *offered == key);
    }

    /// Gives up what was offered to this agreement, from which this process has not heard what was taken: others may have, who need not
    /// be in the next one, and so would not say there that it is in use.
    pub fn give_up_offer(&mut self, key: Key, about: About) {
        if self.offered_to != Some(key) {
            return;
        }
        match about {
            About::Meeting => {}
            // Without a round about generations, what was taken is of the first one.
            About::Places => {
                for place in 0..PLACES as u32 {
                    if self.generation_of(place) == 0 {
                        self.skip(place);
                    }
                }
            }
            // In which one is for others to know, and whoever is in the next agreement: the place is not used again.
            About::Generations(place) => {
                let (word, bit) = bit(place);
                self.free[word] &= !bit;
            }
        }
    }

    /// It is over, or this process has no part in it any more.
    pub fn leave(&mut self, key: Key) {
        self.withdraw(key);
        self.met.remove(&key);
    }

    /// Takes an id that was agreed upon.
    pub fn take(&mut self, id: u32) {
        let (word, bit) = bit(id);
        debug_assert!(self.free[word] & bit != 0, "an id that is agreed upon is free");
        self.free[word] &= !bit;
        self.set_generation(id, generation(id));
    }

    /// For who has nothing to do with its communicator, or no more.
    pub const fn give_back(&mut self, id: u32) {
        let (word, bit) = bit(id);
        self.free[word] |= bit;
    }

    /// An id that is to be given back when nothing is under way there any more.
    pub fn retire(&mut self, id: u32) {
        self.retired.push(id);
    }

    /// Gives an id up of which something may still be said, or wait here: its place is free in the next generation.
    pub fn give_up(&mut self, id: u32) {
        let next = generation(id) + 1;
        if next < GENERATIONS {
            self.set_generation(id, next);
            self.give_back(id);
        }
    }

    /// Gives up the generation in which this place is free, if it is.
    fn skip(&mut self, place: u32) {
        let (word, bit) = bit(place);
        if self.free[word] & bit != 0 {
            self.free[word] &= !bit;
            self.give_up(self.generation_of(place) * PLACES as u32 + place);
        }
    }

    /// What was retired, and is not in use: to be given back, or up.
    pub fn take_unused(&mut self, in_use: impl Fn(u32) -> bool) -> Vec<u32> {
        let retired = std::mem::take(&mut self.retired);
        let (kept, unused) = retired.into_iter().partition(|id| in_use(*id));
        self.retired = kept;
        unused
    }

    fn generation_of(&self, place: u32) -> u32 {
        self.generations.get(&place).copied().unwrap_or(0)
    }

    fn set_generation(&mut self, id: u32, generation: u32) {
        if generation > 0 {
            self.generations.insert(id % PLACES as u32, generation);
        }
    }
}

/// What two processes have said, combined.
pub(super) fn and(into: &mut Offer, other: &Offer) {
    into.iter_mut().zip(other).for_each(|(into, other)| *into &= other);
}

/// The lowest that is set in a mask.
fn lowest(offer: &Offer) -> Option<u32> {
    let word = offer[..WORDS].iter().position(|word| *word != 0)?;
    Some(word as u32 * 64 + offer[word].trailing_zeros())
}

const fn generation(id: u32) -> u32 {
    id / PLACES as u32
}

/// Where an id's place is in a mask.
const fn bit(id: u32) -> (usize, u64) {
    (id as usize % PLACES / 64, 1 << (id % 64))
}

/// The number on the wire.
pub(super) const fn on_wire(id: u32, kind: Kind) -> u32 {
    id * KINDS + kind as u32
}

/// All of one communicator.
pub(super) const fn all(id: u32) -> Range<u32> {
    id * KINDS..(id + 1) * KINDS
}

const KINDS: u32 = Kind::ALL.len() as u32;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::Call { of: WORLD };

    /// What processes agree on.
    fn agree(all: &mut [&mut ContextIds]) -> Found {
        let mut about = About::Meeting;
        let found = loop {
            let offers = all.iter_mut().map(|ids| ids.offer(KEY, about));
            let all_said = offers.reduce(|mut all, other| {
                and(&mut all, &other);
                all
            });
            about = match about.found(&all_said.unwrap()) {
                Found::Met => {
                    all.iter_mut().for_each(|ids| ids.meet(KEY));
                    About::Places
                }
                Found::Place(place) => About::Generations(place),
                found => break found,
            };
        };
        for ids in all {
            ids.leave(KEY);
            if let Found::Id(id) = found {
                ids.take(id);
            }
        }
        found
    }

    #[test]
    fn ids_are_taken_from_the_lowest_that_all_have() {
        let (mut here, mut there) = (ContextIds::new(), ContextIds::new());
        here.take(2);
        there.take(3);
        assert_eq!(agree(&mut [&mut here, &mut there]), Found::Id(4));
        let other = Key::Call { of: OWN };
        here.meet(other);
        assert_ne!(About::Places.found(&here.offer(other, About::Places)), Found::NotNow);
        assert_eq!(agree(&mut [&mut here, &mut there]), Found::NotNow, "to one at a time");
        here.leave(other);
        here.give_back(2);
        there.give_back(3);
        assert_eq!(agree(&mut [&mut here, &mut there]), Found::Id(2));
        (3..PLACES as u32).filter(|id| *id != 4).for_each(|id| here.take(id));
        assert_eq!(agree(&mut [&mut here, &mut there]), Found::None);
        here.give_back(PLACES as u32 - 1);
        assert_eq!(agree(&mut [&mut here, &mut there]), Found::Id(PLACES as u32 - 1));
    }

    #[test]
    fn a_place_that_was_given_up_anywhere_comes_again_as_another_id_everywhere() {
        let [here, there, far] = &mut [(); 3].map(|()| ContextIds::new());
        assert_eq!(agree(&mut [here, there]), Found::Id(2));
        here.give_up(2);
        there.give_back(2);
        let second = PLACES as u32 + 2;
        assert_eq!(agree(&mut [here, there]), Found::Id(second));
        there.give_up(second);
        here.give_back(second);
        assert_eq!(agree(&mut [here, far]), Found::Id(second), "nobody in it has given that up");
        far.give_back(second);
        assert_eq!(agree(&mut [far]), Found::Id(second), "nor who has heard of it there");
        far.give_back(second);
        here.give_back(second);
        assert_eq!(agree(&mut [far, there]), Found::Id(2 * PLACES as u32 + 2));
        assert!(super::all(GENERATIONS * PLACES as u32 - 1).end <= FAILURES);
    }

    #[test]
    fn what_was_offered_and_may_be_taken_is_of_the_first_generation_and_was_free() {
        let mut ids = ContextIds::new();
        ids.take(2);
        ids.give_up(3);
        ids.meet(KEY);
        ids.offer(KEY, About::Places);
        ids.give_up_offer(KEY, About::Places);
        ids.leave(KEY);
        let found = [(); 2].map(|()| agree(&mut [&mut ids]));
        assert_eq!(found, [3, 4].map(|place| Found::Id(PLACES as u32 + place)));
    }

    #[test]
    fn what_was_retired_is_free_when_it_is_not_in_use_any_more() {
        let mut ids = ContextIds::new();
        for id in [2, 3] {
            assert_eq!(agree(&mut [&mut ids]), Found::Id(id));
            ids.retire(id);
        }
        for (in_use, unused) in [(2, 3), (0, 2)] {
            assert_eq!(ids.take_unused(|id| id == in_use), [unused]);
            ids.give_back(unused);
            assert_eq!(agree(&mut [&mut ids]), Found::Id(unused));
        }
        assert!(ids.take_unused(|_| false).is_empty());
    }

    #[test]
    fn a_place_without_another_generation_is_not_used_any_more() {
        let mut ids = ContextIds::new();
        let last = (GENERATIONS - 1) * PLACES as u32 + 2;
        ids.take(last);
        ids.give_up(last);
        assert!(matches!(agree(&mut [&mut ids]), Found::Id(3..)));
    }
}
