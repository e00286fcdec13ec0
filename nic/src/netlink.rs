//! Lists that the kernel has, asked for by netlink(7).
#![allow(unsafe_code)] // A socket of a family that std has none of.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;

use crate::socket::check;

/// Asks for all of a `kind` of `protocol`'s by `request`, and shows each answer behind its `struct nlmsghdr`. While the list changes it is
/// asked for again, a few times.
pub fn list(protocol: libc::c_int, kind: u16, request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut answers = Answers::default();
    for _ in 0..TRIES_MAX {
        answers = dump(protocol, kind, request)?;
        if !answers.torn {
            break;
        }
    }
    answers.messages.iter().for_each(|answer| each(answer));
    Ok(())
}

/// What the kernel has told of a list.
#[derive(Default)]
struct Answers {
    messages: Vec<Vec<u8>>,
    /// The list changed meanwhile: some may be missing, or be told of twice.
    torn: bool,
}

fn dump(protocol: libc::c_int, kind: u16, request: &[u8]) -> io::Result<Answers> {
    // SAFETY: plain calls; the descriptor is nobody else's.
    let mut kernel = unsafe {
        let socket = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        File::from_raw_fd(check(libc::socket(libc::AF_NETLINK, socket, protocol))?)
    };
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let len = (HEADER_LEN + request.len()) as u32;
    // Length, kind, flags, number and sender.
    kernel
        .write_all(&[&len.to_ne_bytes(), &kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &[0; 8], request].concat())?;
    let (mut answers, mut bytes) = (Answers::default(), vec![0; ANSWERS_LEN_MAX]);
    loop {
        let len = match kernel.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let mut rest = &bytes[..len];
        while let Some((message, behind)) = rest.get(..4).and_then(|len| first(rest, number(len), HEADER_LEN)) {
            answers.torn |= number(&message[6..8]) & libc::NLM_F_DUMP_INTR as usize != 0;
            match number(&message[4..6]) as libc::c_int {
                libc::NLMSG_DONE => return Ok(answers),
                libc::NLMSG_ERROR => {
                    let errno = message.get(HEADER_LEN..HEADER_LEN + 4).map_or(0, number) as i32;
                    return Err(io::Error::from_raw_os_error(-errno));
                }
                _ => answers.messages.push(message[HEADER_LEN..].to_vec()),
            }
            rest = behind;
        }
    }
}

/// An answer's attributes (rtnetlink(7)): of each its type, and what it says.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let (attribute, behind) = bytes.get(..2).and_then(|len| first(bytes, number(len), 4))?;
        bytes = behind;
        Some((number(&attribute[2..4]), &attribute[4..]))
    })
}

/// The first of parts that begin with their lengths, if it has `least` bytes, and what is behind it.
fn first(parts: &[u8], len: usize, least: usize) -> Option<(&[u8], &[u8])> {
    let part = parts.get(..len).filter(|part| part.len() >= least)?;
    Some((part, parts.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Two or four bytes in the machine's order; 0 of any other count.
pub fn number(bytes: &[u8]) -> usize {
    match *bytes {
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]) as usize,
        _ => 0,
    }
}

/// `struct nlmsghdr`
const HEADER_LEN: usize = 16;
/// A list that changes all the time is taken as it is told.
const TRIES_MAX: usize = 16;
/// What the kernel tells at a time at most (`netlink_recvmsg`).
const ANSWERS_LEN_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_are_read_beyond_their_end() {
        for bytes in [&[][..], &[5], &[9, 0, 0, 0], &[3, 0, 7, 0], &[0; 12]] {
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
        }
        let two = [&5u16.to_ne_bytes()[..], &[1, 0, b'a', 0, 0, 0], &4u16.to_ne_bytes(), &[2, 0], &[9; 3]].concat();
        let [one, another] = [1, 2].map(|kind: u16| number(&kind.to_le_bytes()));
        assert_eq!(attributes(&two).collect::<Vec<_>>(), [(one, &b"a"[..]), (another, &[])]);
    }

    #[test]
    fn what_the_kernel_refuses_is_an_error() {
        let refused = list(libc::NETLINK_ROUTE, u16::MAX, &[0; 8], |_| {}).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
