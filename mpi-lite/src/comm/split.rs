//! Communicators of some of another one's processes: those of a color, of a host, or of a part of one (MPI-4.1 7.4.2).

use sidelane_nic::affinity::{self, Part};

use super::communicator::Topology;
use super::{Communicator, ErrorClass, Group};

impl Communicator {
    /// One communicator for each color, in which ranks are in the order of `key`, and of the ranks here where that is equal.
    /// Without a color (`MPI_UNDEFINED`) none.
    ///
    /// Of an intercommunicator one for each color between those who have it on both sides; none where it is only on one.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>, ErrorClass> {
        self.compound(|| self.split_in_parts(color, key, Topology::None))
    }

    /// The one that we are in has this topology, which is of one group.
    pub(super) fn split_in_parts(
        &self,
        color: Option<u32>,
        key: i32,
        topology: Topology,
    ) -> Result<Option<Self>, ErrorClass> {
        let own = [color.map_or(-1, i64::from), key.into()];
        let mut all = vec![[0; 2]; self.peers().size() as usize];
        let side = self.allgather(&[own], &mut all).and_then(|()| match &self.0.side {
            None => Ok(None),
            Some(side) => side.split(color, key),
        });
        let side = side.inspect_err(|_| self.decline())?;
        self.split_in_colors(color, &all, side, topology)
    }

    /// The last part: each peer's color and key are known, and of two groups this one's side.
    fn split_in_colors(
        &self,
        color: Option<u32>,
        all: &[[i64; 2]],
        side: Option<Self>,
        topology: Topology,
    ) -> Result<Option<Self>, ErrorClass> {
        let peers = of_color(self.peers(), all, color.map_or(-1, i64::from));
        let id = self.agree_on_id()?;
        if color.is_none() || peers.size() == 0 {
            self.give_back(id);
            return Ok(None);
        }
        Ok(match side {
            None => self.member(id, peers, topology),
            Some(side) => Some(self.made_between(id, side, peers)),
        })
    }

    /// As [`Self::split`], one for the processes of each host, which share memory (`MPI_COMM_TYPE_SHARED`).
    pub fn split_shared(&self, key: i32) -> Result<Self, ErrorClass> {
        let hosts = |places: &[Option<Place>]| colors(places, |place| Some(place.host));
        let own = self.split_by_places(Some(key), || NO_PARTS, hosts)?;
        Ok(own.expect("every process has a host"))
    }

    /// As [`Self::split`], one for the processes that may run on the same `part` of a host, and nowhere else
    /// (`MPI_COMM_TYPE_HW_GUIDED`); none for one that may run on several, or where the system does not tell.
    pub fn split_by_part(&self, part: Part, key: i32) -> Result<Option<Self>, ErrorClass> {
        self.split_by_places(Some(key), own_parts, |places| colors(places, |place| place.part(part)))
    }

    /// As [`Self::split`], by hosts, or if all are on one, by the largest part of it that not all are in
    /// (`MPI_COMM_TYPE_HW_UNGUIDED`). None where there is no such part, and as for [`Self::split_by_part`].
    pub fn split_finer(&self, key: i32) -> Result<Option<Self>, ErrorClass> {
        self.split_by_places(Some(key), own_parts, finer)
    }

    /// Takes part in a [`Self::split_shared`], [`Self::split_by_part`] or [`Self::split_finer`] of other ranks, and is in none of what it
    /// makes (the type `MPI_UNDEFINED`).
    pub fn split_undefined(&self) -> Result<(), ErrorClass> {
        self.split_by_places(None, || NO_PARTS, |places| vec![None; places.len()]).map(drop)
    }

    /// By the colors that follow from where all are, of which there is nothing to know of those without a key. `parts` are ours, and
    /// are found out only for who has one.
    fn split_by_places(
        &self,
        key: Option<i32>,
        parts: fn() -> Parts,
        colors: impl FnOnce(&[Option<Place>]) -> Vec<Option<u32>>,
    ) -> Result<Option<Self>, ErrorClass> {
        self.within_one_group()?;
        self.compound(|| {
            let own = key.map_or([-1; _], |key| Place { host: self.first_on_our_host(), parts: parts() }.told(key));
            let mut all: Vec<Told> = vec![[0; _]; self.size() as usize];
            self.allgather(&[own], &mut all)?;
            let colors = colors(&all.iter().copied().map(Place::of).collect::<Vec<_>>());
            let keyed = colors.iter().zip(&all).map(|(color, [_, key, ..])| [color.map_or(-1, i64::from), *key]);
            let color = colors[self.0.rank as usize];
            self.split_in_colors(color, &keyed.collect::<Vec<_>>(), None, Topology::None)
        })
    }

    /// The rank that tells our host from others.
    fn first_on_our_host(&self) -> u32 {
        let own = self.0.group.processes()[self.0.rank as usize];
        let state = self.0.local.lock();
        let processes = state.device.processes();
        let host = |process: u32| &processes[process as usize].host;
        let first = self.0.group.processes().iter().position(|process| host(*process) == host(own));
        first.expect("we are on our own host") as u32
    }
}

/// Where a process may run.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// A number that its host alone has.
    host: u32,
    /// The same of the part of each kind that it is in, on that host; -1 of several.
    parts: Parts,
}

/// Of each kind.
type Parts = [i64; Part::ALL.len()];

/// Where only hosts count.
const NO_PARTS: Parts = [-1; _];

/// Those that this process may run in.
fn own_parts() -> Parts {
    let cores = affinity::cores();
    Part::ALL.map(|part| part.around(&cores).map_or(-1, |first| first as i64))
}

/// A [`Place`] and a key, as all tell each other.
type Told = [i64; Part::ALL.len() + 2];

impl Place {
    fn told(self, key: i32) -> Told {
        let mut told = [0; _];
        [told[0], told[1]] = [self.host.into(), key.into()];
        told[2..].copy_from_slice(&self.parts);
        told
    }

    /// `None` of who is in nothing, which has no host.
    fn of([host, _, parts @ ..]: Told) -> Option<Self> {
        Some(Self { host: u32::try_from(host).ok()?, parts })
    }

    /// What tells its part of this kind from all others of all hosts.
    fn part(self, part: Part) -> Option<(u32, i64)> {
        let first = self.parts[part as usize];
        (first >= 0).then_some((self.host, first))
    }
}

/// Each rank's color: the first rank that is in the same.
fn colors<T: PartialEq>(places: &[Option<Place>], of: impl Fn(Place) -> Option<T>) -> Vec<Option<u32>> {
    let all: Vec<_> = places.iter().map(|place| place.and_then(&of)).collect();
    let first = |own: &Option<T>| all.iter().position(|other| other == own).map(|rank| rank as u32);
    all.iter().map(|own| own.as_ref().and_then(|_| first(own))).collect()
}

/// By the largest kind that not all are in one of. Of some kinds the system may tell nothing.
fn finer(places: &[Option<Place>]) -> Vec<Option<u32>> {
    let by_host = colors(places, |place| Some(place.host));
    let by_part = Part::ALL.into_iter().map(|part| colors(places, |place| place.part(part)));
    let first = places.iter().position(Option::is_some).map(|rank| rank as u32);
    let divides = |colors: &Vec<Option<u32>>| {
        let mut of_those_in = colors.iter().zip(places).filter(|(_, place)| place.is_some());
        colors.iter().any(Option::is_some) && of_those_in.any(|(color, _)| *color != first)
    };
    std::iter::once(by_host).chain(by_part).find(divides).unwrap_or_else(|| vec![None; places.len()])
}

/// Those of a group that have this color, in the order of their keys.
fn of_color(group: &Group, all: &[[i64; 2]], color: i64) -> Group {
    let mut members: Vec<(i64, u32)> =
        (0..).zip(all).filter(|(_, [other, _])| *other == color).map(|(rank, [_, key])| (*key, rank)).collect();
    members.sort_unstable();
    let ranks: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
    group.incl(&ranks).expect("the ranks are some of the group's")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts of two packages of two cores of two threads, of which only packages and smaller ones are told.
    fn place(host: u32, cores: &[i64]) -> Place {
        let around = |size: i64| {
            let first = cores[0] / size * size;
            if cores.iter().all(|core| core / size * size == first) { first } else { -1 }
        };
        Place { host, parts: [-1, around(4), -1, around(2), around(1)] }
    }

    fn some(places: &[Place]) -> Vec<Option<Place>> {
        places.iter().copied().map(Some).collect()
    }

    #[test]
    fn what_all_tell_each_other_is_a_place_and_a_key() {
        let there = place(3, &[5]);
        let told = there.told(-7);
        assert_eq!(told[..2], [3, -7]);
        assert_eq!(Place::of(told).map(|place| (place.host, place.parts)), Some((3, there.parts)));
        assert!(Place::of([-1; _]).is_none());
    }

    #[test]
    fn ranks_in_the_same_part_have_the_same_color() {
        let places = some(&[
            place(0, &[0]),
            place(0, &[1]),
            place(0, &[2, 3]),
            place(1, &[0]),
            place(0, &[3, 4]),
            place(1, &[1]),
        ]);
        let by = |part| colors(&places, |place| place.part(part));
        assert_eq!(by(Part::Package), [Some(0), Some(0), Some(0), Some(3), None, Some(3)]);
        assert_eq!(by(Part::PhysicalCore), [Some(0), Some(0), Some(2), Some(3), None, Some(3)]);
        assert_eq!(by(Part::HardwareThread), [Some(0), Some(1), None, Some(3), None, Some(5)]);
        assert_eq!(by(Part::NumaNode), [None; 6], "the system does not tell");
    }

    #[test]
    fn what_is_finer_divides() {
        let at = |cores: &[&[i64]]| cores.iter().map(|cores| Some(place(0, cores))).collect::<Vec<_>>();
        assert_eq!(
            finer(&some(&[place(1, &[0]), place(0, &[0]), place(1, &[4])])),
            [Some(0), Some(1), Some(0)],
            "hosts"
        );
        assert_eq!(finer(&at(&[&[0], &[4], &[6]])), [Some(0), Some(1), Some(1)], "packages");
        assert_eq!(finer(&at(&[&[0], &[2], &[1]])), [Some(0), Some(1), Some(0)], "physical cores");
        assert_eq!(finer(&at(&[&[0], &[1], &[0]])), [Some(0), Some(1), Some(0)], "threads");
        assert_eq!(finer(&at(&[&[1], &[1]])), [None; 2], "nothing divides them");
        assert_eq!(finer(&at(&[&[0, 2], &[1]])), [None, Some(1)], "one is in two cores");
        let with_none = |mut places: Vec<Option<Place>>| {
            places.insert(0, None);
            finer(&places)
        };
        assert_eq!(with_none(at(&[&[0], &[4]])), [None, Some(1), Some(2)], "packages of those who are asked");
        assert_eq!(with_none(at(&[&[1], &[1]])), [None; 3], "nothing divides those who are asked");
    }
}
