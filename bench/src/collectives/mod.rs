//! Every collective call at several numbers of ranks on one host and of several lengths: ours and other MPIs', in turns.

pub mod rank;
mod table;

pub use table::{Entry, Report, Taken, of_ranks};

use std::fmt;
use std::str::FromStr;

use crate::contender::Caller;
use crate::pace;

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum Collective {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    NeighborAllgather,
    NeighborAlltoall,
    Ibarrier,
    Ibroadcast,
    Iallreduce,
}

impl Collective {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 22] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatterBlock,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
        Self::Gather,
        Self::Gatherv,
        Self::Scatter,
        Self::Scatterv,
        Self::Allgather,
        Self::Allgatherv,
        Self::Alltoall,
        Self::Alltoallv,
        Self::Alltoallw,
        Self::NeighborAllgather,
        Self::NeighborAlltoall,
        Self::Ibarrier,
        Self::Ibroadcast,
        Self::Iallreduce,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatterBlock => "reduce-scatter-block",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
            Self::Gather => "gather",
            Self::Gatherv => "gatherv",
            Self::Scatter => "scatter",
            Self::Scatterv => "scatterv",
            Self::Allgather => "allgather",
            Self::Allgatherv => "allgatherv",
            Self::Alltoall => "alltoall",
            Self::Alltoallv => "alltoallv",
            Self::Alltoallw => "alltoallw",
            Self::NeighborAllgather => "neighbor-allgather",
            Self::NeighborAlltoall => "neighbor-alltoall",
            Self::Ibarrier => "ibarrier",
            Self::Ibroadcast => "ibroadcast",
            Self::Iallreduce => "iallreduce",
        }
    }

    fn moves_nothing(self) -> bool {
        matches!(self, Self::Barrier | Self::Ibarrier)
    }

    fn cuts(self) -> bool {
        matches!(self, Self::ReduceScatterBlock | Self::ReduceScatter)
    }
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| {
            let all: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!("no collective is called `{text}`; there are {}", all.join(", "))
        })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One call, as programs are told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What is called.
    pub collective: Collective,
    /// The bytes that the call's count stands for: of a block where every rank has one, of the whole array of a reduction
    /// or a broadcast.
    pub bytes: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.collective, self.bytes)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (collective, bytes) = text.split_once(':').ok_or_else(|| format!("`{text}` is no COLLECTIVE:BYTES"))?;
        let bytes = bytes.parse().map_err(|_| format!("`{bytes}` is no number of bytes"))?;
        Ok(Self { collective: collective.parse()?, bytes })
    }
}

/// What shall be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which calls.
    pub collectives: Vec<Collective>,
    /// Numbers of ranks, one job each.
    pub ranks: Vec<usize>,
    /// Bytes of a call.
    pub sizes: Vec<usize>,
    /// How often everybody has its turn.
    pub rounds: usize,
    /// Time in which each call is made again and again. Calls take longer where a barrier does.
    pub measure_ns: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            collectives: Collective::ALL.to_vec(),
            ranks: vec![2, 4, 8, 16],
            sizes: vec![8, 1 << 10, 16 << 10, 128 << 10, 1 << 20],
            rounds: 5,
            measure_ns: 5_000_000,
        }
    }
}

impl Plan {
    /// What one job of `ranks` does.
    pub fn cells(&self, ranks: usize) -> Vec<Cell> {
        let of = |collective: Collective| {
            let sizes = if collective.moves_nothing() { &[0][..] } else { &self.sizes };
            let enough = |bytes: &usize| !collective.cuts() || *bytes >= ranks * size_of::<i32>();
            sizes.iter().copied().filter(enough).map(move |bytes| Cell { collective, bytes }).collect::<Vec<_>>()
        };
        self.collectives.iter().copied().flat_map(of).collect()
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Ranks of the job that comes next.
    pub ranks: usize,
    /// From 0 on.
    pub round: usize,
    /// Who plays it.
    pub caller: &'a str,
    /// Jobs done and jobs in all.
    pub done: (usize, usize),
}

/// A caller has no figures.
#[derive(Debug, thiserror::Error)]
#[error("{name}, {ranks} ranks: {reason}")]
pub struct CallerError {
    /// Which one.
    pub name: String,
    /// How many ranks it had.
    pub ranks: usize,
    /// What it says, or what its launcher says.
    pub reason: String,
}

/// `progress` called it off.
#[derive(Debug)]
pub struct Interrupted;

/// Runs `plan` with all `callers`, ours the first, in turns. `progress` is told before every job and may call the run off by
/// returning false. Who fails has no more jobs of so many ranks, and what was measured is kept: beside the report all failures.
pub fn run(
    plan: &Plan,
    callers: &mut [&mut dyn Caller],
    mut progress: impl FnMut(Progress<'_>) -> bool,
) -> Result<(Report, Vec<CallerError>), Interrupted> {
    let mut report = Report::new(plan, callers.iter().map(|caller| caller.name().to_owned()).collect());
    let total = plan.ranks.len() * plan.rounds * callers.len();
    let (mut done, mut failures) = (0, Vec::new());
    let mut work_ns: Vec<Vec<u64>> = Vec::new();
    for &ranks in &plan.ranks {
        let cells = plan.cells(ranks);
        let mut failed = vec![false; callers.len()];
        for round in 0..plan.rounds {
            for (who, caller) in callers.iter_mut().enumerate() {
                done += 1;
                if failed[who] {
                    continue;
                }
                if !progress(Progress { ranks, round, caller: caller.name(), done: (done - 1, total) }) {
                    return Err(Interrupted);
                }
                let played = caller.play(ranks, plan.measure_ns, &cells);
                let cores = pace::work_ns_of_cores();
                work_ns.resize(work_ns.len().max(cores.len()), Vec::new());
                work_ns.iter_mut().zip(cores).for_each(|(times, now)| times.push(now));
                match played {
                    Ok(times) => report.add(ranks, who, &cells, &times),
                    Err(reason) => {
                        failed[who] = true;
                        failures.push(CallerError { name: caller.name().to_owned(), ranks, reason });
                    }
                }
            }
        }
    }
    let versions = callers.iter().map(|caller| caller.version().unwrap_or_default().to_owned()).collect();
    report.finish(versions, &work_ns);
    Ok((report, failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_read_back_as_they_are_written() {
        for cell in Plan::default().cells(2) {
            assert_eq!(cell.to_string().parse(), Ok(cell));
        }
        assert!("barier:0".parse::<Cell>().unwrap_err().contains("there are barrier, broadcast"));
        assert!("barrier".parse::<Cell>().is_err() && "barrier:x".parse::<Cell>().is_err());
    }

    #[test]
    fn an_array_is_cut_only_where_everybody_gets_an_element() {
        let smallest = |ranks| {
            let cells = Plan::default().cells(ranks);
            cells.iter().filter(|cell| cell.collective == Collective::ReduceScatter).map(|cell| cell.bytes).min()
        };
        assert_eq!((smallest(2), smallest(4)), (Some(8), Some(1024)));
    }

    /// Takes a nanosecond more in each job, and has no figures of jobs of as many ranks from the second on.
    struct Steady(&'static str, f64, Option<usize>);

    impl Caller for Steady {
        fn name(&self) -> &str {
            self.0
        }

        fn version(&self) -> Option<&str> {
            None
        }

        fn play(&mut self, ranks: usize, _: u64, cells: &[Cell]) -> Result<Vec<f64>, String> {
            self.1 += 1.0;
            if self.2 == Some(ranks) { Err("no end".to_owned()) } else { Ok(vec![self.1; cells.len()]) }
        }
    }

    #[test]
    fn everybody_has_as_many_turns() {
        let plan = Plan { ranks: vec![2], sizes: vec![8], rounds: 3, ..Plan::default() };
        let (mut ours, mut theirs) = (Steady("a", 0.0, None), Steady("b", 10.0, None));
        let mut seen = Vec::new();
        let report = run(&plan, &mut [&mut ours, &mut theirs], |progress| {
            seen.push((progress.round, progress.caller.to_owned(), progress.done.0));
            true
        });
        let report = report.unwrap().0;
        assert!(report.pace.is_some());
        let entry = &report.entries[0];
        assert_eq!(entry.taken[1].rounds_ns, [11.0, 12.0, 13.0]);
        assert_eq!(entry.taken[0].median_ns, Some(2.0));
        assert_eq!(seen[..3], [(0, "a".to_owned(), 0), (0, "b".to_owned(), 1), (1, "a".to_owned(), 2)]);
        assert!(matches!(run(&plan, &mut [&mut ours], |_| false), Err(Interrupted)));
    }

    #[test]
    fn who_fails_leaves_the_others_their_figures() {
        let plan = Plan { ranks: vec![2, 4, 8], sizes: vec![8], rounds: 3, ..Plan::default() };
        let mut ours = Steady("ours", 0.0, None);
        let (mut theirs, mut others) = (Steady("theirs", 10.0, Some(4)), Steady("others", 100.0, None));
        let (report, failures) = run(&plan, &mut [&mut ours, &mut theirs, &mut others], |_| true).unwrap();
        let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["theirs, 4 ranks: no end"], "and is not asked for it again");
        let of = |ranks: usize| report.entries.iter().find(|entry| entry.ranks == ranks).unwrap();
        let rounds = |ranks| of(ranks).taken.iter().map(|taken| taken.rounds_ns.len()).collect::<Vec<_>>();
        assert_eq!([2, 4, 8].map(rounds), [[3, 3, 3], [3, 0, 3], [3, 3, 3]]);
        assert_eq!(of(4).taken[1].median_ns, None);
        // To the one that is left: 104 to 4, 105 to 5, 106 to 6.
        assert_eq!(of(4).ratio, Some(21.0));

        let mut ours = Steady("ours", 0.0, Some(2));
        let (report, failures) = run(&plan, &mut [&mut ours, &mut others], |_| true).unwrap();
        assert_eq!((failures.len(), report.entries[0].ratio), (1, None));
        assert!(report.to_string().contains(" o "), "{report}");
    }
}
