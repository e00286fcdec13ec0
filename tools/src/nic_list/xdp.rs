//! What XDP can do on an interface: the generic netlink family `netdev` (Documentation/netlink/specs/netdev.yaml,
//! Linux 6.3), and which program is attached.

use std::fmt;
use std::io;

use rtnetlink::packet_route::link::{LinkXdp, XdpAttached};
use rtnetlink::sys::{Socket, SocketAddr};
use serde::Serialize;

/// XDP on one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Xdp {
    /// How `xdp:` gets frames here: the best of what follows that is also the fastest.
    pub mode: &'static str,
    /// Programs can run in the interface's driver.
    pub native: bool,
    /// The card can write into a program's memory.
    pub zero_copy: bool,
    /// What is attached now.
    pub program: Option<Program>,
}

/// Whose an attached program is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Ours, for so many endpoints.
    Ours {
        /// Endpoints that share it.
        endpoints: usize,
    },
    /// Somebody else's: `xdp:` cannot be opened here.
    Foreign {
        /// The kernel's number for it.
        id: u32,
        /// The command that takes it off.
        remedy: &'static str,
    },
}

/// What the kernel says of an interface.
pub fn of(index: u32, driver: Option<&str>, program: Option<Program>) -> Xdp {
    let features = features(index).unwrap_or(0);
    let (native, zero_copy) = (features & IN_DRIVER == IN_DRIVER, features & ZERO_COPY != 0);
    let mode = match (native, zero_copy, driver) {
        // As the driver chooses: a veth's own hook is slower than the kernel's.
        (false, ..) | (_, _, Some("veth")) => "generic",
        (true, false, _) => "native",
        (true, true, _) => "native, zero-copy",
    };
    Xdp { mode, native, zero_copy, program }
}

/// The program that a link's attributes tell of.
pub fn program(attributes: &[LinkXdp], index: u32) -> Option<Program> {
    let attached = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(attached) if *attached != XdpAttached::None => Some(*attached),
        _ => None,
    })?;
    let endpoints = sidelane_nic::xdp::endpoints_on(index);
    if endpoints > 0 {
        return Some(Program::Ours { endpoints });
    }
    let id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
        _ => None,
    });
    let remedy = if attached == XdpAttached::SocketBuffer { "xdpgeneric off" } else { "xdp off" };
    Some(Program::Foreign { id: id.unwrap_or(0), remedy })
}

impl fmt::Display for Xdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode)?;
        match &self.program {
            None => Ok(()),
            Some(Program::Ours { endpoints: 1 }) => f.write_str("; 1 endpoint"),
            Some(Program::Ours { endpoints }) => write!(f, "; {endpoints} endpoints"),
            Some(Program::Foreign { id, .. }) => write!(f, "; taken by program {id}"),
        }
    }
}

/// `xdp-features` of an interface; `None` where the kernel is too old to tell.
fn features(index: u32) -> Option<u64> {
    let socket = connect().ok()?;
    let family = ask(&socket, CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0")?;
    let family = attribute(&family, FAMILY_ID)?.first_chunk().map(|id| u16::from_ne_bytes(*id))?;
    let device = ask(&socket, family, DEVICE_GET, DEVICE_INDEX, &index.to_ne_bytes())?;
    attribute(&device, DEVICE_XDP_FEATURES)?.first_chunk().map(|bits| u64::from_ne_bytes(*bits))
}

fn connect() -> io::Result<Socket> {
    let mut socket = Socket::new(GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Asks one question with one attribute; the answer's attributes, or `None` for an error.
fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> Option<Vec<u8>> {
    let attribute_len = 4 + value.len();
    let len = HEADERS_LEN + attribute_len.next_multiple_of(4);
    // struct nlmsghdr, struct genlmsghdr, struct nlattr (linux/netlink.h, linux/genetlink.h).
    let mut request = Vec::with_capacity(len);
    request.extend((len as u32).to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend((attribute_len as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(len, 0);
    socket.send(&request, 0).ok()?;
    let (answer, _) = socket.recv_from_full().ok()?;
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    // Anything else is NLMSG_ERROR.
    (kind == family).then(|| answer.get(HEADERS_LEN..).unwrap_or(&[]).to_vec())
}

/// The value of the first attribute of `kind`.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let this = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..len)?;
        if this & KIND_MASK == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

const HEADERS_LEN: usize = 16 + 4;
/// NETLINK_GENERIC (linux/netlink.h)
const GENERIC: isize = 16;
/// NLM_F_REQUEST (linux/netlink.h)
const REQUEST: u16 = 1;
/// Without NLA_F_NESTED and NLA_F_NET_BYTEORDER (linux/netlink.h)
const KIND_MASK: u16 = 0x3fff;

// linux/genetlink.h: GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

// linux/netdev.h: NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, NETDEV_A_DEV_XDP_FEATURES
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// NETDEV_XDP_ACT_BASIC and NETDEV_XDP_ACT_REDIRECT
const IN_DRIVER: u64 = 1 | 1 << 1;
/// NETDEV_XDP_ACT_XSK_ZEROCOPY
const ZERO_COPY: u64 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_broken_ones_are_not() {
        let two = [8, 0, 1, 0, 7, 0, 0, 0, 6, 0, 2, 0x80, 9, 9, 0, 0];
        assert_eq!(attribute(&two, 1), Some(&[7, 0, 0, 0][..]));
        assert_eq!(attribute(&two, 2), Some(&[9, 9][..]));
        assert_eq!(attribute(&two, 3), None);
        for len in 0..two.len() - 4 {
            assert_eq!(attribute(&two[..len], 2), None, "{len}");
        }
        assert_eq!(attribute(&[0, 0, 1, 0, 0, 0, 0, 0], 2), None, "a length below its own header");
    }

    #[test]
    fn the_mode_is_what_the_driver_chooses() {
        // No interface has this number, so nothing is known to be native.
        assert_eq!(of(u32::MAX, None, None).to_string(), "generic");
        let taken = Xdp {
            mode: "native, zero-copy",
            native: true,
            zero_copy: true,
            program: Some(Program::Foreign { id: 7, remedy: "xdp off" }),
        };
        assert_eq!(taken.to_string(), "native, zero-copy; taken by program 7");
    }
}
