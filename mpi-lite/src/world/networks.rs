//! The networks that this host is in, and what this process may do in them.
#![allow(unsafe_code)] // socket(2).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;

use sidelane_nic::interface::{self, Address};

use super::card::Net;

/// All networks by which other hosts could be reached: of interfaces that are up and have a cable, and that are not made
/// for containers or virtual machines of this host.
pub fn all() -> Vec<Net> {
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return Vec::new() };
    let addresses = interface::addresses().unwrap_or_else(|error| {
        tracing::warn!(%error, "the networks of this host are unknown");
        Vec::new()
    });
    let found = addresses.into_iter().filter_map(|Address { interface, ip, prefix }| {
        let flags = interface.flags(socket.as_fd()).ok()?;
        let mac = interface.mac(socket.as_fd()).ok().flatten().filter(|mac| *mac != [0; 6]);
        let mtu = interface.mtu(socket.as_fd()).ok()?;
        let interface = interface.name();
        // One that is valid on its link only has to be told with that.
        let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        (!link_local && leads_out(&interface, flags)).then_some(Net { interface, ip, prefix, mac, mtu })
    });
    found.collect()
}

/// Up, and with a carrier (netdevice(7)).
const UP: i32 = libc::IFF_UP | libc::IFF_RUNNING;

/// True of an interface of this name with these flags (netdevice(7)) by which other hosts may be reached.
fn leads_out(name: &str, flags: i32) -> bool {
    flags & UP == UP && flags & libc::IFF_LOOPBACK == 0 && !is_internal(name)
}

/// What Docker, libvirt, LXC, LXD, Incus, Podman and Kubernetes call the bridges and tunnels of their own.
fn is_internal(name: &str) -> bool {
    const THEIRS: [&str; 9] = ["docker", "virbr", "lxcbr", "lxdbr", "incusbr", "podman", "cni", "flannel", "cali"];
    // Others call bridges that lead out so too: `br-ex` is where OVN has a node's address.
    let is_number = |id: &str| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    THEIRS.iter().any(|theirs| name.starts_with(theirs)) || name.strip_prefix("br-").is_some_and(is_number)
}

/// True if this process may open packet sockets (packet(7): CAP_NET_RAW).
pub fn may_send_raw() -> bool {
    // SAFETY: Takes no pointer. Protocol 0 receives nothing.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return false;
    }
    // SAFETY: Just opened, and nobody else has it.
    unsafe { libc::close(fd) };
    true
}

/// This host's address in packets to `peer`, by the kernel's routes. Nothing is sent.
pub fn address_towards(peer: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Whichever port: connecting a datagram socket only looks up the route (udp(7)).
    socket.connect((peer, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_loopback())
}

/// A name that no other job has.
pub fn random_name() -> String {
    // Seeded by the system's randomness, anew in each process.
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_lead_out_are_up_have_a_cable_and_are_not_made_for_containers() {
        for name in ["eth0", "enp3s0f0np0", "ib0", "wg0", "veth-a", "bridge0", "br-ex", "br-mgmt"] {
            assert!(leads_out(name, UP), "{name}");
            assert!(
                !leads_out(name, libc::IFF_UP) && !leads_out(name, libc::IFF_RUNNING),
                "{name} without a cable, or down"
            );
        }
        assert!(!leads_out("lo", UP | libc::IFF_LOOPBACK));
        let internal = ["docker0", "br-5a1b0c2d3e4f", "virbr0", "lxcbr0", "lxdbr0", "incusbr0", "podman0"];
        let internal = internal.into_iter().chain(["cni0", "flannel.1", "cali12ab"]);
        for name in internal {
            assert!(!leads_out(name, UP), "{name}");
        }
    }
}
