//! File descriptors handed from one process to another over a unix socket (`SCM_RIGHTS`, unix(7)).
#![allow(unsafe_code)] // std has no stable interface for ancillary data.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::c_int;

/// Most descriptors in one message (`SCM_MAX_FD`, unix(7)).
pub const DESCRIPTORS_MAX: usize = 253;

/// Ancillary data of one message, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

const CONTROL_LEN: usize = {
    // SAFETY: CMSG_SPACE only computes a length from its argument.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) as usize }
};

/// Sends `bytes` (not empty) and copies of `descriptors`; `flags` as `MSG_DONTWAIT`. Allocates nothing, so that a forked child may call
/// it. An error where not all of the bytes could be sent.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd], flags: c_int) -> io::Result<()> {
    assert!(!bytes.is_empty(), "descriptors travel only beside data");
    assert!(descriptors.len() <= DESCRIPTORS_MAX, "more descriptors than one message holds");
    let mut control = Control([0; CONTROL_LEN]);
    let mut data = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data for which zeroes are a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let len = size_of_val(descriptors);
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: As above, a computation.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len as u32) } as usize;
        // SAFETY: `control` has room for one header and DESCRIPTORS_MAX descriptors (asserted above), so the first
        // header and the data behind it lie inside it; `copy` takes exactly `len` bytes of `descriptors`.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len as u32) as usize;
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), len);
        }
    }
    // SAFETY: `message` points at `data`, `bytes` and `control`, all alive until the call returns.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags | libc::MSG_NOSIGNAL) } {
        -1 => Err(io::Error::last_os_error()),
        sent if sent as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives one message, or what is there of a stream, into `bytes`; returns its length (0: the other side closed) and the descriptors
/// beside it, which are closed on exec. An error when this process has no room for all of them.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: c_int) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data for which zeroes are a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_LEN;
    let received = loop {
        // SAFETY: `message` points at `data`, `bytes` and `control`, all alive and writable until the call returns.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
        if n >= 0 {
            break n as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mut descriptors = Vec::new();
    // SAFETY: The kernel filled `control` and set `msg_controllen`; the CMSG macros stay inside that length. Every
    // descriptor in an SCM_RIGHTS message was opened for us by this very call, so nobody else owns it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..len / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(first.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    // `control` holds all that `send` sends, so what was cut found no free descriptor (unix(7)).
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok((received, descriptors))
}

/// Who is at the other end, or has begun to listen there, as the kernel noted it. The process is 0 where this one cannot see it.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    let at: *mut libc::ucred = &mut peer;
    // SAFETY: `peer` has room for `len` bytes, and both outlive the call.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at.cast(), &raw mut len) }
    {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(peer),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_descriptor_arrives_beside_its_bytes() {
        let (left, right) = UnixStream::pair().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        send(left.as_fd(), b"one", &[far.as_raw_fd()], 0).unwrap();
        drop(far);
        let mut bytes = [0; 8];
        let (len, mut descriptors) = receive(right.as_fd(), &mut bytes, 0).unwrap();
        assert_eq!((&bytes[..len], descriptors.len()), (&b"one"[..], 1));
        UnixStream::from(descriptors.remove(0)).write_all(b"x").unwrap();
        let mut text = String::new();
        near.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn a_closed_socket_reads_as_length_zero() {
        let (left, right) = UnixStream::pair().unwrap();
        drop(left);
        let (len, descriptors) = receive(right.as_fd(), &mut [0; 8], 0).unwrap();
        assert_eq!((len, descriptors.len()), (0, 0));
    }
}
