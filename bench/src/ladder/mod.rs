//! The overhead ladder: every rung measured in turn, round after round, by two sides.

mod names;
mod pair;
mod plan;

pub use names::NoSuch;
use pair::twice_telling;
pub use pair::{End, Host, Pair, PairError, Reach, twice};
pub(crate) use plan::{CONGESTION_TRIED, GRACE};
pub use plan::{Cell, NicKind, Plan, Regime, Rung, Variant};

use std::fmt;
use std::io;

use crate::contender::Contender;
use crate::pace::Pace;
use crate::pattern::{Kind, Outcome, Pattern};
use crate::report::Report;
use crate::side::{Layer, Path, Sealing};

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Measurements done.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The round, the first of which, 0, only warms.
    pub round: usize,
    /// What comes next.
    pub next: Next<'a>,
}

/// What is about to be measured.
#[derive(Clone, Copy, Debug)]
pub enum Next<'a> {
    /// A cell of the plan.
    Cell(&'a Cell),
    /// All patterns of a regime, by the contender of this name.
    Contender(&'a str),
}

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cell(cell) => write!(f, "{} {} {} B", cell.rung, cell.kind, cell.size),
            Self::Contender(name) => f.write_str(name),
        }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LadderError {
    /// The hosts of a regime could not be had.
    #[error("no hosts for the regime {0}: {1}")]
    Hosts(Regime, #[source] io::Error),
    /// Their sides did not start.
    #[error(transparent)]
    Sides(PairError),
    /// A measurement failed twice, or killed a side.
    #[error("rung {rung}, {kind} of {size} B, {regime}: {error}")]
    Rung {
        /// Which rung.
        rung: Rung,
        /// Which pattern.
        kind: Kind,
        /// Which message size.
        size: usize,
        /// Which regime.
        regime: Regime,
        /// What went wrong, and on which side.
        error: PairError,
    },
    /// A contender has no figures.
    #[error("{name}, {regime}: {reason}")]
    Contender {
        /// Which one.
        name: String,
        /// On which hosts.
        regime: Regime,
        /// What it says, or what its launcher says.
        reason: String,
    },
    /// The caller called it off.
    #[error("interrupted")]
    Interrupted,
}

/// What every round saw of one cell.
#[derive(Debug)]
pub struct Measured {
    /// What was measured.
    pub cell: Cell,
    /// One outcome a round, of the side that measures.
    pub rounds: Vec<Outcome>,
    /// Failures after which a round was measured again.
    pub again: Vec<String>,
}

/// What every round saw of one pattern, played by a contender.
#[derive(Debug)]
pub struct Contended {
    /// The contender.
    pub name: String,
    /// Where it played.
    pub regime: Regime,
    /// What it played.
    pub kind: Kind,
    /// Bytes of a message.
    pub size: usize,
    /// One outcome a round.
    pub rounds: Vec<Outcome>,
}

/// Runs `plan`. `hosts` gives the two places for a regime, A first, and is asked once for each. `progress` is told before every
/// measurement and may call the run off by returning false.
pub fn run(
    plan: &Plan,
    hosts: impl FnMut(Regime) -> io::Result<(Host, Host)>,
    progress: impl FnMut(Progress<'_>) -> bool,
) -> Result<Report, LadderError> {
    run_beside(plan, hosts, &mut [], progress)
}

/// Runs `plan`, and after each round that counts every contender once in each regime, while both sides of the rungs sleep. A
/// contender warms itself: each launch of it is another process. Beside contenders the rung `mpi` sends as they do, in windows.
pub fn run_beside(
    plan: &Plan,
    mut hosts: impl FnMut(Regime) -> io::Result<(Host, Host)>,
    contenders: &mut [&mut dyn Contender],
    mut progress: impl FnMut(Progress<'_>) -> bool,
) -> Result<Report, LadderError> {
    let mut pairs = Vec::new();
    for (regime, _) in &plan.regimes {
        let (a, b) = hosts(*regime).map_err(|error| LadderError::Hosts(*regime, error))?;
        pairs.push((*regime, Pair::spawn(a, b).map_err(LadderError::Sides)?));
    }
    let mut measured: Vec<Measured> = plan.cells().into_iter().map(Measured::new).collect();
    let mut contended = Vec::new();
    // The first round only warms: memory that was never touched and code that was never run are ten times as slow.
    let total = measured.len() * (plan.rounds + 1) + contenders.len() * plan.regimes.len() * plan.rounds;
    let mut done = 0;
    for round in 0..=plan.rounds {
        let mut refused = Vec::new();
        for (index, Measured { cell, rounds, again }) in measured.iter_mut().enumerate() {
            if !progress(Progress { done, total, round, next: Next::Cell(cell) }) {
                return Err(LadderError::Interrupted);
            }
            done += 1;
            let (_, pair) = pairs.iter_mut().find(|(regime, _)| *regime == cell.regime).expect("one pair a regime");
            let note = |failure: PairError| again.extend((round > 0).then(|| failure.to_string()));
            match measure(plan, pair, cell, (round == 0, !contenders.is_empty()), note) {
                Ok(outcome) if round > 0 => rounds.push(outcome),
                Ok(_) => {}
                Err(error) if round == 0 && refuses_congestion(cell, &error) => {
                    tracing::warn!("{} without {}: {error}", cell.rung, cell.variant);
                    refused.push(index);
                }
                Err(error) => {
                    let Cell { rung, kind, size, regime, .. } = *cell;
                    return Err(LadderError::Rung { rung, kind, size, regime, error });
                }
            }
        }
        for index in refused.into_iter().rev() {
            leave_out(&mut measured, index);
        }
        if round == 0 {
            continue;
        }
        for contender in contenders.iter_mut() {
            for (regime, _) in &plan.regimes {
                if !progress(Progress { done, total, round, next: Next::Contender(contender.name()) }) {
                    return Err(LadderError::Interrupted);
                }
                done += 1;
                contend(plan, *contender, *regime, &mut contended)?;
            }
        }
    }
    let versions = contenders.iter().map(|one| (one.name().to_owned(), one.version().unwrap_or_default().to_owned()));
    let versions = versions.collect();
    let pace = Pace::of(pairs.iter().flat_map(|(_, pair)| pair.work_ns()));
    Ok(Report { pace, ..Report::new(plan, &measured, &contended, versions) })
}

/// Whether both sides can open a driver, before anything else is measured that would be in vain.
pub fn rehearse(nic: NicKind, regime: Regime, pair: &mut Pair) -> Result<(), LadderError> {
    let pattern = Plan::new(&[nic]).pattern(Kind::PingPong, 8);
    let path =
        |end: &End| Path::Nic { layer: Layer::Raw, nic: end.nic(nic), real_frames: regime == Regime::RealFrames };
    twice(|| pair.rehearse(&pattern, path)).map_err(LadderError::Sides)
}

impl Measured {
    /// Nothing yet.
    pub fn new(cell: Cell) -> Self {
        Self { cell, rounds: Vec::new(), again: Vec::new() }
    }
}

/// One launch of a contender, which plays all patterns of a regime.
fn contend(
    plan: &Plan,
    contender: &mut dyn Contender,
    regime: Regime,
    contended: &mut Vec<Contended>,
) -> Result<(), LadderError> {
    let patterns = plan.patterns(regime);
    let name = contender.name().to_owned();
    let failed = |reason| LadderError::Contender { name: name.clone(), regime, reason };
    let outcomes = contender.play(regime, &patterns).map_err(failed)?;
    for (Pattern { kind, size, .. }, outcome) in patterns.into_iter().zip(outcomes) {
        let same = |one: &&mut Contended| (&one.name, one.regime, one.kind, one.size) == (&name, regime, kind, size);
        match contended.iter_mut().find(same) {
            Some(one) => one.rounds.push(outcome),
            None => contended.push(Contended { name: name.clone(), regime, kind, size, rounds: vec![outcome] }),
        }
    }
    Ok(())
}

/// A congestion control that the system has and this user may not use (`net.ipv4.tcp_allowed_congestion_control`).
fn refuses_congestion(cell: &Cell, error: &PairError) -> bool {
    matches!(cell.variant, Variant::Congestion(_)) && error.is_report() && error.to_string().contains("TCP_CONGESTION")
}

/// Leaves a congestion control out. The last one of its rung gives way to the system's own.
fn leave_out(measured: &mut Vec<Measured>, index: usize) {
    let of = |cell: &Cell| (cell.regime, cell.rung, cell.kind, cell.size);
    let this = of(&measured[index].cell);
    if measured.iter().filter(|one| of(&one.cell) == this).count() > 1 {
        measured.remove(index);
    } else {
        measured[index].cell.variant = Variant::Plain;
    }
}

/// One measurement: one that only warms, or `beside` contenders. `failed` is told of a failure that was tried again.
fn measure(
    plan: &Plan,
    pair: &mut Pair,
    cell: &Cell,
    (warming, beside): (bool, bool),
    failed: impl FnOnce(PairError),
) -> Result<Outcome, PairError> {
    let mut pattern = plan.pattern(cell.kind, cell.size);
    if warming {
        pattern.measure_ns /= 4;
    }
    let layer = || layer(cell.rung, beside && cell.kind != Kind::PingPong);
    let once = || {
        if cell.nic == Some(NicKind::Mem) {
            return pair.measure_alone(&pattern, Path::Fabric { layer: layer() });
        }
        let (a, b) = pair.measure(&pattern, |end| path(cell, layer, end))?;
        if a.messages != b.messages && cell.kind != Kind::PingPong {
            let lost = format!("{} of {} messages arrived", b.messages, a.messages);
            return Err(PairError::Failed(crate::pattern::Role::Responder, lost));
        }
        Ok(if pattern.is_answered() { a } else { b })
    };
    twice_telling(once, failed)
        .map(|outcome| if cell.rung.takes_whole_round_trips() { outcome.whole() } else { outcome })
}

fn path(cell: &Cell, layer: impl Fn() -> Layer, end: &End) -> Path {
    let ip = end.ip;
    let congestion = match &cell.variant {
        Variant::Congestion(name) => Some(name.clone()),
        Variant::Plain | Variant::Gathered => None,
    };
    let no_delay = cell.variant != Variant::Gathered;
    match cell.rung {
        Rung::TcpBlock => Path::Tcp { ip, blocking: true, congestion, no_delay },
        Rung::TcpPoll => Path::Tcp { ip, blocking: false, congestion, no_delay },
        Rung::UdpPoll => Path::Udp { ip },
        Rung::SmoltcpTcp
        | Rung::Raw
        | Rung::Proto
        | Rung::ProtoAuthenticated
        | Rung::ProtoEncrypted
        | Rung::ProtoLossless
        | Rung::ProtoLossy
        | Rung::Am
        | Rung::Mpi
        | Rung::Put
        | Rung::Get => {
            let nic = cell.nic.map_or_else(String::new, |kind| end.nic(kind));
            Path::Nic { layer: layer(), nic, real_frames: cell.regime == Regime::RealFrames }
        }
    }
}

/// `windows`: messages go one way, beside contenders.
fn layer(rung: Rung, windows: bool) -> Layer {
    match rung {
        Rung::SmoltcpTcp => Layer::SmoltcpTcp,
        Rung::Raw => Layer::Raw,
        Rung::Proto => Layer::Proto(Sealing::None),
        Rung::ProtoAuthenticated => Layer::Proto(Sealing::Authenticated),
        Rung::ProtoEncrypted => Layer::Proto(Sealing::Encrypted),
        Rung::ProtoLossless => Layer::ProtoLosing { of_a_million: 0 },
        Rung::ProtoLossy => Layer::ProtoLosing { of_a_million: 1_000 },
        Rung::Am => Layer::Am,
        Rung::Mpi if windows => Layer::MpiWindows,
        Rung::Mpi => Layer::Mpi,
        Rung::Put => Layer::Put,
        Rung::Get => Layer::Get,
        Rung::TcpBlock | Rung::TcpPoll | Rung::UdpPoll => unreachable!("the kernel's rungs have no layer of ours"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Role;

    #[test]
    fn a_congestion_control_that_is_refused_is_left_out_and_the_last_one_gives_way_to_the_system_s_own() {
        let cell = |name: &str| Cell {
            regime: Regime::DefaultOffloads,
            rung: Rung::TcpPoll,
            nic: None,
            kind: Kind::Bandwidth,
            size: 8,
            variant: Variant::Congestion(name.to_owned()),
        };
        let failed = |reason: &str| PairError::Failed(Role::Initiator, reason.to_owned());
        assert!(refuses_congestion(&cell("bbr"), &failed("TCP_CONGESTION: Operation not permitted")));
        assert!(!refuses_congestion(&cell("bbr"), &failed("connect: Connection refused")));
        let mut measured: Vec<_> = ["bbr", "reno"].map(|name| Measured::new(cell(name))).into();
        leave_out(&mut measured, 0);
        assert_eq!(measured[0].cell, cell("reno"));
        leave_out(&mut measured, 0);
        assert_eq!(measured[0].cell.variant, Variant::Plain);
    }
}
