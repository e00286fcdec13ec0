//! What the ports of this process tell about frames that do not come: a line for people.

use super::pci;
use super::port::Port;

/// All ports, since who misses a frame knows nothing of its sender's side.
pub fn of_ports(ports: &[impl AsRef<Port>]) -> String {
    let mut told: Vec<String> = ports.iter().map(|port| of_port(port.as_ref())).collect();
    told.sort();
    told.join("; ")
}

fn of_port(port: &Port) -> String {
    let mut words = vec![if port.link_is_up() { "link up" } else { "link down" }.to_owned()];
    if pci::is_bus_master(&port.device.name) == Some(false) {
        words.push("not allowed to read and write memory (bus mastering is off)".to_owned());
    }
    if let Some(state) = port.state() {
        words.push(format!("queues: {} to receive, {} to send", state.rx_queues, state.tx_queues));
        words.extend((state.promiscuous != 0).then(|| "promiscuous".to_owned()));
        words.extend((state.all_multicast != 0).then(|| "all multicast".to_owned()));
        words.push(format!("{} buffers free", state.mbufs_free));
    }
    words.extend(counted(&port.extended_stats()));
    format!("{} ({}): {}", port.device.name, port.driver, words.join(", "))
}

/// What was counted, and of frames that went well also that none did.
fn counted(stats: &[(String, u64)]) -> impl Iterator<Item = String> + '_ {
    let always = |name: &str| ["rx_good_packets", "tx_good_packets"].contains(&name);
    stats.iter().filter(move |(name, value)| *value > 0 || always(name)).map(|(name, value)| format!("{name} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_told_only_of_good_frames() {
        let stats = [("rx_good_packets", 0), ("tx_good_packets", 2), ("rx_errors", 0), ("rx_missed_errors", 7)];
        let stats = stats.map(|(name, value)| (name.to_owned(), value));
        let told: Vec<String> = counted(&stats).collect();
        assert_eq!(told, ["rx_good_packets 0", "tx_good_packets 2", "rx_missed_errors 7"]);
    }
}
