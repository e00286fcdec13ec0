//! Interfaces, addresses and neighbours of a lab, made through rtnetlink(7).

use std::net::IpAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage, State};
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::sys::TokioSocket;
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};

use super::seed::Net;
use super::{Address, INTERFACE, LabError, PREFIX_LEN};

/// Joins `hosts` by one veth pair, or, when `bridge` is given, each by a veth pair to a bridge there.
pub fn connect(hosts: &[Net], addresses: &[Address], bridge: Option<&Net>, mtu: u32) -> Result<(), LabError> {
    let system = |source| LabError::System { doing: "talk to the kernel about interfaces", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let handles = hosts.iter().map(handle).collect::<Result<Vec<_>, _>>().map_err(system)?;
        match bridge {
            None => {
                let peer = end(INTERFACE, INTERFACE_INDEX, mtu)
                    .address(addresses[1].mac.to_vec())
                    .setns_by_fd(hosts[1].namespace.as_raw_fd());
                add_veth(&handles[0], addresses[0], mtu, peer.build()).await?;
            }
            Some(net) => {
                let switch = handle(net).map_err(system)?;
                add_bridge(&switch, mtu).await?;
                for (i, (host, &address)) in handles.iter().zip(addresses).enumerate() {
                    plug(&switch, net.namespace.as_raw_fd(), i as u32, host, address, mtu).await?;
                }
            }
        }
        for (i, host) in handles.iter().enumerate() {
            bring_up(host, addresses, i).await?;
        }
        for host in &handles {
            wait_until_up(host).await?;
        }
        Ok(())
    })
}

/// The index of a host's interface. A namespace is born with the loopback as 1.
const INTERFACE_INDEX: u32 = 2;
const LOOPBACK_INDEX: u32 = 1;

/// In the bridge's namespace: the bridge, and its ports from the next number on.
const BRIDGE_INDEX: u32 = 2;
const PORT_INDEX_FIRST: u32 = 3;

/// A connection over the routing socket that was opened inside the namespace.
fn handle(net: &Net) -> std::io::Result<Handle> {
    let socket = socket(net.route.try_clone()?);
    let (connection, handle, _notices) = rtnetlink::from_socket(socket);
    tokio::spawn(connection);
    Ok(handle)
}

#[allow(unsafe_code)] // netlink-sys takes over an open socket only by its number.
fn socket(route: OwnedFd) -> TokioSocket {
    use std::os::fd::FromRawFd;
    // SAFETY: The number comes out of an `OwnedFd` that is given up here, so the socket has one owner again.
    unsafe { TokioSocket::from_raw_fd(route.into_raw_fd()) }
}

/// One end of a veth pair.
fn end(name: &str, index: u32, mtu: u32) -> LinkMessageBuilder<LinkUnspec> {
    LinkUnspec::new_with_name(name).index(index).mtu(mtu)
}

async fn add_veth(host: &Handle, address: Address, mtu: u32, peer: LinkMessage) -> Result<(), LabError> {
    let veth = LinkMessageBuilder::<LinkVeth>::new(INTERFACE, "")
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .index(INTERFACE_INDEX)
        .mtu(mtu)
        .address(address.mac.to_vec());
    host.link().add(veth.build()).execute().await.map_err(refused("make a veth pair"))
}

async fn add_bridge(switch: &Handle, mtu: u32) -> Result<(), LabError> {
    // Snooping would send queries of its own.
    let bridge = LinkBridge::new("bridge").index(BRIDGE_INDEX).mcast_snooping(false).mtu(mtu);
    switch.link().add(bridge.build()).execute().await.map_err(refused("make a bridge"))
}

/// Puts one host on the bridge.
async fn plug(
    switch: &Handle,
    switch_net: RawFd,
    number: u32,
    host: &Handle,
    address: Address,
    mtu: u32,
) -> Result<(), LabError> {
    let index = PORT_INDEX_FIRST + number;
    let peer = end(&format!("port{number}"), index, mtu).setns_by_fd(switch_net);
    add_veth(host, address, mtu, peer.build()).await?;
    let port = LinkUnspec::new_with_index(index).controller(BRIDGE_INDEX).up();
    switch.link().change(port.build()).execute().await.map_err(refused("put a host on the bridge"))?;
    // A known port from the first frame on: an unknown address would be flooded to every host.
    switch
        .neighbours()
        .add_bridge(index, &address.mac)
        .state(NeighbourState::Noarp)
        .flags(NeighbourFlags::Controller)
        .execute()
        .await
        .map_err(refused("teach the bridge an address"))
}

/// Brings host number `own` up, with its address and a fixed entry for every other.
async fn bring_up(host: &Handle, addresses: &[Address], own: usize) -> Result<(), LabError> {
    let up = |index| host.link().change(LinkUnspec::new_with_index(index).up().build()).execute();
    up(LOOPBACK_INDEX).await.map_err(refused("bring the loopback up"))?;
    host.address()
        .add(INTERFACE_INDEX, IpAddr::V4(addresses[own].ip), PREFIX_LEN)
        .execute()
        .await
        .map_err(refused("set an address"))?;
    up(INTERFACE_INDEX).await.map_err(refused("bring an interface up"))?;
    for (_, other) in addresses.iter().enumerate().filter(|(i, _)| *i != own) {
        host.neighbours()
            .add(INTERFACE_INDEX, IpAddr::V4(other.ip))
            .link_layer_address(&other.mac)
            .execute()
            .await
            .map_err(refused("set a neighbour"))?;
    }
    Ok(())
}

/// The kernel puts an interface to work a moment after its other end came up; until then it drops what is sent.
async fn wait_until_up(host: &Handle) -> Result<(), LabError> {
    let deadline = Instant::now() + UP_WAIT;
    loop {
        let links: Vec<LinkMessage> = host
            .link()
            .get()
            .match_index(INTERFACE_INDEX)
            .execute()
            .try_collect()
            .await
            .map_err(refused("read an interface's state"))?;
        if links.iter().flat_map(|link| &link.attributes).any(|a| *a == LinkAttribute::OperState(State::Up)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let source = std::io::ErrorKind::TimedOut.into();
            return Err(LabError::System { doing: "bring the lab's interfaces up", source });
        }
        tokio::time::sleep(UP_POLL).await;
    }
}

/// Far longer than the kernel's link watch takes, which runs at most once a second (`net/core/link_watch.c`).
const UP_WAIT: Duration = Duration::from_secs(5);
const UP_POLL: Duration = Duration::from_millis(1);

fn refused(doing: &str) -> impl FnOnce(rtnetlink::Error) -> LabError {
    let doing = doing.to_owned();
    move |answer| LabError::Netlink { doing, answer }
}
