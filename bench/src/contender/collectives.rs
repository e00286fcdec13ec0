//! Collective calls as a C program for any MPI: its source, its arguments, and what it says. Our own ranks say the same.

use std::time::Duration;

use serde::Deserialize;

use crate::collectives::Cell;

/// The program. To be compiled by the `mpicc` of the MPI that is measured.
pub const SOURCE: &str = include_str!("../../peers/collectives.c");

/// Arguments for measuring `cells`.
pub fn arguments(measure_ns: u64, cells: &[Cell]) -> Vec<String> {
    let first = [limit(measure_ns, cells).as_secs().to_string(), measure_ns.to_string()];
    first.into_iter().chain(cells.iter().map(Cell::to_string)).collect()
}

/// Time after which its ranks end themselves.
pub fn limit(measure_ns: u64, cells: &[Cell]) -> Duration {
    STARTS_WITHIN + SLOWEST.max(Duration::from_nanos(measure_ns) * 20) * cells.len() as u32
}

/// What it has said: the version of the library, and the nanoseconds of each of `cells`. `Err`: what does not fit.
pub fn read(output: &str, cells: &[Cell]) -> Result<(String, Vec<f64>), String> {
    let mut library = None;
    let mut times = Vec::new();
    // A launcher may add lines of its own.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("`{line}`: {error}"))?;
        match line {
            Line::Library { library: name } => library = Some(name.trim_end().to_owned()),
            Line::Measured { collective, bytes, ns } => {
                let cell = format!("{collective}:{bytes}");
                if cells.get(times.len()).map(Cell::to_string) != Some(cell) {
                    return Err(format!("{collective} of {bytes} B was not asked for at this place"));
                }
                times.push(ns);
            }
        }
    }
    match library {
        Some(library) if times.len() == cells.len() => Ok((library, times)),
        _ => Err(format!("it has made {} of {} calls", times.len(), cells.len())),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Library { library: String },
    Measured { collective: String, bytes: usize, ns: f64 },
}

/// Launchers took up to 3 s for 16 ranks on two busy cores; the rest is for slower machines.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// A cell of the slowest MPI: 16 ranks on two cores that never give way had barriers of 64 ms, of which a cell takes twenty.
const SLOWEST: Duration = Duration::from_millis(4_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn cells() -> Vec<Cell> {
        ["barrier:0", "scan:8"].iter().map(|cell| cell.parse().unwrap()).collect()
    }

    #[test]
    fn arguments_say_how_long_and_what() {
        assert_eq!(arguments(5, &cells()), ["38", "5", "barrier:0", "scan:8"]);
    }

    #[test]
    fn its_lines_are_times() {
        let output = "{\"library\":\"Some MPI \"}\nwhat\n{\"collective\":\"barrier\",\"bytes\":0,\"ns\":12.5}\n";
        let more = "{\"collective\":\"scan\",\"bytes\":8,\"ns\":7}\n";
        assert_eq!(read(&(output.to_owned() + more), &cells()), Ok(("Some MPI".to_owned(), vec![12.5, 7.0])));
        assert_eq!(read(output, &cells()).unwrap_err(), "it has made 1 of 2 calls");
        let wrong = output.replace("barrier", "gather");
        assert!(read(&wrong, &cells()).unwrap_err().contains("gather of 0 B"));
    }
}
