//! Which drivers a process opens, by everybody's cards. All processes come to the same network and the same kind of driver,
//! since they decide by the same cards.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use sidelane_nic::spec::{Spec, SpecError};

use super::card::{Card, Net};
use super::networks;
use super::tuning::Tuning;
use crate::launch::Shown;

/// What a process opens, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// For ranks on this host: the driver, if there are any.
    pub on_host: Option<Spec>,
    /// For ranks on other hosts: the driver, if there are any. Another process may have its endpoint: then one above it is
    /// to be taken.
    pub off_host: Option<Spec>,
    /// Why this way to other hosts.
    why: String,
    /// Somebody might have chosen otherwise.
    chosen: bool,
}

/// What `SIDELANE_NIC` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    None,
    /// A kind of driver, on the interface that leads to the others.
    Kind(Kind),
    /// A driver and where it is.
    Exact(Spec),
}

/// Drivers that find their place by a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named as its driver")]
pub enum Kind {
    Uring,
    Xdp,
    Udp,
}

/// Why there is no way to other hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No network that all are in, and no route.
    #[error(
        "no network leads from this host to that of rank {to}: this one is in {own}, that one in {other}{alike}. \
         Name a driver with SIDELANE_NIC, such as SIDELANE_NIC=uring:eth0"
    )]
    NoNetwork {
        /// The first rank that cannot be reached.
        to: usize,
        /// This host's networks.
        own: String,
        /// The other's.
        other: String,
        /// Addresses that several hosts have, if there are any.
        alike: Alike,
    },
    /// Ethernet frames are not routed.
    #[error(
        "{kind} needs an Ethernet that all hosts are in, and there is none{alike}; SIDELANE_NIC=udp can be routed, and \
         SIDELANE_NIC={kind}:eth0 names the interface"
    )]
    NoEthernet {
        /// The kind of driver.
        kind: &'static str,
        /// Addresses that several hosts have, if there are any.
        alike: Alike,
    },
    /// A driver for one host, or none for several processes.
    #[error("SIDELANE_NIC={0} reaches no other host")]
    OneHostOnly(String),
}

/// Addresses that several hosts have, such as that of every guest behind VirtualBox's NAT: none reaches another one by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alike(BTreeSet<IpAddr>);

impl Plan {
    /// The plan of the process with rank `own`.
    pub fn make(cards: &[Card], own: usize, wish: &Wish) -> Result<Self, PlanError> {
        let here = &cards[own].host;
        let on_host = cards.iter().filter(|card| card.host == *here).count() > 1;
        let domain = format!("mpi-{}", cards[0].job);
        let on_host = on_host.then_some(Spec::Shm { domain, endpoint: None });
        let Some(far) = cards.iter().position(|card| card.host != *here) else {
            return Ok(Self { on_host, off_host: None, why: "all ranks are on one host".to_owned(), chosen: false });
        };
        // Its number among the ranks of its host: neighbours on an interface have different endpoints.
        let local = cards[..own].iter().filter(|card| card.host == *here).count() as u16;
        let (off_host, why, chosen) = match wish {
            Wish::Exact(spec) => (numbered(spec, local)?, "SIDELANE_NIC says so".to_owned(), false),
            Wish::Kind(kind) => by_network(cards, own, far, local, Some(*kind))?,
            Wish::None => by_network(cards, own, far, local, None)?,
        };
        Ok(Self { on_host, off_host: Some(off_host), why, chosen })
    }

    /// Tells the user how others are reached: rank 0 where there was a choice, every rank if `SIDELANE_VERBOSE` is set, and then also
    /// what it goes by that was tuned elsewhere; nobody if it is 0.
    pub fn tell(&self, rank: usize, tuning: Option<&Tuning>) {
        let asked = std::env::var("SIDELANE_VERBOSE").ok().filter(|value| !value.is_empty()).map(|value| value != "0");
        if self.is_told_by(rank, asked) {
            eprintln!("sidelane: rank {rank}: {self}");
        }
        let asked = asked == Some(true);
        if let Some(tuning) = tuning.filter(|_| asked) {
            eprintln!("sidelane: rank {rank}: limits and collectives as tuned on {}", Shown(&tuning.machine));
        }
    }

    pub(super) fn is_told_by(&self, rank: usize, asked: Option<bool>) -> bool {
        asked.unwrap_or(self.chosen && rank == 0)
    }

    /// Tells the user that rank `to` counts as gone, as it has never answered, and what may be in the way.
    pub fn tell_of_no_answer(&self, rank: usize, to: usize) {
        if let Some(spec) = &self.off_host {
            eprintln!("sidelane: rank {rank}: rank {to} has never answered by {spec}: {}", in_the_way(spec));
        }
    }
}

/// What keeps frames of a driver from another host, if it runs.
fn in_the_way(by: &Spec) -> &'static str {
    match by {
        Spec::Udp { .. } => "it has ended, or a firewall drops UDP between the two hosts",
        _ => {
            "it has ended, or the network between the two carries IP alone, as clouds' do; then SIDELANE_NIC=udp reaches it"
        }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(spec) = &self.on_host {
            write!(f, "ranks of this host by {spec}")?;
        }
        let between = if self.on_host.is_some() && self.off_host.is_some() { ", " } else { "" };
        f.write_str(between)?;
        if let Some(spec) = &self.off_host {
            write!(f, "other hosts by {spec}")?;
        }
        write!(f, ": {}", self.why)?;
        if self.chosen { f.write_str(" (SIDELANE_NIC chooses another)") } else { Ok(()) }
    }
}

/// By the network that all hosts are in; where there is none, by the route to the first rank on another host.
fn by_network(
    cards: &[Card],
    own: usize,
    far: usize,
    local: u16,
    kind: Option<Kind>,
) -> Result<(Spec, String, bool), PlanError> {
    let alike = Alike::find(cards);
    let common = common_networks(cards, &alike);
    // One on Ethernet, if several interfaces are in it.
    let ours = |network: (IpAddr, u8)| {
        alike.others_of(&cards[own]).filter(|net| net.network() == network).min_by_key(|net| net.mac.is_none())
    };
    let Some((network, net)) = common.first().and_then(|network| Some((*network, ours(*network)?))) else {
        return by_route(cards, own, far, kind, alike);
    };
    let on_ethernet = |card| alike.others_of(card).any(|net| net.network() == network && net.mac.is_some());
    let ethernet = cards.iter().all(on_ethernet);
    let raw = cards.iter().all(|card| card.raw);
    let chosen_kind = match kind {
        Some(Kind::Uring) if !ethernet => return Err(PlanError::NoEthernet { kind: "uring", alike }),
        Some(Kind::Xdp) if !ethernet => return Err(PlanError::NoEthernet { kind: "xdp", alike }),
        Some(kind) => kind,
        None if ethernet && raw => Kind::Uring,
        None => Kind::Udp,
    };
    let spec = chosen_kind.on(net, local);
    let mut why = format!("{}/{} is a network of all hosts", network.0, network.1);
    if common.len() > 1 {
        why += &format!(", as are {} more", common.len() - 1);
    }
    if kind.is_none() && chosen_kind == Kind::Udp {
        why += if ethernet { ", and not every rank may send raw frames (CAP_NET_RAW)" } else { ", and no Ethernet" };
    }
    why += &alike.to_string();
    let chosen = common.len() > 1 || kind.is_none() && chosen_kind == Kind::Udp;
    Ok((spec, why, chosen))
}

/// The networks that every process is in by an address of its host alone, those with the largest packets first.
fn common_networks(cards: &[Card], alike: &Alike) -> Vec<(IpAddr, u8)> {
    let mut common: Vec<(usize, IpAddr, u8)> = Vec::new();
    for net in alike.others_of(&cards[0]) {
        let network = net.network();
        let of = |card| alike.others_of(card).filter(|net| net.network() == network).map(|net| net.mtu).max();
        let least = cards.iter().map(of).min().flatten();
        if let Some(mtu) = least.filter(|_| !common.iter().any(|known| (known.1, known.2) == network)) {
            common.push((mtu, network.0, network.1));
        }
    }
    common.sort_by_key(|(mtu, ip, prefix)| (std::cmp::Reverse(*mtu), *ip, *prefix));
    common.into_iter().map(|(_, ip, prefix)| (ip, prefix)).collect()
}

/// UDP from the address that the kernel's route to rank `far` leaves by.
fn by_route(
    cards: &[Card],
    own: usize,
    far: usize,
    kind: Option<Kind>,
    alike: Alike,
) -> Result<(Spec, String, bool), PlanError> {
    match kind {
        Some(Kind::Uring) => return Err(PlanError::NoEthernet { kind: "uring", alike }),
        Some(Kind::Xdp) => return Err(PlanError::NoEthernet { kind: "xdp", alike }),
        Some(Kind::Udp) | None => {}
    }
    let way = way_to(cards, far, &alike, networks::address_towards);
    let list = |card: &Card| match card.nets.as_slice() {
        [] => "none".to_owned(),
        nets => nets
            .iter()
            .map(|net| format!("{}/{} ({})", net.ip, net.prefix, net.interface))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let Some((to, from)) = way else {
        return Err(PlanError::NoNetwork { to: far, own: list(&cards[own]), other: list(&cards[far]), alike });
    };
    let why = format!("no network has all hosts, and the route to {to}, rank {far}'s, leaves by this address{alike}");
    Ok((Spec::Udp { bind: SocketAddr::new(from, 0) }, why, true))
}

/// An address of rank `far`'s host, and ours towards it, as `towards` knows that. An IPv4 address is not reached from an IPv6 one, and
/// ranks have different ones elsewhere first: so all take those first that every host has, of both kinds IPv4. Routes are not compared: a
/// rank without one by that kind takes the other, and is reached only where all do ([`Plan::tell_of_no_answer`]).
pub(super) fn way_to(
    cards: &[Card],
    far: usize,
    alike: &Alike,
    towards: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Option<(IpAddr, IpAddr)> {
    let all_have = |ipv6| cards.iter().all(|card| alike.others_of(card).any(|net| net.ip.is_ipv6() == ipv6));
    let mut kinds = [false, true];
    kinds.sort_by_key(|ipv6| !all_have(*ipv6));
    let of_kind = |ipv6| alike.others_of(&cards[far]).map(|net| net.ip).filter(move |ip| ip.is_ipv6() == ipv6);
    // What leaves by an address that others have too is not answered to us.
    let from = |to| towards(to).filter(|from| !alike.0.contains(from));
    kinds.into_iter().flat_map(of_kind).find_map(|to| Some((to, from(to)?)))
}

/// `spec` for the process that is number `local` on its host.
fn numbered(spec: &Spec, local: u16) -> Result<Spec, PlanError> {
    let mut spec = spec.clone();
    match &mut spec {
        // The loopback is within a host's own namespace.
        Spec::Uring { interface, .. } | Spec::Xdp { interface, .. } if interface == LOOPBACK => {
            return Err(PlanError::OneHostOnly(spec.to_string()));
        }
        Spec::Udp { bind } if bind.ip().to_canonical().is_loopback() => {
            return Err(PlanError::OneHostOnly(spec.to_string()));
        }
        Spec::Uring { endpoint, .. } | Spec::Xdp { endpoint, .. } => *endpoint = endpoint.wrapping_add(local),
        Spec::Dpdk(config) => config.endpoint = config.endpoint.wrapping_add(local),
        Spec::Udp { bind } if bind.port() != 0 => bind.set_port(bind.port().wrapping_add(local)),
        Spec::Udp { .. } => {}
        Spec::Shm { .. } | Spec::Mem => return Err(PlanError::OneHostOnly(spec.to_string())),
    }
    Ok(spec)
}

/// What the kernel calls the loopback of every network namespace (drivers/net/loopback.c).
const LOOPBACK: &str = "lo";

impl Alike {
    pub(super) fn find(cards: &[Card]) -> Self {
        let mut hosts: HashMap<IpAddr, &str> = HashMap::new();
        let addresses = cards.iter().flat_map(|card| card.nets.iter().map(|net| (net.ip, card.host.as_str())));
        Self(addresses.filter(|(ip, host)| hosts.entry(*ip).or_insert(host) != host).map(|(ip, _)| ip).collect())
    }

    /// The networks of `card` by which its host can be told from others.
    fn others_of<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = &'a Net> {
        card.nets.iter().filter(|net| !self.0.contains(&net.ip))
    }
}

/// Empty where there are none, else to be put behind other words.
impl std::fmt::Display for Alike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<String> = self.0.iter().map(IpAddr::to_string).collect();
        match addresses.as_slice() {
            [] => Ok(()),
            all => write!(f, "; of no use is {}, which several hosts have", all.join(", ")),
        }
    }
}

impl Kind {
    fn on(self, net: &Net, endpoint: u16) -> Spec {
        let interface = net.interface.clone();
        match self {
            Self::Uring => Spec::Uring { interface, endpoint, real_frames: false },
            Self::Xdp => Spec::Xdp { interface, endpoint, queue: 0, prefer: sidelane_nic::xdp::Preference::Fastest },
            Self::Udp => Spec::Udp { bind: SocketAddr::new(net.ip, 0) },
        }
    }
}

impl Wish {
    /// Reads the value of `SIDELANE_NIC`.
    pub fn of_environment(value: Option<&str>) -> Result<Self, SpecError> {
        Ok(match value {
            None | Some("") => Self::None,
            Some("uring") => Self::Kind(Kind::Uring),
            Some("xdp") => Self::Kind(Kind::Xdp),
            Some("udp") => Self::Kind(Kind::Udp),
            Some(text) => Self::Exact(text.parse()?),
        })
    }
}
