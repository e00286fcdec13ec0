//! Rates, a line an endpoint, again and again.

use std::fmt::Write as _;

use super::{Endpoint, Process, Snapshot, short};

/// Prints what changed, as `vmstat` does.
#[derive(Default)]
pub struct Live {
    lines: usize,
}

impl Live {
    /// The lines for `snapshot`, which was compared with the one before, under a heading from time to time.
    pub fn lines(&mut self, snapshot: &Snapshot) -> String {
        let mut text = String::new();
        for process in &snapshot.processes {
            for endpoint in &process.endpoints {
                if self.lines.is_multiple_of(LINES_PER_HEADING) {
                    let _ = writeln!(text, "{}", heading());
                }
                self.lines += 1;
                let _ = writeln!(text, "{}", line(process, endpoint).trim_end());
            }
        }
        text
    }
}

fn heading() -> String {
    let mut text = format!("{:>7} {:<15} {:<6} {:>5}", "pid", "command", "driver", "peers");
    for (name, _) in COLUMNS {
        let _ = write!(text, " {name:>7}");
    }
    text + "  more, a second"
}

fn line(process: &Process, endpoint: &Endpoint) -> String {
    let command: String = short_command(&process.command).chars().take(15).collect();
    let peers = endpoint.value("peers").unwrap_or(0);
    let mut text = format!("{:>7} {command:<15} {:<6} {peers:>5}", process.pid, endpoint.driver);
    for (_, names) in COLUMNS {
        let rates: Vec<f64> = names.iter().filter_map(|name| endpoint.per_s(name)).collect();
        let figure = if rates.is_empty() { "-".to_owned() } else { short(rates.iter().sum()) };
        let _ = write!(text, " {figure:>7}");
    }
    text.push_str("  ");
    text.push_str(&rest(endpoint));
    text
}

/// What else has moved, by name.
fn rest(endpoint: &Endpoint) -> String {
    let has_column = |name: &str| COLUMNS.iter().any(|(_, names)| names.contains(&name)) || QUIET.contains(&name);
    let moved = endpoint.counts.iter().filter(|count| !has_column(&count.name));
    let moved = moved.filter_map(|count| count.per_s.filter(|per_s| *per_s > 0.0).map(|per_s| (&count.name, per_s)));
    moved.map(|(name, per_s)| format!("{name} {}", precise(per_s))).collect::<Vec<_>>().join(", ")
}

/// One event in a long interval is still an event.
fn precise(per_s: f64) -> String {
    if per_s < 10.0 { format!("{per_s:.1}") } else { short(per_s) }
}

/// The program without its folder.
fn short_command(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    program.rsplit('/').next().unwrap_or(program)
}

/// A heading, and the counts that are summed up under it.
const COLUMNS: [(&str, &[&str]); 10] = [
    ("msg out", &["messages_sent"]),
    ("msg in", &["messages_received"]),
    ("frm out", &["nic.tx_frames"]),
    ("frm in", &["nic.rx_frames"]),
    ("B out", &["nic.tx_bytes"]),
    ("B in", &["nic.rx_bytes"]),
    ("again", &["retransmitted", "probes_sent"]),
    (
        "stalls",
        &[
            "credit_stalls",
            "messages_refused",
            "nic_full",
            "operations_refused",
            "am.budget_stalls",
            "am.long_reply_stalls",
        ],
    ),
    ("dropped", &["nic.rx_dropped", "nic.tx_failed"]),
    ("turns", &["turns"]),
];

/// Says nothing that a column does not.
const QUIET: [&str; 6] =
    ["frames_sent", "frames_received", "acks_sent", "messages_in_place", "nic.tx_full", "nic.rx_foreign"];

const LINES_PER_HEADING: usize = 20;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::tests::snapshot;
    use super::*;

    #[test]
    fn a_line_has_rates_and_what_else_has_moved() {
        let start = Instant::now();
        let mut later = snapshot(start + Duration::from_secs(1), 20_100, 3);
        later.compare(&snapshot(start, 100, 1));
        let text = Live::default().lines(&later);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("msg out"));
        assert!(lines[1].starts_with("      5 party           udp        3  20.0 k       -"), "{text}");
        assert!(lines[1].ends_with("rejected.epoch 200"), "{text}");
    }

    #[test]
    fn the_heading_comes_again() {
        let mut live = Live::default();
        let text: String = (0..21).map(|_| live.lines(&snapshot(Instant::now(), 0, 0))).collect();
        assert_eq!(text.matches("msg out").count(), 2);
    }
}
