//! Offloads of an interface, read and set by ethtool requests on a socket inside its namespace.
#![allow(unsafe_code)] // SIOCETHTOOL is an ioctl.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What an interface hands to the next without cutting or summing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Offloads {
    /// TCP segments of up to 64 KiB are handed on whole.
    pub tso: bool,
    /// The same for every protocol that the stack can cut late.
    pub gso: bool,
    /// Received segments are joined before the stack sees them.
    pub gro: bool,
    /// Checksums are left to the receiver, which trusts them.
    pub tx_checksum: bool,
}

/// The offloads of `interface` in the namespace of `control`.
pub fn read(control: BorrowedFd<'_>, interface: &str) -> io::Result<Offloads> {
    let flag = |command| request(control, interface, command, 0).map(|value| value != 0);
    Ok(Offloads {
        tso: flag(ETHTOOL_GTSO)?,
        gso: flag(ETHTOOL_GGSO)?,
        gro: flag(ETHTOOL_GGRO)?,
        tx_checksum: flag(ETHTOOL_GTXCSUM)?,
    })
}

/// Turns every offload of `interface` off: from then on frames are cut to the MTU and summed by who sends them.
pub fn turn_off(control: BorrowedFd<'_>, interface: &str) -> io::Result<()> {
    for command in [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM] {
        request(control, interface, command, 0)?;
    }
    Ok(())
}

// linux/ethtool.h
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn request(control: BorrowedFd<'_>, interface: &str, command: u32, data: u32) -> io::Result<u32> {
    assert!(interface.len() < libc::IFNAMSIZ, "an interface name has at most 15 bytes");
    let mut value = Value { command, data };
    // SAFETY: ifreq is plain data for which zeroes are a valid value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ifreq.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: The kernel reads the terminated name (zeroed above, shorter than the field) and reads and writes
    // `value`, which is an `ethtool_value` as these commands expect, alive until the call returns.
    let outcome = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ifreq) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
}
