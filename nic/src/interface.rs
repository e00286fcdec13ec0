//! Network interfaces and their properties: netdevice(7), and ethtool by ioctl (linux/ethtool.h).
#![allow(unsafe_code)] // ioctl.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

use crate::socket::check;
use crate::{Caps, netlink};

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

    /// The interface that has this address; `None` when none has.
    pub fn with_address(ip: IpAddr) -> Option<Self> {
        // All of 127.0.0.0/8 is the loopback's, though it lists but one (RFC 1122, 3.2.1.3).
        if ip.is_loopback() {
            return Self::find("lo");
        }
        addresses().ok()?.into_iter().find(|address| address.ip == ip).map(|address| address.interface)
    }

    fn numbered(index: c_int) -> Option<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: `name` has room for the longest name and its end.
        let found = unsafe { libc::if_indextoname(index as libc::c_uint, name.as_mut_ptr()) };
        (!found.is_null()).then_some(Self { index, name })
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

    /// Its name when it was looked for.
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
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

    /// Whether it takes TCP super-packets.
    pub fn takes_super_packets(&self, socket: BorrowedFd) -> io::Result<bool> {
        self.feature(socket, "tx-tcp-segmentation")
    }

    /// Whether it takes UDP packets that are to be cut later.
    pub fn takes_trains(&self, socket: BorrowedFd) -> io::Result<bool> {
        self.feature(socket, "tx-udp-segmentation")
    }

    /// Whether a feature of `ethtool -k` is on.
    fn feature(&self, socket: BorrowedFd, name: &str) -> io::Result<bool> {
        // `struct ethtool_sset_info`: command, reserved, the mask in two words, the answer's words.
        let mut count = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
        self.ethtool(socket, &mut count)?;
        let count = count[4] as usize;
        // `struct ethtool_gstrings`: command, set, count, then names of 32 bytes each.
        let mut names = vec![0u32; 3 + count * NAME_WORDS];
        names[..2].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES]);
        self.ethtool(socket, &mut names)?;
        let matches = |words: &[u32]| {
            let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
            bytes.eq(name.bytes())
        };
        let Some(bit) = names[3..].chunks(NAME_WORDS).position(matches) else { return Ok(false) };
        // `struct ethtool_gfeatures`: command, number of blocks, then of each: available, requested, active, fixed.
        let blocks = count.div_ceil(32);
        let mut features = vec![0u32; 2 + blocks * 4];
        features[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        self.ethtool(socket, &mut features)?;
        Ok(features[2 + bit / 32 * 4 + 2] >> (bit % 32) & 1 == 1)
    }

    /// What it is a port of, if that takes all frames that come to it, before packet sockets are shown them (`br_handle_frame`,
    /// `netdev_frame_hook`).
    pub fn switch(&self) -> io::Result<Option<Switch>> {
        let mut switch = None;
        // `struct ifinfomsg` (linux/rtnetlink.h): family and type, any; in four bytes the interface's number; flags.
        netlink::list(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &[0; LINK_LEN], |answer| {
            let Some((about, attributes)) = answer.split_at_checked(LINK_LEN) else { return };
            if netlink::number(&about[4..8]) == self.index as usize {
                switch = switch_of(attributes);
            }
        })?;
        Ok(switch)
    }

    /// Receive queues that are in use (`ethtool -l`).
    pub fn rx_queues(&self, socket: BorrowedFd) -> io::Result<u32> {
        // `struct ethtool_channels`: command, four maxima, then rx, tx, other and combined.
        let mut channels = [0; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        self.ethtool(socket, &mut channels)?;
        Ok(channels[5] + channels[8])
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

/// What takes all frames of its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Switch {
    /// The kernel's bridge, an interface of this name.
    Bridge(String),
    /// Open vSwitch. Which of its bridges, the kernel does not know.
    OpenVswitch,
}

impl Switch {
    /// Whether a port of this kind (`IFLA_INFO_SLAVE_KIND`) is one's.
    pub fn has_ports_of(kind: &str) -> bool {
        [BRIDGE, OPEN_VSWITCH].contains(&kind)
    }
}

fn switch_of(attributes: &[u8]) -> Option<Switch> {
    let told = |attributes, kind: u16| netlink::attributes(attributes).find(|(other, _)| *other == usize::from(kind));
    let (_, info) = told(attributes, libc::IFLA_LINKINFO)?;
    let (_, kind) = told(info, libc::IFLA_INFO_SLAVE_KIND)?;
    match std::ffi::CStr::from_bytes_until_nul(kind).ok()?.to_str().ok()? {
        BRIDGE => {
            let (_, master) = told(attributes, libc::IFLA_MASTER)?;
            Interface::numbered(c_int::try_from(netlink::number(master)).ok()?).map(|it| Switch::Bridge(it.name()))
        }
        OPEN_VSWITCH => Some(Switch::OpenVswitch),
        _ => None,
    }
}

/// Frames that the layers above can use do not fit the interface.
#[derive(Debug, thiserror::Error)]
#[error("interface `{name}` has an MTU of {mtu}, and frames need {least} at least: `ip link set {name} mtu 1500`")]
pub struct MtuTooSmall {
    name: String,
    mtu: usize,
    least: usize,
}

/// Payload of a frame on interface `name`, where its headers take `cost` of the MTU.
pub(crate) fn payload_of(name: &str, mtu: usize, cost: usize) -> Result<usize, MtuTooSmall> {
    let least = Caps::MTU_MIN + cost;
    if mtu < least { Err(MtuTooSmall { name: name.to_owned(), mtu, least }) } else { Ok(mtu - cost) }
}

/// An IP address of this network namespace's.
#[derive(Clone, Copy)]
pub struct Address {
    /// Which has it. An address may have a label of its own, and getifaddrs(3) tells that for its interface's name.
    pub interface: Interface,
    /// The address.
    pub ip: IpAddr,
    /// Bits that it has in common with all of its network.
    pub prefix: u8,
}

/// All addresses of this network namespace.
pub fn addresses() -> io::Result<Vec<Address>> {
    let mut found = Vec::new();
    // `struct ifaddrmsg` (linux/if_addr.h): family, any; prefix length, flags, scope, and in four bytes the interface's number.
    netlink::list(libc::NETLINK_ROUTE, libc::RTM_GETADDR, &[0; ADDRESS_LEN], |answer| {
        found.extend(answer.split_at_checked(ADDRESS_LEN).and_then(|(about, attributes)| address(about, attributes)));
    })?;
    Ok(found)
}

fn address(about: &[u8], attributes: &[u8]) -> Option<Address> {
    let told = |kind| netlink::attributes(attributes).find(|(other, _)| *other == usize::from(kind));
    // Where both are told, the other is the far end's.
    let (_, bytes) = told(libc::IFA_LOCAL).or_else(|| told(libc::IFA_ADDRESS))?;
    let ip = match i32::from(about[0]) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    let interface = Interface::numbered(c_int::try_from(netlink::number(&about[4..8])).ok()?)?;
    Some(Address { interface, ip, prefix: about[1] })
}

/// `br_link_ops`
const BRIDGE: &str = "bridge";
/// `internal_dev_link_ops`
const OPEN_VSWITCH: &str = "openvswitch";
/// `struct ifinfomsg` (linux/rtnetlink.h)
const LINK_LEN: usize = 16;
/// `struct ifaddrmsg` (linux/if_addr.h)
const ADDRESS_LEN: usize = 8;
/// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// linux/ethtool.h
const ETHTOOL_GSTRINGS: u32 = 0x1b;
/// linux/ethtool.h
const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// linux/ethtool.h
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// linux/ethtool.h
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// `enum ethtool_stringset` (linux/ethtool.h)
const ETH_SS_FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN` (linux/ethtool.h), 32 bytes, in words.
const NAME_WORDS: usize = 8;
