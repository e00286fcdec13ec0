//! What a device's string means: which bus it is on, what DPDK is told, and what kind of wire is behind it.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::pci::{self, Card};
use super::sharing::ENDPOINTS_MAX;
use super::{Config, OpenError};
use crate::Caps;
use crate::encap::ether;

/// A device in DPDK's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What this process knows it by: its name on the bus, of which there is one however the string is written, or the string of a
    /// short form, whose name is made up.
    pub id: String,
    /// `pci` or `vdev`.
    pub bus: &'static str,
    /// Name on the bus.
    pub name: String,
    /// The device's own arguments.
    pub args: String,
    pub wire: Wire,
    /// Largest payload behind the Ethernet header.
    pub mtu: u16,
    /// Whether the device has to be told its MTU: what has none of its own must not be.
    pub sets_mtu: bool,
    /// Descriptors asked for.
    pub descriptors: u16,
    /// The socket's file that this end makes, where it makes one.
    pub socket: Option<PathBuf>,
    /// The socket's file that this end removes once it is connected.
    pub socket_once: Option<PathBuf>,
    /// The server's socket's file, where that has to be our own user's.
    pub own_users: Option<PathBuf>,
    /// One end of a [`super::Pair`].
    pub is_pair: bool,
}

/// What is behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// One other process, which comes to us; the link is up only while it lives.
    PairServer,
    /// One other process, which has to be there before us; likewise.
    PairClient,
    /// A network.
    Network,
}

impl Device {
    /// Reads `config`. `number` makes names of devices of the short forms unique in this process.
    pub fn read(config: &Config, number: u32) -> Result<Self, OpenError> {
        let device = Self::parse(config, number)?;
        let max = if device.bus == "pci" { MTU_MAX_OF_CARDS } else { MTU_MAX };
        if device.mtu > max {
            return Err(OpenError::MtuTooLarge { device: config.device.clone(), mtu: device.mtu, max });
        }
        Ok(device)
    }

    fn parse(config: &Config, number: u32) -> Result<Self, OpenError> {
        let (head, args) = config.device.split_once(',').unwrap_or((&config.device, ""));
        let options = || args.split(',').filter(|option| !option.is_empty());
        let mtu = |default: u16| config.mtu.unwrap_or(default).max(MTU_MIN);
        let server = options().any(|option| option == "server");
        let once = options().any(|option| option == "once");
        let others: Vec<&str> = options().filter(|option| !["server", "once"].contains(option)).collect();
        let wire = if server { Wire::PairServer } else { Wire::PairClient };
        let no = |reason: &str| OpenError::NoSuchDevice { device: config.device.clone(), reason: reason.to_owned() };
        let is_pair = config.is_pair();
        let refuse_in_a_pair = |harmless: &[&str]| {
            let changes_it = |option: &&&str| !harmless.iter().any(|known| option.starts_with(known));
            others.iter().find(changes_it).filter(|_| is_pair).map_or(Ok(()), |other| {
                Err(no(&format!(
                    "a pair loses nothing with rings as they are, so `{other}` is not for it: write `,lossy` at both ends"
                )))
            })
        };
        match head.split_once(':') {
            Some(("memif", place)) if !place.is_empty() => {
                let mtu = mtu(MTU_DEFAULT);
                let slots = ring(mtu);
                let file = place.contains('/');
                refuse_in_a_pair(&["mac=", "secret=", ZERO_COPY])?;
                // A server copies in any case (22.11: memif_create).
                let lends = is_pair && !server && !others.iter().any(|option| option.starts_with(ZERO_COPY));
                let args = format!(
                    "role={},id={},bsize={},rsize={},socket={place},socket-abstract={}{}",
                    if server { "server" } else { "client" },
                    // Ends that are not opened alike never find each other, before one of them takes the other's frames for
                    // something else.
                    if is_pair { mtu } else { 0 },
                    buffer(mtu),
                    slots.ilog2(),
                    if file { "no" } else { "yes" },
                    if lends { ",zero-copy=yes" } else { "" },
                );
                Ok(Self {
                    id: config.device.clone(),
                    bus: "vdev",
                    name: format!("net_memif_sl{number}"),
                    args: joined(args, &others),
                    wire,
                    mtu,
                    sets_mtu: false,
                    descriptors: slots,
                    socket: (server && file).then(|| place.into()),
                    socket_once: (once && !server && file).then(|| place.into()),
                    // Every socket of memif's is looked at (dpdk-sys/shim/memif.c).
                    own_users: None,
                    is_pair,
                })
            }
            Some(("vhost", place)) if !place.is_empty() => {
                let mtu = mtu(MTU_DEFAULT);
                let slots = ring(mtu);
                refuse_in_a_pair(&["mac="])?;
                // Ends that are not opened alike never find each other.
                let place = if is_pair { format!("{place}.pair-{mtu}") } else { place.to_owned() };
                if place.len() > SOCKET_NAME_MAX {
                    return Err(no(&format!(
                        "the socket `{place}` has {} bytes in its name, and the system's have {SOCKET_NAME_MAX} at most",
                        place.len()
                    )));
                }
                let (name, args) = if server {
                    (format!("net_vhost_sl{number}"), format!("iface={place},queues=1"))
                } else {
                    let fixed = "queues=1,packed_vq=0,mrg_rxbuf=0,in_order=1";
                    (format!("net_virtio_user_sl{number}"), format!("path={place},queue_size={slots},{fixed}"))
                };
                let place = PathBuf::from(place);
                Ok(Self {
                    id: config.device.clone(),
                    bus: "vdev",
                    name,
                    args: joined(args, &others),
                    wire,
                    mtu,
                    sets_mtu: false,
                    descriptors: slots,
                    socket: server.then(|| place.clone()),
                    socket_once: (once && !server).then(|| place.clone()),
                    own_users: (is_pair && !server).then_some(place),
                    is_pair,
                })
            }
            _ if head.starts_with(|first: char| first.is_ascii_hexdigit()) && head.contains(':') => {
                let name = pci::address(head).ok_or_else(|| no("a PCI address is written 0000:00:04.0"))?;
                let mtu = mtu(MTU_DEFAULT);
                Ok(Self {
                    id: name.clone(),
                    bus: "pci",
                    name,
                    args: args.to_owned(),
                    wire: Wire::Network,
                    mtu,
                    sets_mtu: mtu != MTU_DEFAULT,
                    descriptors: ring(mtu),
                    socket: None,
                    socket_once: None,
                    own_users: None,
                    is_pair: false,
                })
            }
            None if head.starts_with("net_") || head.starts_with("eth_") => Ok(Self::raw(config, head, args)),
            _ => Err(no("write a PCI address (0000:00:04.0), memif:NAME, vhost:PATH, or a virtual device of DPDK's \
                         with its arguments (net_tap0,iface=tap0)")),
        }
    }

    /// A virtual device with DPDK's own arguments.
    fn raw(config: &Config, name: &str, args: &str) -> Self {
        let value = |key: &str| {
            let mut pairs = args.split(',').filter_map(|option| option.split_once('='));
            pairs.find(|(this, _)| *this == key).map(|(_, value)| value)
        };
        let is = |driver: &str| name.starts_with(driver);
        let pair = ["net_memif", "net_vhost", "net_virtio_user"].into_iter().any(is);
        // memif's buffers hold the whole frame, Ethernet header included; it has no other notion of an MTU.
        let of_buffers = value("bsize").and_then(|bytes| bytes.parse::<u16>().ok());
        let of_buffers = of_buffers.map(|bytes| bytes.saturating_sub(ether::HEADER_LEN as u16));
        let mtu = config.mtu.or(of_buffers).unwrap_or(MTU_DEFAULT).max(MTU_MIN);
        let of_ring = match (value("rsize"), value("queue_size")) {
            (Some(log2), _) => log2.parse().ok().filter(|log2| *log2 < 15).map(|log2: u32| 1 << log2),
            (None, size) => size.and_then(|size| size.parse().ok()),
        };
        let serves_file = is("net_memif") && value("role") == Some("server") && value("socket-abstract") == Some("no");
        let socket = match value(if is("net_vhost") { "iface" } else { "socket" }) {
            Some(path) if serves_file || is("net_vhost") && value("client") != Some("1") => Some(path.into()),
            _ => None,
        };
        Self {
            id: name.to_owned(),
            bus: "vdev",
            name: name.to_owned(),
            args: args.to_owned(),
            wire: match pair {
                false => Wire::Network,
                true if is("net_vhost") || value("role") == Some("server") => Wire::PairServer,
                true => Wire::PairClient,
            },
            mtu,
            sets_mtu: !pair && config.mtu.is_some_and(|mtu| mtu != MTU_DEFAULT),
            // memif's own default is 2^10 descriptors; the others are told.
            descriptors: of_ring.unwrap_or(if is("net_memif") { 1 << 10 } else { ring(mtu) }),
            socket,
            socket_once: None,
            own_users: None,
            is_pair: false,
        }
    }

    /// Whether who asks for `other`, of the same id, asks for this. Options of a short form are a part of its id.
    pub fn is_as_asked(&self, other: &Self) -> bool {
        self.id != self.name || self.args == other.args
    }

    /// A memif's client whose peer reads and writes its packet buffers where they are. A pair's is one unless it is asked not to be; others, whose
    /// frames that the server has not read yet may go with them, only where they are asked.
    pub fn is_zero_copy(&self) -> bool {
        let is_asked_for = || self.args.split(',').any(|arg| arg.strip_prefix(ZERO_COPY) == Some("yes"));
        // Of a server it means nothing (memif_create).
        self.name.starts_with("net_memif") && self.wire == Wire::PairClient && is_asked_for()
    }

    /// Its server has answered when it is made, and is gone when its link is down.
    pub fn is_vhost_client(&self) -> bool {
        self.id != self.name && self.name.starts_with("net_virtio_user")
    }

    /// The same, whose peer gets copies.
    pub fn with_copies(&self) -> Self {
        Self { args: self.args.replace(",zero-copy=yes", ""), ..self.clone() }
    }

    /// Its peer reads and writes its packet buffers where they are.
    pub fn lends_frames(&self) -> bool {
        self.is_vhost_client() || self.is_zero_copy()
    }

    /// Its peer's end is known only by a look at the link: nothing tells a pair's virtio-user client.
    pub fn link_tells_of_the_end(&self) -> bool {
        self.is_pair && self.name.starts_with("net_virtio_user")
    }

    /// Its driver can wake a sleeper. virtio_user's can too, but then crashes on its interrupt thread when the server goes
    /// (22.11, in the handler that it registers for the sake of receive interrupts only). Cards' can under VFIO: UIO has one
    /// interrupt a card, and that is masked until the kernel is told.
    pub fn wakes(&self) -> bool {
        let vfio = || Card::find(&self.name).is_some_and(|card| card.driver.as_deref() == Some("vfio-pci"));
        self.name.starts_with("net_vhost") || self.bus == "pci" && vfio()
    }

    /// Queue pairs for several endpoints, of the so many that its driver says it has.
    pub fn queues_max(&self, driver: &str, of_driver: u16) -> u16 {
        // A pair's queues lead to those of the other side, which polls the first.
        if self.wire != Wire::Network {
            return 1;
        }
        let most = match driver {
            // It says two of every card, beside a comment that it is written for one to send by (22.11: em_ethdev.c,
            // eth_em_infos_get). An 82540 has one, and so has QEMU's e1000: what is put in a second never leaves.
            "net_e1000_em" => 1,
            // With more, tap's driver writes beyond the end of a message (22.11: rte_eth_tap.c, tap_mp_req_on_rxtx, which
            // lists both ways' descriptors in RTE_MP_MAX_FD_NUM places).
            _ if self.name.starts_with("net_tap") => 4,
            _ => ENDPOINTS_MAX as u16,
        };
        of_driver.clamp(1, most)
    }

    /// Bytes of an mbuf that holds every frame in one piece.
    pub fn mbuf_room(&self) -> u16 {
        if self.bus == "pci" {
            // Cards are told the size of buffers as a power of two (82574 datasheet 10.2.5.1, RCTL.BSIZE), rounded
            // down, and 2 KiB is what every one of them can do.
            return (buffer(self.mtu).max(2048)).next_power_of_two().min(CARD_ROOM_MAX);
        }
        if self.is_vhost_client() {
            // Its driver has an MTU of 1,500 by itself, and wants room for that (22.11: virtio_dev_rx_queue_setup).
            return buffer(self.mtu.max(MTU_DEFAULT));
        }
        match self.wire {
            // As small as they may be: frames of a pair stay in the cache.
            Wire::PairServer | Wire::PairClient => buffer(self.mtu),
            // AF_XDP wants 2 KiB at least (if_xdp.h, XDP_UMEM_MIN_CHUNK_SIZE), and nobody minds.
            Wire::Network => buffer(self.mtu).max(2048),
        }
    }
}

/// A frame with its Ethernet header, a VLAN tag and a checksum that a device may leave, in whole cache lines.
fn buffer(mtu: u16) -> u16 {
    (u32::from(mtu) + u32::from(AROUND)).next_multiple_of(u32::from(LINE)).min(u32::from(u16::MAX - u16::MAX % LINE))
        as u16
}

/// Slots of a ring: 256, but at most about 1 MiB of frames, beyond which they leave the second-level cache and the
/// bandwidth halves.
fn ring(mtu: u16) -> u16 {
    match mtu {
        0..=4096 => 256,
        4097..=16384 => 128,
        _ => 64,
    }
}

fn joined(mut args: String, others: &[&str]) -> String {
    for option in others {
        args.push(',');
        args.push_str(option);
    }
    args
}

/// Makes way for a server's socket: a file of this name at which nobody listens is one that a killed process left.
///
/// All else of that name is somebody's: DPDK's vhost library does not say that it could not bind there, and removes the name in the end
/// (22.11: rte_vhost_driver_unregister). What is no socket refuses connections too (unix(7)), so its kind is asked for.
pub fn make_way(socket: &Path) -> Result<(), OpenError> {
    let Ok(there) = std::fs::symlink_metadata(socket) else { return Ok(()) };
    let name = || socket.display().to_string();
    if !there.file_type().is_socket() {
        return Err(OpenError::NotASocket(name()));
    }
    // A memif's takes no streams, and says so.
    match UnixStream::connect(socket) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            // If that fails, opening says why.
            let _ = std::fs::remove_file(socket);
            Ok(())
        }
        Ok(_) | Err(_) => Err(OpenError::Served(name())),
    }
}

/// What Ethernet carries unless both sides agree on more (IEEE 802.3 clause 3.2.7).
const MTU_DEFAULT: u16 = 1500;
/// More than IPv4 demands of every link (RFC 791).
const MTU_MIN: u16 = (Caps::MTU_MIN + ether::MTU_COST) as u16;
/// An mbuf's room has 16 bits, DPDK's headroom in it (rte_mbuf_core.h, `buf_len`; rte_config.h, `RTE_PKTMBUF_HEADROOM`: 128). One byte more,
/// and there would be no room at all, for frames that are written all the same.
const MTU_MAX: u16 = (u16::MAX - 128) / LINE * LINE - AROUND;
/// See [`Device::mbuf_room`].
const MTU_MAX_OF_CARDS: u16 = CARD_ROOM_MAX - AROUND;
/// The largest power of two that those 16 bits hold.
const CARD_ROOM_MAX: u16 = 1 << 15;
/// Ethernet's header, a VLAN tag, and a checksum.
const AROUND: u16 = 14 + 4 + 4;
/// A cache line.
const LINE: u16 = 64;
/// memif's option.
const ZERO_COPY: &str = "zero-copy=";
/// unix(7), without the zero behind it.
const SOCKET_NAME_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &str) -> Device {
        Device::read(&Config::new(device), 7).unwrap()
    }

    #[test]
    fn pci_addresses_are_read_in_both_forms() {
        for text in ["0000:00:04.0", "00:04.0"] {
            let device = read(text);
            assert_eq!((device.bus, &*device.name), ("pci", "0000:00:04.0"));
            assert_eq!((device.mtu, device.mbuf_room(), device.wire), (1500, 2048, Wire::Network));
        }
        assert_eq!(read("0000:3b:00.1,rx_vec=0").args, "rx_vec=0");
        assert_eq!(read("0000:3b:00.1,rx_vec=0").id, read("3b:00.1").id);
        for text in ["0000:00:04", "0:0:0:0.0", "00:40.0", "00:04.8"] {
            assert!(Device::read(&Config::new(text), 0).is_err(), "{text}");
        }
    }

    #[test]
    fn short_forms_become_dpdk_s_own() {
        let server = read("memif:job,server");
        assert_eq!(server.name, "net_memif_sl7");
        assert_eq!(server.args, "role=server,id=1500,bsize=1536,rsize=8,socket=job,socket-abstract=yes");
        assert_eq!((&server.socket, server.wire, server.is_pair), (&None, Wire::PairServer, true));
        let client = read("memif:/run/x.sock,secret=abc");
        assert!(
            client.args.ends_with("socket=/run/x.sock,socket-abstract=no,zero-copy=yes,secret=abc"),
            "{}",
            client.args
        );
        assert!(client.socket.is_none() && client.is_zero_copy() && !client.with_copies().is_zero_copy());
        assert!(!server.is_zero_copy() && !read("memif:job,zero-copy=no").is_zero_copy());
        for lossy in
            [Config { lossy: true, ..Config::new("memif:job") }, Config { shared: true, ..Config::new("memif:job") }]
        {
            let client = Device::read(&lossy, 7).unwrap();
            assert!(client.args.starts_with("role=client,id=0,"), "{}", client.args);
            assert!(!client.is_zero_copy() && !client.is_pair);
        }
        let asks = |end: &str| Config { lossy: true, ..Config::new(format!("memif:job{end},zero-copy=yes")) };
        assert!(Device::read(&asks(""), 7).unwrap().is_zero_copy());
        assert!(!Device::read(&asks(",server"), 7).unwrap().is_zero_copy());
    }

    #[test]
    fn ends_of_vhost_that_are_not_opened_alike_have_other_sockets() {
        let server = read("vhost:/run/v.sock,server");
        assert_eq!((&*server.name, &*server.args), ("net_vhost_sl7", "iface=/run/v.sock.pair-1500,queues=1"));
        assert_eq!((server.socket, server.is_pair), (Some("/run/v.sock.pair-1500".into()), true));
        let client = read("vhost:/run/v.sock,once");
        assert!(client.args.starts_with("path=/run/v.sock.pair-1500,queue_size=256,"), "{}", client.args);
        assert_eq!(
            (&client.socket_once, &client.own_users),
            (&Some("/run/v.sock.pair-1500".into()), &client.socket_once)
        );
        for lossy in
            [Config { lossy: true, ..Config::new("vhost:/x") }, Config { shared: true, ..Config::new("vhost:/x") }]
        {
            let client = Device::read(&lossy, 7).unwrap();
            assert!(client.args.starts_with("path=/x,"), "{}", client.args);
            assert_eq!((client.is_pair, client.own_users), (false, None));
        }
        // unix(7): 108 bytes with the zero behind them. DPDK would leave out the rest.
        let name = |len| Device::read(&Config::new(format!("vhost:{:x<len$}", "/")), 0);
        assert!(name(97).is_ok());
        assert!(name(98).unwrap_err().to_string().contains("108 bytes in its name, and the system's have 107"));
    }

    #[test]
    fn dpdk_s_own_strings_are_passed_on_and_understood() {
        let device = read("net_memif0,role=server,socket=/run/m,socket-abstract=no,bsize=9216,rsize=6");
        assert_eq!((device.mtu, device.descriptors), (9194, 64));
        assert_eq!(device.socket, Some("/run/m".into()));
        assert_eq!(device.args, "role=server,socket=/run/m,socket-abstract=no,bsize=9216,rsize=6");
        assert_eq!(read("net_vhost0,iface=/run/v").socket, Some("/run/v".into()));
        assert_eq!(read("net_vhost0,iface=/run/v,client=1").socket, None);
        assert_eq!(read("net_tap0,iface=x").wire, Wire::Network);
    }

    #[test]
    fn larger_frames_take_larger_buffers_and_fewer_of_them() {
        let jumbo = Device::read(&Config { mtu: Some(9000), ..Config::new("memif:x,server") }, 0).unwrap();
        assert!(jumbo.args.contains("bsize=9024,rsize=7"), "{}", jumbo.args);
        assert_eq!((jumbo.descriptors, jumbo.mbuf_room()), (128, 9024));
        let card = Device::read(&Config { mtu: Some(9000), ..Config::new("00:04.0") }, 0).unwrap();
        assert_eq!((card.sets_mtu, card.mbuf_room()), (true, 16384));
    }

    #[test]
    fn the_largest_mtu_is_the_largest_that_a_buffer_holds() {
        for (text, max) in [("memif:x", 65_322), ("vhost:/x", 65_322), ("net_ring0", 65_322), ("00:04.0", 32_746)] {
            let read = |mtu| Device::read(&Config { mtu: Some(mtu), ..Config::new(text) }, 0);
            let room = read(max).unwrap().mbuf_room();
            assert!(room.checked_add(128).is_some() && room >= max + 22, "{text}: {room}");
            let refusal = read(max + 1).unwrap_err().to_string();
            assert!(refusal.contains(&format!("write mtu={max} or less")), "{refusal}");
        }
    }

    #[test]
    fn queues_are_those_that_work() {
        let queues = |device, driver, of_driver| read(device).queues_max(driver, of_driver);
        assert_eq!(queues("00:04.0", "net_e1000_em", 2), 1);
        assert_eq!(queues("00:04.0", "net_virtio", 2), 2);
        assert_eq!(queues("00:04.0", "net_ixgbe", 64), ENDPOINTS_MAX as u16);
        assert_eq!(queues("net_tap0,iface=x", "net_tap", 16), 4);
        assert_eq!(queues("memif:x", "net_memif", 255), 1);
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_would_be_one() {
        for text in ["eth0", "memif:", "vhost:", "nonsense:1"] {
            let error = Device::read(&Config::new(text), 0).unwrap_err().to_string();
            assert!(error.contains("0000:00:04.0"), "{text}: {error}");
        }
    }
}
