//! Over which interfaces the machine is reached.

use std::collections::HashSet;
use std::fs;
use std::io;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use sidelane_nic::interface::Interface;

/// The interfaces of the default routes, or why they are unknown.
#[derive(Debug)]
pub struct Routes(Result<Vec<String>, String>);

impl Routes {
    /// Asks the kernel.
    pub fn gather() -> Self {
        Self(all().map_err(|error| error.to_string()).map(|routes| {
            let indices = indices(&routes);
            let index = |name: &String| Interface::find(name).map(|own| own.index() as u32);
            let leads = |name: &String| index(name).is_some_and(|index| indices.contains(&index));
            Interface::names().into_iter().filter(leads).collect()
        }))
    }

    /// Why the kernel did not say them.
    pub fn unknown(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Whether a default route leads over `interface`, or over what is made of it: a bond, a bridge, a VLAN.
    pub fn lead_over(&self, interface: &str) -> Option<bool> {
        self.0.as_ref().ok().map(|names| is_among(names, interface))
    }

    #[cfg(test)]
    pub fn over(names: &[&str]) -> Self {
        Self(Ok(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[cfg(test)]
    pub fn refused(why: &str) -> Self {
        Self(Err(why.to_owned()))
    }
}

fn is_among(names: &[String], interface: &str) -> bool {
    names.iter().any(|name| name == interface) || above(interface).iter().any(|name| is_among(names, name))
}

/// Interfaces on top of another one (Documentation/ABI/testing/sysfs-class-net, `upper_*`). The kernel keeps them free of rings.
fn above(interface: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/sys/class/net/{interface}")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned()));
    names.collect()
}

/// The routes of all tables. Those in /proc have of a route over several interfaces only the first.
fn all() -> io::Result<Vec<RouteMessage>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _notices) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut which = RouteMessage::default();
            which.header.address_family = family;
            let found: Result<Vec<_>, _> = handle.route().get(which).execute().try_collect().await;
            match found {
                Ok(found) => routes.extend(found),
                // A kernel may be without IPv6.
                Err(error) if family == AddressFamily::Inet6 && is_without(&error) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(routes)
    })
}

/// Whether the kernel does not have what it was asked for.
fn is_without(error: &rtnetlink::Error) -> bool {
    let rtnetlink::Error::NetlinkError(message) = error else { return false };
    matches!(-message.raw_code(), libc::EOPNOTSUPP | libc::EAFNOSUPPORT)
}

/// The interfaces, by number, of the routes to everywhere: of each all that it may take (rtnetlink(7), RTA_MULTIPATH). Others
/// than unicast lead nowhere.
fn indices(routes: &[RouteMessage]) -> HashSet<u32> {
    let to_everywhere =
        |route: &&RouteMessage| route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast;
    let attributes = routes.iter().filter(to_everywhere).flat_map(|route| &route.attributes);
    let indices = attributes.flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    indices.collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::process::Command;

    use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};

    use super::*;
    use crate::lab::{Lab, LabError, LabSpec};

    #[test]
    fn default_routes_are_told_from_others() {
        let v4 = || RouteMessageBuilder::<Ipv4Addr>::new().kind(RouteType::Unicast);
        let v6 = || RouteMessageBuilder::<Ipv6Addr>::new().kind(RouteType::Unicast);
        let hops = [4, 5].map(|index| RouteNextHopBuilder::new_ipv4().interface(index).build());
        let routes = [
            v4().output_interface(2).build(),
            v4().destination_prefix(Ipv4Addr::new(10, 0, 0, 0), 24).output_interface(3).build(),
            v4().multipath(hops.to_vec()).build(),
            v6().output_interface(6).build(),
            v6().kind(RouteType::Unreachable).output_interface(1).build(),
        ];
        assert_eq!(indices(&routes), HashSet::from([2, 4, 5, 6]));
        assert_eq!(Routes::over(&["lo"]).lead_over("lo"), Some(true));
        assert_eq!(Routes::over(&["eth0"]).lead_over("lo"), Some(false));
        assert_eq!(Routes::refused("no").lead_over("lo"), None);
    }

    #[test]
    fn a_default_route_over_two_interfaces_leads_over_both() {
        let lab = match Lab::build(&LabSpec::default()) {
            Err(LabError::Forbidden(reason)) => return println!("skipped: {reason}"),
            lab => lab.unwrap(),
        };
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{command:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        for line in [
            "link add more type veth peer name other",
            "address add 10.80.0.1/24 dev more",
            "link set more up",
            "link set other up",
            "route add default nexthop via 10.79.0.2 dev veth0 nexthop via 10.80.0.2 dev more",
        ] {
            run(lab.host(0).command("ip").args(line.split(' ')));
        }
        let inside = ["--exact", "doctor::routes::tests::part_inside", "--ignored", "--nocapture", "--quiet"];
        let told = run(lab.host(0).command(std::env::current_exe().unwrap()).args(inside));
        assert!(told.contains("told: more veth0\n"), "{told}");
    }

    #[test]
    #[ignore = "run inside a lab by another test"]
    fn part_inside() {
        let mut names = Routes::gather().0.unwrap();
        names.sort_unstable();
        println!("\ntold: {}", names.join(" "));
    }
}
