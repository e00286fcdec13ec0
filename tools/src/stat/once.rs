//! Totals, once.

use std::fmt::Write as _;

use super::Snapshot;

/// Each endpoint with everything that it has counted.
pub fn once(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for process in &snapshot.processes {
        let _ = writeln!(text, "{} {}", process.pid, process.command);
        for endpoint in &process.endpoints {
            let peers = endpoint.value("peers").unwrap_or(0);
            let _ = writeln!(text, "  {} at {}, {peers} peers", endpoint.driver, endpoint.address);
            let counts = endpoint.counts.iter().filter(|count| count.value > 0 && count.name != "peers");
            for count in counts {
                let _ = writeln!(text, "    {:<22} {:>20}", count.name, count.value);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::tests::snapshot;
    use super::*;

    #[test]
    fn what_has_never_happened_is_left_out() {
        let text = once(&snapshot(Instant::now(), 50, 2));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            ["5 party", "  udp at 127.0.0.1:7, 2 peers", "    messages_sent                            50"]
        );
    }
}
