//! How processes agree on a context id while they may be agreeing on others too: with other processes, in any order.
//!
//! In each round all of them say something, and hear what all said, combined by "and" ([`About`]). First they meet: nobody offers
//! anything before all have come. Then a process offers its free ids to one agreement at a time, of those that have met here the one with
//! the lowest [`Key`], and to others nothing; if anybody has offered nothing, all take back what they offered and say so again.
//!
//! Nobody waits for ever, unless for who has not come or takes no turns: rounds of those who have met end. Of all that have met, take the
//! one with the lowest key: each of its processes offers to it once the round ends in which it has offered to another one, so it gets
//! its id, and is out of the others' way. A member that is gone ends its agreement for all. The rule is MPICH's
//! (src/mpi/comm/contextid.c), whose keys are a communicator and a tag as well.

use super::ErrorClass;
use super::context::{About, ContextIds, Found, Offer};

/// What an agreement is told from others by: the same in all its processes, no other's in any of them, and in the same order everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Of all members of this communicator, in a call that waits: there is one at a time.
    Call { of: u32 },
    /// The same in a call that does not wait, whose messages have this tag.
    Begun { of: u32, tag: i32 },
    /// Of its members that are alive.
    Living { of: u32 },
    /// Of some of its members, with a tag of the program's.
    Some { of: u32, tag: i32 },
    /// Of two groups, whose leaders are these processes and use that communicator and tag.
    Between { bridge: u32, tag: i32, leaders: [u32; 2] },
}

/// One process's part in one agreement.
#[derive(Debug)]
pub(super) struct Agreeing {
    key: Key,
    about: About,
}

impl Agreeing {
    /// It comes.
    pub const fn new(key: Key) -> Self {
        Self { key, about: About::Meeting }
    }

    /// What this round is about.
    pub const fn about(&self) -> About {
        self.about
    }

    /// What this process says in it.
    pub fn offer(&self, ids: &mut ContextIds) -> Offer {
        ids.offer(self.key, self.about)
    }

    /// Takes in what all have said. `None`: there is another round.
    pub fn hear(&mut self, ids: &mut ContextIds, all: &Offer) -> Option<Result<u32, ErrorClass>> {
        self.about = match self.about.found(all) {
            Found::Id(id) => {
                ids.take(id);
                ids.leave(self.key);
                return Some(Ok(id));
            }
            Found::None => {
                ids.leave(self.key);
                return Some(Err(ErrorClass::Other));
            }
            Found::Failed => {
                self.give_up(ids);
                return Some(Err(ErrorClass::ProcFailed));
            }
            Found::Place(place) => About::Generations(place),
            Found::Met => {
                ids.meet(self.key);
                About::Places
            }
            Found::NotNow => {
                ids.withdraw(self.key);
                About::Places
            }
        };
        None
    }

    /// It ends here without an id, if it has not ended: somebody could not be heard. Others may have heard all.
    pub fn give_up(&self, ids: &mut ContextIds) {
        ids.give_up_offer(self.key, self.about);
        ids.leave(self.key);
    }
}

#[cfg(test)]
mod tests {
    use sidelane_nic::rng::Rng;

    use super::super::context::and;
    use super::*;

    /// An agreement of a model, in which each member says and hears in its own time.
    struct Model {
        key: Key,
        members: Vec<Member>,
        /// Of rounds that not all have heard.
        said: Vec<Vec<Offer>>,
    }

    struct Member {
        process: usize,
        /// Those of the model that come before it do not wait for this one.
        after: usize,
        waits: bool,
        part: Agreeing,
        /// Rounds in which it has said something.
        rounds: usize,
        id: Option<u32>,
    }

    /// As many agreements as there are keys, in the order in which they could be made one after the other: whoever comes to one late comes
    /// when it has done with some of those before.
    fn models(rng: &mut Rng, processes: usize, mut keys: Vec<i32>) -> Vec<Model> {
        let count = keys.len();
        let model = |number: usize| {
            let key = Key::Some { of: 7, tag: keys.swap_remove(rng.below(keys.len() as u64) as usize) };
            let mut members: Vec<Member> = (0..processes)
                .map(|process| {
                    let waits = rng.chance(0.4);
                    let after = if waits { number } else { rng.below(number as u64 + 1) as usize };
                    Member { process, after, waits, part: Agreeing::new(key), rounds: 0, id: None }
                })
                .collect();
            members.retain(|_| rng.chance(0.7));
            Model { key, members, said: Vec::new() }
        };
        (0..count).map(model).collect()
    }

    /// Whether a member can do something now: come, or hear a round that all have spoken in.
    fn is_ready(all: &[Model], at: usize, member: &Member) -> bool {
        let done =
            |of: &Model| of.members.iter().all(|it| it.process != member.process || !it.waits || it.id.is_some());
        match member.rounds {
            _ if member.id.is_some() => false,
            0 => all[..member.after].iter().all(done),
            rounds => all[at].said[rounds - 1].len() == all[at].members.len(),
        }
    }

    /// Hears, and says what comes next without a gap.
    fn step(model: &mut Model, member: usize, ids: &mut [ContextIds]) {
        let it = &mut model.members[member];
        let ids = &mut ids[it.process];
        if it.rounds > 0 {
            let mut all = model.said[it.rounds - 1].clone();
            let first = all.swap_remove(0);
            let all = all.iter().fold(first, |mut all, other| {
                and(&mut all, other);
                all
            });
            if let Some(ended) = it.part.hear(ids, &all) {
                it.id = Some(ended.unwrap());
                return;
            }
        }
        if model.said.len() == it.rounds {
            model.said.push(Vec::new());
        }
        model.said[it.rounds].push(it.part.offer(ids));
        it.rounds += 1;
    }

    #[test]
    fn agreements_that_cross_all_come_to_an_end_with_ids_of_their_own() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let processes = 2 + rng.below(3) as usize;
            let mut ids: Vec<ContextIds> = (0..processes).map(|_| ContextIds::new()).collect();
            let keys = (0..2 + rng.below(5) as i32).collect();
            let mut all = models(&mut rng, processes, keys);
            let mut steps = 0;
            loop {
                let ready = |at: usize| {
                    let members = all[at].members.iter().enumerate();
                    let all = &all;
                    members.filter(move |(_, it)| is_ready(all, at, it)).map(move |(member, _)| (at, member))
                };
                let ready: Vec<(usize, usize)> = (0..all.len()).flat_map(ready).collect();
                if ready.is_empty() {
                    break;
                }
                let (at, member) = ready[rng.below(ready.len() as u64) as usize];
                step(&mut all[at], member, &mut ids);
                steps += 1;
                assert!(steps < 10_000, "seed {seed}: they hinder each other");
            }
            for process in 0..processes {
                let of =
                    |model: &Model| model.members.iter().find(|it| it.process == process).map(|it| (model.key, it.id));
                let found: Vec<_> = all.iter().filter_map(of).collect();
                let mut own: Vec<u32> = found
                    .iter()
                    .map(|(key, id)| id.unwrap_or_else(|| panic!("seed {seed}: none for {key:?}")))
                    .collect();
                own.sort_unstable();
                own.dedup();
                assert_eq!(own.len(), found.len(), "seed {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn who_has_not_heard_which_id_was_taken_takes_it_for_nothing_else() {
        let key = Key::Call { of: 0 };
        let [mut here, mut there, mut far, mut further] = [(); 4].map(|()| ContextIds::new());
        // Two agree, but the first of them does not hear of it.
        let mut agree = |there: &mut ContextIds| {
            let mut parts = [(); 2].map(|()| Agreeing::new(key));
            loop {
                let mut all = parts[0].offer(&mut here);
                and(&mut all, &parts[1].offer(there));
                if let Some(ended) = parts[1].hear(there, &all) {
                    parts[0].give_up(&mut here);
                    break ended;
                }
                assert_eq!(parts[0].hear(&mut here, &all), None);
            }
        };
        assert_eq!(agree(&mut there), Ok(2));
        // Of this place the others know later generations than this process, which has not heard that one of those is in use.
        let third = 2 * 4096 + 2;
        [&mut far, &mut further]
            .into_iter()
            .for_each(|ids| (0..2).for_each(|given_up| ids.give_up(given_up * 4096 + 2)));
        assert_eq!([agree(&mut far), agree(&mut further)], [Ok(third), Ok(4096 + 3)]);
    }

    #[test]
    fn who_has_not_met_keeps_nobody_waiting_and_who_fails_leaves_nothing_behind() {
        let mut ids = ContextIds::new();
        let [mut low, mut high] = [1, 2].map(|tag| Agreeing::new(Key::Some { of: 3, tag }));
        // The others of the lower one have not come.
        low.offer(&mut ids);
        let hear = |part: &mut Agreeing, ids: &mut ContextIds| {
            let offer = part.offer(ids);
            part.hear(ids, &offer)
        };
        assert_eq!([hear(&mut high, &mut ids), hear(&mut high, &mut ids)], [None, Some(Ok(2))]);
        let mut high = Agreeing::new(Key::Some { of: 3, tag: 2 });
        assert_eq!([&mut low, &mut high].map(|part| hear(part, &mut ids)), [None, None]);
        // It offers nothing while the lower one may.
        assert_eq!([hear(&mut high, &mut ids), hear(&mut high, &mut ids)], [None, None]);
        assert_eq!(low.hear(&mut ids, &super::super::context::NOTHING), Some(Err(ErrorClass::ProcFailed)));
        assert_eq!(hear(&mut high, &mut ids), Some(Ok(3)));
    }

    #[test]
    fn who_finds_that_all_ids_are_in_use_leaves_nothing_behind() {
        let [low, high] = [1, 2].map(|tag| Key::Some { of: 3, tag });
        let [mut here, mut there] = [(); 2].map(|()| ContextIds::new());
        (2..4096).for_each(|id| there.take(id));
        let mut parts = [(); 2].map(|()| Agreeing::new(low));
        let found = loop {
            let mut all = parts[0].offer(&mut here);
            and(&mut all, &parts[1].offer(&mut there));
            let ended = parts[0].hear(&mut here, &all);
            assert_eq!(parts[1].hear(&mut there, &all), ended);
            if let Some(ended) = ended {
                break ended;
            }
        };
        assert_eq!(found, Err(ErrorClass::Other));
        // As whoever has no more to do with it.
        parts[0].give_up(&mut here);
        let mut part = Agreeing::new(high);
        let mut hear = || {
            let offer = part.offer(&mut here);
            part.hear(&mut here, &offer)
        };
        assert_eq!([hear(), hear()], [None, Some(Ok(2))]);
    }
}
