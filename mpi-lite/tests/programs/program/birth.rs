//! How more communicators are made, each of another one.

use sidelane_mpi::comm::cartesian::Side;
use sidelane_mpi::comm::graph::{Edge, Link};
use sidelane_mpi::comm::{Communicator, Group, Topology};
use sidelane_nic::rng::Rng;

use super::Rank;
use super::around::{Around, Neighbors};
use super::layout::shuffle;
use super::members::Members;

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
    /// Begun, and waited for.
    Idup,
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
    /// Of these ranks of two groups, and who is in the first one.
    CreateBetween {
        ranks: [Vec<u32>; 2],
        first: Vec<u32>,
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
    /// Each rank names its neighbours.
    Adjacent,
    /// Each rank tells of some edges.
    Links {
        told: Vec<Vec<(u32, u32)>>,
    },
    /// All ranks name all neighbours.
    Whole,
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
            0 if rng.chance(0.5) => (Way::Idup, vec![parent]),
            0 => (Way::Dup, vec![parent]),
            1 if !parent.is_one_group() => merge(rng, &parent),
            2 | 3 if !parent.is_one_group() => create_between(rng, &parent)?,
            _ if !parent.is_one_group() => return None,
            1 if parent.around.is_grid() => sub_grid(rng, &parent),
            2 if rng.chance(0.5) => graph(rng, &parent),
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
        let members = Members { around: Around::Grid(vec![(size, true)]), ..family[0].clone() };
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
            let ranks = |edges: &[Edge]| edges.iter().map(|edge| edge.rank).collect();
            let rank = comm.rank() as usize;
            match (comm.topology(), &members.around) {
                (Topology::None, Around::Nobody) => {}
                (Topology::Cartesian(grid), Around::Grid(sides)) => {
                    let told: Vec<_> = grid.dimensions().iter().map(|side| (side.size, side.periodic)).collect();
                    assert_eq!(told, *sides, "{self:?}");
                }
                (Topology::Graph(graph), Around::Graph(all)) => {
                    assert_eq!(graph.neighbors(comm.rank()), all[rank].sources, "{self:?}");
                }
                (Topology::DistGraph(graph), Around::Graph(all)) => {
                    let (sources, destinations) = (ranks(graph.sources()), ranks(graph.destinations()));
                    assert_eq!(Neighbors { sources, destinations }, all[rank], "{self:?}");
                }
                (other, _) => panic!("{other:?} of {self:?}"),
            }
        }
        rank.comms.extend(made);
    }

    /// What this member gets of each.
    fn make(&self, comm: &Communicator) -> Vec<Option<Communicator>> {
        let own = comm.rank();
        match &self.way {
            Way::Dup => vec![Some(comm.dup().unwrap())],
            Way::Idup => vec![Some(comm.idup().unwrap().wait().unwrap())],
            Way::Split { colors, keys } => {
                let part = comm.split(colors[own as usize], keys[own as usize]).unwrap();
                let color = colors[own as usize];
                (0..self.born.len() as u32).map(|of| part.clone().filter(|_| color == Some(of))).collect()
            }
            Way::Create { ranks } => vec![comm.create(&comm.group().incl(ranks).unwrap()).unwrap()],
            Way::CreateGroup { ranks, tag } => {
                let group = comm.group().incl(ranks).unwrap();
                vec![comm.create_group(&group, *tag).unwrap()]
            }
            Way::CreateBetween { ranks, first } => {
                let side = usize::from(comm.group().processes() != first);
                vec![comm.create(&comm.group().incl(&ranks[side]).unwrap()).unwrap()]
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
            Way::Adjacent => {
                let edges = |ranks: &[u32]| ranks.iter().map(|rank| Edge { rank: *rank, weight: 1 }).collect();
                let Neighbors { sources, destinations } = &self.graph()[own as usize];
                vec![Some(comm.dist_graph_adjacent(edges(sources), edges(destinations), false).unwrap())]
            }
            Way::Links { told } => {
                let link = |&(source, destination): &(u32, u32)| Link { source, destination, weight: 1 };
                let links: Vec<Link> = told[own as usize].iter().map(link).collect();
                vec![Some(comm.dist_graph(&links, false).unwrap())]
            }
            Way::Whole => {
                let all = self.graph();
                let edges: Vec<u32> = all.iter().flat_map(|own| own.sources.iter().copied()).collect();
                let ends = all.iter().scan(0, |end, own| {
                    *end += own.sources.len();
                    Some(*end)
                });
                vec![comm.graph(&ends.collect::<Vec<usize>>(), &edges).unwrap()]
            }
        }
    }

    fn graph(&self) -> &[Neighbors] {
        match &self.born[0].around {
            Around::Graph(all) => all,
            other => panic!("{other:?} is no graph"),
        }
    }
}

/// Any edges: to oneself, several between two, none at some ranks.
fn graph(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let size = parent.size();
    let mut all = vec![Neighbors::default(); size as usize];
    let mut told = vec![Vec::new(); size as usize];
    let way = rng.below(3);
    for _ in 0..rng.below(3 * u64::from(size) + 1) {
        let [from, to, by] = [(); 3].map(|()| rng.below(size.into()) as u32);
        told[by as usize].push((from, to));
    }
    let links = told.concat();
    for &(from, to) in &links {
        all[from as usize].destinations.push(to);
        all[to as usize].sources.push(from);
        // As all know of all, whoever is sent to sends back.
        if way == 2 && from != to {
            all[to as usize].destinations.push(from);
            all[from as usize].sources.push(to);
        }
    }
    let way = match way {
        0 => {
            // Each has its own order.
            for own in &mut all {
                shuffle(rng, &mut own.sources);
                shuffle(rng, &mut own.destinations);
            }
            Way::Adjacent
        }
        1 => Way::Links { told },
        _ => Way::Whole,
    };
    (way, vec![Members { around: Around::Graph(all), ..Members::group(parent.groups[0].clone()) }])
}

/// Some of each side.
fn create_between(rng: &mut Rng, parent: &Members) -> Option<(Way, Vec<Members>)> {
    let ranks = [0, 1].map(|side: usize| {
        let mut ranks: Vec<u32> = (0..parent.groups[side].len() as u32).filter(|_| rng.chance(0.7)).collect();
        shuffle(rng, &mut ranks);
        ranks
    });
    if ranks.iter().any(Vec::is_empty) {
        return None;
    }
    let named = |side: usize| ranks[side].iter().map(|rank| parent.groups[side][*rank as usize]).collect();
    let both = Members { groups: vec![named(0), named(1)], around: Around::Nobody, lives: true };
    Some((Way::CreateBetween { ranks, first: parent.groups[0].clone() }, vec![both]))
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
    let both = Members { groups: halves.to_vec(), around: Around::Nobody, lives: true };
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
    let around = Around::Grid(sides.iter().map(|side| (side.size, side.periodic)).collect());
    let members = Members { around, ..Members::group(parent.groups[0][..size as usize].to_vec()) };
    (Way::Grid { sides }, vec![members])
}

fn sub_grid(rng: &mut Rng, parent: &Members) -> (Way, Vec<Members>) {
    let Around::Grid(grid) = &parent.around else { panic!("only of a grid") };
    let keep: Vec<bool> = grid.iter().map(|_| rng.chance(0.5)).collect();
    let mut parts: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
    for rank in 0..parent.size() {
        // Those are together that differ only where dimensions are kept.
        let mut rest = rank;
        let mut dropped = Vec::new();
        for ((size, _), keep) in grid.iter().zip(&keep).rev() {
            dropped.push(if *keep { 0 } else { rest % size });
            rest /= size;
        }
        let process = parent.groups[0][rank as usize];
        match parts.iter_mut().find(|(coordinates, _)| *coordinates == dropped) {
            Some((_, part)) => part.push(process),
            None => parts.push((dropped, vec![process])),
        }
    }
    let grid: Vec<(u32, bool)> = grid.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(side, _)| *side).collect();
    let born = parts
        .into_iter()
        .map(|(_, part)| Members { around: Around::Grid(grid.clone()), ..Members::group(part) })
        .collect();
    (Way::SubGrid { keep }, born)
}

/// Communicators that live at a time, about.
const LIVING_MAX: usize = 8;
