//! The network interfaces of this namespace: rtnetlink(7) and ethtool.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use sidelane_nic::dpdk::pci;
use sidelane_nic::interface::{Interface, Switch};

use super::{NicFacts, xdp};
use crate::lab::offload;

/// Facts of each, in the order of their numbers.
pub fn gather() -> io::Result<Vec<NicFacts>> {
    let mut links = links()?;
    links.sort_by_key(|link| link.header.index);
    // Interfaces are asked through any socket.
    let control = UnixDatagram::unbound()?;
    Ok(links.iter().map(|link| facts(link, control.as_fd())).collect())
}

fn links() -> io::Result<Vec<LinkMessage>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _notices) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        handle.link().get().execute().try_collect().await.map_err(io::Error::other)
    })
}

fn facts(link: &LinkMessage, control: BorrowedFd) -> NicFacts {
    let mut facts = NicFacts { up: Some(link.header.flags.contains(LinkFlags::Up)), ..NicFacts::default() };
    let mut program = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => facts.interface = Some(name.clone()),
            LinkAttribute::Mtu(mtu) => facts.mtu = Some(*mtu),
            LinkAttribute::Address(mac) if mac.len() == 6 => {
                facts.mac = Some(mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"));
            }
            LinkAttribute::Xdp(attached) => program = xdp::program(attached, link.header.index),
            _ => {}
        }
    }
    let Some(name) = facts.interface.clone() else { return facts };
    let device = Path::new("/sys/class/net").join(&name).join("device");
    facts.pci = pci::address_of(&device);
    // What sysfs says of a card that has no node is -1.
    facts.numa_node = fs::read_to_string(device.join("numa_node")).ok().and_then(|node| node.trim().parse().ok());
    if let Some(interface) = Interface::find(&name) {
        facts.driver = interface.driver(control).ok();
        facts.rx_queues = interface.rx_queues(control).ok();
    }
    facts.offloads = offload::read(control, &name).ok();
    let ethernet = matches!(link.header.link_layer_type, LinkLayerType::Ether | LinkLayerType::Loopback);
    if ethernet {
        facts.xdp = Some(xdp::of(link.header.index, facts.driver.as_deref(), program));
        // A packet socket sees none of what comes to a switch's port.
        let drivers: &[&str] = if is_port_of_a_switch(link) { &["xdp"] } else { &["uring", "xdp"] };
        facts.specs = drivers.iter().map(|driver| format!("{driver}:{name}")).collect();
    }
    facts
}

fn is_port_of_a_switch(link: &LinkMessage) -> bool {
    let about = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(about) => Some(about),
        _ => None,
    });
    about.flatten().any(|fact| matches!(fact, LinkInfo::PortKind(kind) if Switch::has_ports_of(&kind.to_string())))
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::InfoPortKind;

    use super::*;

    #[test]
    fn ports_of_switches_are_not_opened_by_packet_sockets() {
        let control = UnixDatagram::unbound().unwrap();
        let specs = |kind: Option<InfoPortKind>| {
            let mut link = LinkMessage::default();
            link.header.link_layer_type = LinkLayerType::Loopback;
            link.attributes = vec![LinkAttribute::IfName("lo".to_owned())];
            link.attributes.extend(kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::PortKind(kind)])));
            facts(&link, control.as_fd()).specs
        };
        for of_a_switch in [InfoPortKind::Bridge, InfoPortKind::Other("openvswitch".to_owned())] {
            assert_eq!(specs(Some(of_a_switch)), ["xdp:lo"]);
        }
        for other in [None, Some(InfoPortKind::Bond)] {
            assert_eq!(specs(other), ["uring:lo", "xdp:lo"]);
        }
    }
}
