//! Going on without processes that are gone: user-level failure mitigation, as the MPI Forum's ULFM proposal has it
//! (fault-tolerance.org, "MPIX" calls of MPICH and Open MPI).
//!
//! | file | what it knows |
//! | --- | --- |
//! | `agreement` | how processes of which some may die come to one verdict |
//! | `watch` | this process's part in all agreements, and in telling of revoked communicators |
//! | `record` | what they say to each other: the wire format |
//! | `ranks` | sets of ranks |

mod agreement;
mod ranks;
mod record;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};

use self::agreement::Verdict;
use self::ranks::Ranks;
pub(super) use self::record::Name;
pub(super) use self::watch::{Failures, Watch};
use crate::adi::lock;

use super::agreeing::Key;
use super::communicator::Topology;
use super::context::{self, Kind, NOTHING};
use super::{Communicator, ErrorClass, Group};

/// What all members agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The flags of all that are alive combined by "and", bit by bit; of an intercommunicator those of the other side.
    pub flag: i32,
    /// Processes that are gone, of which somebody has not said before that it knows it ([`Communicator::failure_ack`]).
    pub unacknowledged: Group,
}

impl Agreed {
    /// The flag, unless a failure is news to anybody: `ProcFailed` in all processes then (`MPIX_Comm_agree`).
    pub fn ok(&self) -> Result<i32, ErrorClass> {
        if self.unacknowledged.size() == 0 { Ok(self.flag) } else { Err(ErrorClass::ProcFailed) }
    }
}

impl Communicator {
    /// Ends everything under way in this communicator, and all that is begun in it later, with `Revoked`, in all its
    /// processes (`MPIX_Comm_revoke`). The others notice it in their next call that waits or tests.
    pub fn revoke(&self) {
        let mut state = self.0.local.lock();
        lock(self.0.local.failures()).revoke(&mut state.device, self.0.in_failures);
    }

    /// Whether it was revoked, as far as this process knows (`MPIX_Comm_is_revoked`).
    pub fn is_revoked(&self) -> bool {
        self.0.local.lock().device.is_revoked(self.context(Kind::Point))
    }

    /// Members that are gone, as far as this process knows, in the order in which it noticed (`MPIX_Comm_get_failed`). Of an
    /// intercommunicator those of the other side.
    pub fn failed(&self) -> Group {
        self.gone_members(usize::MAX)
    }

    /// Says that this process knows of all members that [`Self::failed`] names: receives from anybody wait on in spite of them,
    /// and [`Self::agree`] takes no offence (`MPIX_Comm_failure_ack`).
    pub fn failure_ack(&self) {
        let gone = self.0.local.lock().device.gone().len();
        self.0.acknowledged.count.store(gone, Ordering::Relaxed);
    }

    /// What [`Self::failure_ack`] was said of (`MPIX_Comm_failure_get_acked`).
    pub fn acknowledged(&self) -> Group {
        self.gone_members(self.0.acknowledged.count.load(Ordering::Relaxed))
    }

    /// Agrees with all members that are alive, of both sides of an intercommunicator: all get the same, whoever dies
    /// meanwhile, also in a communicator that was revoked (`MPIX_Comm_agree`). On both sides the same processes, and to each side the
    /// other's flags.
    pub fn agree(&self, flag: i32) -> Agreed {
        let members = members(&self.0.group, self.0.remote.as_ref());
        let [ours_at, wanted_at] = self.flag_shifts();
        let flags = !(u64::from(!flag as u32) << ours_at);
        let acknowledged = self.acknowledged_of_all();
        let mut ours = Ranks::none(members.len());
        let known_to_us = members.iter().enumerate().filter(|(_, process)| acknowledged.contains(process));
        known_to_us.for_each(|(rank, _)| ours.insert(rank));
        let Verdict { alive, value } = self.decide(&members, [&[flags], ours.words()].concat());
        let of_all = value.get(1..).and_then(|words| Ranks::from_words(words, members.len()));
        let known = |rank: usize| of_all.as_ref().is_some_and(|of_all| of_all.has(rank));
        let news = members.iter().enumerate().filter(|(rank, _)| !alive.has(*rank) && !known(*rank));
        let unacknowledged = Group::new(news.map(|(_, process)| *process)).expect("each is a member once");
        Agreed { flag: value.first().map_or(0, |flags| (*flags >> wanted_at) as u32 as i32), unacknowledged }
    }

    /// Where in a word of flags this side's are, and those that it wants: the side of the lowest process has the lower half.
    fn flag_shifts(&self) -> [u32; 2] {
        let lowest = |group: &Group| group.processes().iter().min().copied();
        match &self.0.remote {
            None => [0, 0],
            Some(remote) if lowest(&self.0.group) < lowest(remote) => [0, 32],
            Some(_) => [32, 0],
        }
    }

    /// A communicator of the members that are alive, in their order: those of whom all know the same, also if one dies
    /// meanwhile and is still in it (`MPIX_Comm_shrink`). Also of a communicator that was revoked. `ProcFailed` in all of them if nobody is
    /// alive on the other side of an intercommunicator.
    pub fn shrink(&self) -> Result<Self, ErrorClass> {
        self.compound(|| self.shrink_in_parts())
    }

    fn shrink_in_parts(&self) -> Result<Self, ErrorClass> {
        let (id, alive) = self.agree_with_the_living()?;
        let here = alive.intersection(&self.0.group);
        let here = self.0.group.intersection(&here);
        let Some(remote) = &self.0.remote else {
            return Ok(self.member(id, here, Topology::None).expect("we are alive"));
        };
        let remote = remote.intersection(&alive);
        if remote.size() == 0 {
            self.give_back(id);
            return Err(ErrorClass::ProcFailed);
        }
        let (side, _) = self.agree_with_the_living().inspect_err(|_| self.give_up(id))?;
        let side = self.member(side, here, Topology::None).expect("we are alive");
        Ok(self.made_between(id, side, remote))
    }

    /// An id that is free in all processes that are alive, and those.
    fn agree_with_the_living(&self) -> Result<(u32, Group), ErrorClass> {
        let members = members(&self.0.group, self.0.remote.as_ref());
        let mut living = Group::empty();
        let id = self.agree_by(Key::Living { of: self.0.id }, |_, offer| {
            let Verdict { alive, value } = self.decide(&members, offer.to_vec());
            living = Group::new(alive.iter().map(|rank| members[rank])).expect("each is a member once");
            let mut all = NOTHING;
            all.iter_mut().zip(value).for_each(|(into, word)| *into = word);
            Ok(all)
        })?;
        Ok((id, living))
    }

    /// What all that are alive of `members` agree on: at least their offers, combined by "and". Whoever is not alive is gone for this
    /// process too from now on, also if it had never spoken to it: [`Self::failure_ack`] is of that.
    fn decide(&self, members: &[u32], offer: Vec<u64>) -> Verdict {
        let (failures, name) = (self.0.local.failures(), self.0.in_failures);
        let number = {
            let mut state = self.0.local.lock();
            lock(failures).begin(&mut state.device, name, offer)
        };
        let verdict = self.0.local.wait_for(|_| lock(failures).poll(name, number));
        let mut state = self.0.local.lock();
        let gone = members.iter().enumerate().filter(|(rank, _)| !verdict.alive.has(*rank));
        gone.for_each(|(_, process)| state.device.lose(*process));
        verdict
    }

    /// Makes it known to the watch, which may know already that it was revoked.
    pub(super) fn watch(&self, members: Box<[u32]>) {
        let mut state = self.0.local.lock();
        let contexts = context::all(self.0.id);
        let side = self.0.side.as_ref().map(|side| side.0.in_failures);
        lock(self.0.local.failures()).add(&mut state.device, self.0.in_failures, members, contexts, side);
    }

    fn gone_members(&self, known: usize) -> Group {
        let state = self.0.local.lock();
        let gone = state.device.gone().iter().take(known).copied();
        Group::new(gone.filter(|process| self.peers().rank_of(*process).is_some())).expect("each is gone once")
    }

    fn acknowledged_of_all(&self) -> Vec<u32> {
        let state = self.0.local.lock();
        state.device.gone().iter().take(self.0.acknowledged.count.load(Ordering::Relaxed)).copied().collect()
    }
}

/// Which failures in a communicator its program knows of.
#[derive(Debug)]
pub struct Acknowledged {
    /// Whom messages come from.
    peers: Group,
    /// Of the processes that the device says are gone, how many were when the program said that it knows.
    count: AtomicUsize,
}

impl Acknowledged {
    pub(super) const fn new(peers: Group) -> Self {
        Self { peers, count: AtomicUsize::new(0) }
    }

    /// Whether a peer is gone of which the program has not said that it knows.
    pub(super) fn is_behind(&self, gone: &[u32]) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        gone.len() > count && gone[count..].iter().any(|process| self.peers.rank_of(*process).is_some())
    }
}

/// All processes of both sides, in the order of their numbers.
pub(super) fn members(group: &Group, remote: Option<&Group>) -> Box<[u32]> {
    let mut members = group.processes().to_vec();
    members.extend(remote.into_iter().flat_map(Group::processes));
    members.sort_unstable();
    members.into()
}
