//! Who shares a queue of an interface: how endpoints find one another, and how each is held by nobody but itself.
//!
//! Every endpoint has an abstract Unix name that says where its descriptors are: the process, and the numbers of socket,
//! memory, map and link in it. A newcomer reads the names, takes copies of the descriptors of anyone of its own user
//! that is there (pidfd_getfd(2)), and becomes a member like all others. So there is no first among them and no server:
//! what they share lives as long as one of them, and the kernel takes it away with the last, however that one ends.
//! A name lasts as long as its process, too, and is seen in one network namespace only, as the interface is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::shared::MEMBERS_MAX;
use super::sys;
use crate::names::{self, Name};
use crate::rights;

/// A queue of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The interface.
    pub interface: i32,
    /// Which of its queues.
    pub number: u32,
}

/// An endpoint that shares the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its place among the chunks.
    pub place: u32,
    pid: u32,
    /// Numbers of its [`Descriptors`], in the order of that struct.
    numbers: [i32; 4],
}

/// What members share.
pub struct Descriptors {
    /// A socket that is bound to the queue.
    pub socket: OwnedFd,
    /// The memory of [`super::shared`].
    pub memory: OwnedFd,
    /// The map from endpoints to sockets.
    pub map: OwnedFd,
    /// Holds the program to the interface.
    pub link: OwnedFd,
}

impl Queue {
    /// Keeps everybody else of our user from joining or leaving while the name is held. Waits for whoever has it.
    pub fn hold(self) -> io::Result<Name> {
        let until = Instant::now() + PATIENCE;
        let turn = format!("{}/turn/{}", self.prefix(), rights::own_user());
        loop {
            match Name::take(&turn) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                    if let Some(user) = names::stranger(&turn) {
                        let told = format!("user {user} keeps `@{turn}` from us (`ss -xap` names the process)");
                        return Err(io::Error::new(error.kind(), told));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => return result,
            }
        }
    }

    /// Who of our user is there. What others say leads nowhere: they could say anything.
    pub fn members(self) -> Vec<Member> {
        let names = names::taken(&format!("{}/", self.prefix())).into_iter();
        names.filter(|name| name.stranger.is_none()).filter_map(|name| parse(&name.rest)).collect()
    }

    /// Says that we are there, at `place`.
    pub fn publish(self, place: u32, shared: [BorrowedFd; 4]) -> io::Result<Name> {
        let [socket, memory, map, link] = shared.map(|fd| fd.as_raw_fd());
        let pid = std::process::id();
        Name::take(&format!("{}/{place}/{pid}.{socket}.{memory}.{map}.{link}", self.prefix()))
    }

    fn prefix(self) -> String {
        format!("sidelane/xdp/{}/{}", self.interface, self.number)
    }
}

impl Member {
    /// Copies of its descriptors. Fails when it has just gone, or is not ours to look into.
    pub fn descriptors(&self) -> io::Result<Descriptors> {
        let process = sys::process(self.pid)?;
        let copy = |number| sys::descriptor_of(process.as_fd(), number);
        let [socket, memory, map, link] = self.numbers;
        Ok(Descriptors { socket: copy(socket)?, memory: copy(memory)?, map: copy(map)?, link: copy(link)? })
    }
}

/// How many endpoints of any queue are on the interface with this number: our own user's, and root's. Any other may only say so.
pub fn endpoints_on(interface: u32) -> usize {
    users_on(interface).into_iter().filter(|stranger| matches!(stranger, None | Some(0))).count()
}

/// Of each of these the other user who says to have it.
pub fn users_on(interface: u32) -> Vec<Option<u32>> {
    let names = names::taken(&format!("sidelane/xdp/{interface}/")).into_iter();
    names
        .filter(|name| name.rest.split_once('/').and_then(|(_, rest)| parse(rest)).is_some())
        .map(|name| name.stranger)
        .collect()
}

/// A place that none of `members` has, far from the last one given.
pub fn free_place(members: &[Member], last: u32) -> Option<u32> {
    let places = (1..=MEMBERS_MAX as u32).map(|step| (last.wrapping_add(step)) % MEMBERS_MAX as u32);
    places.into_iter().find(|place| members.iter().all(|member| member.place != *place))
}

/// `PLACE/PID.SOCKET.MEMORY.MAP.LINK`
fn parse(text: &str) -> Option<Member> {
    let (place, rest) = text.split_once('/')?;
    let mut numbers = rest.split('.');
    let pid = numbers.next()?.parse().ok()?;
    let mut next = || numbers.next()?.parse().ok();
    let member = Member { place: place.parse().ok()?, pid, numbers: [next()?, next()?, next()?, next()?] };
    ((member.place as usize) < MEMBERS_MAX).then_some(member)
}

/// Longer than opening takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;

    /// A queue of an interface that is not there, and of test `test` alone, also while another process runs the same tests.
    fn queue(test: i32, number: u32) -> Queue {
        Queue { interface: i32::MAX - 8 * std::process::id() as i32 - test, number }
    }

    #[test]
    fn a_member_is_found_while_it_is_there() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let queue = queue(0, 3);
        assert_eq!(queue.members(), []);
        let name = queue.publish(5, [file.as_fd(); 4]).unwrap();
        let members = queue.members();
        assert_eq!((members.len(), members[0].place), (1, 5));
        assert_eq!(endpoints_on(queue.interface as u32), 1);
        assert_eq!(Queue { number: 33, ..queue }.members(), []);
        assert!(members[0].descriptors().is_ok(), "one's own are always to be had");
        drop(name);
        // A process that another test starts has a copy of it until its exec.
        until("its name is free", || queue.members().is_empty());
    }

    #[test]
    fn names_of_others_are_no_members() {
        for text in ["turn/0", "", "1/2", "1/2.3.4.5", "16/1.2.3.4.5", "x/1.2.3.4.5", "1/1.2.3.4.-"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn another_user_s_names_are_no_members_and_keep_nobody_waiting() {
        let queue = queue(1, 0);
        let file = std::fs::File::open("/dev/null").unwrap();
        let (member, turn) = (queue.publish(3, [file.as_fd(); 4]).unwrap(), queue.hold().unwrap());
        let Ok(user) = member.give_away().and_then(|_| turn.give_away()) else {
            return println!("skipped: wants root");
        };
        let began = Instant::now();
        let refused = queue.hold().map(drop).unwrap_err().to_string();
        assert!(refused.contains(&format!("user {user}")) && began.elapsed() < PATIENCE, "{refused}");
        assert_eq!(queue.members(), []);
        assert_eq!(users_on(queue.interface as u32), [Some(user)]);
        assert_eq!(endpoints_on(queue.interface as u32), 0, "they may have no endpoint at all");
    }

    #[test]
    fn a_place_is_not_taken_again_at_once() {
        let member = |place| Member { place, pid: 1, numbers: [0; 4] };
        assert_eq!(free_place(&[], MEMBERS_MAX as u32 - 1), Some(0));
        assert_eq!(free_place(&[member(1)], 0), Some(2));
        assert_eq!(free_place(&[member(1)], 1), Some(2));
        let all: Vec<_> = (0..MEMBERS_MAX as u32).map(member).collect();
        assert_eq!(free_place(&all, 3), None);
        assert_eq!(free_place(&all[1..], 3), Some(0));
    }

    #[test]
    fn turns_are_taken() {
        crate::patience::watch("it", crate::patience::PATIENCE);
        let queue = queue(2, 0);
        let first = queue.hold().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| queue.hold().map(drop));
            drop(first);
            assert!(second.join().unwrap().is_ok());
        });
    }
}
