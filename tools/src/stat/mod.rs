//! What the endpoints of running processes count, and how fast.

mod live;
mod once;

pub use live::Live;
pub use once::once;

use std::io;
use std::time::Instant;

use serde_json::{Map, Value, json};
use sidelane_nic::page::{Kind, running};

/// All endpoints that could be read, at about one moment.
pub struct Snapshot {
    at: Instant,
    /// By process id.
    pub processes: Vec<Process>,
}

/// A process that uses Sidelane.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Process id as seen from here.
    pub pid: u32,
    /// Program and arguments.
    pub command: String,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
}

/// One endpoint of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// The driver.
    pub driver: String,
    /// Where peers reach it.
    pub address: String,
    /// What it counted since it was made, in its own order.
    pub counts: Vec<Count>,
}

/// One of an endpoint's values.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// What it counts.
    pub name: String,
    /// How much.
    pub value: u64,
    /// How much more in a second: of what only grows, once there are two readings.
    pub per_s: Option<f64>,
    grows: bool,
}

impl Snapshot {
    /// Reads all processes that we may look into, or only those of `pids`.
    pub fn take(pids: &[u32]) -> io::Result<Self> {
        let mut processes = Vec::new();
        for process in running()? {
            if !pids.is_empty() && !pids.contains(&process.pid) {
                continue;
            }
            let endpoints: Vec<Endpoint> = process.pages.iter().filter_map(Endpoint::read).collect();
            if !endpoints.is_empty() {
                processes.push(Process { pid: process.pid, command: process.command, endpoints });
            }
        }
        Ok(Self { at: Instant::now(), processes })
    }

    /// Fills in how fast counts have grown since `earlier`.
    pub fn compare(&mut self, earlier: &Self) {
        let seconds = (self.at - earlier.at).as_secs_f64();
        for process in &mut self.processes {
            let Some(before) = earlier.processes.iter().find(|before| before.pid == process.pid) else { continue };
            let mut unpaired: Vec<&Endpoint> = before.endpoints.iter().collect();
            for endpoint in &mut process.endpoints {
                let same =
                    |before: &&Endpoint| (&before.driver, &before.address) == (&endpoint.driver, &endpoint.address);
                // Of several with one address, each goes with the one in its place before.
                if let Some(at) = unpaired.iter().position(same) {
                    endpoint.compare(unpaired.remove(at), seconds);
                }
            }
        }
    }

    /// All of it, for programs: `values` are totals, `per_second` what [`Self::compare`] found.
    pub fn to_json(&self) -> String {
        let endpoint = |endpoint: &Endpoint| {
            let values: Map<String, Value> =
                endpoint.counts.iter().map(|count| (count.name.clone(), json!(count.value))).collect();
            let rates: Map<String, Value> =
                endpoint.counts.iter().filter_map(|count| Some((count.name.clone(), json!(count.per_s?)))).collect();
            let mut object = json!({ "driver": endpoint.driver, "address": endpoint.address, "values": values });
            if !rates.is_empty() {
                object["per_second"] = Value::Object(rates);
            }
            object
        };
        let processes: Vec<Value> = self
            .processes
            .iter()
            .map(|process| {
                let endpoints: Vec<Value> = process.endpoints.iter().map(endpoint).collect();
                json!({ "pid": process.pid, "command": process.command, "endpoints": endpoints })
            })
            .collect();
        json!({ "schema": "sidelane-stat/1", "processes": processes }).to_string()
    }
}

impl Endpoint {
    /// `None` when its process is stopped in the middle of writing.
    fn read(view: &sidelane_nic::page::View) -> Option<Self> {
        let fact = |name| view.fact(name).unwrap_or("?").to_owned();
        let count = |value: sidelane_nic::page::Value| Count {
            name: value.name,
            value: value.value,
            per_s: None,
            grows: value.kind == Kind::Counter,
        };
        let counts = view.read()?.into_iter().map(count).collect();
        Some(Self { driver: fact("driver"), address: fact("address"), counts })
    }

    fn compare(&mut self, before: &Self, seconds: f64) {
        for count in self.counts.iter_mut().filter(|count| count.grows) {
            let earlier = before.counts.iter().find(|earlier| earlier.name == count.name);
            // Less than before: another endpoint, at the same address.
            let grown = earlier.and_then(|earlier| count.value.checked_sub(earlier.value));
            count.per_s = grown.map(|grown| grown as f64 / seconds);
        }
    }

    fn value(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|count| count.name == name).map(|count| count.value)
    }

    fn per_s(&self, name: &str) -> Option<f64> {
        self.counts.iter().find(|count| count.name == name)?.per_s
    }
}

/// A figure that fits into seven columns.
fn short(figure: f64) -> String {
    match figure {
        _ if figure < 9_999.5 => format!("{figure:.0}"),
        _ if figure < 999_950.0 => format!("{:.1} k", figure / 1e3),
        _ if figure < 999.95e6 => format!("{:.2} M", figure / 1e6),
        _ => format!("{:.2} G", figure / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn snapshot(at: Instant, sent: u64, peers: u64) -> Snapshot {
        let count = |name: &str, value, grows| Count { name: name.into(), value, per_s: None, grows };
        let counts = vec![
            count("peers", peers, false),
            count("messages_sent", sent, true),
            count("rejected.epoch", sent / 100, true),
        ];
        let endpoint = Endpoint { driver: "udp".into(), address: "127.0.0.1:7".into(), counts };
        Snapshot { at, processes: vec![Process { pid: 5, command: "party".into(), endpoints: vec![endpoint] }] }
    }

    #[test]
    fn rates_are_what_counters_grew_by_in_a_second() {
        let start = Instant::now();
        let mut later = snapshot(start + Duration::from_secs(2), 700, 9);
        later.compare(&snapshot(start, 100, 1));
        let endpoint = &later.processes[0].endpoints[0];
        assert_eq!((endpoint.per_s("messages_sent"), endpoint.per_s("rejected.epoch")), (Some(300.0), Some(3.0)));
        assert_eq!(endpoint.per_s("peers"), None, "a gauge has no rate");
    }

    #[test]
    fn endpoints_of_one_address_have_rates_of_their_own() {
        let start = Instant::now();
        let two = |at, sent: [u64; 2]| {
            let [mut first, second] = sent.map(|sent| snapshot(at, sent, 1));
            first.processes[0].endpoints.extend(second.processes.into_iter().flat_map(|process| process.endpoints));
            first
        };
        let mut later = two(start + Duration::from_secs(2), [700, 5_000]);
        later.compare(&two(start, [100, 1_000]));
        let rates: Vec<_> = later.processes[0].endpoints.iter().map(|it| it.per_s("messages_sent")).collect();
        assert_eq!(rates, [Some(300.0), Some(2_000.0)]);
    }

    #[test]
    fn an_endpoint_that_began_anew_has_no_rate() {
        let start = Instant::now();
        let mut later = snapshot(start + Duration::from_secs(1), 5, 1);
        later.compare(&snapshot(start, 100, 1));
        assert_eq!(later.processes[0].endpoints[0].per_s("messages_sent"), None);
    }

    #[test]
    fn json_has_totals_and_where_there_are_two_readings_rates() {
        let start = Instant::now();
        let mut later = snapshot(start + Duration::from_secs(1), 300, 1);
        let once: Value = serde_json::from_str(&later.to_json()).unwrap();
        assert_eq!(once["processes"][0]["endpoints"][0]["values"]["messages_sent"], 300);
        assert!(once["processes"][0]["endpoints"][0].get("per_second").is_none());
        later.compare(&snapshot(start, 100, 1));
        let twice: Value = serde_json::from_str(&later.to_json()).unwrap();
        assert_eq!(twice["processes"][0]["endpoints"][0]["per_second"]["messages_sent"], 200.0);
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([0.4, 9_999.0, 10_000.0, 1.5e6, 2e9].map(short), ["0", "9999", "10.0 k", "1.50 M", "2.00 G"]);
    }
}
