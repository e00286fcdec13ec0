//! The ladder's patterns as a C program for any MPI: its source, its arguments, and what it says.

use std::time::Duration;

use serde::Deserialize;

use crate::pattern::{Kind, Outcome, Pattern};
use crate::stats::Summary;

/// The program. To be compiled by the `mpicc` of the MPI that is measured.
pub const SOURCE: &str = include_str!("../../peers/p2p.c");

/// Arguments for playing `patterns`, rank 0 on the first core and rank 1 on the second one.
pub fn arguments(patterns: &[Pattern], cores: [usize; 2]) -> Vec<String> {
    let first = patterns.first().map_or((0, 0), |pattern| (pattern.warm_ns, pattern.measure_ns));
    let mut arguments = cores.map(|core| core.to_string()).to_vec();
    arguments.push(limit(patterns).as_secs().to_string());
    arguments.extend([first.0.to_string(), first.1.to_string()]);
    arguments.extend(patterns.iter().map(|pattern| format!("{}:{}", pattern.kind, pattern.size)));
    arguments
}

/// Time after which its ranks end themselves. Their time includes whatever a pattern may take beyond its own, and that it is
/// played twice, of which the second time counts.
pub fn limit(patterns: &[Pattern]) -> Duration {
    STARTS_WITHIN + 2 * patterns.iter().map(|pattern| Duration::from_nanos(pattern.limit_ns)).sum::<Duration>()
}

/// What it has said.
#[derive(Debug)]
pub struct Report {
    /// The library's version.
    pub library: String,
    /// The name of the host that each rank ran on.
    pub hosts: [String; 2],
    /// One for each pattern.
    pub outcomes: Vec<Outcome>,
}

/// Reads what it has said about `patterns`. `Err`: what does not fit.
pub fn read(output: &str, patterns: &[Pattern]) -> Result<Report, String> {
    let mut greeting = None;
    let mut outcomes = Vec::new();
    // A launcher may add lines of its own.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("`{line}`: {error}"))?;
        match line {
            Line::Library { library, hosts } => greeting = Some((library, hosts)),
            Line::Measured { kind, size, half_rtt_ns, msgs_per_s } => {
                let asked = patterns.get(outcomes.len()).map(|pattern| (pattern.kind, pattern.size));
                if asked != Some((kind, size)) {
                    return Err(format!("{kind} of {size} B was not asked for at this place"));
                }
                let half_rtt_ns = half_rtt_ns.map(Summary::with_what_its_samples_tell);
                outcomes.push(Outcome { half_rtt_ns, msgs_per_s, ..Outcome::default() });
            }
        }
    }
    match greeting {
        Some((library, hosts)) if outcomes.len() == patterns.len() => Ok(Report { library, hosts, outcomes }),
        _ => Err(format!("it has played {} of {} patterns", outcomes.len(), patterns.len())),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Library { library: String, hosts: [String; 2] },
    Measured { kind: Kind, size: usize, half_rtt_ns: Option<Summary>, msgs_per_s: Option<f64> },
}

/// Launchers took 0.2 to 1.5 s on two busy cores; the rest is for slower machines.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns() -> [Pattern; 2] {
        let of = |kind, size| Pattern { kind, size, depth: None, warm_ns: 5, measure_ns: 7, limit_ns: 2_000_000_000 };
        [of(Kind::PingPong, 8), of(Kind::Bandwidth, 4096)]
    }

    #[test]
    fn arguments_say_where_how_long_and_what() {
        let arguments = arguments(&patterns(), [0, 3]);
        assert_eq!(arguments, ["0", "3", "28", "5", "7", "ping-pong:8", "bandwidth:4096"]);
    }

    #[test]
    fn its_lines_are_outcomes() {
        let output = "a launcher's word\n{\"library\":\"Some MPI 5\",\"hosts\":[\"a\",\"b\"]}\n\
            {\"half_rtt_ns\":{\"min\":1.0,\"p50\":2.0,\"p99\":3.0,\"p999\":4.0,\"n\":9},\"kind\":\"ping-pong\",\"size\":8}\n\
            {\"msgs_per_s\":1e6,\"kind\":\"bandwidth\",\"size\":4096}\n";
        let report = read(output, &patterns()).unwrap();
        assert_eq!((&*report.library, report.hosts), ("Some MPI 5", ["a".to_owned(), "b".to_owned()]));
        let half = report.outcomes[0].half_rtt_ns.unwrap();
        assert_eq!((half.p50, half.p99), (2.0, None), "of nine samples");
        assert_eq!(report.outcomes[1].msgs_per_s, Some(1e6));
    }

    #[test]
    fn what_is_missing_or_was_not_asked_for_is_no_result() {
        let one = "{\"library\":\"x\",\"hosts\":[\"a\",\"a\"]}\n{\"msgs_per_s\":1,\"kind\":\"flood\",\"size\":8}\n";
        assert!(read(one, &patterns()).unwrap_err().contains("flood of 8 B"));
        let alone = "{\"library\":\"x\",\"hosts\":[\"a\",\"a\"]}\n";
        assert_eq!(read(alone, &patterns()).unwrap_err(), "it has played 0 of 2 patterns");
        assert!(read("{\"what\":1}\n", &patterns()).is_err());
    }
}
