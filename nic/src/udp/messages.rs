//! What the kernel reads while it sends: a message for each run of frames.
#![allow(unsafe_code)] // Message headers hold raw pointers into buffers, addresses and this list itself.

use std::io;
use std::mem::{size_of, size_of_val};

use io_uring::{opcode, squeue, types};

use super::sys::RawAddr;

/// Messages of one flush. Their pointers are valid as long as nothing is written that they were made of.
pub struct Messages {
    runs: Vec<Run>,
    /// One per frame, in the queue's order.
    pieces: Vec<libc::iovec>,
    /// One per run.
    headers: Vec<libc::msghdr>,
    segment_sizes: Vec<SegmentSize>,
}

/// A stretch of the queue that leaves as one datagram, and the link's socket.
#[derive(Clone, Copy)]
pub struct Run {
    pub start: usize,
    pub end: usize,
    pub fd: i32,
}

// SAFETY: the pointers are read only within the flush that wrote them; between flushes they are dead values.
unsafe impl Send for Messages {}

/// A control message of type UDP_SEGMENT (udp(7)), as it stands in memory: `cmsghdr`, then its data.
#[repr(C)]
#[derive(Clone, Copy)]
struct SegmentSize {
    header: libc::cmsghdr,
    size: u16,
}

impl Messages {
    /// Of up to `frames` frames.
    pub fn new(frames: usize) -> Self {
        Self {
            runs: Vec::with_capacity(frames),
            pieces: Vec::with_capacity(frames),
            headers: Vec::with_capacity(frames),
            segment_sizes: Vec::with_capacity(frames),
        }
    }

    pub fn clear(&mut self) {
        self.runs.clear();
        self.pieces.clear();
        self.headers.clear();
        self.segment_sizes.clear();
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The queue's next frame. All of them come before the first run.
    pub fn push_piece(&mut self, bytes: &[u8]) {
        self.pieces.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }

    /// `to`: where the socket is not connected.
    pub fn push_run(&mut self, run: Run, to: Option<&RawAddr>) {
        let pieces = &mut self.pieces[run.start..run.end];
        // SAFETY: all zeroes is a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        if let Some(to) = to {
            header.msg_name = to.as_ptr().cast_mut();
            header.msg_namelen = to.len();
        }
        header.msg_iov = pieces.as_mut_ptr();
        header.msg_iovlen = pieces.len();
        // Never moved by a later one: there is room for all.
        self.segment_sizes.push(SegmentSize::new(pieces[0].iov_len as u16));
        if pieces.len() > 1 {
            let size = self.segment_sizes.last_mut().expect("just pushed");
            header.msg_control = std::ptr::from_mut(size).cast();
            header.msg_controllen = size_of_val(size);
        }
        self.headers.push(header);
        self.runs.push(run);
    }

    /// For each run, what io_uring takes; its user data is the run's place.
    pub fn entries(&self) -> impl Iterator<Item = (&Run, squeue::Entry)> {
        self.runs.iter().zip(&self.headers).zip(0..).map(|((run, header), at)| {
            let entry = opcode::SendMsg::new(types::Fd(run.fd), header)
                .flags(libc::MSG_DONTWAIT as u32)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(at);
            (run, entry)
        })
    }

    /// Sends the run at that place by a system call.
    ///
    /// # Safety
    /// All that its message was made of is still there, as it was.
    pub unsafe fn send(&self, at: usize) -> io::Result<()> {
        // SAFETY: the header is in this list; the rest as the caller promises.
        let sent = unsafe { libc::sendmsg(self.runs[at].fd, &raw const self.headers[at], libc::MSG_DONTWAIT) };
        if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl SegmentSize {
    fn new(size: u16) -> Self {
        // SAFETY: all zeroes is a valid cmsghdr, and a valid number.
        let mut message: Self = unsafe { std::mem::zeroed() };
        message.header.cmsg_level = libc::SOL_UDP;
        message.header.cmsg_type = libc::UDP_SEGMENT;
        message.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<u16>();
        message.size = size;
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_of_several_frames_is_cut_apart_and_by_the_first_ones_length() {
        let mut messages = Messages::new(3);
        let frames = [[1; 40], [2; 40], [3; 40]];
        [&frames[0][..], &frames[1][..39], &frames[2]].iter().for_each(|bytes| messages.push_piece(bytes));
        for (start, end) in [(0, 2), (2, 3)] {
            messages.push_run(Run { start, end, fd: -1 }, None);
        }
        assert_eq!(messages.headers[0].msg_control.cast_const(), (&raw const messages.segment_sizes[0]).cast());
        assert_eq!(messages.segment_sizes[0].size, 40);
        assert!(messages.headers[1].msg_control.is_null());
        assert_eq!([0, 1].map(|run| messages.headers[run].msg_iovlen), [2, 1]);
    }
}
