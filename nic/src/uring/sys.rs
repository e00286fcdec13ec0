//! The system calls of the driver, as safe functions: packet(7), netdevice(7), ethtool by ioctl, ppoll(2).
#![allow(unsafe_code)] // Raw system calls; each wrapper checks what the kernel needs and returns owned values.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};

use crate::time::Duration;

/// A raw packet socket that sees nothing yet: protocol 0, so that a filter can be set before the first frame comes.
pub fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts receiving frames of `ethertype` from one interface, and sending to it.
pub fn bind_packet(socket: BorrowedFd, interface: Interface, ethertype: u16) -> io::Result<()> {
    let addr = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: interface.index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `addr` is a whole sockaddr_ll and lives through the call.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), size_of::<libc::sockaddr_ll>() as socklen_t)
    })?;
    Ok(())
}

/// Sets a socket option whose value is one C int.
pub fn set_int_option(socket: BorrowedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_option(socket, level, option, &value)
}

/// Lets only frames through that `filter` accepts.
pub fn attach_filter(socket: BorrowedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies the program and does not write to it, whatever the pointer's type says.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Asks for a receive ring.
pub fn set_rx_ring(socket: BorrowedFd, ring: &libc::tpacket_req) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)
}

/// `T` is a plain struct of the kernel's, without pointers that outlive the call.
fn set_option<T>(socket: BorrowedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is readable for its whole size through the call; the kernel checks that size against the option.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as socklen_t,
        )
    })?;
    Ok(())
}

/// Frames that the kernel dropped at this socket's ring since the last call.
pub fn take_drops(socket: BorrowedFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as socklen_t;
    // SAFETY: `stats` is writable for `len` bytes through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if result == 0 { u64::from(stats.tp_drops) } else { 0 }
}

/// Clears the socket's pending error, which would wake every `poll`.
pub fn clear_error(socket: BorrowedFd) {
    let mut error: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `error` is writable for `len` bytes through the call. There is nothing to do about a failure.
    unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut len);
    }
}

/// True once the interface that the socket was bound to no longer exists: the kernel then unbinds the socket.
pub fn interface_is_gone(socket: BorrowedFd) -> bool {
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: `addr` is writable for `len` bytes through the call.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut addr).cast(), &raw mut len) };
    result == 0 && addr.sll_ifindex < 0
}

/// Hands one frame to the interface, or says why not, without waiting.
#[inline]
pub fn send(socket: BorrowedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: `frame` is readable for its length through the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sleeps until one of `sockets` has something to receive (or, with `writable`, room to send), at most `limit`.
/// A signal ends it early.
pub fn poll(sockets: &[BorrowedFd], writable: bool, limit: Option<Duration>) -> io::Result<()> {
    const SOCKETS_MAX: usize = 2;
    assert!(sockets.len() <= SOCKETS_MAX, "a driver polls its own few sockets");
    let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
    let mut set = [libc::pollfd { fd: -1, events, revents: 0 }; SOCKETS_MAX];
    for (entry, socket) in set.iter_mut().zip(sockets) {
        entry.fd = socket.as_raw_fd();
    }
    let timeout = limit.map(|limit| libc::timespec {
        tv_sec: (limit.as_nanos() / 1_000_000_000) as libc::time_t,
        tv_nsec: (limit.as_nanos() % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` holds the stated number of entries, and `timeout` is null or points to a timespec that lives on.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), sockets.len() as libc::nfds_t, timeout, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    for (entry, socket) in set.iter().zip(sockets) {
        if entry.revents & libc::POLLERR != 0 {
            clear_error(*socket);
        }
    }
    Ok(())
}

/// A network interface by number and name.
#[derive(Clone, Copy)]
pub struct Interface {
    index: c_int,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Interface {
    /// `None` when there is none of this name.
    pub fn find(name: &str) -> Option<Self> {
        let text = std::ffi::CString::new(name).ok()?;
        // SAFETY: `text` is a C string that lives through the call.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        let mut padded = [0; libc::IFNAMSIZ];
        for (to, from) in padded.iter_mut().zip(text.as_bytes()) {
            *to = *from as libc::c_char;
        }
        (index != 0).then_some(Self { index: c_int::try_from(index).ok()?, name: padded })
    }

    /// Names of all interfaces in this network namespace.
    pub fn names() -> Vec<String> {
        // SAFETY: no argument; null is handled below.
        let list = unsafe { libc::if_nameindex() };
        if list.is_null() {
            return Vec::new();
        }
        let mut names = Vec::new();
        let mut entry = list;
        // SAFETY: the list ends with an entry of number 0 (if_nameindex(3)), and we stop there.
        unsafe {
            while (*entry).if_index != 0 {
                names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
                entry = entry.add(1);
            }
            libc::if_freenameindex(list);
        }
        names
    }

    /// The kernel's number for it.
    pub fn index(&self) -> c_int {
        self.index
    }

    /// `IFF_*` flags.
    pub fn flags(&self, socket: BorrowedFd) -> io::Result<c_int> {
        let mut request = self.request();
        self.ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has written this member of the union.
        Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// The largest packet behind the Ethernet header.
    pub fn mtu(&self, socket: BorrowedFd) -> io::Result<usize> {
        let mut request = self.request();
        self.ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: SIOCGIFMTU has written this member of the union.
        Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
    }

    /// Its MAC address; `None` when it has another kind of address.
    pub fn mac(&self, socket: BorrowedFd) -> io::Result<Option<[u8; 6]>> {
        let mut request = self.request();
        self.ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: SIOCGIFHWADDR has written this member of the union.
        let addr = unsafe { request.ifr_ifru.ifru_hwaddr };
        let ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&addr.sa_family);
        Ok(ethernet.then(|| std::array::from_fn(|at| addr.sa_data[at] as u8)))
    }

    /// Name of its driver, as `ethtool -i` shows it.
    pub fn driver(&self, socket: BorrowedFd) -> io::Result<String> {
        /// `struct ethtool_drvinfo` (linux/ethtool.h) as bytes: the command, then the name in 32 bytes.
        const DRVINFO_LEN: usize = 196;
        let mut info = [0u32; DRVINFO_LEN / 4];
        info[0] = ETHTOOL_GDRVINFO;
        self.ethtool(socket, &mut info)?;
        let bytes = info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
        Ok(String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned())
    }

    /// Whether it takes TCP super-packets (`tcp-segmentation-offload` of `ethtool -k`).
    pub fn takes_super_packets(&self, socket: BorrowedFd) -> io::Result<bool> {
        // `struct ethtool_value`: command, then answer.
        let mut value = [ETHTOOL_GTSO, 0];
        self.ethtool(socket, &mut value)?;
        Ok(value[1] != 0)
    }

    /// `argument` is the struct of its own first word's command, in size at least.
    fn ethtool(&self, socket: BorrowedFd, argument: &mut [u32]) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = argument.as_mut_ptr().cast();
        self.ioctl(socket, libc::SIOCETHTOOL, &mut request)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeroes is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn ioctl(&self, socket: BorrowedFd, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: `request` is a whole ifreq; where its union holds a pointer (ethtool), `ethtool` above made it point
        // to a struct of the size of its command.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), call as _, std::ptr::from_mut(request)) })?;
        Ok(())
    }
}

/// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// linux/ethtool.h
const ETHTOOL_GTSO: u32 = 0x1e;

/// Memory that a socket shares with the kernel: its receive ring. Unmapped when dropped.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this is its only handle.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the whole ring of `socket`, every page present.
    pub fn of_ring(socket: &impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start: start.cast(), len }) }
    }

    /// Its first byte.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `of_ring` made, and slices of it borrow `self`.
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.len) };
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
