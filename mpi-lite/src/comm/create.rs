//! New communicators: what their processes agree on, and who is in (MPI-4.1 7.4 and 7.6).

use crate::adi::{Device, Idle, Turns};
use crate::op::Op;

use super::agreeing::{Agreeing, Key};
use super::cartesian::{Cartesian, Side};
use super::communicator::Topology;
use super::context::{About, Kind, NOTHING, Offer, Topic, and};
use super::graph::{DistGraph, Edge, Graph, Link};
use super::info::Info;
use super::local::Local;
use super::{Communicator, ErrorClass, Group};

impl Communicator {
    /// The same processes with messages of their own; handler and attributes are copied, hints are not. For who fails to copy an attribute
    /// there is none, and for the others it is revoked, so that nobody waits there for a rank that does not have it.
    pub fn dup(&self) -> Result<Self, ErrorClass> {
        let copy = self.compound(|| {
            let id = self.agree_on_id()?;
            Ok(match (&self.0.remote, &self.0.side) {
                (Some(remote), Some(side)) => {
                    let side = side.bare().inspect_err(|_| self.give_up(id))?;
                    self.made_between(id, side, remote.clone())
                }
                _ => self.made(id, self.0.group.clone(), self.0.rank, self.0.topology.clone()),
            })
        })?;
        copy.begin_with(self.settings()).map_err(|class| self.fail(class))?;
        Ok(copy)
    }

    /// As [`Self::dup`], with these hints.
    pub fn dup_with_info(&self, info: &Info) -> Result<Self, ErrorClass> {
        let copy = self.dup()?;
        copy.set_info(info);
        Ok(copy)
    }

    /// A communicator of these processes, which are all here; the others get none. All processes here call it.
    ///
    /// Of an intercommunicator one between those that each side names of its own; none where a side names nobody.
    pub fn create(&self, group: &Group) -> Result<Option<Self>, ErrorClass> {
        if group.difference(&self.0.group).size() > 0 {
            return Err(self.fail(ErrorClass::Group));
        }
        if self.0.side.is_some() {
            let rank = group.rank_of(self.0.group.processes()[self.0.rank as usize]);
            return self.split(rank.map(|_| 0), rank.map_or(0, |rank| rank as i32));
        }
        let id = self.compound(|| self.agree_on_id())?;
        Ok(self.member(id, group.clone(), Topology::None))
    }

    /// As [`Self::create`], called by the members of the group, who tell it from other calls by `tag`: who calls it and is none
    /// waits for nobody. Within one group.
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Option<Self>, ErrorClass> {
        self.within_one_group()?;
        let own = self.0.group.processes()[self.0.rank as usize];
        if group.difference(&self.0.group).size() > 0 {
            return Err(self.fail(ErrorClass::Group));
        }
        if group.rank_of(own).is_none() {
            return Ok(None);
        }
        let ranks = group.processes().iter().map(|process| self.0.group.rank_of(*process).expect("it is one of ours"));
        let (leader, others) = ranks.clone().next().map(|leader| (leader, ranks.skip(1))).expect("we are in it");
        let topic = Topic { kind: Kind::Creation, tag };
        let and_all = |_: About, offer: Offer| {
            let (mut all, mut next) = (offer, NOTHING);
            if self.0.rank != leader {
                self.tell(&offer, leader, topic)?;
                self.hear(&mut all, leader, topic, never)?;
                return Ok(all);
            }
            let mut heard = Ok(());
            for rank in others.clone() {
                let one = self.hear(&mut next, rank, topic, never);
                and(&mut all, if one.is_ok() { &next } else { &NOTHING });
                heard = heard.and(one);
            }
            // The others wait for this, whatever it is; who is gone does not, and is missed by the next call.
            others.clone().for_each(|rank| _ = self.tell(&all, rank, topic));
            heard.map(|()| all)
        };
        let id = self.compound(|| self.agree_by(Key::Some { of: self.0.id, tag }, and_all))?;
        Ok(self.member(id, group.clone(), Topology::None))
    }

    /// A communicator between this group and another one. `leader` of each group reaches the other's by rank `other` of
    /// `bridge`, which has both leaders; the others' `bridge` and `other` mean nothing. An argument that a leader cannot use is an
    /// error for all of its group, and none that the other side would hear of.
    pub fn intercomm(&self, leader: u32, bridge: &Self, other: u32, tag: i32) -> Result<Self, ErrorClass> {
        self.within_one_group()?;
        self.compound(|| self.intercomm_in_parts(leader, bridge, other, tag))
    }

    fn intercomm_in_parts(&self, leader: u32, bridge: &Self, other: u32, tag: i32) -> Result<Self, ErrorClass> {
        let leads = self.0.rank == leader;
        let here: Vec<u64> = self.0.group.processes().iter().copied().map(u64::from).collect();
        // All have to know what their leaders tell this call from others by.
        let with_key = |there: Vec<u64>| {
            let own = self.0.group.processes()[self.0.rank as usize];
            let mut leaders = [own, bridge.peers().processes()[other as usize]];
            leaders.sort_unstable();
            [&[bridge.0.id.into(), tag as u64, leaders[0].into(), leaders[1].into()], &there[..]].concat()
        };
        let hear = Topic { kind: Kind::Offers, tag: if leads { self.0.local.lock().leader_tag() } else { 0 } };
        let mut line = Line { bridge, other, say: hear, hear, group: Some(self) };
        let heard = if leads { self.exchange(&here, &mut line, tag).map(with_key) } else { Ok(Vec::new()) };
        let met = heard.is_ok();
        let side = self.spread(leader, heard).and_then(|heard| {
            let mut heard = heard.into_iter().map(|word| word as u32);
            let [bridge, tag, low, high] =
                std::array::from_fn(|_| heard.next().expect("it comes before the processes"));
            let key = Key::Between { bridge, tag: tag as i32, leaders: [low, high] };
            let remote = Group::new(heard.collect::<Vec<u32>>());
            let remote = remote.filter(|remote| remote.intersection(&self.0.group).size() == 0);
            let remote = remote.ok_or(ErrorClass::Group)?;
            Ok((key, remote, self.bare()?))
        });
        if side.is_err() && leads && met {
            // The other side waits for our offer.
            line.refuse();
        }
        let (key, remote, side) = side?;
        // Within the group that the program has, whose revoking ends it.
        let id = self.agree_between(key, leader, line)?;
        Ok(self.made_between(id, side, remote))
    }

    /// For messages within this group, beside those of the program's: its processes, and nothing that the program hung on it.
    fn bare(&self) -> Result<Self, ErrorClass> {
        Ok(self.bare_of(self.agree_on_id()?))
    }

    pub(super) fn bare_of(&self, id: u32) -> Self {
        self.made(id, self.0.group.clone(), self.0.rank, Topology::None)
    }

    /// What both sides' leaders tell each other where they meet, by `tag`: how much it is, and the tag of what each is told afterwards; and
    /// that. It ends with our group's communicator, while the other leader may not have come.
    fn exchange(&self, here: &[u64], line: &mut Line, tag: i32) -> Result<Vec<u64>, ErrorClass> {
        let (bridge, other, topic) = (line.bridge, line.other, Topic { kind: Kind::Leaders, tag });
        let mut meets = [0; 2];
        let said = [here.len() as u64, line.hear.tag as u64];
        let met = bridge.swap(&said, &mut meets, other, topic, |device| self.is_revoked_in(device));
        if self.has_ended(met) {
            // If it comes, what it says then is not taken for the next call's, and what it hears next is nothing, which no call says.
            bridge.disregard(other, topic)?;
            bridge.leave_word::<u64>(&[], other, topic)?;
            bridge.disregard(other, topic)?;
            return Err(ErrorClass::Revoked);
        }
        met?;
        let [len, say] = meets;
        line.say.tag = say as i32;
        let mut there = vec![0; len as usize];
        let heard = bridge.swap(here, &mut there, other, topic, |device| self.is_revoked_in(device));
        if self.has_ended(heard) {
            bridge.disregard(other, topic)?;
            line.refuse();
            return Err(ErrorClass::Revoked);
        }
        heard.map(|()| there)
    }

    fn is_revoked_in(&self, device: &Device) -> bool {
        device.is_revoked(self.context(Kind::Collective))
    }

    /// Whether what a leader did elsewhere was given up since its group's communicator is revoked.
    fn has_ended(&self, done: Result<(), ErrorClass>) -> bool {
        done == Err(ErrorClass::ProcFailed) && self.is_revoked_in(&self.0.local.lock().device)
    }

    /// What the leader has heard from elsewhere, known to all of its group; also why it could not hear it.
    fn spread(&self, leader: u32, heard: Result<Vec<u64>, ErrorClass>) -> Result<Vec<u64>, ErrorClass> {
        let mut len = [heard.as_ref().map_or_else(|class| unheard(*class), |heard| heard.len() as u64)];
        self.broadcast(&mut len, leader)?;
        let mut heard = heard?;
        if let Some(class) = ErrorClass::ALL.iter().find(|class| unheard(**class) == len[0]) {
            return Err(*class);
        }
        heard.resize(len[0] as usize, 0);
        self.broadcast(&mut heard, leader)?;
        Ok(heard)
    }

    /// One group of both sides of an intercommunicator: those come first that say `high` is false; if both say the same, those
    /// whose first process has the smaller number.
    pub fn merge(&self, high: bool) -> Result<Self, ErrorClass> {
        self.compound(|| self.merge_in_parts(high))
    }

    fn merge_in_parts(&self, high: bool) -> Result<Self, ErrorClass> {
        let (Some(side), Some(remote)) = (&self.0.side, &self.0.remote) else { return Err(ErrorClass::Comm) };
        let first = |group: &Group| u64::from(group.processes()[0]);
        let mut there = vec![0];
        let heard = if side.rank() == 0 { self.swap(&[u64::from(high)], &mut there, 0, MERGE, never) } else { Ok(()) };
        let there = side.spread(0, heard.map(|()| there)).inspect_err(|_| self.decline())?;
        let group = self.group();
        let we_first = (u64::from(high), first(group)) < (there[0], first(remote));
        let all = if we_first { group.union(remote) } else { remote.union(group) };
        let id = self.agree_on_id()?;
        Ok(self.member(id, all, Topology::None).expect("we are on one of the sides"))
    }

    /// A grid of the first ranks; the others get none. Ranks stay as they are.
    pub fn cartesian(&self, sides: &[Side]) -> Result<Option<Self>, ErrorClass> {
        self.within_one_group()?;
        let grid = Cartesian::new(sides).map_err(|_| self.fail(ErrorClass::Dims))?;
        let size = grid.size();
        self.first(size, Topology::Cartesian(grid))
    }

    /// Which rank this process has in [`Self::cartesian`], if any, without making it (`MPI_Cart_map`). Nobody else is asked.
    pub fn cartesian_rank(&self, sides: &[Side]) -> Result<Option<u32>, ErrorClass> {
        self.within_one_group()?;
        let grid = Cartesian::new(sides).map_err(|_| self.fail(ErrorClass::Dims))?;
        self.among_first(grid.size())
    }

    /// The grid's rows, planes or whatever remains without the dimensions that `keep` names false: the one we are in.
    pub fn sub_grid(&self, keep: &[bool]) -> Result<Self, ErrorClass> {
        let Topology::Cartesian(grid) = self.topology() else { return Err(self.fail(ErrorClass::Topology)) };
        let (sub, color, key) = grid.sub(self.0.rank, keep).map_err(|_| self.fail(ErrorClass::Arg))?;
        let part = self.compound(|| self.split_in_parts(Some(color), key as i32, Topology::Cartesian(sub)))?;
        Ok(part.expect("we have a color"))
    }

    /// A graph of the first ranks, as all of them give it; the others get none.
    pub fn graph(&self, index: &[usize], edges: &[u32]) -> Result<Option<Self>, ErrorClass> {
        self.within_one_group()?;
        let graph = Graph::new(index, edges).map_err(|_| self.fail(ErrorClass::Arg))?;
        let size = graph.size();
        self.first(size, Topology::Graph(graph))
    }

    /// Which rank this process has in [`Self::graph`], if any, without making it (`MPI_Graph_map`). Nobody else is asked.
    pub fn graph_rank(&self, index: &[usize], edges: &[u32]) -> Result<Option<u32>, ErrorClass> {
        self.within_one_group()?;
        let graph = Graph::new(index, edges).map_err(|_| self.fail(ErrorClass::Arg))?;
        self.among_first(graph.size())
    }

    /// A graph of which each rank gives its own neighbours.
    pub fn dist_graph_adjacent(
        &self,
        sources: Vec<Edge>,
        destinations: Vec<Edge>,
        weighted: bool,
    ) -> Result<Self, ErrorClass> {
        self.within_one_group()?;
        let graph = DistGraph::adjacent(self.size(), sources, destinations, weighted);
        let graph = graph.map_err(|_| self.fail(ErrorClass::Arg))?;
        self.first(self.size(), Topology::DistGraph(graph)).map(|own| own.expect("all are in"))
    }

    /// A graph of which each rank gives any edges.
    pub fn dist_graph(&self, links: &[Link], weighted: bool) -> Result<Self, ErrorClass> {
        self.within_one_group()?;
        let mut counts = vec![0u64; self.size() as usize];
        self.allgather(&[links.len() as u64], &mut counts)?;
        let counts: Vec<usize> = counts.into_iter().map(|count| count as usize).collect();
        let own: Vec<[u32; 3]> = links.iter().map(|link| [link.source, link.destination, link.weight]).collect();
        let mut all = vec![[0; 3]; counts.iter().sum()];
        self.allgather_varying(&own, &mut all, &counts)?;
        let all: Vec<Link> =
            all.into_iter().map(|[source, destination, weight]| Link { source, destination, weight }).collect();
        let graph = DistGraph::of_links(self.size(), self.rank(), &all, weighted);
        let graph = graph.map_err(|_| self.fail(ErrorClass::Arg))?;
        self.first(self.size(), Topology::DistGraph(graph)).map(|own| own.expect("all are in"))
    }

    /// The first `size` ranks, with a topology.
    fn first(&self, size: u32, topology: Topology) -> Result<Option<Self>, ErrorClass> {
        self.among_first(size)?;
        let ranks: Vec<u32> = (0..size).collect();
        let group = self.0.group.incl(&ranks).expect("as many as there are");
        let id = self.compound(|| self.agree_on_id())?;
        Ok(self.member(id, group, topology))
    }

    /// Our rank, if it is one of the first `size`, which are no more than there are.
    fn among_first(&self, size: u32) -> Result<Option<u32>, ErrorClass> {
        if size > self.size() {
            return Err(self.fail(ErrorClass::Arg));
        }
        Ok(Some(self.0.rank).filter(|rank| *rank < size))
    }

    /// The communicator, if we are in its group; else its id is free again here.
    pub(super) fn member(&self, id: u32, group: Group, topology: Topology) -> Option<Self> {
        let own = self.0.group.processes()[self.0.rank as usize];
        match group.rank_of(own) {
            Some(rank) => Some(self.made(id, group, rank, topology)),
            None => {
                self.give_back(id);
                None
            }
        }
    }

    pub(super) fn give_back(&self, id: u32) {
        self.0.local.lock().contexts.give_back(id);
    }

    /// The same where others may have the communicator.
    pub(super) fn give_up(&self, id: u32) {
        self.0.local.lock().contexts.give_up(id);
    }

    /// An id that all processes here have free.
    pub(super) fn agree_on_id(&self) -> Result<u32, ErrorClass> {
        let key = Key::Call { of: self.0.id };
        match &self.0.side {
            None => self.agree_by(key, |_, mut offer| self.allreduce_in_place(&mut offer, &Op::Band).map(|()| offer)),
            Some(side) => side.agree_between(key, 0, Line::of_sides(self)),
        }
    }

    /// In place of [`Self::agree_on_id`], to which the other side comes: this one does not.
    pub(super) fn decline(&self) {
        if self.0.side.as_ref().is_some_and(|side| side.rank() == 0) {
            Line::of_sides(self).refuse();
        }
    }

    /// An id that is free here and on another side, to whose leader our `leader` has this line. It ends with our group's communicator, if the line says so.
    fn agree_between(&self, key: Key, leader: u32, line: Line) -> Result<u32, ErrorClass> {
        let leads = self.0.rank == leader;
        self.agree_by(key, |about, mut offer| {
            let here = self.allreduce_in_place(&mut offer, &Op::Band);
            let mut heard = Ok(());
            if leads {
                let mut there = NOTHING;
                // The other side waits for it also when there is nothing to offer.
                let said = if here.is_ok() { &offer } else { &NOTHING };
                heard = line.swap(said, &mut there);
                and(&mut offer, if heard.is_ok() { &there } else { &NOTHING });
            }
            here?;
            let goes_on = leads && about.found(&offer).goes_on();
            let told = self.broadcast(&mut offer, leader);
            if told.is_err() && goes_on {
                // Who has told its group comes back for the rest.
                line.refuse();
            }
            told?;
            heard.map(|()| offer)
        })
    }

    /// An id that is free in all processes among which `and` makes what they offer one. Part of a call that tells if it fails.
    pub(super) fn agree_by(
        &self,
        key: Key,
        mut and: impl FnMut(About, Offer) -> Result<Offer, ErrorClass>,
    ) -> Result<u32, ErrorClass> {
        let local = &self.0.local;
        local.reclaim();
        let mut part = Part { local, agreeing: Agreeing::new(key) };
        let mut idle = Idle::new();
        loop {
            let (about, offer) = (part.agreeing.about(), part.agreeing.offer(&mut local.lock().contexts));
            let all = and(about, offer)?;
            let ended = part.agreeing.hear(&mut local.lock().contexts, &all);
            if let Some(ended) = ended {
                return ended;
            }
            if part.agreeing.about() == about {
                // What comes first may be another call of this process, and one that is alone takes no turns in a round.
                let mut held = local.hold();
                let moved = held.turn();
                held.pass(moved, &mut idle);
            }
        }
    }
}

/// A process's part in an agreement, which it gives up by an error or panic.
struct Part<'a> {
    local: &'a Local,
    agreeing: Agreeing,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.agreeing.give_up(&mut self.local.lock().contexts);
    }
}

/// Between the leaders of two groups.
struct Line<'a> {
    bridge: &'a Communicator,
    /// The other leader's rank in it.
    other: u32,
    /// What is said, and what is heard.
    say: Topic,
    hear: Topic,
    /// Whose revoking ends it, if not only the bridge's: of a line with tags of its own, where what is said too late is for nobody.
    group: Option<&'a Communicator>,
}

impl<'a> Line<'a> {
    /// Of the two sides of an intercommunicator.
    const fn of_sides(bridge: &'a Communicator) -> Self {
        Self { bridge, other: 0, say: AGREE, hear: AGREE, group: None }
    }

    /// Each other's offer.
    fn swap(&self, offer: &Offer, there: &mut Offer) -> Result<(), ErrorClass> {
        self.bridge.leave_word(offer, self.other, self.say)?;
        let is_over = |device: &Device| self.group.is_some_and(|group| group.is_revoked_in(device));
        let heard = self.bridge.hear(there, self.other, self.hear, is_over);
        if self.group.is_some_and(|group| group.has_ended(heard)) {
            // It may have heard of our offer, and come back for the next one.
            self.refuse();
            return Err(ErrorClass::Revoked);
        }
        heard
    }

    /// Offers the other leader nothing, who waits for an offer, and does not wait for what that one offers, who may still have to hear
    /// from its own side.
    fn refuse(&self) {
        let left = self.bridge.leave_word(&NOTHING, self.other, self.say);
        let _ = left.and_then(|()| self.bridge.disregard(self.other, self.hear));
    }
}

/// What two sides of an intercommunicator tell each other: [`Communicator::create_group`], whose tags are the program's, is not for those.
const AGREE: Topic = Topic { kind: Kind::Creation, tag: 0 };
const MERGE: Topic = Topic { kind: Kind::Creation, tag: 1 };

/// Only the communicator that is spoken in ends it.
const fn never(_: &Device) -> bool {
    false
}

/// In place of a length, which is far less: the leader has not heard from the other side, and why.
const fn unheard(class: ErrorClass) -> u64 {
    u64::MAX - class as u64
}
