//! The communicators of a program: who is in, and how more are made.

use sidelane_mpi::comm::cartesian::Side;
use sidelane_mpi::comm::{Communicator, Group, Topology};
use sidelane_nic::rng::Rng;

use super::Rank;
use super::layout::shuffle;

/// Who is in a communicator, by their numbers in the world.
#[derive(Debug, Clone)]
pub struct Members {
    /// One group, or the two of an intercommunicator.
    pub groups: Vec<Vec<u32>>,
    /// Of a grid.
    pub grid: Vec<(u32, bool)>,
    pub lives: bool,
}

/// A rank of one of the groups.
pub type Place = (usize, u32);

/// One or several new communicators.
#[derive(Debug)]
pub struct Birth {
    /// Of this one.
    of: usize,
    /// The first one's number.
    number: usize,
    way: Way,
    born: Vec<Members>,
}

#[derive(Debug)]
enum Way {
    Dup,
    /// By rank.
    Split {
        colors: Vec<Option<u32>>,
        keys: Vec<i32>,
    },
    /// Of these ranks.
    Create {
        ranks: Vec<u32>,
    },
    CreateGroup {
        ranks: Vec<u32>,
        tag: i32,
    },
    /// Two halves, and one between them; the leader of each.
    Between {
        of_first: Vec<bool>,
        leaders: [u32; 2],
        tag: i32,
    },
    /// What each group says, and who is in the first one.
    Merge {
        high: [bool; 2],
        first: Vec<u32>,
    },
    Grid {
        sides: Vec<Side>,
    },
    SubGrid {
        keep: Vec<bool>,
    },
}

impl Members {
    pub fn world(ranks: u32) -> Self {
        Self::group((0..ranks).collect())
    }

    fn group(processes: Vec<u32>) -> Self {
        Self { groups: vec![processes], grid: Vec::new(), lives: true }
    }

    pub fn is_one_group(&self) -> bool {
        self.groups.len() == 1
    }

    /// Of one group.
    pub fn size(&self) -> u32 {
        self.groups[0].len() as u32
    }

    /// The group of those whom a member of a group speaks to.
    pub fn peers_of(&self, group: usize) -> usize {
        self.groups.len() - 1 - group
    }

    /// All ranks.
    pub fn places(&self) -> Vec<Place> {
        let ranks = |(group, ranks): (usize, &Vec<u32>)| (0..ranks.len() as u32).map(move |rank| (group, rank));
        self.groups.iter().enumerate().flat_map(ranks).collect()
    }

    fn place(&self, process: u32) -> Option<Place> {
        self.places().into_iter().find(|(group, rank)| self.groups[*group][*rank as usize] == process)
    }
}

impl Birth {
    /// `None` when there are enough, or this one can't have such offspring.
    pub fn random(rng: &mut Rng, of: usize, family: &mut Vec<Members>, step: u64) -> Option<Self> {
        if family.iter().filter(|members| members.lives).count() > LIVING_MAX {
            return None;
        }
        let parent = family[of].clone();
        let tag = step as i32;
        let (way, born) = match rng.below(8) {
            0 => (Way::Dup, vec![parent]),
            1 if !parent.is_one_group() => merge(rng, &parent),
            _ if !parent.is_one_group() => return None,
            1 if !parent.grid.is_empty() => sub_grid(rng, &parent),
            2 | 1 => grid(rng, &parent),
            3 => split(rng, &parent),
            4 | 5 => {
                let mut ranks: Vec<u32> = (0..parent.size()).filter(|_| rng.chance(0.7)).collect();
                shuffle(rng, &mut ranks);
                if ranks.is_empty() {
                    return None;
                }
                let group = ranks.iter().map(|rank| parent.groups[0][*rank as usize]).collect();
                let way = if rng.chance(0.5) { Way::Create { ranks } } else { Way::CreateGroup { ranks, tag } };
                (way, vec![Members::group(group)])
            }
            _ => between(rng, &parent, tag)?,
        };
        let number = family.len();
        family.extend(born.iter().cloned());
        Some(Self { of, number, way, born })
    }

    /// A row of all ranks, whose ends are neighbours.
    pub fn grid_of_all(family: &mut Vec<Members>) -> Self {
        let size = family[0].size();
        let members = Members { grid: vec![(size, true)], ..family[0].clone() };
        family.push(members.clone());
        let way = Way::Grid { sides: vec![Side { size, periodic: true }] };
        Self { of: 0, number: family.len() - 1, way, born: vec![members] }
    }

    pub fn run(&self, rank: &mut Rank) {
        assert_eq!(rank.comms.len(), self.number);
        let comm = rank.comms[self.of].clone();
        let made = comm.map_or_else(|| vec![None; self.born.len()], |comm| self.make(&comm));
        for (made, members) in made.iter().zip(&self.born) {
            let place = members.place(rank.process);
            assert_eq!(made.as_ref().map(|comm| comm.rank()), place.map(|(_, rank)| rank), "{self:?}");
            let (Some(comm), Some((group, _))) = (made, place) else { continue };
            assert_eq!(comm.group().processes(), members.groups[group], "{self:?}");
            let remote = comm.remote_group().map(Group::processes);
            assert_eq!(remote, (!members.is_one_group()).then(|| &members.groups[1 - group][..]), "{self:?}");
            if let Topology::Cartesian(grid) = comm.topology() {
                let sides: Vec<_> = grid.dimensions().iter().map(|side| (side.size, side.periodic)).collect();
                assert_eq!(sides, members.grid, "{self:?}");
            } else {
                assert!(members.grid.is_empty(), "{self:?}");
            }
        }
        rank.comms.extend(made);
    }

    /// What this member gets of each.
    fn make(&self, comm: &Communicator) -> Vec<Option<Communicator>> {
        let own = comm.rank();
        match &self.way {
            Way::Dup => vec![Some(comm.dup().unwrap())],
            Way::Split { colors, keys } => {
                let part = comm.split(colors[own as usize], keys[own as usize]).unwrap();
                let color = colors[own as usize];
                (0..self.born.len() as u32).map(|of| part.clone().filter(|_| color == Some(of))).collect()
            }
            Way::Create { ranks } => vec![comm.create(&comm.group().incl(ranks).unwrap()).unwrap()],
            Way::CreateGroup { ranks, tag } => {
                let group = comm.group().incl(ranks).unwrap();
                vec![ranks.contains(&own).then(|| comm.create_group(&group, *tag).unwrap())]
            }
            Way::Between { of_first, leaders, tag } => {
                let side = usize::from(!of_first[own as usize]);
                let half = comm.split(Some(side as u32), 0).unwrap().unwrap();
                let other = rank_in(of_first, 1 - side, leaders[1 - side]);
                let between = half.intercomm(leaders[side], comm, other, *tag).unwrap();
                let mut made = vec![None, None, Some(between)];
                made[side] = Some(half);
                made
            }
            Way::Merge { high, first } => {
                let side = usize::from(comm.group().processes() != first);
                vec![Some(comm.merge(high[side]).unwrap())]
            }
            Way::Grid { sides } => vec![comm.cartesian(sides).unwrap()],
            Way::SubGrid { keep } => {
                let part = comm.sub_grid(keep).unwrap();
                let mine = |members: &Members| members.groups[0] == part.group().processes();
                self.born.iter().map(|members| mine(members).then(|| part.clone())).collect()
            }
        }
    }
}

fn merge(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let high = [rng.chance(0.5), rng.chance(0.5)];
    let groups = &parent.groups;
    // Those come first that are not high; if both say the same, those of the process with the lower number.
    let first = usize::from((high[1], groups[1][0]) < (high[0], groups[0][0]));
    let all = groups[first].iter().chain(&groups[1 - first]).copied().collect();
    (Way::Merge { high, first: groups[0].clone() }, vec![Members::group(all)])
}

fn split(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let count = 1 + rng.below(3) as u32;
    let colors: Vec<Option<u32>> = (0..parent.size())
        .map(|_| rng.below(u64::from(count) + 1) as u32)
        .map(|color| (color < count).then_some(color))
        .collect();
    let keys: Vec<i32> = (0..parent.size()).map(|_| rng.below(5) as i32 - 2).collect();
    let born = (0..count).map(|color| {
        let mut ranks: Vec<u32> = (0..parent.size()).filter(|rank| colors[*rank as usize] == Some(color)).collect();
        ranks.sort_by_key(|rank| keys[*rank as usize]);
        let lives = !ranks.is_empty();
        Members { lives, ..Members::group(ranks.iter().map(|rank| parent.groups[0][*rank as usize]).collect()) }
    });
    let born = born.collect();
    (Way::Split { colors, keys }, born)
}

fn between(rng: &mut Rng, parent: &Members, tag: i32) -> Option<(Way, Vec<Members>)> {
    let of_first: Vec<bool> = (0..parent.size()).map(|_| rng.chance(0.5)).collect();
    let half = |side: bool| -> Vec<u32> {
        parent.groups[0]
            .iter()
            .zip(&of_first)
            .filter(|(_, first)| **first == side)
            .map(|(process, _)| *process)
            .collect()
    };
    let halves = [half(true), half(false)];
    if halves.iter().any(Vec::is_empty) {
        return None;
    }
    let leaders = [0, 1].map(|side: usize| rng.below(halves[side].len() as u64) as u32);
    let both = Members { groups: halves.to_vec(), grid: Vec::new(), lives: true };
    let [first, second] = halves.map(Members::group);
    Some((Way::Between { of_first, leaders, tag }, vec![first, second, both]))
}

/// The rank in the whole of a rank in one of its halves.
fn rank_in(of_first: &[bool], side: usize, rank: u32) -> u32 {
    let mut half = (0..of_first.len() as u32).filter(|whole| of_first[*whole as usize] == (side == 0));
    half.nth(rank as usize).expect("a leader is in its half")
}

fn grid(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let mut left = parent.size();
    let mut sides = Vec::new();
    while sides.len() < 3 && (sides.is_empty() || rng.chance(0.6)) {
        let size = 1 + rng.below(u64::from(left)) as u32;
        sides.push(Side { size, periodic: rng.chance(0.5) });
        left /= size;
    }
    let size: u32 = sides.iter().map(|side| side.size).product();
    let grid = sides.iter().map(|side| (side.size, side.periodic)).collect();
    let members = Members { grid, ..Members::group(parent.groups[0][..size as usize].to_vec()) };
    (Way::Grid { sides }, vec![members])
}

fn sub_grid(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let keep: Vec<bool> = parent.grid.iter().map(|_| rng.chance(0.5)).collect();
    let mut parts: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
    for rank in 0..parent.size() {
        // Those are together that differ only where dimensions are kept.
        let mut rest = rank;
        let mut dropped = Vec::new();
        for ((size, _), keep) in parent.grid.iter().zip(&keep).rev() {
            dropped.push(if *keep { 0 } else { rest % size });
            rest /= size;
        }
        let process = parent.groups[0][rank as usize];
        match parts.iter_mut().find(|(coordinates, _)| *coordinates == dropped) {
            Some((_, part)) => part.push(process),
            None => parts.push((dropped, vec![process])),
        }
    }
    let grid: Vec<(u32, bool)> =
        parent.grid.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(side, _)| *side).collect();
    let born = parts.into_iter().map(|(_, part)| Members { grid: grid.clone(), ..Members::group(part) }).collect();
    (Way::SubGrid { keep }, born)
}

/// Communicators that live at a time, about.
const LIVING_MAX: usize = 8;
