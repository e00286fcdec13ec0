//! Abstract Unix names (unix(7)): each is one process's of a network namespace, until it ends. By them endpoints of an
//! interface are told apart, and find one another.
//!
//! Any user can take any name. So whoever meets one asks the kernel whose socket has it (sock_diag(7)), and by what others
//! have taken is kept out, but never misled.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::netlink;
use crate::rights::own_user;

/// A name that is ours until this is dropped.
pub struct Name(#[allow(dead_code)] UnixDatagram);

/// A name that somebody has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What stands behind the beginning that was asked for.
    pub rest: String,
    /// The other user whose it is; `None`: our own, or a kernel that does not tell.
    pub stranger: Option<u32>,
}

impl Name {
    /// Fails with `AddrInUse` where somebody has it.
    pub fn take(name: &str) -> io::Result<Self> {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self)
    }

    /// As if another user had taken it, who is returned. Only root may.
    #[cfg(test)]
    pub fn give_away(&self) -> io::Result<u32> {
        let stranger = own_user() + 1;
        std::os::unix::fs::fchown(&self.0, Some(stranger), None).map(|()| stranger)
    }
}

/// By which an endpoint is one driver's and one process's only.
pub fn of_endpoint(interface: i32, endpoint: u16) -> String {
    format!("sidelane/ether/{interface}/{endpoint}")
}

/// All names that begin with `start`.
pub fn taken(start: &str) -> Vec<Taken> {
    let of = |(name, user): (String, Option<u32>)| {
        let stranger = user.filter(|user| *user != own_user());
        name.strip_prefix(start).map(|rest| Taken { rest: rest.to_owned(), stranger })
    };
    let names = told_by_kernel().unwrap_or_else(|error| {
        tracing::debug!(%error, "nobody tells whose names are");
        listed()
    });
    names.into_iter().filter_map(of).collect()
}

/// The other user who has `name`.
pub fn stranger(name: &str) -> Option<u32> {
    taken(name).into_iter().find(|taken| taken.rest.is_empty())?.stranger
}

/// For errors: whose process has what is wanted.
pub fn process_of(stranger: Option<u32>) -> String {
    stranger.map_or_else(|| "another process".to_owned(), |user| format!("a process of user {user}"))
}

/// Names with their users (linux/unix_diag.h).
pub fn told_by_kernel() -> io::Result<Vec<(String, Option<u32>)>> {
    let request = [
        // `struct unix_diag_req`: family, all states, any inode, what to show, no cookie.
        &[libc::AF_UNIX as u8, 0, 0, 0][..],
        &[0xff; 4],
        &[0; 4],
        &(SHOW_NAME | SHOW_UID).to_ne_bytes(),
        &[0xff; 8],
    ];
    let mut names = Vec::new();
    netlink::list(libc::NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &request.concat(), |answer| {
        names.extend(answer.get(UNIX_DIAG_LEN..).and_then(name_of));
    })?;
    Ok(names)
}

/// The abstract name that a socket's attributes tell, and its user.
fn name_of(attributes: &[u8]) -> Option<(String, Option<u32>)> {
    let (mut name, mut user) = (None, None);
    for attribute in netlink::attributes(attributes) {
        match attribute {
            (UNIX_DIAG_NAME, [0, text @ ..]) => name = std::str::from_utf8(text).ok().map(str::to_owned),
            (UNIX_DIAG_UID, uid) => user = (uid.len() == 4).then(|| netlink::number(uid) as u32),
            _ => {}
        }
    }
    Some((name?, user))
}

/// The same without users, from a kernel without `CONFIG_UNIX_DIAG`.
fn listed() -> Vec<(String, Option<u32>)> {
    let names = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    names.lines().filter_map(|line| Some((line.split_once(" @")?.1.to_owned(), None))).collect()
}

/// linux/sock_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_NAME` (linux/unix_diag.h)
const SHOW_NAME: u32 = 1;
/// `UDIAG_SHOW_UID` (linux/unix_diag.h; Linux 5.3)
const SHOW_UID: u32 = 0x40;
/// linux/unix_diag.h
const UNIX_DIAG_NAME: usize = 0;
/// linux/unix_diag.h
const UNIX_DIAG_UID: usize = 7;
/// `struct unix_diag_msg`
const UNIX_DIAG_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;

    #[test]
    fn a_name_is_taken_by_one_until_it_is_dropped() {
        let start = format!("sidelane-test/{}/taken/", std::process::id());
        let both = [Name::take(&format!("{start}a")).unwrap(), Name::take(&format!("{start}b/c")).unwrap()];
        let again = Name::take(&format!("{start}a")).map(drop).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        let mut rests: Vec<_> = taken(&start).into_iter().map(|taken| (taken.rest, taken.stranger)).collect();
        rests.sort();
        assert_eq!(rests, [("a".to_owned(), None), ("b/c".to_owned(), None)]);
        drop(both);
        // A process that another test starts has a copy of ours until its exec.
        until("both names are free", || taken(&start).is_empty());
        drop(Name::take(&format!("{start}a")).unwrap());
    }

    #[test]
    fn a_kernel_that_does_not_tell_users_lists_names() {
        let name = format!("sidelane-test/{}/listed", std::process::id());
        let _name = Name::take(&name).unwrap();
        assert!(listed().contains(&(name, None)));
    }

    #[test]
    fn another_user_s_name_is_known_as_such() {
        let name = format!("sidelane-test/{}/stranger", std::process::id());
        let held = Name::take(&name).unwrap();
        assert_eq!(stranger(&name), None);
        let (Ok(user), Ok(_)) = (held.give_away(), told_by_kernel()) else {
            return println!("skipped: wants root, and a kernel with CONFIG_UNIX_DIAG");
        };
        assert_eq!(stranger(&name), Some(user));
        assert_eq!(stranger(&name[..name.len() - 1]), None, "only a whole name counts");
        assert_eq!(process_of(stranger(&name)), format!("a process of user {user}"));
    }

    #[test]
    fn a_socket_s_attributes_tell_its_name_and_user() {
        for bytes in [&[][..], &[4, 0, 0, 0], &[8, 0, 7, 0, 1]] {
            assert_eq!(name_of(bytes), None, "{bytes:?}");
        }
        let name = [
            &7u16.to_ne_bytes()[..],
            &[0, 0, 0, b'a', b'b', 0],
            &8u16.to_ne_bytes(),
            &7u16.to_ne_bytes(),
            &9u32.to_ne_bytes(),
        ];
        assert_eq!(name_of(&name.concat()), Some(("ab".to_owned(), Some(9))));
    }
}
