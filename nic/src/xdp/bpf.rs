//! The system call bpf(2), as far as one small program needs it: linux/bpf.h.
#![allow(unsafe_code)] // Raw system calls with pointers in their arguments; each wrapper says what they point to.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::interface::Interface;
use crate::socket::check;

/// One instruction (networking/filter.rst; `struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What to do.
    pub code: u8,
    /// Destination register in the low half, source in the high one (as little-endian bit fields lie).
    pub registers: u8,
    /// Offset of a load, or of a jump.
    pub offset: i16,
    /// The constant.
    pub constant: i32,
}

/// How a program is attached to an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// By the kernel, after its driver made an skb of the frame.
    Generic = 1 << 1,
    /// By the interface's driver.
    Native = 1 << 2,
}

/// A map from numbers below `entries` to AF_XDP sockets.
pub fn socket_map(entries: u32) -> io::Result<OwnedFd> {
    const XSKMAP: u32 = 17;
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
    }
    let mut create = Create {
        map_type: XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        map_flags: 0,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: *NAME,
    };
    // SAFETY: BPF_MAP_CREATE reads this struct, which has no pointers.
    owned(unsafe { bpf(MAP_CREATE, &mut create) }?)
}

/// Sends what is for `key` to `socket`. The entry goes when the socket is closed, by whom or what ever.
pub fn set_socket(map: BorrowedFd, key: u32, socket: BorrowedFd) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let mut element = Element::new(map, &key, &raw const value as u64);
    // SAFETY: BPF_MAP_UPDATE_ELEM reads four bytes each of key and value, which live through the call.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Undoes [`set_socket`].
pub fn clear_socket(map: BorrowedFd, key: u32) -> io::Result<()> {
    let mut element = Element::new(map, &key, 0);
    // SAFETY: BPF_MAP_DELETE_ELEM reads four bytes of key, which live through the call.
    unsafe { bpf(MAP_DELETE_ELEM, &mut element) }.map(drop)
}

/// Has the kernel verify and translate an XDP program.
pub fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const XDP: u32 = 6;
    #[repr(C)]
    struct Load {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
    }
    let mut load = Load {
        prog_type: XDP,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *NAME,
    };
    // SAFETY: BPF_PROG_LOAD reads `insn_cnt` instructions and a C string, which live through the call.
    owned(unsafe { bpf(PROG_LOAD, &mut load) }?)
}

/// Attaches a program to an interface for as long as anybody holds the link that is returned.
pub fn attach(program: BorrowedFd, interface: Interface, attachment: Attachment) -> io::Result<OwnedFd> {
    const BPF_XDP: u32 = 37;
    #[repr(C)]
    struct LinkCreate {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut create = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface.index() as u32,
        attach_type: BPF_XDP,
        flags: attachment as u32,
    };
    // SAFETY: BPF_LINK_CREATE reads this struct, which has no pointers.
    owned(unsafe { bpf(LINK_CREATE, &mut create) }?)
}

#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: BorrowedFd, key: &u32, value: u64) -> Self {
        Self { map_fd: map.as_raw_fd() as u32, padding: 0, key: std::ptr::from_ref(key) as u64, value, flags: 0 }
    }
}

/// # Safety
/// `attributes` is the struct of `command`, and every pointer in it is good for what the command does.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: the struct is readable and writable for its size; the rest is the caller's promise. A kernel that knows
    // more fields takes them for zero, one that knows fewer refuses those that are not.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) } as RawFd)
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What `bpftool` shows.
const NAME: &[u8; 16] = b"sidelane\0\0\0\0\0\0\0\0";

// enum bpf_cmd
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
