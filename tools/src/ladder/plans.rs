//! The command line as a plan of measurements.

use sidelane_bench::ladder::{NicKind, Plan, Regime, Rung};
use sidelane_bench::pattern::Kind;

use super::args::{LadderArgs, PatternArg, distinct};
use super::place::Place;

/// What `args` asks for on these drivers, which share hosts, as far as `place` has it.
pub fn plan(args: &LadderArgs, nics: &[NicKind], place: &Place) -> Plan {
    let mut plan = Plan::new(nics);
    if args.quick {
        plan = plan.quick();
    }
    if matches!(place, Place::Peer(_)) {
        plan.regimes = vec![(Regime::Wire, ALL_KINDS.to_vec())];
    }
    let has = |regime| nics.iter().all(|nic| place.has(*nic, regime));
    plan.regimes.retain(|(regime, _)| has(*regime));
    if args.real_frames && has(Regime::RealFrames) {
        plan.regimes = vec![(Regime::RealFrames, ALL_KINDS.to_vec())];
    }
    if !args.patterns.is_empty() {
        let asked: Vec<Kind> = args.patterns.iter().map(|pattern| pattern_kind(*pattern)).collect();
        for (_, kinds) in &mut plan.regimes {
            kinds.retain(|kind| asked.contains(kind));
        }
        plan.regimes.retain(|(_, kinds)| !kinds.is_empty());
    }
    if !args.sizes.is_empty() {
        plan.sizes = distinct(&args.sizes);
        if args.patterns == [PatternArg::Bandwidth] {
            plan.bandwidth_size = None;
        }
    }
    if !args.rungs.is_empty() {
        plan.rungs = Rung::ALL.into_iter().filter(|rung| args.rungs.contains(rung)).collect();
    }
    plan.depth = args.depth.map(usize::from);
    if let Some(rounds) = args.rounds {
        plan.rounds = rounds as usize;
    }
    plan
}

fn pattern_kind(pattern: PatternArg) -> Kind {
    match pattern {
        PatternArg::PingPong => Kind::PingPong,
        PatternArg::Flood => Kind::Flood,
        PatternArg::Bandwidth => Kind::Bandwidth,
    }
}

const ALL_KINDS: [Kind; 3] = [Kind::PingPong, Kind::Flood, Kind::Bandwidth];

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn plan_of(arguments: &[&str]) -> Plan {
        let arguments = [&["sidelane"][..], arguments].concat();
        plan(&Cli::parse_from(arguments).ladder, &[NicKind::Uring], &Place::Lab)
    }

    #[test]
    fn without_arguments_the_plan_is_the_bench_s_own() {
        let (ours, own) = (plan_of(&[]), Plan::new(&[NicKind::Uring]));
        assert_eq!((ours.cells(), ours.rounds), (own.cells(), own.rounds));
    }

    #[test]
    fn the_help_knows_what_is_measured_without_arguments() {
        let (usual, quick) = (plan_of(&[]), plan_of(&["--quick"]));
        let help = Cli::command().render_long_help().to_string().replace("\n          ", " ");
        let rounds = format!("[default: {}, with --quick {}]", usual.rounds, quick.rounds);
        let size = usual.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let unusual: Vec<Rung> = Rung::ALL.into_iter().filter(|rung| !usual.rungs.contains(rung)).collect();
        let named: Vec<String> = unusual.iter().map(Rung::to_string).collect();
        assert_eq!(named.len(), 4, "as many are left out as the help says");
        let rungs = format!("{} (behind a wrapper", named.join(", "));
        assert!(help.contains("one in a thousand) [default: all but the last four]"), "{help}");
        for said in [rounds, format!("names it alone [default: {size}]"), rungs] {
            assert!(help.contains(&said), "`{said}` is missing in:\n{help}");
        }
    }

    #[test]
    fn real_frames_leave_no_other_regime() {
        let plan = plan_of(&["--real-frames", "--patterns", "flood"]);
        assert_eq!(plan.regimes, [(Regime::RealFrames, vec![Kind::Flood])]);
    }

    #[test]
    fn sizes_are_those_of_the_bandwidth_where_nothing_else_is_measured() {
        let sizes = |patterns| {
            let plan = plan_of(&["--patterns", patterns, "--sizes", "4K,64K", "--rungs", "raw"]);
            plan.cells().iter().filter(|cell| cell.kind == Kind::Bandwidth).map(|cell| cell.size).collect::<Vec<_>>()
        };
        assert_eq!(sizes("bandwidth")[..2], [4 << 10, 64 << 10]);
        assert!(sizes("flood,bandwidth").iter().all(|size| *size == 1 << 20));
    }

    #[test]
    fn a_size_that_is_asked_for_twice_is_measured_once() {
        assert_eq!(plan_of(&["--sizes", "64,8,64,1K,1024"]).sizes, [64, 8, 1024]);
    }

    #[test]
    fn without_a_wire_there_are_no_real_frames() {
        let args = Cli::parse_from(["sidelane", "--real-frames"]).ladder;
        for (nic, place) in [(NicKind::Shm, Place::Lab), (NicKind::Udp, Place::Loopback)] {
            let plan = plan(&args, &[nic], &place);
            assert!(plan.regimes.iter().all(|(regime, _)| *regime == Regime::DefaultOffloads));
            assert!(!plan.cells().is_empty());
        }
    }

    #[test]
    fn a_pattern_that_is_not_asked_for_is_not_measured() {
        let plan = plan_of(&["--patterns", "ping-pong", "--sizes", "8,64", "--rounds", "2", "--rungs", "raw"]);
        assert!(plan.cells().iter().all(|cell| (cell.kind, cell.rung) == (Kind::PingPong, Rung::Raw)));
        assert_eq!((plan.sizes, plan.rounds), (vec![8, 64], 2));
    }
}
