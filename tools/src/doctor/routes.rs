//! Over which interfaces the machine is reached.

use std::fs;

/// The interfaces of the default routes.
#[derive(Debug)]
pub struct Routes(Vec<String>);

impl Routes {
    /// Asks the kernel.
    pub fn gather() -> Self {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        Self(of(&read("/proc/net/route"), &read("/proc/net/ipv6_route")))
    }

    /// True when a default route leads over `interface`, or over what is made of it: a bond, a bridge, a VLAN.
    pub fn lead_over(&self, interface: &str) -> bool {
        self.0.iter().any(|name| name == interface) || above(interface).iter().any(|name| self.lead_over(name))
    }

    #[cfg(test)]
    pub fn over(names: &[&str]) -> Self {
        Self(names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// Interfaces on top of another one (Documentation/ABI/testing/sysfs-class-net, `upper_*`). The kernel keeps them free of rings.
fn above(interface: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/sys/class/net/{interface}")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned()));
    names.collect()
}

/// The interfaces of routes to everywhere in the kernel's two tables.
fn of(v4: &str, v6: &str) -> Vec<String> {
    // Interface, destination, ..., and at place 7 the mask (net/ipv4/fib_trie.c).
    let v4 = v4.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let v4 = v4.filter(|fields| fields.len() > 7 && [fields[1], fields[7]] == ["00000000"; 2]).map(|fields| fields[0]);
    // Destination and its length, ..., the interface last (net/ipv6/route.c). The loopback has the routes that lead nowhere.
    let v6 = v6.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let v6 = v6.filter(|fields| fields.len() > 9 && fields[0].bytes().all(|byte| byte == b'0') && fields[1] == "00");
    let v6 = v6.filter_map(|fields| fields.last().copied()).filter(|name| *name != "lo");
    v4.chain(v6).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_told_from_others() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let (any, link) = ("0".repeat(32), "fe80".to_owned() + &"0".repeat(28));
        let v6 = format!(
            "{any} 00 {any} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth2\n\
             {link} 40 {any} 00 {any} 00000100 00000001 00000000 00000001 eth3\n\
             {any} 00 {any} 00 {any} ffffffff 00000001 00000000 00200200       lo\n"
        );
        assert_eq!(of(v4, &v6), ["eth0", "eth2"]);
        assert_eq!(of("", ""), Vec::<String>::new());
        assert!(Routes::over(&["lo"]).lead_over("lo") && !Routes::over(&["eth0"]).lead_over("lo"));
    }
}
